"""Bad values of all commands: one error that says what, on what and why, and a hint; its status."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.cli import _status_of
from sandbox.cli.security_options import harden_each
from sandbox.errors import SpecError

RECORD = "is not the record of a run"
RUN = (
    (("--cpus", "abc"), "`abc` is not a number of CPUs"),
    (("--rm",), "there is no flag --rm"),
    (("--image", "x", "-it"), "there is no flag -i"),
    (("--tty",), "there is no flag --tty"),
    (("--cpus", "0"), "a limit of 0 CPUs cannot be set"),
    (("-m", ""), "`` is not a size"),
    (("--timeout", "soon"), "`soon` is not a duration"),
    (("--interval", "0"), "the shortest sampling interval is 1 ms"),
    (("--name", "a b"), "`a b` cannot be the name of a run"),
    (("-e", "=x"), "`=x` is not `NAME=VALUE`"),
    (("--env-file", "absent"), "cannot read the file of variables absent: No such file"),
    (("--env-file", "dir"), "cannot read the file of variables dir: Is a directory"),
    (("--ulimit", "nofile=2:1"), "the soft limit is above the hard limit"),
    (("--pids-limit", "x"), "`x` is not a number of processes"),
    (("--device-read-bps", "x"), "`x` names no device"),
    (("--requirements", "latin"), "it is not UTF-8"),
    (("-o", "absent/x.json"), "cannot write absent/x.json: there is no directory"),
    (("-o", "x.unknown"), "cannot tell the format of x.unknown"),
    (("--image", "No Pe"), "there is no image `No Pe` on this machine"),
    (("--image", ""), "there is no image `` on this machine"),
    (("--rootfs", ""), "--rootfs names no directory"),
    (("--rootfs", "empty"), "there is no root file system at"),
    (("--rootfs", "/", "-v", "x"), "the target `x` is not absolute"),
    (("--rootfs", "/", "-v", "/a:/b:odd"), "there is no volume option `odd` here"),
    (("--rootfs", "/", "--mount", "type=bind,src=/a,dst=/b,odd=1"), "no mount option `odd`"),
    (("--rootfs", "/", "--tmpfs", "/x:odd"), "there is no tmpfs option `odd` here"),
    (("--rootfs", "/", "--security-opt", "seccomp=broken.json"), "is not JSON"),
    (("--rootfs", "/", "--security-opt", "seccomp=latin"), "is not text"),
)
OTHERS = (
    (("ps", "--filter", "x"), 2, "invalid filter `x`"),
    (("ps", "--format", "{{"), 2, "template parsing error"),
    (("stats", "--format", "{{"), 2, "template parsing error"),
    (("stats", "--interval", "0"), 2, "`0` is not an interval"),
    (("inspect", "-f", "{{", "absent"), 2, "template parsing error"),
    (("inspect", "absent"), 1, "no such sandbox: absent"),
    (("kill", "-s", "ODD", "absent"), 2, "there is no signal `ODD`"),
    (("stop", "-t", "x", "absent"), 2, "`x` is not a duration"),
    (("stop", "absent"), 1, "no such sandbox: absent"),
    (("update", "absent"), 2, "no limit is given"),
    (("update", "--memory", "2x", "absent"), 2, "`2x` is not a size"),
    (("runs", "show", "empty"), 1, f"empty: this {RECORD}: not JSON"),
    (("runs", "show", "latin"), 1, f"latin: this {RECORD}: it is not text"),
    (("runs", "show", "dir"), 1, "there is no run.json in dir"),
    (("bench", ""), 2, "a command is empty"),
    (("bench", '"x'), 2, "is not a command: no closing quotation"),
    (("bench", "--reference", "3", "true"), 2, "there are only 1 commands"),
    (("bench", "--export-json", "absent/x.json", "true"), 2, "cannot write absent/x.json"),
    (("bench", "--export-json", "dir", "true"), 2, "cannot write dir: it is not a regular"),
    (("bench", "-P", "n", "1", "x", "echo {n}"), 2, "a scan from 1 to x by 1"),
    (("compare", "a.json", "b.json"), 1, "and no file a.json"),
    (("compare", "broken.json", "broken.json"), 1, f"broken.json: this {RECORD}: not JSON"),
    (("compare", "a", "b", "--fail-over", "much"), 2, "`much` is not a share"),
    (("profile", "-e", "absent"), 2, "cannot read the environment file absent"),
    (("profile", "-e", "latin"), 2, "latin is no environment file: it is not text"),
    (("profile", "-e", "empty"), 2, "(so are SCRIPT, COMMAND, SAMPLETIME and OUTPUTFILE)"),
    (("budget", "--proofs", "0", "--", "true"), 2, "a border needs at least one proof"),
    (("budget", "--max-time", "1s", "--cpus", "1", "--", "true"), 2, "cannot be given"),
    (("sweep", "--", "true"), 2, "nothing varies in this sweep"),
    (("sweep", "-m", "a,,b", "--", "true"), 2, "`a,,b` has an empty value"),
    (("sweep", "--cpus", "1,1", "--", "true"), 2, "a CPU limit is given twice"),
    (("sweep", "--resume", "../x"), 1, "`../x` is not the name of one of"),
    (("image", "pull", "No Pe"), 2, "`No Pe` is not an image reference"),
    (("image", "load", "absent"), 1, "cannot load absent: No such file"),
    (("image", "load", "empty"), 1, "the archive is cut short"),
    (("image", "load", "latin"), 1, "latin is no image"),
    (("image", "rm", "absent"), 1, "there is no image `absent` on this machine"),
    (("image", "build", "empty"), 2, "the context empty is no directory"),
    (("image", "build", "dir"), 2, "cannot read dir/Dockerfile: No such file"),
    (("image", "build", "dir", "-f", "absent"), 2, "cannot read absent: No such file"),
    (("image", "build", "dir", "-f", "empty"), 1, "empty:1: there is no instruction in it"),
    (("image", "build", "dir", "-f", "latin"), 1, "latin:1: "),
    (("image", "build", "dir", "-f", "file", "-t", "No Pe"), 2, "is not an image reference"),
    (("image", "build", "dir", "-f", "file", "--target", "x"), 2, "file has no stage `x`"),
    (("image", "build", "dir", "-f", "file", "--secret", "id=x,src=no"), 2, "from no: No such"),
    (("image", "build", "dir", "-f", "file", "--cpus", "4096"), 1, "4096 CPUs were asked for"),
    (("mark", "a", "b", "c"), 2, "`c` is one word too many"),
    (("doctor", "absent"), 2, "there is no check `absent`"),
    (("venv", "rm", "absent"), 1, "there is no environment absent"),
)
USAGE = (
    ("sweep", "-j", "0", "--cpus", "1", "--", "true"),
    ("bench", "--runs", "x", "true"),
    ("compare", "a"),
    ("image", "nosuch"),
    ("nosuch",),
    ("ps", "--nosuch"),
)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are not what they are taken for."""
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "w/dir").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "w")
    Path("empty").write_text("")
    Path("latin").write_bytes(b"\xe9 \xff\n")
    Path("broken.json").write_text("{")
    Path("file").write_text("FROM scratch\n")


