"""What the memory of a run was made of, and what of it the kernel's memory.stat had not counted."""

from __future__ import annotations

from sandbox.records.result import MemorySplit
from sandbox.records.sample import ABSENT, TIME

_PARTS = ("anon", "file", "shmem", "kernel")
_LATE_SHARE = 0.1
_LATE_BYTES = 8 << 20  # charges are made in batches of 64 pages a CPU: those are no lateness


def split_of(row: dict[str, int] | None, fast_row: dict[str, int] | None) -> MemorySplit | None:
    """Return what memory was made of in `row`, with the memory.current of `fast_row` beside it."""
    if row is None or all(row.get(f"memory_{part}_bytes", ABSENT) == ABSENT for part in _PARTS):
        return None
    values = {part: _value(row, f"memory_{part}_bytes") for part in _PARTS}
    current_bytes = _value(fast_row or {}, "memory_current_bytes")
    counted = (current_bytes, values["anon"], values["file"], values["kernel"])
    return MemorySplit(
        time_ns=row[TIME],
        current_bytes=current_bytes,
        anon_bytes=values["anon"],
        file_bytes=values["file"],
        shmem_bytes=values["shmem"],
        kernel_bytes=values["kernel"],
        uncounted_bytes=uncounted_bytes(*counted),
    )


def uncounted_bytes(
    current: int | None, anon: int | None, file: int | None, kernel: int | None
) -> int | None:
    """Return how far memory.stat was behind memory.current, 0 if no more than batches explain.

    Negative: it was ahead, still counting what had been freed. memory.current is exact;
    memory.stat is put together from counters of each CPU, and some kernels (seen on 6.18) leave
    out megabytes until the program's next page fault.
    """
    if current is None or anon is None or file is None or kernel is None:
        return None
    behind = current - anon - file - kernel
    return behind if abs(behind) > max(_LATE_SHARE * current, _LATE_BYTES) else 0


def need_of(
    largest_bytes: int | None, split: MemorySplit | None, peak_bytes: int | None
) -> int | None:
    """Return the memory need: the largest sampled one, and all that was uncounted at the peak.

    What memory.stat had not counted may be page cache, but to give too little would be worse.
    Never more than the peak.
    """
    if largest_bytes is None:
        return None
    need_bytes = largest_bytes
    if split is not None and (split.uncounted_bytes or 0) > 0:
        known = (split.anon_bytes, split.shmem_bytes, split.kernel_bytes, split.uncounted_bytes)
        need_bytes = max(need_bytes, sum(part or 0 for part in known))
    return need_bytes if peak_bytes is None else min(need_bytes, peak_bytes)


def _value(row: dict[str, int], name: str) -> int | None:
    value = row.get(name, ABSENT)
    return None if value == ABSENT else value
