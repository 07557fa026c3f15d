"""Numbers as people read them."""

from __future__ import annotations

import pytest

from sandbox.report.numbers import waited_share


@pytest.mark.parametrize(
    ("waited_usec", "wall_ns", "share"),
    [
        (17_000, 15_000_000, 1.0),
        (1_500, 15_000_000, 0.1),
        (0, 15_000_000, 0.0),
        (None, 1, None),
        (5, 0, None),
        (5, None, None),
    ],
)
def test_nobody_waits_longer_than_the_run(
    waited_usec: int | None, wall_ns: int | None, share: float | None
) -> None:
    assert waited_share(waited_usec, wall_ns) == share
