"""Put the figures of `scripts/bench image --json FILE` into the documentation.

`python scripts/benchmarks/_image_page.py FILE` writes the table of docs/reference/performance.md
between its two marks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "performance.md"
BEGIN, END = "<!-- image: begin -->", "<!-- image: end -->"

Measured = dict[str, Any]


def figures(record: dict[str, Any]) -> list[Measured]:
    """Return what was measured of images.

    Raises:
        ValueError: nothing was.
    """
    found = [
        result
        for result in record["results"]
        if result["benchmark"] == "image" and result["ratio"] is not None
    ]
    if not found:
        raise ValueError("there are no figures of images in this file")
    return found


def table(found: Sequence[Measured]) -> str:
    """Return the table: a row for each of the others, with the interval of the ratio."""
    lines = ["| from where | `sandbox image` | the other | | ratio |", "|---" * 5 + "|"]
    before = ""
    for result in found:
        what = "" if result["what"] == before else result["what"]
        before = result["what"]
        low, high = result["interval"]
        lines.append(
            f"| {what} | {result['ours']:.2f} s | `{result['peer_name']}` | {result['peer']:.2f} s "
            f"| {result['ratio']:.2f} ({low:.2f} to {high:.2f}) |"
        )
    return "\n".join(lines) + "\n"


def described(host: dict[str, Any]) -> str:
    """Return where it was measured, and whether the machine had other work to do."""
    where = (
        f"On {host['cpu']}, {host['cpus']} CPUs, Linux {host['kernel'].partition('-')[0]}, "
        f"Python {host['python']}, load {host['load']:.1f}."
    )
    is_busy = host["load"] > host["cpus"] + 2  # what is measured needs about two itself
    return where + ("\nOther programs kept the machine busy: the times are too long." * is_busy)


def renewed(page: str, text: str) -> str:
    """Return the page with other figures between its marks.

    Raises:
        ValueError: it has not both marks.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} with an {END}")
    return f"{head}{BEGIN}\n{text}{END}{tail}"


def main() -> None:
    """Write the page."""
    record = json.loads(Path(sys.argv[1]).read_text())
    text = f"{table(figures(record))}\n{described(record['host'])}\n"
    PAGE.write_text(renewed(PAGE.read_text(), text))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
