"""What `sandbox doctor` finds: one answer a check, and all answers together."""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.host import Mode
from sandbox.records.light import dataclass


class State(StrEnum):
    """How a host does in one respect."""

    OK = "ok"
    WARN = "warn"
    """Runs work, but something is weaker, sampled or noisier than it could be."""
    FAIL = "fail"
    """A limit that every run has cannot be enforced, or nothing can be recorded."""
    SKIP = "skip"
    """It cannot be told here, or plays no part here."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer of one check."""

    name: str
    """Stable: what `sandbox doctor NAME` asks for, such as `memory-peak`."""
    group: str
    state: State
    why: str
    """One line for people: what was found and what follows from it."""
    fix: str | None = None
    """Commands to paste into a shell; None where there is nothing to do, or no command does it."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything that was found on a host."""

    mode: Mode
    mode_reason: str
    findings: tuple[Finding, ...]

    @property
    def is_usable(self) -> bool:
        """Return whether nothing fails."""
        return all(finding.state is not State.FAIL for finding in self.findings)
