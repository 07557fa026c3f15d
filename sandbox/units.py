"""Text to numbers and back: sizes, durations, CPU counts and lists. No other module parses them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from sandbox.errors import SpecError

UNLIMITED = (1 << 63) - 1
"""Stands for "no limit" where the user may ask for it (docker's -1, the kernel's `max`)."""

NS_PER_SEC = 1_000_000_000
USEC_PER_SEC = 1_000_000

# re.ASCII: `\d` alone would take the digits of every script.
_SIZE = re.compile(
    r"(?P<number>\d+(?:\.\d+)?) ?(?:(?P<unit>[kmgtp])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII
)
_SIZE_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_DURATION = re.compile(
    r"(?P<whole>\d{1,19})(?:\.(?P<fraction>\d+))?(?P<unit>ns|us|ms|s|m|h|d)?", re.ASCII
)
_CPUS = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_CPU_RANGE = re.compile(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", re.ASCII)
_DURATION_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_SEC,
    "m": 60 * NS_PER_SEC,
    "h": 3_600 * NS_PER_SEC,
    "d": 86_400 * NS_PER_SEC,
}
_LARGEST_CPU = 1 << 13  # the kernel's NR_CPUS limit


def parse_size(text: str) -> int:
    """Return bytes for `512m`, `2g`, `1.5GiB`, `4096`; units are binary, as docker's.

    Raises:
        SpecError: the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise SpecError(
            f"`{text}` is not a size",
            hint="write a number with b, k, m or g, such as `512m` or `2g`",
        )
    factor = _SIZE_FACTORS[(match["unit"] or "").lower()]
    size = float(match["number"]) * factor
    if size >= UNLIMITED:
        raise SpecError(f"`{text}` is larger than any memory", hint="the largest size is 8 EiB - 1")
    return int(size) if "." in match["number"] else int(match["number"]) * factor


def parse_size_or_unlimited(text: str) -> int:
    """Return bytes, or `UNLIMITED` for `-1`, `max` and `unlimited`."""
    if text.strip().lower() in {"-1", "max", "unlimited"}:
        return UNLIMITED
    return parse_size(text)


def format_size(size_bytes: int) -> str:
    """Return `size_bytes` as people read it: `512 MiB`, `1.5 GiB`, `17 B`."""
    if size_bytes == UNLIMITED:
        return "unlimited"
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(round(value, 1)) < 1024 or unit == "PiB":  # noqa: PLR2004 - the base itself
            break
        value /= 1024
    if unit == "B":
        return f"{size_bytes} B"
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def parse_duration(text: str) -> int:
    """Return nanoseconds for `250ms`, `10s`, `1m30s`, `2h`; a bare number means seconds.

    Raises:
        SpecError: the text is not a duration.
    """
    stripped = text.strip().lower()
    total_ns, position = 0, 0
    for match in _DURATION.finditer(stripped):
        if match.start() != position or (match["unit"] is None and match.end() != len(stripped)):
            break
        factor = _DURATION_NS[match["unit"] or "s"]
        # Whole parts as integers: a float is exact only up to 104 days of nanoseconds.
        total_ns += int(match["whole"]) * factor
        total_ns += round(float(f"0.{match['fraction'] or 0}") * factor)
        position = match.end()
    if position == 0 or position != len(stripped) or total_ns >= UNLIMITED:
        raise SpecError(
            f"`{text}` is not a duration",
            hint="write a number with ms, s, m or h, such as `250ms`, `10s` or `1m30s`",
        )
    return total_ns


def format_duration(duration_ns: int) -> str:
    """Return `duration_ns` as people read it: `850 µs`, `12.3 ms`, `4.56 s`, `1 h 02 min`.

    What would round up to a full next unit is written in that unit.
    """
    seconds = duration_ns / NS_PER_SEC
    if round(seconds * 1e6) < 1_000:  # noqa: PLR2004 - thresholds of units
        return f"{seconds * 1e6:.0f} µs"
    if round(seconds * 1e3, 1) < 1_000:  # noqa: PLR2004
        return f"{seconds * 1e3:.1f} ms"
    if round(seconds, 2) < 60:  # noqa: PLR2004
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def parse_cpus(text: str) -> float:
    """Return a CPU count such as `2`, `0.5`; range and sense are checked by `Limits`.

    Raises:
        SpecError: the text is not a finite number.
    """
    stripped = text.strip()
    cpus = float(stripped) if _CPUS.fullmatch(stripped) else math.nan
    if not math.isfinite(cpus):
        raise SpecError(
            f"`{text}` is not a number of CPUs", hint="write a number such as `2` or `0.5`"
        )
    return cpus


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of a kernel list such as `0-3,6`, ascending and without repeats.

    The empty text is the empty list, as in the kernel's own files.

    Raises:
        SpecError: the text is not a list of CPUs.
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = _CPU_RANGE.fullmatch(part)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if last < first or last > _LARGEST_CPU:
            raise SpecError(
                f"`{text}` is not a list of CPUs", hint="write numbers and ranges, such as `0-3,6`"
            )
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return CPUs as the kernel writes them: `0-3,6`."""
    parts: list[str] = []
    ordered = sorted(set(cpus))
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == cpu + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == cpu else f"{first}-{cpu}")
        start = index + 1
    return ",".join(parts)
