"""Put the figures of `scripts/bench stats --json FILE` into the documentation.

`python scripts/benchmarks/_stats_page.py FILE` writes the table of docs/reference/performance.md
between its two marks, and the picture beside it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _page import DOCS, described, renew

PICTURE = DOCS / "images" / "stats-cost.svg"

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 40, 50
_COLORS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd")
_NAMES = "sandbox stats, {} Hz"
_DOCKER = "docker stats, 1 Hz"

_SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'font-family="sans-serif" font-size="12">'
)

Cost = dict[str, float]


def costs(record: dict[str, Any]) -> list[Cost]:
    """Return what was measured by count and rate.

    Raises:
        ValueError: nothing was.
    """
    found = [
        result["details"] for result in record["results"] if "rate_hz" in result.get("details", {})
    ]
    if not found:
        raise ValueError("there are no figures of stats beside docker in this file")
    return found


def table(found: Sequence[Cost]) -> str:
    """Return the table: a row for each count, ours by rate and docker's."""
    rates = sorted({int(cost["rate_hz"]) for cost in found})
    lines = [
        "| containers | "
        + " | ".join(f"`sandbox stats`, {rate} Hz" for rate in rates)
        + " | `docker stats`, 1 Hz | ratio at 1 Hz |",
        "|---" * (len(rates) + 3) + "|",
    ]
    for count in sorted({int(cost["containers"]) for cost in found}):
        ours = {int(cost["rate_hz"]): cost for cost in found if cost["containers"] == count}
        docker = ours[rates[0]]["docker_usec_per_sec"]
        cells = [_cell(ours[rate]["ours_usec_per_sec"], count * rate) for rate in rates]
        ratio = docker / ours[rates[0]]["ours_usec_per_sec"] * rates[0]
        lines.append(
            f"| {count} | {' | '.join(cells)} | {_cell(docker, count)} | 1 : {ratio:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _cell(usec_per_sec: float, samples: float) -> str:
    return f"{usec_per_sec / samples:.0f} µs ({usec_per_sec / 1e4:.2g} %)"


def picture(found: Sequence[Cost]) -> str:
    """Return a plot: cost of a sample over the number of containers, both in powers of ten."""
    rates = sorted({int(cost["rate_hz"]) for cost in found})
    series = [(_DOCKER, _points(found, rates[0], "docker_usec_per_sec", 1))]
    series += [(_NAMES.format(rate), _points(found, rate, "ours_usec_per_sec")) for rate in rates]
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    widest = math.log10(max(xs)) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log10(x) / widest
        up = (math.log10(y) - low) / (high - low)
        return (
            _LEFT + across * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [
        _SVG,
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">CPU time for one container and sample</text>',
    ]
    for power in range(low, high + 1):
        x, y = place(1, 10.0**power)
        parts.append(f'<path d="M{x:.0f} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x - 8:.0f}" y="{y + 4:.1f}" text-anchor="end">{10**power} µs</text>'
        )
    for count in sorted(set(xs)):
        x, y = place(count, 10.0**low)
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{count:.0f}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">containers</text>')
    for (name, points), color in zip(series, _COLORS, strict=False):
        parts += _curve(name, [place(*point) for point in points], color)
    return "\n".join(parts) + "\n</svg>\n"


def _points(
    found: Sequence[Cost], rate: int, column: str, samples_per_sec: int | None = None
) -> list[tuple[float, float]]:
    per_sec = rate if samples_per_sec is None else samples_per_sec
    return sorted(
        (cost["containers"], cost[column] / cost["containers"] / per_sec)
        for cost in found
        if cost["rate_hz"] == rate
    )


def _curve(name: str, points: Sequence[tuple[float, float]], color: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>'
    x, y = points[-1]
    yield f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{color}">{name}</text>'


def main() -> None:
    """Write the page and the picture."""
    record = json.loads(Path(sys.argv[1]).read_text())
    found = costs(record)
    renew("stats", f"{table(found)}\n{described(record['host'])}\n")
    PICTURE.write_text(picture(found))
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
