"""Standard streams that are closed, or cannot be written: no traceback, and no status lost."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SANDBOX = f"{shlex.quote(sys.executable)} -m sandbox"


def run(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "SANDBOX_HOME": str(home)}
    return subprocess.run(
        ["sh", "-c", f"{SANDBOX} {line}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_keeps_its_status_without_a_stream(closed: str, tmp_path: Path) -> None:
    code = "import os, sys; sys.exit(3 if {'0', '1', '2'} <= {*os.listdir('/proc/self/fd')} else 4)"
    done = run(f"run -q -- {sys.executable} -c {shlex.quote(code)} {closed}", tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_the_program_writes_into_no_file_of_ours(tmp_path: Path) -> None:
    done = run("run -q -- sh -c 'printf l%s ost; printf l%s ost >&2' >&- 2>&-", tmp_path)

    assert done.returncode == 0
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"lost" in data for data in files)


@pytest.mark.parametrize(
    ("line", "status"), [("ps -a", 1), ("runs ls", 1), ("--help", 1), ("image ls", 1)]
)
def test_a_full_disk_below_the_output_is_told(line: str, status: int, tmp_path: Path) -> None:
    done = run(f"{line} >/dev/full", tmp_path)

    assert done.returncode == status
    assert "the output cannot be written: No space left on device\nhint:" in done.stderr
