"""`sandbox image build`: steps that run, are remembered, fail, are limited, and leave nothing."""

from __future__ import annotations

import http.server
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sandbox.build.images import build_from_variables, build_image
from sandbox.build.options import BuildOptions, Variables

Build = Callable[..., Any]


@pytest.fixture
def run(cli: Callable[..., Any]) -> Callable[..., Any]:
    """`run("cat", "/x")` runs a command in the image that was built."""

    def inside(*command: str) -> Any:
        return cli("run", "-q", "--network", "none", "--image", "built", "--", *command)

    return inside


def test_a_second_build_does_nothing_anew(build: Build, run: Build) -> None:
    text = "FROM box\nENV A=b\nRUN echo $A >/out\nCOPY a.txt /\nWORKDIR /w\nCMD cat /out\n"
    first = build(text)
    second = build(text)

    assert (first.status, second.status) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert second.stderr.endswith("built: 4 steps, 3 from the cache\n")
    assert "[2/4] RUN echo $A >/out" in second.stderr
    assert second.stderr.count("CACHED") == 3
    assert run("cat", "/out", "/a.txt").stdout == "b\na\n"


@pytest.mark.slow
def test_what_changed_is_done_anew_with_all_after_it(build: Build, context: Path) -> None:
    text = "FROM box\nRUN true\nCOPY a.txt /\nRUN cat /a.txt\n"
    assert build(text).stderr.endswith("0 from the cache\n")
    os.utime(context / "a.txt", (1, 1))  # times do not count
    (context / "c.go").write_text("nobody copies it\n")
    assert build(text).stderr.endswith("3 from the cache\n")
    (context / "a.txt").write_text("changed\n")

    again = build(text)

    assert again.stderr.endswith("1 from the cache\n")
    assert "changed" in again.stderr
    assert build(text, "--no-cache").stderr.endswith("0 from the cache\n")


def test_a_failure_says_where_and_is_not_remembered(
    build: Build, sandbox_home: Path, context: Path
) -> None:
    text = "FROM box\n\nRUN echo before; \\\n  echo the reason >&2; exit 3\n"
    for _ in range(2):
        failed = build(text)

        assert failed.status == 1
        assert "error: Dockerfile:3: RUN echo before; " in failed.stderr
        assert "exited 3\n  | before\n  | the reason\n" in failed.stderr
        assert failed.stdout == ""
    assert not any((sandbox_home / "images/work").iterdir())


@pytest.mark.slow
def test_a_step_that_takes_too_much_memory_is_killed(build: Build) -> None:
    failed = build(
        "FROM box\nRUN dd if=/dev/zero of=/dev/shm/x bs=1M count=100; sleep 100\n", "-m", "24m"
    )

    assert failed.status == 1
    assert "Dockerfile:2: RUN dd" in failed.stderr
    assert "exited 137" in failed.stderr
    assert "hint: `--memory` gives the steps more" in failed.stderr


@pytest.mark.slow
def test_a_program_that_is_not_there(build: Build) -> None:
    failed = build("FROM box\nRUN nosuch --flag\n")

    assert "Dockerfile:2: RUN nosuch --flag exited 127" in failed.stderr
    assert "hint: is the program in the image, and on its PATH?" in failed.stderr
    stranger = build("FROM box\nUSER nosuch\nRUN true\n")
    assert "Dockerfile:3: RUN true: there is no user `nosuch` in the root" in stranger.stderr
    plain = build('FROM box\nRUN ["nosuch", "--flag"]\n')
    assert 'Dockerfile:2: RUN ["nosuch", "--flag"]: cannot execute nosuch: ' in plain.stderr


