"""What a hardened run says of files that are not there for it: /tmp is its own, and empty."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a plain user may lack namespaces here")


@pytest.fixture
def hidden() -> Iterator[Path]:
    """A directory that a hardened run does not see; pytest's own may be elsewhere."""
    with tempfile.TemporaryDirectory(prefix="sandbox-harden-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def work(hidden: Path) -> Path:
    """One below it, which the run sees because it starts there."""
    directory = hidden / "work"
    directory.mkdir()
    return directory


def script(path: Path, first_line: str = "#!/bin/sh", text: str = "echo seen") -> Path:
    path.write_text(f"{first_line}\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_program_that_is_not_seen_is_told_from_one_that_is_not_there(
    cli: Cli, hidden: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = script(hidden / "tool")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{hidden}")

    for name in (tool, "../tool", "tool"):
        done = cli("run", "-q", "--harden", "-w", work, "--", name)
        assert done.status == 127
        assert "a hardened run has a /tmp of its own, and empty" in done.stderr
        assert f"-v {tool}:{tool}:ro …`" in done.stderr
    shown = cli("run", "-q", "--harden", "-w", work, "-v", f"{tool}:{tool}:ro", "--", tool)
    assert (shown.status, shown.stdout) == (0, "seen\n"), shown.stderr
    lost = cli("run", "-q", "--harden", "-w", work, "--", hidden / "nosuch")
    assert (lost.status, "of its own" in lost.stderr) == (127, False)


def test_a_link_or_an_interpreter_that_is_not_seen_is_named(
    cli: Cli, hidden: Path, work: Path
) -> None:
    link = hidden / "link"
    link.symlink_to("/bin/true")
    done = cli("run", "-q", "--harden", "-w", work, "--", link)
    assert (done.status, "what it leads to is" in done.stderr) == (127, True)

    (hidden / "sh").symlink_to("/bin/sh")
    for first_line, said in ((f"#!{hidden}/sh", "/tmp of its own"), ("#!/nosuch", "is not there")):
        done = cli("run", "-q", "--harden", "-w", work, "--", script(work / "tool", first_line))
        assert done.status == 126
        assert first_line[2:] in done.stderr
        assert said in done.stderr


def test_arguments_that_are_not_seen_are_warned_of(cli: Cli, hidden: Path, work: Path) -> None:
    data, inside = hidden / "data", work / "data"
    data.touch()
    inside.touch()

    done = cli("run", "--harden", "-w", work, "--", "true", data, f"--model={data}", "../data")
    said = " ".join(done.stderr.split())
    assert f"the program did not see your {data} (and 2 more arguments)" in said
    for words in (["true", inside, "./data", hidden / "nosuch", "/etc/passwd"], ["true"]):
        done = cli("run", "--harden", "-w", work, "--", *words)
        assert "did not see" not in done.stderr


def test_a_directory_that_is_not_there_is_one_error(cli: Cli, work: Path) -> None:
    (work / "file").touch()
    for path, said in ((work / "no", "make it first"), (work / "file", "not a directory")):
        done = cli("run", "-q", "--harden", "-w", path, "--", "true")
        assert (done.status, said in done.stderr) == (126, True), done.stderr


def test_a_virtual_environment_is_seen_wherever_it_is(cli: Cli, hidden: Path, work: Path) -> None:
    command = [sys.executable, "-m", "venv", "--without-pip", hidden / "venv"]
    subprocess.run(command, check=True)
    flags = ("--harden", "-w", work, "--venv", hidden / "venv")

    done = cli("run", "-q", *flags, "--", "python", "-c", "import sys; print(sys.prefix)")

    assert (done.status, done.stdout) == (0, f"{hidden}/venv\n"), done.stderr


# --- commands of many runs ------------------------------------------------------------------------

WRITES = "echo 1 > ran; touch {0} 2> /dev/null && echo written > ran; true"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A file that is not there, in a directory that a hardened run sees but cannot write to."""
    with tempfile.TemporaryDirectory(prefix="sandbox-harden-", dir="/var") as directory:
        yield Path(directory, "file")


def series(name: str, work: Path, outside: Path) -> list[str]:
    """A command line that starts runs in `work`; each says in `ran` whether it wrote outside."""
    text = WRITES.format(outside)
    (work / "script.sh").write_text(text)
    (work / "env.template").write_text(
        f"DIR={work}\nSCRIPT=script.sh\nCOMMAND=sh\nSAMPLETIME=0.1\nOUTPUTFILE={work}/out\n"
    )
    return {
        "bench": ["-r", "1", "-w", "0", "--", "sh", "-c", text],
        "sweep": ["--cpus", "1", "-r", "1", "--", "sh", "-c", text],
        "budget": ["--proofs", "1", "--slower-than", "1000", "--", "sh", "-c", text],
        "profile": ["-e", str(work / "env.template")],
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "bench",
        "sweep",
        pytest.param("budget", marks=pytest.mark.slow),
        pytest.param("profile", marks=pytest.mark.slow),
    ],
)
def test_each_run_of_many_is_hardened_by_flag_and_by_variable(
    cli: Cli, work: Path, outside: Path, name: str
) -> None:
    words = series(name, work, outside)
    for flags, variable in (([], "1"), (["--harden"], "")):
        done = cli(name, *flags, *words, cwd=work, env={"SANDBOX_HARDEN": variable})
        assert done.status == 0, done.stderr
        assert (work / "ran").read_text() == "1\n"
        assert not outside.exists()

    done = cli(name, *words, cwd=work, env={"SANDBOX_HARDEN": ""})
    assert done.status == 0, done.stderr
    assert (work / "ran").read_text() == "written\n"


def test_a_sweep_goes_on_as_it_was_begun(cli: Cli, work: Path, sandbox_home: Path) -> None:
    words = ("--cpus", "1", "-r", "1", "--", "true")
    for flags, status in (((), 2), (("--harden",), 0)):
        assert cli("sweep", *flags, *words, cwd=work).status == 0
        (journal,) = (sandbox_home / "sweeps").glob("*.jsonl")
        again = cli("sweep", "--resume", journal.stem, env={"SANDBOX_HARDEN": "1"}, cwd=work)
        assert (again.status, "begun without --harden" in again.stderr) == (status, status == 2)
        journal.unlink()


def test_a_profile_in_an_image_is_not_hardened(cli: Cli, work: Path, outside: Path) -> None:
    words = series("profile", work, outside)
    with (work / "env.template").open("a") as template:
        template.write("IMAGEREPO=debian:12\n")

    done = cli("profile", "--harden", *words)

    assert (done.status, "--harden is for the host's own root" in done.stderr) == (2, True)
