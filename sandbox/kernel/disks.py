"""Block devices: which ones the program's bytes are counted on once, and what they are called."""

from __future__ import annotations

import os

from sandbox.kernel.files import find_text
from sandbox.kernel.roots import Roots

_IN_MEMORY_OR_FILE = ("loop", "ram", "zram")


def find_disks(roots: Roots) -> tuple[str, ...]:
    """Return the whole disks that have a size and stand on no other, as `254:0`."""
    try:
        entries = sorted(os.listdir(f"{roots.sys}/block"))  # noqa: PTH208 - names, not paths
    except OSError:
        return ()
    found = []
    for name in entries:
        directory = f"{roots.sys}/block/{name}"
        if _is_stacked(directory, name):
            continue
        number = (find_text(f"{directory}/dev") or "").strip()
        size = (find_text(f"{directory}/size") or "0").strip()
        if number and size != "0":
            found.append(number)
    return tuple(found)


def is_stacked(roots: Roots, device: str) -> bool:
    """Return whether `254:0` stands on other devices, which count the same bytes again.

    Loop devices stand on a file, RAM disks on memory; device mapper, RAID and the like on disks.
    """
    directory = f"{roots.sys}/dev/block/{device}"
    return _is_stacked(directory, find_disk_name(roots, device) or "")


def _is_stacked(directory: str, name: str) -> bool:
    if name.rstrip("0123456789") in _IN_MEMORY_OR_FILE:
        return True
    try:
        return bool(os.listdir(f"{directory}/slaves"))  # noqa: PTH208 - only whether there are any
    except OSError:
        return False


def find_disk_name(roots: Roots, device: str) -> str | None:
    """Return the kernel's name of `254:0`, such as `vda`, or None if it does not tell."""
    try:
        link = os.readlink(f"{roots.sys}/dev/block/{device}")  # noqa: PTH115 - in every run
    except OSError:
        return None
    return link.rpartition("/")[2]


def label_disk(roots: Roots, device: str) -> str:
    """Return a device as results show it: `254:0 vda`, or the number alone."""
    name = find_disk_name(roots, device)
    return device if name is None else f"{device} {name}"
