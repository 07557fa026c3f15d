"""The mounts of a root file system: its layers, its devices, its /proc and /sys, and the user's.

All of it happens in a mount namespace of the run's own, before the root is changed, and every place
is looked up inside the new root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from sandbox.kernel import mount_calls as calls
from sandbox.kernel.in_root import find_place
from sandbox.kernel.mount_calls import NODEV, NOEXEC, NOSUID, RDONLY
from sandbox.records.enclosure import CgroupMount, Enclosure, Mount, MountKind

Say = Callable[[bytes], None]
"""Told what is done next, so that a failure can name it."""

ROOT = b"root"
UPPER = b"upper"
WORK = b"work"
MEMORY = b"memory"
"""Names in the scratch directory."""

STACKING = "overlay of "
"""How the step begins in which the layers are stacked."""

_DEVICES = {b"null": 3, b"zero": 5, b"full": 7, b"random": 8, b"urandom": 9, b"tty": 0}
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

_MASKED = (
    b"/proc/acpi",
    b"/proc/asound",
    b"/proc/interrupts",
    b"/proc/kcore",
    b"/proc/keys",
    b"/proc/latency_stats",
    b"/proc/sched_debug",
    b"/proc/scsi",
    b"/proc/timer_list",
    b"/proc/timer_stats",
    b"/sys/devices/virtual/powercap",
    b"/sys/firmware",
)
_READ_ONLY = (b"/proc/bus", b"/proc/fs", b"/proc/irq", b"/proc/sys", b"/proc/sysrq-trigger")

_PLAIN = NOSUID | NODEV | NOEXEC


def mount_root(enclosure: Enclosure, say: Say) -> int:
    """Stack the layers below a writable one; return a descriptor of the root, mounted on itself.

    Raises:
        OSError: the kernel refuses.
    """
    scratch = os.fsencode(enclosure.scratch)
    root = scratch + b"/" + ROOT
    if enclosure.copy is not None:
        say(b"copy of the layers")
        _bind_copy(os.fsencode(enclosure.copy), root, is_shared=enclosure.copy_is_shared)
        return os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    writable = scratch if enclosure.writes_to is None else os.fsencode(enclosure.writes_to)
    if enclosure.writes_to_memory:
        say(b"memory to write to")
        memory = scratch + b"/" + MEMORY
        fd = calls.new_mount(b"tmpfs", [(b"mode", b"700")], NOSUID | NODEV)
        _put(fd, os.open(memory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        place = os.open(memory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in (UPPER, WORK):
            os.mkdir(name, 0o755, dir_fd=place)
        _take_after(place, enclosure.layers[-1])
        os.close(place)
        writable = memory
    say(STACKING.encode() + os.fsencode(enclosure.layers[-1]))
    _mount_overlay(enclosure, writable, root)
    return os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _bind_copy(source: bytes, root: bytes, *, is_shared: bool) -> None:
    fd = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        copy = calls.copy_mount(fd, recursive=False)
    finally:
        os.close(fd)
    calls.restrict_mount(copy, NOSUID | NODEV | (RDONLY if is_shared else 0))
    _put(copy, os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def _take_after(place_fd: int, model: str) -> None:
    """Give the upper directory what the root of the stack is to have: it shows through."""
    fd = os.open(model, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(fd)
    os.close(fd)
    with suppress(OSError):  # an owner that is not in the user namespace
        os.chown(UPPER, found.st_uid, found.st_gid, dir_fd=place_fd)
    os.chmod(UPPER, stat.S_IMODE(found.st_mode) | stat.S_IRWXU, dir_fd=place_fd)


def _mount_overlay(enclosure: Enclosure, writable: bytes, root: bytes) -> None:
    layers = [os.fsencode(layer) for layer in reversed(enclosure.layers)]
    upper, work = writable + b"/" + UPPER, writable + b"/" + WORK
    marks: list[tuple[bytes, bytes | None]] = [(b"userxattr", None)] if enclosure.userxattr else []
    if enclosure.writes_to is not None:
        # What is kept has to mean the same without the layers below it.
        marks += [(b"redirect_dir", b"off"), (b"metacopy", b"off")]
    target = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        options: list[tuple[bytes, bytes | None]] = [(b"lowerdir+", layer) for layer in layers]
        options += [(b"upperdir", upper), (b"workdir", work), *marks]
        fd = calls.new_mount(b"overlay", options, NOSUID | NODEV)
    except OSError:
        os.close(target)
        _mount_overlay_by_text(layers, upper, work, marks, root)
    else:
        _put(fd, target)


def _mount_overlay_by_text(
    layers: list[bytes],
    upper: bytes,
    work: bytes,
    marks: list[tuple[bytes, bytes | None]],
    root: bytes,
) -> None:
    """Mount where the kernel is older than 6.5: one text of 4 KiB, so the names must be short."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    fds = [os.open(path, flags) for path in (upper, work, *layers)]
    try:
        names = [b"/proc/self/fd/%d" % fd for fd in fds]
        words = [b"lowerdir=" + b":".join(names[2:])]
        words += [b"upperdir=" + names[0], b"workdir=" + names[1]]
        words += [name if value is None else name + b"=" + value for name, value in marks]
        calls.mount_by_text(b"overlay", root, b",".join(words))
    finally:
        for fd in fds:
            os.close(fd)
    fd = os.open(root, flags)
    try:
        calls.restrict_mount(fd, NOSUID | NODEV)
    finally:
        os.close(fd)


