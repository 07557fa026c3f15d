"""The variables become settings; each mistake is one error with file, line and name."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.profiler.docker_args import DockerArgs
from sandbox.profiler.images import (
    ImagePlan,
    loopback_registries,
    name_variable,
    show_prerun,
)
from sandbox.profiler.settings import Settings, read_settings
from sandbox.records.enclosure import Network
from sandbox.records.light import replace
from sandbox.records.security import Device, Gpus, Security, Sharing
from sandbox.spec import RateKind
from sandbox.units import UNLIMITED

GOOD = {
    "DIR": "bench",
    "SCRIPT": "test_perf.py",
    "COMMAND": "sh",
    "SAMPLETIME": "1",
    "OUTPUTFILE": "out.txt",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script, to be in."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/test_perf.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str = "", *, source: bool = False, **changes: str | None) -> Settings:
    values = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    Path("env.template").write_text(
        "".join(f"{name}={value}\n" for name, value in values.items()) + text
    )
    return read_settings(Path("env.template"), source=source, environ=os.environ)


def test_the_smallest_file_is_enough(place: Path) -> None:
    settings = read()

    assert settings.directory == place / "bench"
    assert settings.argv(None) == ("sh", "test_perf.py")
    assert settings.argv("net.onnx") == ("sh", "test_perf.py", "net.onnx")
    assert settings.step_ns == 10**9
    assert settings.limits.cpus is None
    assert settings.notes == ()


def test_the_limits_are_read_as_docker_reads_them(place: Path) -> None:
    settings = read('DOCKCPUS="1.0"\nDOCKMEMORY="0.5g"\n')

    assert settings.limits.cpus == 1.0
    assert settings.limits.memory_bytes == 512 << 20


def test_both_names_of_dockers_arguments_hold(place: Path) -> None:
    settings = read('DOCK_ARGS="--pids-limit=64 -e A=1"\nDOCKER_ARGS="-m 64m --rm -eB=2"\n')

    assert (settings.limits.pids, settings.limits.memory_bytes) == (64, 64 << 20)
    assert settings.environment == {"A": "1", "B": "2"}


def test_a_directory_may_be_absolute(place: Path) -> None:
    assert read(DIR=str(place / "bench")).directory == place / "bench"


def test_a_directory_is_looked_for_beside_the_file_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read()
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")

    settings = read_settings(place / "env.template", source=False, environ=os.environ)

    assert settings.directory == place / "bench"


@pytest.mark.parametrize("name", list(GOOD))
def test_a_variable_that_is_missing_or_empty_is_named(place: Path, name: str) -> None:
    with pytest.raises(SpecError, match=rf"env\.template:\d: {name} is missing") as missing:
        read(**{name: None})
    with pytest.raises(SpecError, match=rf"env\.template:\d: {name} is empty") as empty:
        read(**{name: '""'})

    assert missing.value.hint
    assert missing.value.hint == empty.value.hint


def test_a_missing_variable_that_is_there_with_a_mistake_is_pointed_to(place: Path) -> None:
    with pytest.raises(SpecError, match="SAMPLETIME is missing") as caught:
        read("SAMPLETIM=1\n", SAMPLETIME=None)

    assert re.fullmatch(
        r"line \d has SAMPLETIM: did you mean SAMPLETIME\?", caught.value.hint or ""
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DIR", "nowhere", "there is no directory nowhere"),
        ("SCRIPT", "none.py", "there is no none.py"),
        ("COMMAND", "no-such-program", "there is no program no-such-program"),
        ("COMMAND", '"sh \'x"', "no closing quotation"),
        ("SAMPLETIME", "soon", "is not a duration"),
        ("SAMPLETIME", "0.0001", "the shortest sample time is 0.001 s"),
        ("OUTPUTFILE", "nowhere/out.txt", "cannot be a file"),
        ("DOCKCPUS", "-1", "a limit of -1 CPUs"),
        ("DOCKCPUS", "many", "is not a number of CPUs"),
        ("DOCKCPUS", "4096", "4096 CPUs were asked for, but this host has"),
        ("DOCKMEMORY", "2x", "is not a size"),
        ("DOCKMEMORY", "1m", "too small"),
        ("DOCK_ARGS", "--gpus=all", "the flag --gpus has no meaning"),
        ("DOCKER_ARGS", "--privileged", "the flag --privileged has no meaning"),
        ("DOCK_ARGS", '"-v /data:/mnist_data"', "/mnist_data cannot be another directory"),
        ("DOCK_ARGS", "--pids-limit=x", "is not a number"),
        ("DOCK_ARGS", "-m", "has no value"),
        ("APTREQUIREMENTS", "wget", "cannot be installed for one run"),
    ],
)
def test_a_wrong_value_is_one_error_with_file_line_and_name(
    place: Path, name: str, value: str, words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read(**{name: value})

    assert f": {name}: " in str(caught.value)
    assert str(caught.value).startswith("env.template:")
    assert words in str(caught.value)


def test_an_unknown_variable_is_a_note_with_the_nearest_name(place: Path) -> None:
    settings = read("DOCKMEMRY=2g\nlower=1\n")

    assert settings.notes == (
        "env.template:6: DOCKMEMRY is not a known variable: did you mean DOCKMEMORY?",
    )


def test_a_dockerfile_that_is_not_there_is_only_a_name(place: Path) -> None:
    assert read("DOCFILE=Dockerfile\n").notes == ()


def test_a_shell_reads_the_file_when_it_is_allowed_to(place: Path) -> None:
    with pytest.raises(SpecError, match="needs a shell"):
        read("DOCKMEMORY=$(echo 64m)\n")

    settings = read("DOCKMEMORY=$(echo 64m)\nTYPO=1\n", source=True)

    assert settings.limits.memory_bytes == 64 << 20
    assert settings.notes == ("env.template:7: TYPO is not a known variable",)
    with pytest.raises(SpecError, match=r"cannot read env\.template"):
        read("exit 3\n", source=True)


def test_a_file_that_is_not_there_is_named(place: Path) -> None:
    with pytest.raises(SpecError, match="cannot read the environment file none: No such file"):
        read_settings(Path("none"), source=False, environ={})


def test_an_image_is_planned_of_the_variables_and_takes_flags_of_its_own(place: Path) -> None:
    (place / "data").mkdir()
    settings = read(
        f'DOCK_ARGS="-v {place}/data:/mnist_data:ro --network none '
        '--read-only --platform linux/arm64"\n',
        IMAGEREPO="python:3.12",
        APTREQUIREMENTS='"curl vim"',
        PIPREQUIREMENTS='"numpy onnxruntime>=1.20"',
        PRERUN="'echo $HOME | tee note'",
        COMMAND="only-in-the-image",
    )

    root = settings.root
    assert root is not None
    assert (root.image, root.network, root.read_only) == (None, Network.NONE, True)
    assert [(mount.source, mount.target, mount.read_only) for mount in root.mounts] == [
        (str(place / "data"), "/mnist_data", True),
    ]
    assert settings.image is not None
    assert dict(settings.image.places)["PRERUN"] == "env.template:9"
    assert replace(settings.image, places=()) == ImagePlan(
        base="python:3.12",
        apt=("curl", "vim"),
        pip=("numpy", "onnxruntime>=1.20"),
        prerun="echo $HOME | tee note",
        directory=str(place / "bench"),
        platform="linux/arm64",
    )
    assert settings.workdir is None  # the image says where
    # Nothing is left for the host to do.
    assert (settings.packages, settings.prerun) == ((), None)


def test_a_dockerfile_wins_over_the_variables_and_says_so(place: Path) -> None:
    (place / "Mine").write_text("FROM python:3.12\n")

    settings = read(DOCFILE="Mine", IMAGEREPO="debian:12", PRERUN="true", SCRIPT="in-the-image.py")

    assert settings.image is not None
    assert (settings.image.docfile, settings.image.context) == (str(place / "Mine"), str(place))
    assert settings.notes == ("the image is built by Mine, not of IMAGEREPO, PRERUN",)
    assert settings.argv("m.onnx")[-2:] == ("in-the-image.py", "m.onnx")


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("variables:1: FROM a: no such image", "env:2: IMAGEREPO: FROM a: no such image"),
        ("variables:2: RUN apt-get update && x exited 1", "env:3: APTREQUIREMENTS: RUN apt-get"),
        ("variables:4: RUN <<'END' exited 7", "env:4: PRERUN: RUN <<'END' exited 7"),
        ("variables:7: RUN pip install a exited 1", "variables:7: RUN pip install a exited 1"),
        ("no space is left", "no space is left"),
    ],
)
def test_a_step_that_fails_is_named_by_its_variable(message: str, named: str) -> None:
    places = {"IMAGEREPO": "env:2", "APTREQUIREMENTS": "env:3", "PRERUN": "env:4"}

    assert name_variable(message, places).startswith(named)


def test_the_command_of_prerun_is_shown_and_not_its_document() -> None:
    assert show_prerun("#4 [4/5] RUN <<'END'", "make\n") == "#4 [4/5] RUN make"
    assert show_prerun("a: RUN <<'END_' exited 2", r"a \1" + "\nEND") == r"a: RUN a \1 … exited 2"
    assert show_prerun("#2 [2/3] COPY . .", "make") == "#2 [2/3] COPY . ."
    assert show_prerun("RUN <<'END'", None) == "RUN <<'END'"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("127.0.0.1:5000/infer:1",), {"127.0.0.1:5000"}),
        (("localhost/a", "localhost:80/b"), {"localhost", "localhost:80"}),
        (("[::1]:5000/a",), {"[::1]:5000"}),
        (("debian:12", "10.0.0.1:5000/a", "$BASE", "build"), set()),
    ],
)
def test_registries_of_this_machine_may_do_without_tls(
    names: tuple[str, ...], found: set[str]
) -> None:
    assert loopback_registries(names) == found


def test_a_flag_that_means_nothing_in_an_image_is_named(place: Path) -> None:
    with pytest.raises(SpecError, match="DOCK_ARGS: the flag --isolation has no meaning"):
        read("DOCK_ARGS=--isolation=hyperv\n", IMAGEREPO="python:3.12")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-v /no/such:/data", "there is nothing to mount at /no/such"),
        ("-v data", "`data`: the target `data` is not absolute"),
        ("-v /etc:/data --mount type=bind,src=/usr,dst=/data", "two mounts are at /data"),
        ("--device /dev/nosuch", "/dev/nosuch"),
        ("--cpuset-cpus 4095", "CPU 4095 was asked for, but this host has"),
        ("--cpu-quota 1000 --cpu-period 0", "it is above 0"),
    ],
)
def test_what_no_image_can_change_is_refused_before_one_is_built(
    place: Path, words: str, said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read(f'DOCK_ARGS="{words}"\n', IMAGEREPO="python:3.12")

    assert str(caught.value).startswith("env.template:7: DOCK_ARGS: ")
    assert said in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("in_image", [False, True])
def test_the_flags_that_a_hint_names_are_all_taken(*, in_image: bool) -> None:
    with pytest.raises(SpecError) as caught:
        DockerArgs(in_image=in_image).take(["--nosuch"])

    assert caught.value.hint is not None
    named = caught.value.hint.removeprefix("known are ").split(", ")
    assert {"--memory", "--user", "--env", "--cpu-quota", "--device-read-bps"} <= {*named}
    assert ("--privileged" in named) is in_image
    assert named == sorted(named)
    refused = []
    for flag in named:
        try:
            DockerArgs(in_image=in_image).take([flag, "x"])
        except SpecError as error:
            refused.append(str(error))
    assert not [text for text in refused if text.startswith("the flag --")]


def test_flags_of_docker_in_all_their_forms() -> None:
    args = DockerArgs()

    words = ["--cpus=1.5", "-m", "1g", "--memory-swap=-1", "-c512", "--ulimit", "nofile=64", "-it"]
    words += ["--network=host", "-v", "/data/:/data:ro", "--mount", "type=bind,src=/a,dst=/a"]
    words += ["-u", "1:1", "--cpu-quota", "50000", "--stop-timeout", "5"]
    args.take(words)

    assert args.limits["cpus"] == 0.5  # the last word
    assert args.limits["memory_swap_bytes"] == UNLIMITED
    assert args.limits["cpu_shares"] == 512
    assert args.limits["ulimits"][0].soft == 64
    assert args.fields == {"network": "host", "user": "1:1", "stop_timeout_ns": 5 * 10**9}


def test_privileges_and_disks_mean_what_they_do_in_docker() -> None:
    args = DockerArgs(in_image=True)

    words = ["--cap-add", "SYS_PTRACE", "--cap-drop=ALL", "--device=/dev/fuse", "--ipc=host"]
    words += ["--security-opt", "seccomp=unconfined", "--security-opt=no-new-privileges:false"]
    words += ["--pid", "host", "--gpus", "all", "--blkio-weight=300"]
    words += ["--device-read-bps", "/dev/sda:1mb", "--device-write-iops=/dev/sda:10"]
    args.take([*words, "--privileged"])

    assert args.root["security"] == Security(
        privileged=True,
        cap_add=("sys_ptrace",),
        cap_drop=("all",),
        devices=(Device(source="/dev/fuse", target="/dev/fuse"),),
        ipc=Sharing.HOST,
        pid=Sharing.HOST,
        gpus=Gpus(),
        seccomp="unconfined",
        no_new_privileges=False,
    )
    assert args.limits["blkio_weight"] == 300
    assert [(rate.kind, rate.rate) for rate in args.limits["device_rates"]] == [
        (RateKind.READ_BPS, 1 << 20),
        (RateKind.WRITE_IOPS, 10),
    ]


@pytest.mark.parametrize("word", ["-p 80:80 -p81", "--publish=80:80 --publish 81"])
def test_a_script_may_publish_ports(place: Path, word: str) -> None:
    found = read(f'DOCK_ARGS="--network private {word}"\n').fields["ports"]

    assert [port.text for port in found] == ["0.0.0.0:80->80/tcp", "0.0.0.0:?->81/tcp"]


@pytest.mark.parametrize("word", ["--network=none", "--net=none", "--network none"])
def test_a_script_on_the_host_may_have_a_network_of_its_own(place: Path, word: str) -> None:
    assert read(f'DOCK_ARGS="{word}"\n').fields == {"network": "none"}


@given(st.lists(st.text(max_size=12), max_size=5))
def test_any_words_are_taken_or_refused(words: list[str]) -> None:
    for in_image in (False, True):
        with suppress(SpecError):
            DockerArgs(in_image=in_image).take(words)


def test_a_host_that_has_python3_alone_is_told_so(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "python3").write_text("")
    (place / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(place))

    with pytest.raises(SpecError, match="there is no program python") as caught:
        read(COMMAND="python")

    assert caught.value.hint == "COMMAND=python3, which is here"
