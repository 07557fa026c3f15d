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

from _page import described, renew

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


def main() -> None:
    """Write the page."""
    record = json.loads(Path(sys.argv[1]).read_text())
    text = f"{table(figures(record))}\n{described(record['host'])}\n"
    renew("image", text)


if __name__ == "__main__":
    main()
