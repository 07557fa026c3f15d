"""Environments that were built for runs: each made once, under the hash of what it holds.

    venvs/inputs/<digest>   the key that these inputs were resolved to; locked while they are
    venvs/inputs/<digest>.scratch/  what that takes, only meanwhile
    venvs/<key>/venv/       the environment, built in place: its scripts hold its path
    venvs/<key>/venv.json   written last, by a rename: without it the environment is not there
    venvs/<key>.lock        exclusive while it is built or removed, shared while it is used

The key is a hash of every resolved package with its archive's hash, of Python and of the platform.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.environment.venv_inputs import Inputs, check_python
from sandbox.environment.venv_tools import (
    Progress,
    Tool,
    Workplace,
    base_python,
    packages_of,
    resolving_variables,
)
from sandbox.errors import StoreError
from sandbox.records.codec import from_plain, to_json
from sandbox.records.light import dataclass
from sandbox.records.venv import Venv

_MARK = "venv.json"
_SCRATCH = ".scratch"
_KEY_DIGITS = 16
_HEX = frozenset("0123456789abcdef")
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, kw_only=True)
class KeptVenv:
    """One environment in the cache."""

    key: str
    venv: Venv | None
    """None while it is not whole: being built, or left so by a crash."""
    in_use: bool
    size_bytes: int


class VenvCache:
    """The environments below one directory."""

    def __init__(self, home: Path) -> None:
        """`home` is the user's own directory, which has to be there."""
        self.directory = home / "venvs"

    def provide(self, inputs: Inputs, tool: Tool, progress: Progress) -> tuple[Venv, int]:
        """Return the environment for these inputs, built if need be, and the hold on it.

        The hold is a descriptor: as long as it is open, in a forked child too, the environment is
        in use and cannot be removed.

        Raises:
            SandboxError: it cannot be resolved or installed.
        """
        check_python(inputs.requires_python, sys.version_info[:3])
        (self.directory / "inputs").mkdir(mode=0o700, parents=True, exist_ok=True)
        asked = self.directory / "inputs" / _digest(inputs.digest, *resolving_variables(os.environ))
        with _exclusive(asked, progress) as fd:
            key = os.pread(fd, _KEY_DIGITS + 1, 0).decode("ascii", "replace")
            if _is_key(key) and (self.directory / key / _MARK).exists():
                hold = self._hold(key, progress)
                venv = self._read(key)
                if venv is not None:
                    return venv, hold
                os.close(hold)  # it was removed just now
            with _scratch(asked.with_suffix(_SCRATCH)) as scratch:
                place = Workplace(scratch=scratch, lock_fd=fd)
                lock = tool.resolve(inputs, place, progress)
            key = _digest(lock)
            os.ftruncate(fd, 0)
            os.pwrite(fd, key.encode(), 0)
            return self._build(key, lock, inputs, tool, progress)

    def kept(self) -> list[KeptVenv]:
        """Return what is in the cache, by key."""
        try:
            names = sorted(
                entry.name for entry in os.scandir(self.directory) if _is_key(entry.name)
            )
        except FileNotFoundError:
            return []
        return [
            KeptVenv(
                key=key,
                venv=self._read(key),
                in_use=_is_held(self._lock(key)),
                size_bytes=_size_of(self.directory / key),
            )
            for key in names
        ]

    def remove(self, key: str) -> None:
        """Remove one environment.

        Raises:
            StoreError: there is none, it is in use, or it cannot be removed.
        """
        if not _is_key(key) or not (self.directory / key).is_dir():
            raise StoreError(f"there is no environment {key}", hint="`sandbox venv ls` lists them")
        fd = _open_lock(self._lock(key))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.directory / key / _MARK).unlink(missing_ok=True)  # from now on it is not there
            shutil.rmtree(self.directory / key)
            self._lock(key).unlink()
        except BlockingIOError:
            raise StoreError(
                f"the environment {key} is in use", hint="it can be removed when its run has ended"
            ) from None
        except OSError as exc:
            raise StoreError(f"cannot remove the environment {key}: {exc.strerror}") from exc
        finally:
            os.close(fd)

    def remove_unfinished(self) -> list[str]:
        """Remove what a crash has left half-built; return the keys."""
        removed = []
        for kept in self.kept():
            if kept.venv is None and not kept.in_use:
                with suppress(StoreError):  # somebody has begun to build it again
                    self.remove(kept.key)
                    removed.append(kept.key)
        for scratch in self.directory.glob(f"inputs/*{_SCRATCH}"):
            if not _is_held(scratch.with_suffix("")):
                shutil.rmtree(scratch, ignore_errors=True)
                removed.append(scratch.stem)
        return removed

    def _build(
        self, key: str, lock: str, inputs: Inputs, tool: Tool, progress: Progress
    ) -> tuple[Venv, int]:
        place = self.directory / key
        with _exclusive(self._lock(key), progress) as fd:
            venv = self._read(key)
            if venv is None:
                shutil.rmtree(place, ignore_errors=True)  # what a crash has left
                place.mkdir(mode=0o700)
                try:
                    with _scratch(place / "scratch") as scratch:
                        work = Workplace(scratch=scratch, lock_fd=fd)
                        tool.install(lock, inputs, place / "venv", work, progress)
                except BaseException:
                    shutil.rmtree(place, ignore_errors=True)
                    raise
                venv = Venv(
                    directory=str(place / "venv"),
                    python=sys.version.split()[0],
                    key=key,
                    tool=tool.name,
                    packages=packages_of(lock),
                )
                _write_whole(place / _MARK, to_json(venv))
            hold = os.dup(fd)
            fcntl.flock(hold, fcntl.LOCK_SH)
            return venv, hold

    def _hold(self, key: str, progress: Progress) -> int:
        fd = _open_lock(self._lock(key))
        progress("waiting for the environment")
        fcntl.flock(fd, fcntl.LOCK_SH)
        return fd

    def _lock(self, key: str) -> Path:
        return self.directory / f"{key}.lock"

    def _read(self, key: str) -> Venv | None:
        try:
            return from_plain(Venv, json.loads((self.directory / key / _MARK).read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            return None  # not ours any more: it is built anew


def _digest(*parts: str) -> str:
    about = (*parts, sys.version, sysconfig.get_platform(), base_python())
    return hashlib.sha256("\0".join(about).encode("utf-8", "surrogateescape")).hexdigest()[
        :_KEY_DIGITS
    ]


def _is_key(name: str) -> bool:
    return len(name) == _KEY_DIGITS and _HEX.issuperset(name)


def _is_held(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _open_lock(path: Path) -> int:
    return os.open(path, _OPEN, 0o600)


@contextmanager
def _exclusive(path: Path, progress: Progress) -> Iterator[int]:
    """Hold a lock file; one that is removed while we wait for it is made anew."""
    fd = _open_lock(path)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("waiting for another process that builds the same environment")
                fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                break
            os.close(fd)
            fd = _open_lock(path)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """Make an empty directory beside what is made, and remove it with all in it.

    Not below /tmp: what a SIGKILL leaves there, nobody would find again.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write_whole(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _size_of(directory: Path) -> int:
    """Return the bytes that an environment takes on the disk; files that are linked count once."""
    seen: dict[tuple[int, int], int] = {}
    for top, _, names in os.walk(directory):
        for name in names:
            try:
                found = os.lstat(os.path.join(top, name))  # noqa: PTH118 - thousands of files
            except OSError:
                continue
            seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())
