"""Those who fetch images too: skopeo with umoci, podman as a plain user, a Docker Engine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import _docker
from _measure import SkippedError, progress

_PLAIN_UID = 65534  # nobody
_PROGRAMS = ("mmdebstrap", "umoci", "skopeo", "docker-registry")
_PATIENCE_SEC = 600

Words = Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A command to be timed."""

    words: Words
    environment: Mapping[str, str] | None = None
    removed: tuple[Path, ...] = ()
    """Directories that are removed before, so that it has everything to do."""
    before: tuple[Words, ...] = ()
    """Commands that are run before, for the same reason; they may fail."""

    def __call__(self) -> float:
        """Run it and return its seconds."""
        for path in self.removed:
            do("rm", "-rf", path)
        for words in self.before:
            _call(words, self.environment)
        start = time.monotonic()
        done = _call(self.words, self.environment)
        elapsed_sec = time.monotonic() - start
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace")[-300:]
            raise SkippedError(f"{' '.join(map(str, self.words))} fails: {said}")
        return elapsed_sec


def _call(words: Words, env: Mapping[str, str] | None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(word) for word in words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PATIENCE_SEC,
        check=False,
        cwd="/",
    )


def do(*words: object) -> None:
    """Run a command that has to succeed.

    Raises:
        SkippedError: it fails.
    """
    done = _call(words, None)
    if done.returncode:
        raise SkippedError(f"{words[0]} fails: {done.stderr.decode('utf-8', 'replace')[-200:]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """One image in all forms in which somebody wants it."""

    layout: Path
    """An OCI layout, its image called `a`."""
    archive: Path
    """What `docker save` would write; its image is called `a:1`."""
    name: str
    """In a registry."""
    host: str = field(default="")
    """That registry."""


@contextmanager
def images(scratch: Path) -> Iterator[Images]:
    """Make a small Debian of one layer, and a registry that has it.

    Raises:
        SkippedError: what it takes is not installed, or we are not root.
    """
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        raise SkippedError(f"not installed: {', '.join(missing)}" if missing else "not root")
    progress("making a Debian image")
    layout, tree, packed = scratch / "oci", scratch / "tree", scratch / "debian.tar"
    do("mmdebstrap", "--variant=minbase", "bookworm", packed)
    tree.mkdir()
    do("tar", "-C", tree, "--exclude=./dev/*", "-xpf", packed)
    packed.unlink()
    do("umoci", "init", "--layout", layout)
    do("umoci", "new", "--image", f"{layout}:a")
    do("umoci", "insert", "--image", f"{layout}:a", tree, "/")
    do("rm", "-rf", tree)
    archive = scratch / "docker.tar"
    do("skopeo", "copy", f"oci:{layout}:a", f"docker-archive:{archive}:a:1")
    with _registry(scratch) as host:
        name = f"{host}/a:1"
        do("skopeo", "copy", "--dest-tls-verify=false", f"oci:{layout}:a", f"docker://{name}")
        yield Images(layout=layout, archive=archive, name=name, host=host)


@contextmanager
def _registry(scratch: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    settings = scratch / "registry.yml"
    settings.write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: {host}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {scratch / 'registry'}}}}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(host.split(":")[1])), 1).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise SkippedError("the registry does not answer") from None
                time.sleep(0.02)
        yield host
    finally:
        process.terminate()
        process.wait(20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Somebody with a store of images of its own."""

    command: Words
    environment: Mapping[str, str] | None = None

    def act(self, *words: object, forget: Sequence[str] = ()) -> Act:
        """Return one of its commands; the images `forget` are removed before, layers and all."""
        before = tuple((*self.command, "rmi", "-f", name) for name in forget)
        return Act(words=(*self.command, *words), environment=self.environment, before=before)


@contextmanager
def docker(scratch: Path) -> Iterator[Engine]:
    """Run a Docker Engine whose store is in `scratch`.

    Raises:
        SkippedError: there is none.
    """
    usual, tempfile.tempdir = tempfile.tempdir, str(scratch)
    engine = _docker.daemon()
    try:
        started = engine.__enter__()
    finally:
        tempfile.tempdir = usual
    try:
        yield Engine(command=started.command())
    finally:
        engine.__exit__(None, None, None)


@contextmanager
def podman(scratch: Path, driver: str) -> Iterator[Engine]:
    """Give podman as a plain user, its store in `scratch`.

    It has one user id only, as there are no subordinate ones: it is told to ignore that.

    Raises:
        SkippedError: there is none.
    """
    if shutil.which("podman") is None:
        raise SkippedError("`podman` is not installed")
    home = scratch / driver  # podman wants its paths to be short
    lock = Path(f"/dev/shm/libpod_rootless_lock_{_PLAIN_UID}")
    had_lock = lock.exists()
    for directory in (home, home / "x"):
        directory.mkdir(mode=0o700)
        os.chown(directory, _PLAIN_UID, _PLAIN_UID)
    become = ("setpriv", f"--reuid={_PLAIN_UID}", f"--regid={_PLAIN_UID}", "--clear-groups")
    places = ("--root", home / "root", "--runroot", home / "run", "--storage-driver", driver)
    more = ("--storage-opt", f"{driver}.ignore_chown_errors=true")
    command = (*become, "podman", *places, *more)
    # With a directory for what is of this session, or podman leaves one in /tmp.
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home / "x"),
        "TMPDIR": str(home / "x"),
    }
    try:
        yield Engine(command=command, environment=environment)
    finally:
        _call((*command, "system", "migrate"), environment)  # ends what holds its namespace
        _call(("rm", "-rf", home), None)
        if not had_lock:
            lock.unlink(missing_ok=True)
