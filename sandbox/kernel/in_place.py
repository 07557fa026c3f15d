"""A hardened run on the host's own root: everything read-only but for some directories.

It happens in a mount namespace of the run's own, so that nothing of it is seen outside and all of
it goes with the run.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from sandbox.kernel import mount_calls as calls
from sandbox.kernel.in_root import find_place
from sandbox.kernel.mount_calls import NODEV, NOEXEC, NOSUID, RDONLY
from sandbox.kernel.protect import Say, protect
from sandbox.records.enclosure import EMPTIED, InPlace

_MODES = {"/run": b"755"}
_USUAL_MODE = b"1777"
_PLAIN = NOSUID | NODEV | NOEXEC


def mount_in_place(place: InPlace, say: Say) -> None:
    """Make all that is mounted read-only, give the run places of its own, and put back the rest.

    Raises:
        OSError: the kernel refuses.
    """
    kept = []
    for path, is_writable in _by_depth(place):
        say(path)
        kept.append((path, *_copy(path, is_writable=is_writable)))
    top = os.open(b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    say(b"read-only root")
    calls.restrict_mount(top, RDONLY, recursive=True)
    for name in EMPTIED:
        say(os.fsencode(name))
        _empty(os.fsencode(name), _MODES.get(name, _USUAL_MODE))
    say(b"/proc")
    proc = os.open(b"/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    calls.put_mount(calls.new_mount(b"proc", [], _PLAIN), proc)
    protect(top, say)
    for path, copy, is_directory in kept:
        say(path)
        calls.put_mount(copy, find_place(top, path, directory=is_directory))
    os.close(top)


def _by_depth(place: InPlace) -> list[tuple[bytes, bool]]:
    """Return what is put back, what is above before what is below it."""
    found = [(os.fsencode(path), True) for path in place.writable]
    found += [(os.fsencode(path), False) for path in place.kept]
    return sorted(found, key=lambda each: each[0].rstrip(b"/").count(b"/"))


def _copy(path: bytes, *, is_writable: bool) -> tuple[int, bool]:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        copy = calls.copy_mount(fd, recursive=True)
    finally:
        os.close(fd)
    attributes = NOSUID | NODEV | (0 if is_writable else RDONLY)
    calls.restrict_mount(copy, attributes, recursive=True)
    return copy, is_directory


def _empty(path: bytes, mode: bytes) -> None:
    """Mount an empty directory; a link leads to one of the others, or to nothing."""
    with suppress(OSError):
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return
    try:
        target = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    calls.put_mount(calls.new_mount(b"tmpfs", [(b"mode", mode)], NOSUID | NODEV), target)


def can_be_apart(namespaces: int, ids: tuple[int, int] | None) -> str | None:
    """Try on a child what a hardened run needs; return None if it works, and else why not.

    Args:
        namespaces: The flags of those that the run is to be born with.
        ids: uid and gid of a user namespace; None for root.
    """
    from sandbox.kernel import libc

    read_fd, write_fd = os.pipe()
    try:
        pid, pidfd = libc.clone_into(None, namespaces)
    except OSError as exc:
        os.close(read_fd)
        os.close(write_fd)
        return f"no namespaces can be made here ({exc.strerror})"
    if pid == 0:
        _try(write_fd, ids)
    os.close(pidfd)
    os.close(write_fd)
    said = os.read(read_fd, 256)
    os.close(read_fd)
    os.waitpid(pid, 0)
    return os.fsdecode(said) or None


def _try(write_fd: int, ids: tuple[int, int] | None) -> None:
    doing = "map ids"
    try:
        if ids is not None:
            lines = (("setgroups", "deny"), ("uid_map", "{0} {0} 1"), ("gid_map", "{1} {1} 1"))
            for name, text in lines:
                fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
                os.write(fd, text.format(*ids).encode())
                os.close(fd)
        doing = "mount"
        calls.make_mounts_private()
        top = os.open("/", os.O_PATH)
        calls.restrict_mount(top, RDONLY, recursive=True)
        calls.put_mount(calls.new_mount(b"proc", [], _PLAIN), os.open("/proc", os.O_PATH))
    except BaseException as exc:  # noqa: BLE001 - a child may not go on as its parent
        os.write(write_fd, f"a new namespace may not {doing} here ({exc})".encode())
    finally:
        os._exit(0)
