"""The /dev of a root file system of its own."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from sandbox.kernel import mount_calls as calls
from sandbox.kernel.in_root import find_place, own_place
from sandbox.kernel.mount_calls import NODEV, NOEXEC, NOSUID
from sandbox.kernel.protect import Say
from sandbox.records.enclosure import Enclosure
from sandbox.records.security import Device, Sharing

USUAL = {b"null": 3, b"zero": 5, b"full": 7, b"random": 8, b"urandom": 9, b"tty": 0}
"""The minor numbers; all but tty have the major number 1."""

_LINKS = {
    b"fd": b"/proc/self/fd",
    b"stdin": b"/proc/self/fd/0",
    b"stdout": b"/proc/self/fd/1",
    b"stderr": b"/proc/self/fd/2",
    b"ptmx": b"pts/ptmx",
    b"core": b"/proc/kcore",
}
_DEV_BYTES = b"1m"
_PLAIN = NOSUID | NODEV | NOEXEC


def mount_dev(root_fd: int, enclosure: Enclosure, say: Say) -> None:
    """Mount a /dev with six devices, and put those beside them that were asked for.

    Raises:
        OSError: the kernel refuses, or a device is not what it is called.
    """
    say(b"/dev")
    place = own_place(root_fd, b"/dev")
    options: list[tuple[bytes, bytes | None]] = [(b"mode", b"755"), (b"size", _DEV_BYTES)]
    # Devices that are made here cannot be opened; those that are bound are mounts of their own.
    calls.put_mount(calls.new_mount(b"tmpfs", options, NOSUID | NODEV | NOEXEC), place)
    dev = calls.open_in(root_fd, b"/dev", os.O_PATH | os.O_DIRECTORY, follow=False)
    try:
        for name, minor in USUAL.items():
            say(b"/dev/" + name)
            _bind_device(dev, name, os.makedev(5 if name == b"tty" else 1, minor))
        for name, target in _LINKS.items():
            if name != b"core" or os.access(target, os.F_OK):  # not every kernel has it
                os.symlink(target, name, dir_fd=dev)
        os.mkdir(b"pts", 0o755, dir_fd=dev)
        say(b"/dev/pts")
        calls.put_mount(_new_devpts(), calls.open_in(dev, b"pts", os.O_PATH, follow=False))
        if enclosure.ipc is not Sharing.NONE:
            _mount_shm(dev, enclosure, say)
    finally:
        os.close(dev)
    for device in enclosure.devices:
        say(b"device " + os.fsencode(device.source))
        _bind_asked(root_fd, device)


def _mount_shm(dev_fd: int, enclosure: Enclosure, say: Say) -> None:
    """Mount what processes share memory and messages by: its own, or the host's."""
    shm: list[tuple[bytes, bytes | None]] = [(b"mode", b"1777")]
    if enclosure.shm_bytes is not None:
        shm.append((b"size", b"%d" % enclosure.shm_bytes))
    is_shared = enclosure.ipc is Sharing.HOST
    say(b"/dev/shm")
    os.mkdir(b"shm", 0o755, dir_fd=dev_fd)
    mount = _host_mount(b"/dev/shm") if is_shared else calls.new_mount(b"tmpfs", shm, _PLAIN)
    calls.put_mount(mount, calls.open_in(dev_fd, b"shm", os.O_PATH, follow=False))
    os.mkdir(b"mqueue", 0o755, dir_fd=dev_fd)
    with suppress(OSError):  # a kernel without POSIX message queues
        mount = _host_mount(b"/dev/mqueue") if is_shared else calls.new_mount(b"mqueue", [], _PLAIN)
        calls.put_mount(mount, calls.open_in(dev_fd, b"mqueue", os.O_PATH, follow=False))


def _host_mount(path: bytes) -> int:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return calls.copy_mount(fd, recursive=True)
    finally:
        os.close(fd)


def _bind_asked(root_fd: int, device: Device) -> None:
    """Show a device of the host; nothing can be made of it that the host's own modes refuse."""
    source = os.open(os.fsencode(device.source), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        kind = os.fstat(source).st_mode
        if not (stat.S_ISCHR(kind) or stat.S_ISBLK(kind)):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        copy = calls.copy_mount(source, recursive=False)
    finally:
        os.close(source)
    calls.put_mount(copy, find_place(root_fd, os.fsencode(device.target), directory=False))


def _new_devpts() -> int:
    options: list[tuple[bytes, bytes | None]] = [
        (b"newinstance", None),
        (b"ptmxmode", b"0666"),
        (b"mode", b"0620"),
    ]
    try:
        return calls.new_mount(b"devpts", [*options, (b"gid", b"5")], NOSUID | NOEXEC)
    except OSError:  # the group `tty` is not in the user namespace
        return calls.new_mount(b"devpts", options, NOSUID | NOEXEC)


def _bind_device(dev_fd: int, name: bytes, number: int) -> None:
    source = os.open(b"/dev/" + name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(source)
        if not stat.S_ISCHR(found.st_mode) or found.st_rdev != number:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        copy = calls.copy_mount(source, recursive=False)
    finally:
        os.close(source)
    os.close(
        os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=dev_fd)
    )
    calls.put_mount(copy, calls.open_in(dev_fd, name, os.O_PATH, follow=False))
