"""The mounts of a root file system: its layers, its devices, its /proc and /sys, and the user's.

All of it happens in a mount namespace of the run's own, before the root is changed, and every place
is looked up inside the new root.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from sandbox.kernel import mount_calls as calls
from sandbox.kernel.dev_mounts import mount_dev
from sandbox.kernel.in_root import find_place, own_place
from sandbox.kernel.mount_calls import NODEV, NOEXEC, NOSUID, RDONLY
from sandbox.kernel.protect import Say, protect
from sandbox.records.enclosure import CgroupMount, Enclosure, Mount, MountKind

ROOT = b"root"
UPPER = b"upper"
WORK = b"work"
MEMORY = b"memory"
"""Names in the scratch directory."""

STACKING = "overlay of "
"""How the step begins in which the layers are stacked."""

_TEXT_BYTES = 4096
"""As much as `mount(2)` reads of its options."""

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
        _bind_copy(enclosure, os.fsencode(enclosure.copy), root)
        return os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    writable = scratch if enclosure.writes_to is None else os.fsencode(enclosure.writes_to)
    if enclosure.writes_to_memory:
        say(b"memory to write to")
        memory = scratch + b"/" + MEMORY
        fd = calls.new_mount(b"tmpfs", [(b"mode", b"700")], NOSUID | NODEV)
        calls.put_mount(fd, os.open(memory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        place = os.open(memory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in (UPPER, WORK):
            os.mkdir(name, 0o755, dir_fd=place)
        _take_after(place, enclosure.layers[-1])
        os.close(place)
        writable = memory
    say(STACKING.encode() + os.fsencode(enclosure.layers[-1]))
    _mount_overlay(enclosure, writable, root)
    return os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _bind_copy(enclosure: Enclosure, source: bytes, root: bytes) -> None:
    fd = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        copy = calls.copy_mount(fd, recursive=False)
    finally:
        os.close(fd)
    read_only = RDONLY if enclosure.copy_is_shared else 0
    calls.restrict_mount(copy, _attributes_of(enclosure) | read_only)
    calls.put_mount(copy, os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


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
    marks: list[tuple[bytes, bytes | None]] = []
    if enclosure.userxattr:
        marks = [(b"userxattr", None)]
    elif enclosure.writes_to is not None:
        # What is kept has to mean the same without the layers below it; `userxattr` sees to that.
        marks = [(b"redirect_dir", b"off"), (b"metacopy", b"off")]
    target = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        options: list[tuple[bytes, bytes | None]] = [(b"lowerdir+", layer) for layer in layers]
        options += [(b"upperdir", upper), (b"workdir", work), *marks]
        fd = calls.new_mount(b"overlay", options, _attributes_of(enclosure))
    except OSError:
        os.close(target)
        _mount_overlay_by_text(layers, (upper, work), marks, root, _attributes_of(enclosure))
    else:
        calls.put_mount(fd, target)


def _mount_overlay_by_text(
    layers: list[bytes],
    writable: tuple[bytes, bytes],
    marks: list[tuple[bytes, bytes | None]],
    root: bytes,
    attributes: int,
) -> None:
    """Mount where the kernel is older than 6.5: one text of 4 KiB, so the names must be short."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    fds = [os.open(path, flags) for path in (*writable, *layers)]
    try:
        names = [b"/proc/self/fd/%d" % fd for fd in fds]
        words = [b"lowerdir=" + b":".join(names[2:])]
        words += [b"upperdir=" + names[0], b"workdir=" + names[1]]
        words += [name if value is None else name + b"=" + value for name, value in marks]
        text = b",".join(words)
        if len(text) >= _TEXT_BYTES:  # it would be cut, perhaps between two layers
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        calls.mount_by_text(b"overlay", root, text)
    finally:
        for fd in fds:
            os.close(fd)
    fd = os.open(root, flags)
    try:
        calls.restrict_mount(fd, attributes)
    finally:
        os.close(fd)


def _attributes_of(enclosure: Enclosure) -> int:
    """Return what holds for the root: devices and set-user-ID bits mean nothing unless asked."""
    nosuid = NOSUID if enclosure.confinement.no_new_privileges else 0
    nodev = 0 if enclosure.is_open and enclosure.ids is None else NODEV
    return nosuid | nodev


