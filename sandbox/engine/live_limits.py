"""The limits of a run that goes on: changed all together, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.engine.limits import mark_defaults
from sandbox.errors import HostError, SpecError
from sandbox.kernel.check import check
from sandbox.kernel.group import Group
from sandbox.records.codec import from_plain, to_plain
from sandbox.records.host import Host
from sandbox.records.light import dataclass
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import Limits

CHANGEABLE = {
    "cpus": "cpus",
    "cpuset_cpus": "cpuset_cpus",
    "cpu_shares": "cpu_shares",
    "memory_bytes": "memory",
    "memory_swap_bytes": "memory_swap",
    "memory_reservation_bytes": "memory_reservation",
    "memory_high_bytes": "memory_high",
    "pids": "pids",
}
"""The fields of `Limits` that a live run's can be changed of, and how reports call them."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What has become of one update."""

    limits: tuple[tuple[LimitReport | None, LimitReport], ...]
    """Each limit that is another now: as it was before, and as it is."""
    warnings: tuple[str, ...]


class LiveLimits:
    """What was asked of a run so far, and what holds."""

    def __init__(
        self, group: Group, host: Host, asked: Limits, reports: tuple[LimitReport, ...]
    ) -> None:
        """Begin with the limits that the run was started with."""
        self._group = group
        self._host = host
        self.asked = asked
        self.reports = reports

    def change(self, values: Mapping[str, Any]) -> Change:
        """Set the given fields of `Limits`, read them back, and return what is another now.

        Raises:
            SpecError: a value cannot be meant, or does not go with the limits that stay.
            HostError: this host cannot hold one; the limits from before hold again.
        """
        asked = self._merge(values)
        advice = check(asked.with_defaults(), self._host)
        before = {report.name: report for report in self.reports}
        previous, self.reports = self.reports, self._apply(asked)
        wanted = {CHANGEABLE[field] for field in values}
        for report in self.reports:
            if report.name in wanted and report.state is LimitState.UNAVAILABLE:
                self.reports = previous
                self.reports = self._apply(self.asked)
                raise HostError(
                    f"the {report.name} limit of {report.asked} cannot be set: {report.reason}",
                    hint="nothing was changed",
                )
        self.asked = asked
        changed = tuple(
            (before.get(report.name), report)
            for report in self.reports
            if before.get(report.name) != report or report.name in wanted
        )
        approximated = (
            f"the {report.name} limit of {report.asked} is approximated: {report.reason}"
            for _, report in changed
            if report.state is LimitState.APPROXIMATED and report.name in wanted
        )
        return Change(
            limits=changed, warnings=(*(warning.text for warning in advice), *approximated)
        )

    def _merge(self, values: Mapping[str, Any]) -> Limits:
        unknown = sorted(values.keys() - CHANGEABLE.keys())
        if unknown:
            raise SpecError(
                f"`{unknown[0]}` is no limit that can be changed while a sandbox runs",
                hint="see `sandbox update --help`",
            )
        if not values:
            raise SpecError("no limit is given", hint="such as `--cpus 0.5`")
        try:
            return from_plain(Limits, {**to_plain(self.asked), **values})
        except (TypeError, ValueError, KeyError) as exc:
            raise SpecError(
                f"these are no limits: {exc}", hint="they were sent by another version of sandbox"
            ) from None

    def _apply(self, asked: Limits) -> tuple[LimitReport, ...]:
        """Have the group hold `asked`; limits that it does not know stay as they are."""
        applied = mark_defaults(asked, self._group.apply(asked.with_defaults()))
        new = {report.name: report for report in applied}
        kept = tuple(new.pop(report.name, report) for report in self.reports)
        return (*kept, *new.values())
