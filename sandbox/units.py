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

# `(?a)`: `\d` alone would take the digits of every script. Compiled when they are first used:
# together that takes a millisecond, which a command without such values need not pay.
_SIZE = r"(?ai)(?P<number>\d+(?:\.\d+)?) ?(?:(?P<unit>[kmgtp])(?:i?b)?|b)?"
_SIZE_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_DURATION = r"(?a)(?P<whole>\d{1,19})(?:\.(?P<fraction>\d+))?(?P<unit>ns|us|ms|s|m|h|d)?"
_CPUS = r"(?ai)[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
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
_CPU_DIGITS = 5


def parse_size(text: str) -> int:
    """Return bytes for `512m`, `2g`, `1.5GiB`, `4096`; units are binary, as docker's.

    Raises:
        SpecError: the text is not a size.
    """
    match = re.fullmatch(_SIZE, text.strip())
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
    for match in re.finditer(_DURATION, stripped):
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
    cpus = float(stripped) if re.fullmatch(_CPUS, stripped) else math.nan
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
        first_text, dash, last_text = part.strip().partition("-")
        first, last = _parse_cpu(first_text), _parse_cpu(last_text if dash else first_text)
        if first is None or last is None or last < first:
            raise SpecError(
                f"`{text}` is not a list of CPUs", hint="write numbers and ranges, such as `0-3,6`"
            )
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def _parse_cpu(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= _CPU_DIGITS):
        return None
    return cpu if (cpu := int(text)) <= _LARGEST_CPU else None


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
