"""Who is refused when a limit is not in force, and what such a one can do."""

from __future__ import annotations

import pytest

from sandbox.engine.limits import refuse_unenforced
from sandbox.errors import HostError
from sandbox.records.limits import LimitReport, LimitState


@pytest.mark.parametrize(
    ("state", "how"),
    [(LimitState.APPROXIMATED, "approximated"), (LimitState.UNAVAILABLE, "ignored")],
)
def test_the_hint_fits_those_who_gave_no_strict(state: LimitState, how: str) -> None:
    report = LimitReport(name="memory", asked="64 MiB", state=state, reason="no group")

    with pytest.raises(HostError, match="memory limit of 64 MiB cannot be enforced") as caught:
        refuse_unenforced((report,))

    hint = caught.value.hint or ""
    assert hint.startswith(f"`sandbox doctor {report.check}` says what it takes, such as root or ")
    assert "budgets and sweeps need it in force" in hint
    assert hint.endswith(how)
