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
        assert f"`-v {tool}:{tool}:ro`" in done.stderr
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
