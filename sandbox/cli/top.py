"""`sandbox top`: running sandboxes on the whole screen."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandbox.cli.console import Interrupted, has_unicode
from sandbox.cli.watch_options import Cgroups, Interval, Names
from sandbox.errors import HostError
from sandbox.units import NS_PER_SEC

if TYPE_CHECKING:
    from sandbox.control.board import Board

_HINT = "`sandbox stats --wide` prints the same figures anywhere"
_ESCAPE_MS = "25"  # how long the rest of a key's code may take after its first byte


def top(
    names: Names = None,
    cgroup: Cgroups = None,
    interval: Interval = None,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="RUN",
            show_default=False,
            help="Play a recorded run: an id, its beginning, a name, or a path.",
        ),
    ] = None,
) -> None:
    """Show running sandboxes on the whole screen, with curves of the selected one.

    Arrows select; c, m, n and t sort by CPU, memory, name and age; p pauses or lets go, s stops and
    k kills the selected one; q quits. In a replay, space holds it, left and right move by 5 s, plus
    and minus change the speed. CPU % is by the clock: 100 is one CPU.
    """
    if replay is not None and (names or cgroup):
        raise typer.BadParameter("a replay is of one recorded run alone")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise HostError(
            "`sandbox top` needs a terminal to draw on",
            hint=_HINT,
        )
    from sandbox.control.board import Board
    from sandbox.control.stats import Watch, WatchSpec

    interval_ns = NS_PER_SEC if interval is None else interval
    if replay is not None:
        show(_replay_board(replay), interval_ns / NS_PER_SEC)
        return
    spec = WatchSpec(
        names=names or (), cgroups=cgroup or (), is_whole=True, interval_ns=interval_ns
    )
    watch = Watch(spec)
    try:
        show(Board(watch), interval_ns / NS_PER_SEC)
    finally:
        watch.close()


def _replay_board(run: str) -> "Board":
    from sandbox.control.board import Board
    from sandbox.control.replay import KEYS, Replay
    from sandbox.store.reading import load

    source = Replay(load(run))
    return Board(source, None, title="sandbox top: replay", keys=KEYS, more=source.press)


def show(board: "Board", interval_sec: float) -> None:
    """Draw a board until its user quits.

    Raises:
        HostError: the terminal cannot be drawn on.
    """
    import locale

    try:
        import curses
    except ImportError as exc:  # some builds of Python leave it out
        raise HostError(f"the terminal cannot be drawn on: {exc}", hint=_HINT) from exc
    os.environ.setdefault("ESCDELAY", _ESCAPE_MS)
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")  # curses encodes by it
    try:
        curses.wrapper(_loop, board, interval_sec)
    except curses.error as exc:
        name = os.environ.get("TERM", "")
        raise HostError(
            f"a terminal of the kind `{name}` cannot be drawn on: {exc}", hint=_HINT
        ) from exc


def _loop(window: Any, board: "Board", interval_sec: float) -> None:
    import curses

    with suppress(curses.error):  # not every terminal can hide it
        curses.curs_set(0)
    due = time.monotonic()
    while True:
        if time.monotonic() >= due:
            board.look()
            due += interval_sec * max(1, -(-(time.monotonic() - due) // interval_sec))
        _draw(window, board)
        window.timeout(max(0, int((due - time.monotonic()) * 1_000)) + 1)
        try:
            code = window.getch()
        except Interrupted as stop:
            if stop.number == signal.SIGINT:
                return
            raise
        if code >= 0 and not board.press(_name_of(code)):
            return


def _name_of(code: int) -> str:
    """Return `up`, `pagedown` …, or the character of a key; nothing for those without meaning."""
    import curses

    names = {
        curses.KEY_UP: "up",
        curses.KEY_DOWN: "down",
        curses.KEY_LEFT: "left",
        curses.KEY_RIGHT: "right",
        curses.KEY_PPAGE: "pageup",
        curses.KEY_NPAGE: "pagedown",
        curses.KEY_HOME: "home",
        curses.KEY_END: "end",
    }
    return names.get(code) or (chr(code) if 0 <= code < 128 else "")  # noqa: PLR2004 - ASCII


def _draw(window: Any, board: "Board") -> None:
    import curses

    from sandbox.report.top import render_top

    looks = {
        "title": curses.A_BOLD,
        "head": curses.A_BOLD,
        "selected": curses.A_REVERSE,
        "dim": curses.A_DIM,
        "prompt": curses.A_BOLD,
    }
    height, width = window.getmaxyx()
    window.erase()
    lines = render_top(board.view(), width, height, unicode=has_unicode(sys.stdout))
    for number, line in enumerate(lines):
        text = line.text.ljust(width) if line.role == "selected" else line.text
        try:
            window.addnstr(number, 0, text, width, looks.get(line.role, curses.A_NORMAL))
        except curses.error:
            continue  # the last cell of the screen is written, then the cursor has no place
    window.refresh()
