"""Podman as root to compare with: private storage and groups, one tiny image, and nothing left.

On a hybrid host it needs help: crun refuses such hosts, so runc starts the containers, and podman's
limits on files and processes are above what the host lets anybody set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import _docker
from _measure import SkippedError

IMAGE = "localhost/sandbox-bench"
_ULIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
_SEC = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Podman:
    """A podman with storage of its own."""

    base: tuple[str, ...]
    parent: str
    """The parent of the containers' groups, below our own."""

    def command(self, *words: str) -> list[str]:
        """Return its command line."""
        return [*self.base, *words]

    def run_command(self, *words: str, detached: bool = False) -> list[str]:
        """Return the command line that runs something in a fresh container."""
        flags = ["-d" if detached else "--rm", "--network=none", f"--cgroup-parent={self.parent}"]
        return self.command("run", *flags, *_ULIMITS, IMAGE, *words)


@contextmanager
def engine() -> Iterator[Podman]:
    """Prepare a podman, and take away what it leaves.

    Raises:
        SkippedError: it is not installed, we are not root, or it starts no container here.
    """
    program = shutil.which("podman")
    if program is None:
        raise SkippedError("`podman` is not installed")
    if os.geteuid() != 0:
        raise SkippedError("a podman of our own needs root")
    with (
        tempfile.TemporaryDirectory(prefix="sandbox-bench-podman-") as directory,
        ExitStack() as undo,
    ):
        parent, made = _docker.own_parent(f"bench-podman-{os.getpid()}")
        undo.callback(_docker.remove_groups, made)
        podman = Podman(base=(program, *_globals(Path(directory))), parent=parent)
        undo.callback(_quietly, podman.command("system", "reset", "--force"))
        undo.callback(_quietly, podman.command("rm", "--all", "--force", "--time=0"))
        must(podman.command("import", "-", IMAGE), _docker.image())
        yield podman


def must(command: list[str], data: bytes | None = None) -> str:
    """Run a command and return what it prints.

    Raises:
        SkippedError: it failed; the text is its last line.
    """
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=_SEC)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise SkippedError(f"`podman` exits {done.returncode}: {''.join(last)[:200]}")
    return done.stdout.decode().strip()


def _globals(base: Path) -> list[str]:
    words = [
        f"--root={base}/storage",
        f"--runroot={base}/run",
        f"--tmpdir={base}/tmp",
        "--storage-driver=vfs",
        "--cgroup-manager=cgroupfs",
        "--events-backend=none",
    ]
    runc = shutil.which("runc")
    is_unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return words if is_unified or runc is None else [*words, f"--runtime={runc}"]


def _quietly(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, check=False, timeout=_SEC)
