"""What the engine adds to limits: those that it keeps itself, and who asked for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandbox.errors import HostError
from sandbox.records.light import replace
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.security import Protection, ProtectionState
from sandbox.spec import Limits
from sandbox.units import format_duration

_NS_PER_USEC = 1_000


def supervised_limits(limits: Limits) -> Iterator[LimitReport]:
    """Yield what becomes of the limits on wall-clock and CPU time."""
    if limits.timeout_ns is not None:
        yield LimitReport(
            name="timeout",
            asked=format_duration(limits.timeout_ns),
            state=LimitState.ENFORCED,
            file="a timer of the supervisor",
            value=str(limits.timeout_ns),
        )
    if limits.cpu_time_usec is not None:
        yield LimitReport(
            name="cpu_time",
            asked=format_duration(limits.cpu_time_usec * _NS_PER_USEC),
            state=LimitState.ENFORCED,
            file="the group's CPU counter, read when the limit can be reached",
            value=str(limits.cpu_time_usec),
        )


def mark_defaults(asked: Limits, reports: Iterable[LimitReport]) -> Iterator[LimitReport]:
    """Yield reports of a group that say whether the user asked for the limit, or we did."""
    defaults = {"pids"} if asked.pids is None else set()
    if asked.memory_swap_bytes is None:
        defaults.add("memory_swap")
    for report in reports:
        yield replace(report, by_default=report.name in defaults)


def refuse_unenforced(
    reports: tuple[LimitReport, ...], protections: Iterable[Protection] = ()
) -> None:
    """Refuse to start when a limit that the user asked for, or a protection, is not enforced.

    Raises:
        HostError: one is not.
    """
    for report in reports:
        if report.state is not LimitState.ENFORCED and not report.by_default:
            raise HostError(
                f"the {report.name} limit of {report.asked} cannot be enforced here: "
                f"{report.reason or report.state.value}",
                hint=f"`sandbox doctor {report.check}` says what it takes, such as root or a "
                "delegated group: budgets and sweeps need it in force; a `run` without --strict "
                "goes on with it "
                + ("approximated" if report.state is LimitState.APPROXIMATED else "ignored"),
            )
    for protection in protections:
        if protection.state is ProtectionState.UNAVAILABLE:
            raise HostError(
                f"the run cannot be protected as asked for: {protection.name} is unavailable: "
                f"{protection.detail}",
                hint="without --strict it runs with the rest; a sweep or a budget needs all of it",
            )