def test_what_is_mounted_is_not_in_the_layer(
    build: Build, run: Build, tmp_path: Path, sandbox_home: Path
) -> None:
    (tmp_path / "secret").write_text("not for anybody\n")
    text = (
        "FROM box AS first\nRUN echo of the stage >/file\nFROM box\n"
        "RUN --mount=type=cache,target=/fetched echo $(date +%N) >>/fetched/x; wc -l </fetched/x\n"
        "RUN --mount=type=cache,target=/fetched wc -l </fetched/x\n"
        "RUN --mount=type=secret,id=key wc -c </run/secrets/key\n"
        'RUN --mount=type=secret,id=key,env=KEY test -n "$KEY"\n'
        "RUN --mount=type=bind,source=dir,target=/shown cat /shown/b.txt; ! touch /shown/new\n"
        "RUN --mount=type=bind,from=first,target=/first,rw cat /first/file; touch /first/new\n"
        "RUN --mount=type=tmpfs,target=/scratch touch /scratch/x\n"
    )
    built = build(text, "--secret", f"id=key,src={tmp_path / 'secret'}")

    assert built.status == 0, built.stderr
    assert "of the stage" in built.stderr
    names = run("ls", "/").stdout.split()
    assert not {"fetched", "shown", "first", "scratch", "run"} & set(names)
    found = subprocess.run(
        ["grep", "-r", "-l", "not for anybody", sandbox_home], capture_output=True, check=False
    )
    assert found.stdout == b""


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (("--cpus", "4096"), 1, "4096 CPUs were asked for"),
        (("--secret", "id=x,src=no/such"), 2, "cannot read the secret `x` from no/such: No such"),
        (("--secret", "id=x,src=/etc"), 2, "cannot read the secret `x` from /etc: Is a directory"),
        (("--secret", "id=x,env=NO_SUCH"), 2, "the secret `x`: NO_SUCH is not set"),
    ],
    ids=["cpus", "no-file", "directory", "no-variable"],
)
def test_what_no_step_could_be_given_is_refused_before_the_first(
    build: Build, flags: tuple[str, ...], status: int, said: str
) -> None:
    failed = build("FROM box\nRUN true\n", *flags)

    assert failed.status == status
    assert failed.stderr.startswith(f"sandbox: error: {said}")
    assert "\nhint: " in failed.stderr
    assert "#1" not in failed.stderr


def test_a_secret_of_a_pipe_is_read_once(build: Build, run: Build) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"from a pipe\n")
    os.close(writing)
    try:
        built = build(
            "FROM box\nRUN --mount=type=secret,id=key wc -c </run/secrets/key >/count\n",
            "--secret",
            f"id=key,src=/proc/{os.getpid()}/fd/{reading}",
        )
    finally:
        os.close(reading)

    assert built.status == 0, built.stderr
    assert run("cat", "/count").stdout == "12\n"


@pytest.mark.slow
def test_heredocs(build: Build, run: Build) -> None:
    built = build(
        "FROM box\nARG WHO=world\n"
        "RUN <<EOF\necho one >/said\necho two >>/said\nEOF\n"
        "RUN cat <<A >/a && cat <<-B >/b\nhello $WHO\nA\n\t\ttabs\nB\n"
        "RUN <<EOF\n#!/bin/cat\nEOF\n"
        "COPY <<one <<'two' /files/\nfor $WHO\none\nnot $WHO\ntwo\n"
    )  # fmt: skip

    assert built.status == 0, built.stderr
    shown = run("cat", "/said", "/a", "/b", "/files/one", "/files/two").stdout
    assert shown == "one\ntwo\nhello world\ntabs\nfor world\nnot $WHO\n"


def test_nothing_leads_out_of_the_image_or_the_context(
    build: Build, run: Build, context: Path
) -> None:
    outside = context.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("of the host\n")
    (context / "up").symlink_to("../outside/file")
    (context / "absolute").symlink_to(outside / "file")
    for source in ("up", "absolute", "../outside/file"):
        failed = build(f"FROM box\nCOPY {source} /there\n")
        assert failed.status == 1
        assert "Dockerfile:2: COPY" in failed.stderr

    built = build(
        f"FROM box AS evil\nRUN ln -s {outside} /out && ln -s /proc/self/root /root-link"
        f" && ln -s {outside}/made /inner\n"
        f"FROM evil\nWORKDIR /inner/deeper\nCOPY a.txt {outside}/copied\nCOPY a.txt /out/through\n"
        "COPY --from=evil /bin/busybox /out/again\n"
    )

    assert built.status == 0, built.stderr
    assert sorted(path.name for path in outside.iterdir()) == ["file"]
    listed = run("find", str(outside), "-type", "f").stdout.split()
    assert {Path(name).name for name in listed} == {"copied", "through", "again"}
    for directory in ("/proc/self/fd/7", "/proc/self/fd/../cwd", "/root-link/x"):
        failed = build(f"FROM box\nWORKDIR {directory}\nRUN cat {outside}/file\n")
        assert failed.status == 1
        assert "of the host" not in failed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "link", "kind"),
    [
        ("../evil", "", tarfile.REGTYPE),
        ("link/evil", "/etc", tarfile.SYMTYPE),
        ("hard", "../../etc/passwd", tarfile.LNKTYPE),
        (".wh.passwd", "", tarfile.REGTYPE),
    ],
)
def test_a_hostile_archive_is_refused(
    build: Build, context: Path, name: str, link: str, kind: bytes
) -> None:
    with tarfile.open(context / "evil.tar", "w") as archive:
        first = tarfile.TarInfo(name.partition("/")[0] if kind == tarfile.SYMTYPE else name)
        first.type, first.linkname = kind, link
        archive.addfile(first)
        if kind == tarfile.SYMTYPE:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())

    failed = build("FROM box\nADD evil.tar /\n")

    assert failed.status == 1
    assert "error: Dockerfile:2: ADD evil.tar /: " in failed.stderr


