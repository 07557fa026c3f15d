"""A Docker daemon of our own to compare with: private socket, data and groups, and nothing left."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from _measure import SkippedError

from sandbox.kernel import libc

IMAGE = "sandbox-bench"
_READY_SEC = 30
_STOP_SEC = 20
_BRIDGE = "10.197.0.1/24"
GATEWAY = "10.197.0.1"
"""What containers of a daemon with a bridge can reach."""
_LINKS = ("sh", "true", "sleep", "cat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """A running daemon with one tiny image."""

    host: str
    parent: str
    """The parent of the containers' groups, below our own."""
    directory: Path
    """The v2 group of the daemon and all its helpers."""

    def command(self, *words: str) -> list[str]:
        """Return the client's command line."""
        return ["docker", "-H", self.host, *words]

    def run_command(self, *words: str) -> list[str]:
        """Return the command line that runs something in a fresh container."""
        return self.command(
            "run", "--rm", "--network", "none", "--cgroup-parent", self.parent, IMAGE, *words
        )

    def cpu_usec(self) -> int:
        """Return the CPU time of the daemon and its helpers, containers included."""
        for line in (self.directory / "cpu.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "usage_usec":
                return int(value)
        raise SkippedError(f"{self.directory}/cpu.stat does not count CPU time")


@contextmanager
def daemon(*, bridged: bool = False) -> Iterator[Docker]:
    """Start a daemon and stop it again.

    Args:
        bridged: Give it a network of its own, with a bridge for its containers; else they have
            none.

    Raises:
        SkippedError: Docker is not installed, we are not root, or the daemon does not start.
    """
    for program in ("docker", "dockerd"):
        if shutil.which(program) is None:
            raise SkippedError(f"`{program}` is not installed")
    if os.geteuid() != 0:
        raise SkippedError("a Docker daemon of our own needs root")
    name = f"bench-docker-{os.getpid()}"
    parent, made = own_parent(name)
    with (
        tempfile.TemporaryDirectory(prefix="sandbox-bench-docker-") as directory,
        ExitStack() as undo,
    ):
        base = Path(directory)
        group = _mounts()[""] / _own_paths()[""].lstrip("/") / name
        undo.callback(remove_groups, [*made, group])
        group.mkdir(parents=True, exist_ok=True)
        process = _start(base, group, bridged=bridged)
        undo.callback(_stop, process, base)
        docker = Docker(host=f"unix://{base}/docker.sock", parent=parent, directory=group)
        _wait_until_ready(docker, process, base)
        _import_image(docker)
        yield docker


def own_parent(name: str) -> tuple[str, list[Path]]:
    """Return a parent for an engine's groups, and the directories that it will make for it.

    On v2 a group that has processes cannot hand controllers on: there they start at the top.
    """
    own = _own_paths()
    parent = f"{own['memory'].rstrip('/')}/{name}" if "memory" in own else f"/{name}-containers"
    # An engine makes it in every hierarchy, where parts of its path may not exist yet.
    places = [
        mount / str(ancestor).lstrip("/")
        for mount in set(_mounts().values())
        for ancestor in (Path(parent), *Path(parent).parents)
    ]
    return parent, [place for place in places if not place.exists()]


@contextmanager
def preferred(docker: Docker) -> Iterator[None]:
    """Let the containers have the CPUs before others, once there was one: their groups are there.

    Groups above theirs that have processes of their own are left alone.
    """
    mounts = _mounts()
    mount, path = mounts.get("cpu", mounts[""]), Path(docker.parent)
    before: dict[Path, str] = {}
    try:
        for level in (path, *path.parents[:-1]):
            directory = mount / str(level).lstrip("/")
            if (directory / "cgroup.procs").read_text():
                break
            for name, weight in (("cpu.shares", "262144"), ("cpu.weight", "10000")):
                if (file := directory / name).exists():
                    before[file] = file.read_text()
                    file.write_text(weight)
        yield
    finally:
        for file, text in before.items():
            with suppress(OSError):
                file.write_text(text)


def _mounts() -> dict[str, Path]:
    """Return where each hierarchy is mounted, by each of its controllers; v2 is the empty name."""
    mounts: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        where = Path(fields.split()[4])
        if kind == "cgroup2":
            mounts[""] = where
        elif kind == "cgroup":
            names = options.split(",")
            mounts.update({name: where for name in names if name not in {"rw", "ro"}})
    if "" not in mounts:
        raise SkippedError("no v2 mount counts the daemon's CPU time")
    return mounts


def _own_paths() -> dict[str, str]:
    """Return the path of our own group by controller."""
    paths: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def remove_groups(tops: list[Path]) -> None:
    """Remove the groups that were made here, deepest first."""
    for top in sorted(tops, key=lambda path: -len(path.parts)):
        below = sorted(top.rglob("*/"), key=lambda path: -len(path.parts)) if top.is_dir() else []
        for directory in (*below, top):
            if directory.is_dir():
                with suppress(OSError):  # somebody else uses it by now
                    directory.rmdir()


def _start(base: Path, group: Path, *, bridged: bool) -> subprocess.Popen[bytes]:
    command = [
        *(["unshare", "--net"] if bridged else []),
        "dockerd",
        f"--data-root={base}/data",
        f"--exec-root={base}/exec",
        f"--host=unix://{base}/docker.sock",
        f"--pidfile={base}/dockerd.pid",
        "--iptables=false",
        "--ip6tables=false",
        *([f"--bip={_BRIDGE}"] if bridged else ["--bridge=none"]),
        "--storage-driver=overlay2",
        "--exec-opt=native.cgroupdriver=cgroupfs",
    ]
    with (base / "dockerd.log").open("wb") as log:
        return subprocess.Popen(
            ["/bin/sh", "-c", 'echo 0 >"$0"/cgroup.procs && exec "$@"', str(group), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )


def _die_with_parent() -> None:
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_ready(docker: Docker, process: subprocess.Popen[bytes], base: Path) -> None:
    deadline = time.monotonic() + _READY_SEC
    while time.monotonic() < deadline:
        if process.poll() is not None:
            last = (base / "dockerd.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise SkippedError(f"dockerd ended: {''.join(last)[:200]}")
        asked = subprocess.run(docker.command("version"), capture_output=True, check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.1)
    raise SkippedError(f"dockerd was not ready after {_READY_SEC} s")


def image() -> bytes:
    """Return a tiny root file system as a tar archive.

    Raises:
        SkippedError: there is no static busybox to make it of.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise SkippedError("`busybox` (busybox-static) is not installed")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(busybox, arcname="bin/busybox")
        for name in _LINKS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return archive.getvalue()


def _import_image(docker: Docker) -> None:
    command = docker.command("import", "-", IMAGE)
    subprocess.run(command, input=image(), check=True, capture_output=True, timeout=60)


def _stop(process: subprocess.Popen[bytes], base: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # A namespace that outlived its container is still mounted, and would keep the directory.
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        where = line.split()[4]
        if where.startswith(f"{base}/"):
            subprocess.run(["umount", "-l", where], check=False, capture_output=True)
