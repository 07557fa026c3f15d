"""What a run has printed, as far as it was kept: the end of each stream."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox.report.style import Style, printable

_END_BYTES = 4_096
_SHOWN_LINES = 8


def captured_lines(paths: Sequence[Path], style: Style) -> Iterator[str]:
    """Yield the last lines of each file of output under its path; nothing for an empty one."""
    for path in paths:
        try:
            lines, is_cut = _end_of(path)
        except OSError:  # it was removed, or is another user's
            continue
        if lines:
            yield ""
            what = f"{path.name}, its last lines" if is_cut else path.name
            yield f"{style.paint(what, 'bold')}: {printable(str(path))}"
            yield from (f"  {printable(line)}" for line in lines)


def _end_of(path: Path) -> tuple[list[str], bool]:
    """Return the last lines, and whether there are others before them."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_BYTES))
        lines = file.read().decode("utf-8", "replace").rstrip().splitlines()
    return lines[-_SHOWN_LINES:], size > _END_BYTES or len(lines) > _SHOWN_LINES
