"""What of /proc and /sys is hidden from a run, or cannot be changed by it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from sandbox.kernel import mount_calls as calls
from sandbox.kernel.mount_calls import NODEV, NOEXEC, NOSUID, RDONLY

Say = Callable[[bytes], None]
"""Told what is done next, so that a failure can name it."""

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


def protect(root_fd: int, say: Say) -> None:
    """Hide what tells of the host, and let nothing of it be changed, as docker does.

    Raises:
        OSError: the kernel refuses.
    """
    for path in _MASKED:
        say(path)
        place = calls.find_in(root_fd, path, os.O_PATH)
        if place is not None:
            _mask(root_fd, place)
    for path in _READ_ONLY:
        say(path)
        place = calls.find_in(root_fd, path, os.O_PATH)
        if place is not None:
            copy = calls.copy_mount(place, recursive=True)
            calls.restrict_mount(copy, _PLAIN | RDONLY, recursive=True)
            calls.put_mount(copy, place)


def _mask(root_fd: int, place: int) -> None:
    if stat.S_ISDIR(os.fstat(place).st_mode):
        calls.put_mount(calls.new_mount(b"tmpfs", [(b"size", b"4k")], _PLAIN | RDONLY), place)
        return
    null = calls.open_in(root_fd, b"/dev/null", os.O_PATH, follow=False)
    try:
        copy = calls.copy_mount(null, recursive=False)
    finally:
        os.close(null)
    calls.put_mount(copy, place)
