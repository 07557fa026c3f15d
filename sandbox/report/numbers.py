"""Numbers to short text, the same everywhere; what is absent is a dash, never a zero."""

from __future__ import annotations

from sandbox.analysis.verdict import short_duration
from sandbox.units import format_size

ABSENT_TEXT = "-"
_NS_PER_USEC = 1_000
_FEW_CPUS = 9.995
_UJ_PER_JOULE = 1_000_000
_KILO = 1_000
_THREE_DIGITS = 999.5  # from here on they would round to four


def cpus_text(cpus: float | None) -> str:
    """Return CPUs with two decimals, large numbers with one: `0.50`, `12.3`."""
    if cpus is None:
        return ABSENT_TEXT
    return f"{cpus:.2f}" if cpus < _FEW_CPUS else f"{cpus:.1f}"


def size_text(size_bytes: int | None) -> str:
    """Return a size: `312.4 MiB`."""
    return ABSENT_TEXT if size_bytes is None else format_size(size_bytes)


def time_text(duration_usec: int | None) -> str:
    """Return microseconds as people read them: `5.96 s`."""
    return ABSENT_TEXT if duration_usec is None else duration_text(duration_usec * _NS_PER_USEC)


def duration_text(duration_ns: int | None) -> str:
    """Return nanoseconds as people read them: `12.34 s`, `1 min 05 s`."""
    if duration_ns is None:
        return ABSENT_TEXT
    return "0 s" if duration_ns == 0 else short_duration(duration_ns)


def energy_text(energy_uj: int | None) -> str:
    """Return microjoules as people read them: `61.2 J`, `1.24 kJ`."""
    if energy_uj is None:
        return ABSENT_TEXT
    joules = energy_uj / _UJ_PER_JOULE
    if joules < _THREE_DIGITS:
        return f"{joules:.3g} J"
    kilojoules = joules / _KILO
    return f"{kilojoules:.3g} kJ" if kilojoules < _THREE_DIGITS else f"{kilojoules:.0f} kJ"


def waited_share(waited_usec: int | None, wall_ns: int | None) -> float | None:
    """Return the share of a run in which it waited by PSI, at most all of it.

    The kernel counts from before the program starts until its group is read at the end, which for a
    run of milliseconds is longer than the run.
    """
    ratio = ratio_of(None if waited_usec is None else waited_usec * _NS_PER_USEC, wall_ns)
    return None if ratio is None else min(ratio, 1.0)


def percent_text(ratio: float | None) -> str:
    """Return a share: `61 %`, `<1 %` for what is little but not nothing."""
    if ratio is None:
        return ABSENT_TEXT
    if 0 < ratio < 0.005:  # noqa: PLR2004 - what would be rounded to nothing
        return "<1 %"
    return f"{ratio:.0%}".replace("%", " %")


def count_text(number: int, singular: str, plural: str) -> str:
    """Return `1 process`, `5 processes`."""
    return f"{number} {singular if number == 1 else plural}"


def ratio_of(part: float | None, whole: float | None) -> float | None:
    """Return part / whole, or None if either is absent or the whole is nothing."""
    return None if part is None or not whole else part / whole
