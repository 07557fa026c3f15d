"""`sandbox stats`: docker's columns and more, live, for sandboxes and for any other group."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from sandbox.cli.screen import Screen
from sandbox.cli.watch_options import Cgroups, Interval, Names
from sandbox.records.stats import StatsRow
from sandbox.units import NS_PER_SEC

if TYPE_CHECKING:
    from sandbox.control.stats import Watch

_API = "api"
_DOCKERS = ("", "table", "json")  # formats that show docker's columns alone
_QUIT = "q"


class Output(Protocol):
    """One way to print rows."""

    needs_rates: bool
    """Whether a single picture is worth waiting for a second reading."""
    is_table: bool

    def render(self, rows: Sequence[StatsRow]) -> str:
        """Return the text for one look at all rows."""
        ...


class _Csv:
    needs_rates = is_table = False

    def __init__(self) -> None:
        self._has_header = False

    def render(self, rows: Sequence[StatsRow]) -> str:
        from sandbox.report.stats_rows import render_csv

        text = render_csv(rows, header=not self._has_header)
        self._has_header = True
        return text


class _JsonLines:
    needs_rates = is_table = False

    def render(self, rows: Sequence[StatsRow]) -> str:
        from sandbox.report.stats_rows import render_jsonl

        return render_jsonl(rows)


class _Api:
    needs_rates, is_table = True, False

    def render(self, rows: Sequence[StatsRow]) -> str:
        from sandbox.report.stats_api import render_api

        return render_api(rows)


class _View:
    needs_rates = True

    def __init__(self, text: str, *, truncate: bool, wide: bool) -> None:
        from sandbox.report.stats import StatsView

        self._view = StatsView(text, truncate=truncate, wide=wide)
        self.is_table = text.startswith("table") or not text

    def render(self, rows: Sequence[StatsRow]) -> str:
        return self._view.render(rows)


def stats(
    names: Names = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that have ended.")
    ] = False,
    cgroup: Cgroups = None,
    interval: Interval = None,
    no_stream: Annotated[bool, typer.Option("--no-stream", help="Show it once, and end.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay when the last sandbox has ended.")
    ] = False,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="Also share of the CPU limit, throttling, peak, swap, stalls, rates, processes.",
        ),
    ] = False,
    no_trunc: Annotated[bool, typer.Option("--no-trunc", help="Whole ids.")] = False,
    format_text: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            show_default=False,
            help="table, json, a template as docker's, table TEMPLATE, or api: the objects of "
            "docker's API.",
        ),
    ] = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="Raw numbers as CSV.")] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Raw numbers, one JSON object a line.")
    ] = False,
) -> None:
    """Show what running sandboxes use, as `docker stats` does, until the last one has ended.

    On a terminal, q ends it too.
    """
    from sandbox.control.stats import Watch, WatchSpec

    interval_ns = NS_PER_SEC if interval is None else interval
    output = _output(format_text, as_csv, as_jsonl, truncate=not no_trunc, wide=wide)
    spec = WatchSpec(
        names=names or (),
        cgroups=cgroup or (),
        with_ended=show_all,
        is_whole=wide or as_csv or as_jsonl or format_text not in _DOCKERS,
        interval_ns=interval_ns,
    )
    _allow_many_files()
    watched = Watch(spec)
    # What is here now stays to the end: the collector need not look at it again and again.
    gc.freeze()
    try:
        if no_stream:
            sys.stdout.write(output.render(_look_once(watched, output, interval_ns)))
        else:
            _stream(watched, output, interval_ns, stays=watch)
    finally:
        watched.close()


def _allow_many_files() -> None:
    """Take as many descriptors as the system gives: each row keeps about ten."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _output(
    format_text: str, as_csv: bool, as_jsonl: bool, *, truncate: bool, wide: bool
) -> Output:
    if bool(format_text) + as_csv + as_jsonl > 1:
        raise typer.BadParameter("give one of --format, --csv and --jsonl")
    if as_csv:
        return _Csv()
    if as_jsonl:
        return _JsonLines()
    if format_text == _API:
        return _Api()
    return _View(format_text, truncate=truncate, wide=wide)


def _look_once(watched: "Watch", output: Output, interval_ns: int) -> Sequence[StatsRow]:
    rows = watched.read()
    if output.needs_rates and not watched.is_primed:
        time.sleep(min(interval_ns, NS_PER_SEC) / NS_PER_SEC)
        rows = watched.read()
    return rows


def _stream(watched: "Watch", output: Output, interval_ns: int, *, stays: bool) -> None:
    """Show every look; on a terminal a table over the last one, else one after the other."""
    if output.is_table and sys.stdout.isatty():
        with Screen() as screen:
            _loop(watched, output, interval_ns, stays=stays, show=screen.draw, wait=screen.wait)
    else:
        _loop(watched, output, interval_ns, stays=stays, show=_print, wait=_sleep)


def _loop(
    watched: "Watch",
    output: Output,
    interval_ns: int,
    *,
    stays: bool,
    show: Callable[[str], None],
    wait: Callable[[float], str | None],
) -> None:
    interval = interval_ns / NS_PER_SEC
    due = time.monotonic()
    has_shown = False
    while True:
        rows = watched.read()
        is_over = watched.is_over and not stays
        if rows or not has_shown or not is_over:  # the end of all leaves their last figures
            show(output.render(rows))
            has_shown = True
        if is_over:
            return
        # A look that came late is not made up for: the next one is on the grid again.
        due += interval * max(1, -(-(time.monotonic() - due) // interval))
        if (wait(due) or "").lower().startswith(_QUIT):
            return


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _sleep(until: float) -> None:
    time.sleep(max(until - time.monotonic(), 0))
