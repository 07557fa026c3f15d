"""Who tries to get out: root as itself and as a user who was given nothing, others as themselves.

Another user may have a session of their own, and ranges of ids.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
LOADS = HERE.parents[1] / "loads"
PLAIN_UID = 65534
AS_ROOT = os.geteuid() == 0
SECONDS = 60

Run = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this directory; the hook is called for the whole session."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the users can reach, outside /tmp, which hardened runs have anew."""
    above = "/var" if AS_ROOT else Path.home()
    with tempfile.TemporaryDirectory(prefix="sandbox-escape-", dir=above) as directory:
        path = Path(directory)
        path.chmod(0o755)
        shutil.copy(LOADS / "escape.py", path / "escape.py")
        (path / "escape.py").chmod(0o644)
        yield path


@pytest.fixture
def give(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`give(path)` makes files the plain user's, unless root itself is to use them."""
    callspec = getattr(request.node, "callspec", None)
    is_needed = AS_ROOT and (callspec is None or callspec.params.get("as_whom") != "root")

    def run(*paths: Path) -> None:
        for path in paths if is_needed else ():
            os.chown(path, PLAIN_UID, PLAIN_UID, follow_symlinks=False)

    return run


@pytest.fixture
def plainly(request: pytest.FixtureRequest, sandbox_home: Path) -> Run:
    """Run our interpreter as a plain user: who we are, unless that is root."""
    if AS_ROOT:
        return partial(request.getfixturevalue("plain_user"), "python")
    sandbox_home.mkdir()
    return lambda *words: _run(sys.executable, *words)


def _run(*words: str | Path) -> Any:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return SimpleNamespace(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture(params=["root", "plain user"] if AS_ROOT else ["plain user"])
def as_whom(
    request: pytest.FixtureRequest,
    cli: Run,
    plainly: Run,
    need_kernel: Callable[[object, str], None],
) -> Run:
    """Run our command line, as root and as a plain user."""
    if request.param == "root":
        return cli

    def run(*words: str | Path) -> Any:
        done = plainly("-m", "sandbox", *words)
        is_closed = "user namespaces may be closed" in done.stderr
        need_kernel(not is_closed, "a plain user may make no user namespace here")
        return done

    return run


@pytest.fixture
def is_root(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.callspec.params["as_whom"] == "root")
