"""The page of the documentation that the figures of benchmarks are written into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "reference" / "performance.md"


def described(host: dict[str, Any]) -> str:
    """Return where it was measured, and whether the machine had other work to do."""
    where = (
        f"On {host['cpu']}, {host['cpus']} CPUs, Linux {host['kernel'].partition('-')[0]}, "
        f"Python {host['python']}, load {host['load']:.1f}."
    )
    is_busy = host["load"] > host["cpus"] + 2  # what is measured needs about two itself
    return where + ("\nOther programs kept the machine busy: the times are too long." * is_busy)


def renewed(page: str, name: str, text: str) -> str:
    """Return the page with other figures between the two marks of a table.

    Raises:
        ValueError: it has not both marks.
    """
    begins, ends = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, begin, rest = page.partition(begins)
    _, end, tail = rest.partition(ends)
    if not (begin and end):
        raise ValueError(f"the page has no {begins} with an {ends}")
    return f"{head}{begin}\n{text}{end}{tail}"


def renew(name: str, text: str) -> None:
    """Write other figures into the page."""
    PAGE.write_text(renewed(PAGE.read_text(), name, text))
    print(f"wrote {PAGE}")
