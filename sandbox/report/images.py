"""The list of images: one line a name, in the caller's order."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.records.light import dataclass
from sandbox.report.listing import age_text
from sandbox.report.numbers import size_text
from sandbox.report.style import Style, printable

_HEADS = ("IMAGE", "ID", "PLATFORM", "SIZE", "ADDED")


@dataclass(frozen=True, kw_only=True)
class ImageRow:
    """One name of an image."""

    name: str | None
    """Short, as people type it; None for an image without one."""
    short_id: str
    platform: str
    size_bytes: int
    """Unpacked."""
    age_ns: int


def render_images(rows: Iterable[ImageRow], *, width: int, color: bool, unicode: bool) -> str:
    """Return one line a name under a line of headings, or what to do if there is none."""
    from tabulate import tabulate

    style = Style(width=width, color=color, unicode=unicode)
    lines = [_cells(row) for row in rows]
    if not lines:
        return "no images yet, fetch one: `sandbox image pull debian`"
    text = tabulate(
        lines,
        headers=_HEADS,
        tablefmt="plain",
        colalign=("left", "left", "left", "right", "left"),
        disable_numparse=True,
    )
    head, *body = text.splitlines()
    return style.plain("\n".join([style.paint(head, "dim"), *body]))


def _cells(row: ImageRow) -> tuple[str, ...]:
    return (
        printable(row.name or "<none>"),
        row.short_id,
        printable(row.platform),
        size_text(row.size_bytes),
        age_text(row.age_ns),
    )
