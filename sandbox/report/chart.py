"""Small charts of characters: a line of blocks, and a few lines of them with a scale."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.report.style import Style

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = " .:-=+*%#"
_LEVELS = len(_BLOCKS) - 1


def render_sparkline(
    values: Sequence[float | None], width: int, *, top: float | None = None, unicode: bool = True
) -> str:
    """Return values over time in one line of at most `width` characters.

    A value above zero is always visible, an absent one is blank. `top` is the value of a full
    block; without it, the largest.
    """
    return _lines(values, width, 1, top, unicode=unicode)[0]


def render_chart(
    values: Sequence[float | None],
    *,
    top: float,
    labels: tuple[str, str],
    height: int,
    style: Style,
) -> list[str]:
    """Return values over time as `height` lines with a scale from 0 to `top` at the left.

    `labels` name the top and the bottom of the scale.
    """
    edge = "┤" if style.unicode else "|"
    margin = max(map(len, labels))
    lines = _lines(values, style.width - margin - 3, height, top, unicode=style.unicode)
    texts = [labels[0], *[""] * (height - 2), labels[1]] if height > 1 else [labels[0]]
    return [
        f"{text.rjust(margin)} {style.paint(edge, 'dim')}"
        + style.paint(f" {line}".rstrip(), "cyan")
        for text, line in zip(texts, lines, strict=True)
    ]


def _lines(
    values: Sequence[float | None], width: int, height: int, top: float | None, *, unicode: bool
) -> list[str]:
    """Return the lines of a chart, the highest first."""
    blocks = _BLOCKS if unicode else _ASCII_BLOCKS
    shown = _squeeze(values, max(width, 1))
    full = top if top is not None else max((v for v in shown if v is not None), default=0.0)
    levels = [_level(value, full, height * _LEVELS) for value in shown]
    return [
        "".join(blocks[min(max(level - row * _LEVELS, 0), _LEVELS)] for level in levels)
        for row in reversed(range(height))
    ]


def _level(value: float | None, full: float, most: int) -> int:
    if value is None or value <= 0 or full <= 0:
        return 0
    return max(1, min(round(value / full * most), most))


def _squeeze(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return at most `width` values, each the largest of those it stands for."""
    if len(values) <= width:
        return list(values)
    squeezed: list[float | None] = []
    for index in range(width):
        part = values[index * len(values) // width : (index + 1) * len(values) // width]
        squeezed.append(max((value for value in part if value is not None), default=None))
    return squeezed