@pytest.mark.slow
def test_nothing_stays_of_a_build_that_is_killed(
    build: Build, cli: Build, sandbox_home: Path, context: Path
) -> None:
    assert build("FROM box\nRUN true\n").status == 0
    (context / "Dockerfile").write_text("FROM box\nRUN echo 1 >/x; sleep 1000 & sleep 1000\n")
    command = [sys.executable, "-m", "sandbox", "image", "build", str(context)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        deadline = time.monotonic() + 20
        while not list((sandbox_home / "images/work").glob("build-*/writes/upper/x")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)

    time.sleep(0.5)  # the guard is at work; what is left is found by the check after each test
    cleaned = cli("clean")
    assert cleaned.status == 0
    assert "removed, the build was killed" in cleaned.stdout
    assert not any((sandbox_home / "images/work").iterdir())
    assert cli("image", "prune").status == 0


@pytest.mark.slow
def test_two_builds_of_the_same_at_once(
    build: Build, context: Path, sandbox_home: Path, cli: Build
) -> None:
    assert build("FROM box\n").status == 0
    (context / "Dockerfile").write_text("FROM box\nRUN sleep 1; date +%N >/when\nCOPY dir /dir\n")
    command = [sys.executable, "-m", "sandbox", "image", "build", "-q", str(context)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)
    ]
    ended = []
    for process in processes:
        with process:
            ended.append((*process.communicate(timeout=50), process.returncode))

    assert [status for _, _, status in ended] == [0, 0, 0], ended
    assert len({out for out, _, _ in ended}) == 1