def _put(mount_fd: int, target_fd: int) -> None:
    """Place a mount, and close both descriptors."""
    try:
        calls.place_mount(mount_fd, target_fd)
    finally:
        os.close(mount_fd)
        os.close(target_fd)


def mount_inside(root_fd: int, enclosure: Enclosure, say: Say) -> None:
    """Mount all that belongs into the root.

    Raises:
        OSError: the kernel refuses, or the place for something is taken by something else.
    """
    _mount_proc(root_fd, say)
    _mount_dev(root_fd, enclosure, say)
    _mount_sys(root_fd, enclosure, say)
    _protect(root_fd, say)
    for place, name in enclosure.files:
        say(os.fsencode(place))
        _bind_file(root_fd, os.fsencode(enclosure.scratch) + b"/" + name.encode(), place.encode())
    for mount in enclosure.mounts:
        say(os.fsencode(mount.target))
        _mount_asked(root_fd, mount)


def make_read_only(root_fd: int) -> None:
    """Let nothing be written to the root itself; mounts on it stay as they are.

    Raises:
        OSError: the kernel refuses.
    """
    fd = calls.open_in(root_fd, b"/", os.O_PATH)
    try:
        calls.restrict_mount(fd, RDONLY)
    finally:
        os.close(fd)


def _own_place(root_fd: int, path: bytes) -> int:
    """Return the place of a directory of the system's, which may be no link at all."""
    try:
        return calls.open_in(root_fd, path, os.O_PATH | os.O_DIRECTORY, follow=False)
    except FileNotFoundError:
        os.close(find_place(root_fd, path, directory=True))
        return calls.open_in(root_fd, path, os.O_PATH | os.O_DIRECTORY, follow=False)


def _mount_proc(root_fd: int, say: Say) -> None:
    say(b"/proc")
    place = _own_place(root_fd, b"/proc")
    _put(calls.new_mount(b"proc", [], _PLAIN), place)


def _mount_dev(root_fd: int, enclosure: Enclosure, say: Say) -> None:
    say(b"/dev")
    place = _own_place(root_fd, b"/dev")
    options: list[tuple[bytes, bytes | None]] = [(b"mode", b"755"), (b"size", _DEV_BYTES)]
    # Devices that are made here cannot be opened; those that are bound are mounts of their own.
    _put(calls.new_mount(b"tmpfs", options, NOSUID | NODEV | NOEXEC), place)
    dev = calls.open_in(root_fd, b"/dev", os.O_PATH | os.O_DIRECTORY, follow=False)
    try:
        for name, minor in _DEVICES.items():
            say(b"/dev/" + name)
            _bind_device(dev, name, os.makedev(5 if name == b"tty" else 1, minor))
        for name, target in _LINKS.items():
            os.symlink(target, name, dir_fd=dev)
        for name in (b"pts", b"shm", b"mqueue"):
            os.mkdir(name, 0o755, dir_fd=dev)
        say(b"/dev/pts")
        _put(_new_devpts(), calls.open_in(dev, b"pts", os.O_PATH, follow=False))
        say(b"/dev/shm")
        shm: list[tuple[bytes, bytes | None]] = [(b"mode", b"1777")]
        if enclosure.shm_bytes is not None:
            shm.append((b"size", b"%d" % enclosure.shm_bytes))
        _put(
            calls.new_mount(b"tmpfs", shm, _PLAIN),
            calls.open_in(dev, b"shm", os.O_PATH, follow=False),
        )
        with suppress(OSError):  # a kernel without POSIX message queues
            _put(
                calls.new_mount(b"mqueue", [], _PLAIN),
                calls.open_in(dev, b"mqueue", os.O_PATH, follow=False),
            )
    finally:
        os.close(dev)


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
    _put(copy, calls.open_in(dev_fd, name, os.O_PATH, follow=False))