def check(arguments: tuple[str, ...], said: str, errors: str) -> None:
    first, *_ = errors.splitlines()
    assert first.startswith("sandbox: error: "), arguments
    assert said in first
    assert errors.count("sandbox: error:") == 1
    assert errors.count("\nhint: ") == 1
    assert "a mistake in sandbox" not in errors


@pytest.mark.parametrize(("flags", "said"), RUN, ids=lambda value: str(value)[:40])
def test_a_run_that_cannot_be_meant_ends_with_125(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status_of(["run", *flags, "--", "true"]) == 125

    check(flags, said, capsys.readouterr().err)
    assert not Path(os.environ["SANDBOX_HOME"], "runs").exists()


@pytest.mark.parametrize(("words", "status", "said"), OTHERS, ids=lambda value: str(value)[:60])
def test_others_end_with_2_for_a_bad_value_and_1_for_a_failure(
    words: tuple[str, ...], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status_of([*words]) == status

    check(words, said, capsys.readouterr().err)


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_what_typer_refuses_has_the_same_status(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status_of([*words]) == 2
    assert "Error: " in capsys.readouterr().err


def test_a_home_that_cannot_be_used_is_an_error_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("in the way")
    monkeypatch.setenv("SANDBOX_HOME", str(blocked))
    for words in (("--image", "box:1", "--", "ls"), ("--detach", "--", "true")):
        assert _status_of(["run", *words]) == 125
        said = capfd.readouterr()
        assert f"{blocked}: Not a directory" in said.err, words
        check(words, "cannot", said.err)
        assert said.out == ""


def test_a_hint_names_what_the_command_has() -> None:
    with pytest.raises(SpecError) as caught:
        harden_each(harden=True, has_own_root=True)

    assert 'DOCK_ARGS="--read-only --network none --cap-drop ALL"' in (caught.value.hint or "")


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_wrong_value_of_a_variable_names_it(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANDBOX_CPUS", "abc")

    assert _status_of([command, "--", "true"]) == (125 if command == "run" else 2)
    said = capsys.readouterr().err
    assert said.startswith("sandbox: error: SANDBOX_CPUS: `abc` is not a number of CPUs\n")
    _status_of([command, "--cpus", "x", "--", "true"])
    said = capsys.readouterr().err
    assert said.startswith("sandbox: error: `x` is not a number of CPUs\n")


@pytest.mark.parametrize("name", ["dockerfile", "Containerfile", "Dockerfile.dev"])
def test_a_dockerfile_of_another_name_is_pointed_to(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("dir", name).write_text("FROM scratch\n")
    assert _status_of(["image", "build", "dir"]) == 2
    assert capsys.readouterr().err.endswith(f"hint: `-f dir/{name}`, if that is it\n")


def test_what_is_to_be_removed_is_not_to_be_pulled(capsys: pytest.CaptureFixture[str]) -> None:
    assert _status_of(["image", "rm", "absent"]) == 1
    assert "hint: `sandbox image ls` shows what is here\n" in capsys.readouterr().err