@pytest.mark.slow
def test_what_no_image_needs_is_pruned(build: Build, cli: Build, sandbox_home: Path) -> None:
    text = "FROM box AS first\nRUN echo only there >/first\nFROM box\nCOPY --from=first /first /\n"
    assert build(text).status == 0
    layers = sandbox_home / "images/layers"
    assert len(list(layers.iterdir())) == 3

    assert cli("image", "prune").status == 0

    assert len(list(layers.iterdir())) == 2
    assert build(text).status == 0
    assert cli("image", "prune", "--all").status == 0
    assert not any(layers.iterdir())
    assert not any((sandbox_home / "images/builds").iterdir())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server of one file."""
    directory = tmp_path / "served"
    directory.mkdir()
    (directory / "file.txt").write_text("served\n")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, directory=str(directory), **options)

        def log_message(self, *_words: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


@pytest.mark.slow
def test_add_fetches(build: Build, run: Build, server: str) -> None:
    digest = sha256(b"served\n").hexdigest()
    address = f"{server}/file.txt"
    text = f"FROM box\nADD --checksum=sha256:{digest} {address} /got/\nADD {address} /as\n"
    built = build(text)

    assert built.status == 0, built.stderr
    assert run("cat", "/got/file.txt", "/as").stdout == "served\nserved\n"
    assert run("stat", "-c", "%a", "/as").stdout == "600\n"
    assert build(text).stderr.endswith("2 from the cache\n")
    failed = build(f"FROM box\nADD --checksum=sha256:{'0' * 64} {server}/file.txt /x\n")
    assert f"its digest is sha256:{digest}" in failed.stderr
    missing = build(f"FROM box\nADD {server}/nosuch /x\n")
    assert "Dockerfile:2: ADD" in missing.stderr
    assert "answers with status 404" in missing.stderr


def test_variables(build: Build, context: Path, sandbox_home: Path) -> None:
    assert build("FROM box\n").status == 0
    directory = context / "dir"
    (directory / "infer.sh").write_text("cat made; echo infers $1\n")
    told: list[str] = []
    variables = Variables(
        base="box",
        directory=directory,
        pre_run='echo "made of $(cat b.txt)" >made\nENDED=1 # not the end\n',
        command=("sh", "infer.sh"),
    )
    built = build_from_variables(
        variables, BuildOptions(tags=("of-variables",)), home=sandbox_home, tell=told.append
    )

    assert built.references == ("docker.io/library/of-variables:latest",)
    assert (built.steps, built.cached) == (4, 0)
    assert any("WORKDIR /app" in line for line in told)
    again = build_from_variables(variables, home=sandbox_home)
    assert (again.image_id, again.cached) == (built.image_id, 3)
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", "run", "-q", "--image", "of-variables"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "made of b\ninfers\n", done.stderr


@pytest.mark.slow
def test_the_same_bytes_anywhere_with_a_date_of_its_own(
    build: Build, box: Path, context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox.image.load import load
    from sandbox.image.store import ImageStore

    assert (
        build("FROM box\nRUN date >/dev/null; echo x >/x\nCOPY dir /dir\nWORKDIR /w\n").status == 0
    )
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    ids = set()
    for name in ("one", "two"):
        home = tmp_path / name
        home.mkdir(mode=0o700)
        load(ImageStore(home / "images"), box)
        built = build_image(context, home=home)
        ids.add(built.image_id)
        image = ImageStore(home / "images").read(built.image_id)
        assert image.config.created == "2023-11-14T22:13:20Z"

    assert len(ids) == 1


def test_a_plain_user_builds(
    plain_user: Callable[..., Any], plain_home: Path, box: Path, context: Path
) -> None:
    archive = plain_home / "box.tar"
    archive.write_bytes(box.read_bytes())
    directory = plain_home / "context"
    (directory / "dir").mkdir(parents=True)
    (directory / "dir/a.txt").write_text("a\n")
    (directory / "Dockerfile").write_text(
        "FROM box\nRUN mkdir -m 700 /made && echo x >/made/x && rm /bin/true && id -u\n"
        "COPY --chown=alice dir /dir\nRUN rm -r /dir && mkdir /dir && ls /dir\nCMD ls /made /dir\n"
    )
    for path in (archive, directory, *directory.rglob("*")):
        os.chown(path, 65534, 65534)
    assert plain_user("python", "-m", "sandbox", "image", "load", "-q", archive).status == 0
    words = ("python", "-m", "sandbox", "image", "build", "-t", "built", directory)
    built = plain_user(*words)
    if "user namespaces may be closed" in built.stderr:
        pytest.skip("a plain user may make no user namespace here")

    assert built.status == 0, built.stderr
    assert plain_user(*words).stderr.endswith("4 steps, 3 from the cache\n")
    done = plain_user("python", "-m", "sandbox", "run", "-q", "--image", "built")
    assert done.stdout == "/dir:\n\n/made:\nx\n", done.stderr
    inspected = plain_user("python", "-m", "sandbox", "image", "inspect", "built")
    assert len(json.loads(inspected.stdout)[0]["layers"]) == 4


@pytest.mark.slow
def test_nothing_leads_a_plain_user_out_either(
    plain_user: Callable[..., Any], plain_home: Path, box: Path
) -> None:
    sandbox = ("python", "-m", "sandbox")
    outside, directory = plain_home / "outside", plain_home / "context"
    for path in (outside, directory):
        path.mkdir()
    (outside / "file").write_text("of the host\n")
    (directory / "up").symlink_to("../outside/file")
    archive = plain_home / "box.tar"
    archive.write_bytes(box.read_bytes())

    def build(text: str) -> Any:
        (directory / "Dockerfile").write_text(text)
        for path in (archive, outside, outside / "file", directory, directory / "Dockerfile"):
            os.chown(path, 65534, 65534)
        return plain_user(*sandbox, "image", "build", "-t", "built", directory)

    assert build("FROM scratch\n").status == 0
    assert plain_user(*sandbox, "image", "load", "-q", archive).status == 0
    assert "`up` is not in the build context" in build("FROM box\nCOPY up /there\n").stderr
    built = build(
        f"FROM box AS evil\nRUN ln -s {outside} /out && ln -s {outside}/made /deep\n"
        "FROM evil\nWORKDIR /deep/deeper\nCOPY Dockerfile /out/through\n"
        "RUN ! cat /out/file && echo x >/out/written\n"
    )
    if "user namespaces may be closed" in built.stderr:
        pytest.skip("a plain user may make no user namespace here")

    assert built.status == 0, built.stderr
    assert sorted(path.name for path in outside.iterdir()) == ["file"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_and_the_build(
    build: Build, sandbox_home: Path, context: Path, number: int
) -> None:
    assert build("FROM box\n").status == 0
    runs = set((sandbox_home / "runs").glob("*"))
    (context / "Dockerfile").write_text("FROM box\nRUN echo 1 >/x; sleep 1000 & sleep 1000\n")
    command = [sys.executable, "-m", "sandbox", "image", "build", str(context)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 20
        while not list((sandbox_home / "images/work").glob("build-*/writes/upper/x")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        out, said = process.communicate(timeout=20)

    assert process.returncode == 128 + number, said
    assert out == b""
    error = "sandbox: error: Dockerfile:2: RUN echo 1 >/x; sleep 1000 & sleep 1000: stopped by "
    assert said.decode().endswith(f"{error}{signal.Signals(number).name}\n")
    assert not any((sandbox_home / "images/work").iterdir())
    assert set((sandbox_home / "runs").glob("*")) == runs