def _mount_sys(root_fd: int, enclosure: Enclosure, say: Say) -> None:
    say(b"/sys")
    place = _own_place(root_fd, b"/sys")
    try:
        mount = calls.new_mount(b"sysfs", [], _PLAIN | RDONLY)
    except PermissionError:
        # It belongs to the network namespace: who shares the host's has to take the host's.
        host = os.open(b"/sys", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mount = calls.copy_mount(host, recursive=True)
        finally:
            os.close(host)
        calls.restrict_mount(mount, _PLAIN | RDONLY, recursive=True)
    _put(mount, place)
    if enclosure.cgroups:
        say(b"/sys/fs/cgroup")
        _mount_cgroups(root_fd, enclosure.cgroups)


def _mount_cgroups(root_fd: int, cgroups: tuple[CgroupMount, ...]) -> None:
    top = calls.open_in(root_fd, b"/sys/fs/cgroup", os.O_PATH | os.O_DIRECTORY, follow=False)
    if cgroups[0].name == "":
        _put(_new_cgroup(cgroups[0], _PLAIN | RDONLY), top)
        return
    options: list[tuple[bytes, bytes | None]] = [(b"mode", b"755"), (b"size", b"64k")]
    tmpfs = calls.new_mount(b"tmpfs", options, _PLAIN)
    _put(tmpfs, top)
    top = calls.open_in(root_fd, b"/sys/fs/cgroup", os.O_PATH | os.O_DIRECTORY, follow=False)
    try:
        for cgroup in cgroups:
            name = cgroup.name.encode()
            os.mkdir(name, 0o755, dir_fd=top)
            with suppress(OSError):  # one that the host mounts in a way of its own stays empty
                _put(
                    _new_cgroup(cgroup, _PLAIN | RDONLY),
                    calls.open_in(top, name, os.O_PATH | os.O_DIRECTORY, follow=False),
                )
        calls.restrict_mount(top, RDONLY)
    finally:
        os.close(top)


def _new_cgroup(cgroup: CgroupMount, attributes: int) -> int:
    options: list[tuple[bytes, bytes | None]] = []
    for option in cgroup.options:
        name, equals, value = option.encode().partition(b"=")
        options.append((name, value if equals else None))
    return calls.new_mount(cgroup.kind.encode(), options, attributes)


def _bind_file(root_fd: int, source: bytes, place: bytes) -> None:
    fd = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        copy = calls.copy_mount(fd, recursive=False)
    finally:
        os.close(fd)
    calls.restrict_mount(copy, _PLAIN)
    _put(copy, find_place(root_fd, place, directory=False))


def _mount_asked(root_fd: int, mount: Mount) -> None:
    target = os.fsencode(mount.target)
    if mount.kind is MountKind.BIND:
        fd, is_directory = _copy_of_host(mount)
        _put(fd, find_place(root_fd, target, directory=is_directory))
        return
    place = find_place(root_fd, target, directory=True)
    if mount.kind is MountKind.VOLUME:
        copy = calls.copy_mount(place, recursive=False)
        _put(copy, place)
        return
    options: list[tuple[bytes, bytes | None]] = [(b"mode", b"%o" % mount.mode)]
    if mount.size_bytes is not None:
        options.append((b"size", b"%d" % mount.size_bytes))
    attributes = NOSUID | NODEV | (0 if mount.executable else NOEXEC)
    if mount.read_only:
        attributes |= RDONLY
    _put(calls.new_mount(b"tmpfs", options, attributes), place)


def _copy_of_host(mount: Mount) -> tuple[int, bool]:
    fd = os.open(os.fsencode(mount.source or ""), os.O_PATH | os.O_CLOEXEC)
    try:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        copy = calls.copy_mount(fd, recursive=True)
    finally:
        os.close(fd)
    attributes = NOSUID | NODEV | (RDONLY if mount.read_only else 0)
    calls.restrict_mount(copy, attributes, recursive=True)
    return copy, is_directory


def _protect(root_fd: int, say: Say) -> None:
    """Hide what tells of the host, and let nothing of it be changed, as docker does."""
    for path in _MASKED:
        say(path)
        with suppress(FileNotFoundError):
            _mask(root_fd, path)
    for path in _READ_ONLY:
        say(path)
        with suppress(FileNotFoundError):
            place = calls.open_in(root_fd, path, os.O_PATH, follow=False)
            copy = calls.copy_mount(place, recursive=True)
            calls.restrict_mount(copy, _PLAIN | RDONLY, recursive=True)
            _put(copy, place)


def _mask(root_fd: int, path: bytes) -> None:
    place = calls.open_in(root_fd, path, os.O_PATH, follow=False)
    if stat.S_ISDIR(os.fstat(place).st_mode):
        _put(calls.new_mount(b"tmpfs", [(b"size", b"4k")], _PLAIN | RDONLY), place)
        return
    null = calls.open_in(root_fd, b"/dev/null", os.O_PATH, follow=False)
    try:
        copy = calls.copy_mount(null, recursive=False)
    finally:
        os.close(null)
    _put(copy, place)
