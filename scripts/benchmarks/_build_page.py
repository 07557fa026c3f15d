"""Put the figures of `scripts/bench build --json FILE` into the documentation.

`python scripts/benchmarks/_build_page.py FILE` writes the table of docs/reference/performance.md
between its two marks.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _page import described, renew

Measured = dict[str, Any]


def figures(record: dict[str, Any]) -> tuple[Measured, list[Measured]]:
    """Return what was measured of second builds, and of builds beside Docker's.

    Raises:
        ValueError: one of the two was not.
    """
    found = [result for result in record["results"] if result["benchmark"] == "build"]
    seconds = [result for result in found if result["details"]]
    beside = [result for result in found if result["ratio"] is not None]
    if len(seconds) != 1 or not beside:
        raise ValueError("there are no figures of builds, or none beside Docker's, in this file")
    return seconds[0], beside


def table(beside: Sequence[Measured]) -> str:
    """Return the table: a row for each build, with the interval of the ratio."""
    lines = ["| what | `sandbox image build` | `docker build` | ratio |", "|---" * 4 + "|"]
    for result in beside:
        low, high = result["interval"]
        lines.append(
            f"| {result['what']} | {result['ours'] / 1000:.2f} s | {result['peer'] / 1000:.2f} s "
            f"| {result['ratio']:.2f} ({low:.2f} to {high:.2f}) |"
        )
    return "\n".join(lines) + "\n"


def sentence(seconds: Measured) -> str:
    """Return what second builds of all Dockerfiles take."""
    times = seconds["details"]
    slowest = max(times, key=lambda name: times[name])
    return (
        f"Second builds of the {len(times)} Dockerfiles of the tests take "
        f"{statistics.median(times.values()):.0f} ms in the middle, and\n"
        f"{times[slowest]:.0f} ms at most (`{slowest}`); the bar is {seconds['bar']}.\n"
    )


def main() -> None:
    """Write the page."""
    record = json.loads(Path(sys.argv[1]).read_text())
    seconds, beside = figures(record)
    text = f"{table(beside)}\n{sentence(seconds)}\n{described(record['host'])}\n"
    renew("build", text)


if __name__ == "__main__":
    main()