def mount_inside(root_fd: int, enclosure: Enclosure, say: Say) -> None:
    """Mount all that belongs into the root.

    Raises:
        OSError: the kernel refuses, or the place for something is taken by something else.
    """
    _mount_proc(root_fd, enclosure, say)
    mount_dev(root_fd, enclosure, say)
    _mount_sys(root_fd, enclosure, say)
    if not enclosure.is_open:
        protect(root_fd, say)
    closed = _PLAIN | (RDONLY if enclosure.read_only else 0)
    for place, name in enclosure.files:
        say(os.fsencode(place))
        source = os.fsencode(enclosure.scratch) + b"/" + name.encode()
        _bind_file(root_fd, source, place.encode(), closed)
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


def _mount_proc(root_fd: int, enclosure: Enclosure, say: Say) -> None:
    say(b"/proc")
    place = own_place(root_fd, b"/proc")
    try:
        mount = calls.new_mount(b"proc", [], _PLAIN)
    except PermissionError:
        if enclosure.has_own_processes:
            raise
        mount = _copy_of_system(b"/proc", _PLAIN)  # it belongs to the host's processes
    calls.put_mount(mount, place)


def _copy_of_system(path: bytes, attributes: int) -> int:
    """Return a copy of the host's own /proc or /sys, where a new one may not be mounted."""
    host = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mount = calls.copy_mount(host, recursive=True)
    finally:
        os.close(host)
    calls.restrict_mount(mount, attributes, recursive=True)
    return mount


def _mount_sys(root_fd: int, enclosure: Enclosure, say: Say) -> None:
    say(b"/sys")
    place = own_place(root_fd, b"/sys")
    attributes = _PLAIN if enclosure.is_open else _PLAIN | RDONLY
    try:
        mount = calls.new_mount(b"sysfs", [], attributes)
    except PermissionError:
        # It belongs to the network namespace: who shares the host's has to take the host's.
        mount = _copy_of_system(b"/sys", attributes)
    calls.put_mount(mount, place)
    if enclosure.cgroups:
        say(b"/sys/fs/cgroup")
        _mount_cgroups(root_fd, enclosure.cgroups, attributes)


def _mount_cgroups(root_fd: int, cgroups: tuple[CgroupMount, ...], attributes: int) -> None:
    top = calls.open_in(root_fd, b"/sys/fs/cgroup", os.O_PATH | os.O_DIRECTORY, follow=False)
    if cgroups[0].name == "":
        calls.put_mount(_new_cgroup(cgroups[0], attributes), top)
        return
    options: list[tuple[bytes, bytes | None]] = [(b"mode", b"755"), (b"size", b"64k")]
    tmpfs = calls.new_mount(b"tmpfs", options, _PLAIN)
    calls.put_mount(tmpfs, top)
    top = calls.open_in(root_fd, b"/sys/fs/cgroup", os.O_PATH | os.O_DIRECTORY, follow=False)
    try:
        for cgroup in cgroups:
            name = cgroup.name.encode()
            os.mkdir(name, 0o755, dir_fd=top)
            with suppress(OSError):  # one that the host mounts in a way of its own stays empty
                calls.put_mount(
                    _new_cgroup(cgroup, attributes),
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


def _bind_file(root_fd: int, source: bytes, place: bytes, attributes: int) -> None:
    fd = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        copy = calls.copy_mount(fd, recursive=False)
    finally:
        os.close(fd)
    calls.restrict_mount(copy, attributes)
    calls.put_mount(copy, find_place(root_fd, place, directory=False))


def _mount_asked(root_fd: int, mount: Mount) -> None:
    target = os.fsencode(mount.target)
    if mount.kind is MountKind.BIND:
        fd, is_directory = _copy_of_host(mount)
        calls.put_mount(fd, find_place(root_fd, target, directory=is_directory))
        return
    place = find_place(root_fd, target, directory=True)
    if mount.kind is MountKind.VOLUME:
        copy = calls.copy_mount(place, recursive=False)
        calls.put_mount(copy, place)
        return
    options: list[tuple[bytes, bytes | None]] = [(b"mode", b"%o" % mount.mode)]
    if mount.size_bytes is not None:
        options.append((b"size", b"%d" % mount.size_bytes))
    attributes = NOSUID | NODEV | (0 if mount.executable else NOEXEC)
    if mount.read_only:
        attributes |= RDONLY
    calls.put_mount(calls.new_mount(b"tmpfs", options, attributes), place)


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
