"""`-o FILE`: a run as JSON, or its samples as JSON lines or CSV; the extension decides.

Raw integers stay as the kernel gave them; units stand in the names. What the host cannot give, or
what a table does not have at a time, is an empty cell in CSV and not there at all in JSON lines.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from sandbox.analysis.usage import rate_per_sec
from sandbox.errors import SpecError, StoreError
from sandbox.records.codec import to_json
from sandbox.records.result import RunResult
from sandbox.records.sample import ABSENT, COLUMNS, TIME, Block, Table
from sandbox.units import NS_PER_SEC, USEC_PER_SEC

EXTENSIONS = (".json", ".jsonl", ".csv")

SINCE_START = "since_start_s"
UTC_TIME = "utc"
CPU_RATE = "cpu_cpus"
"""CPUs in use since the row before that has a CPU counter: 1.0 is one full CPU."""

_USAGE = "cpu_usage_usec"
_BLOCKS_SEEN_FIRST = 64
_NS_PER_USEC = 1_000

Row = dict[str, int]
"""The columns that were read at one time."""
Cell = int | float | str


def check_export_path(path: Path | str, *, force: bool = False) -> None:
    """Refuse what could not be written after the run, before the run starts.

    Raises:
        SpecError: the extension is unknown, there is no such directory, it cannot be written, or
            the file exists and `force` does not allow to overwrite it.
    """
    target = Path(path)
    if target.suffix.lower() not in EXTENSIONS:
        raise SpecError(
            f"cannot tell the format of {target} from its extension",
            hint=f"use one of {', '.join(EXTENSIONS)}",
        )
    if check_file(target) and not force:
        raise SpecError(f"{target} exists already", hint="--force overwrites it")


def check_file(target: Path) -> bool:
    """Refuse what could not be written later; return whether it is there.

    Raises:
        SpecError: there is no such directory, it cannot be written, or this is no file.
    """
    try:
        directory = _real(target).parent
        found = _stat(target)
    except (OSError, RuntimeError) as exc:  # a name that is too long, links in a circle
        raise SpecError(
            f"cannot write {target}: {getattr(exc, 'strerror', exc)}",
            hint="make the directory first, or name another file",
        ) from exc
    if not directory.is_dir():
        raise SpecError(
            f"cannot write {target}: there is no directory {directory}",
            hint=f"`mkdir -p {directory}`",
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise SpecError(
            f"cannot write {target}: no permission to write to {directory}",
            hint="name a file in a directory of your own",
        )
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise SpecError(
            f"cannot write {target}: it is not a regular file", hint="name another file"
        )
    return found is not None


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_export(
    path: Path | str, result: RunResult, blocks: Iterable[Block], *, force: bool = False
) -> None:
    """Write a run to a file, whole or not at all.

    Args:
        path: Its extension decides the format; mode as the umask says.
        result: The run.
        blocks: Its samples, in the order in which they were written.
        force: Overwrite a file that exists.

    Raises:
        SpecError: as `check_export_path`.
        StoreError: it cannot be written, or the samples cannot be read.
    """
    check_export_path(path, force=force)
    target = _real(Path(path))
    render = _RENDERERS[Path(path).suffix.lower()]
    temporary = target.with_name(f".{result.run_id}.{os.getpid()}.new")
    try:
        try:
            with temporary.open("x", encoding="utf-8", newline="") as file:
                file.writelines(render(result, blocks))
            _put_in_place(temporary, target, force=force)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(
            f"cannot write {path}: {exc.strerror or exc}",
            hint=f"the run itself is kept: `sandbox runs show {result.name}`"
            if result.directory
            else None,
        ) from exc


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, over one that is there.

    Raises:
        StoreError: it cannot be written.
    """
    target = _real(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        try:
            temporary.write_text(text, "utf-8")
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(
            f"cannot write {path}: {exc.strerror or exc}",
            hint="what was measured stands above; `sandbox runs ls` lists its runs",
        ) from exc


def _put_in_place(temporary: Path, target: Path, *, force: bool) -> None:
    if force:
        temporary.replace(target)
        return
    try:
        target.hardlink_to(temporary)  # unlike a rename, it refuses what came to be meanwhile
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.replace(target)


def _real(path: Path) -> Path:
    """Return what a link points to: a rename would replace the link instead."""
    return path.resolve() if path.is_symlink() else path.absolute()


def render_json(result: RunResult, blocks: Iterable[Block] = ()) -> Iterator[str]:
    """Yield the text of `run.json`; samples are not part of it."""
    del blocks
    yield to_json(result)


def render_jsonl(result: RunResult, blocks: Iterable[Block]) -> Iterator[str]:
    """Yield one line of JSON for each time at which something was read."""
    for cells in _cells(result, blocks):
        yield json.dumps(cells, separators=(",", ":")) + "\n"


def render_csv(result: RunResult, blocks: Iterable[Block]) -> Iterator[str]:
    """Yield a line of names, then one line for each time at which something was read."""
    ahead = iter(blocks)
    first = list(islice(ahead, _BLOCKS_SEEN_FIRST))
    names = (TIME, SINCE_START, UTC_TIME, CPU_RATE, *_columns_of(first))
    yield ",".join(names) + "\n"
    for cells in _cells(result, chain(first, ahead)):
        # Numbers and time stamps: nothing here ever needs quotes.
        yield ",".join(str(cells.get(name, "")) for name in names) + "\n"


_RENDERERS: dict[str, Callable[[RunResult, Iterable[Block]], Iterator[str]]] = {
    ".json": render_json,
    ".jsonl": render_jsonl,
    ".csv": render_csv,
}


def _columns_of(blocks: Sequence[Block]) -> list[str]:
    """Return the columns of both tables, the fast one first.

    Both tables are read when a program starts. Should one be missing so far, all columns that
    could still come get their place.
    """
    seen = {block.table: block.columns for block in blocks}
    names = [name for table in Table for name in seen.get(table, ()) if name != TIME]
    if len(seen) < len(Table) and len(blocks) == _BLOCKS_SEEN_FIRST:
        names += [name for name in COLUMNS if name not in {TIME, *names}]
    return list(dict.fromkeys(names))


def _cells(result: RunResult, blocks: Iterable[Block]) -> Iterator[dict[str, Cell]]:
    before: tuple[int, int] | None = None
    for time_ns, row in merge(blocks):
        since_ns = time_ns - result.started_ns
        cells: dict[str, Cell] = {
            TIME: time_ns,
            SINCE_START: round(since_ns / NS_PER_SEC, 9),
            UTC_TIME: _stamp(result.started_utc_ns + since_ns),
        }
        usage = row.get(_USAGE)
        if usage is not None:
            if before is not None:
                rate = rate_per_sec(before[1], usage, time_ns - before[0])
                if rate is not None:
                    cells[CPU_RATE] = round(rate / USEC_PER_SEC, 6)
            before = time_ns, usage
        cells.update(row)
        yield cells


def _stamp(utc_ns: int) -> str:
    seconds, rest_ns = divmod(utc_ns, NS_PER_SEC)
    return f"{_second(seconds)}.{rest_ns // _NS_PER_USEC:06}Z"


@lru_cache(maxsize=4)  # a hundred rows share it
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def merge(blocks: Iterable[Block]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of both tables by time, as one row where both were read at the same time.

    A block is held back only until one of the other table shows how far that has come; when the
    same table comes again instead, the other had nothing to say, but perhaps at the last time.
    """
    waiting: dict[Table, list[tuple[int, Row]]] = {table: [] for table in Table}
    reached: dict[Table, int] = {}
    for block in blocks:
        rows = _rows(block)
        if not rows:
            continue
        if waiting[block.table]:
            yield from _take(waiting, waiting[block.table][-1][0] - 1)
        waiting[block.table] += rows
        reached[block.table] = rows[-1][0]
        if len(reached) == len(waiting):
            yield from _take(waiting, min(reached.values()))
    yield from _take(waiting, None)


def _rows(block: Block) -> list[tuple[int, Row]]:
    names = block.columns
    return [
        (
            row[0],
            {
                name: value
                for name, value in zip(names[1:], row[1:], strict=True)
                if value != ABSENT
            },
        )
        for row in block.rows()
    ]


def _take(
    waiting: Mapping[Table, list[tuple[int, Row]]], until_ns: int | None
) -> Iterator[tuple[int, Row]]:
    """Yield what waits, up to a time, and let it go."""
    ready: list[tuple[int, Row]] = []
    for rows in waiting.values():
        count = len(rows)
        if until_ns is not None:
            count = next((place for place, row in enumerate(rows) if row[0] > until_ns), count)
        ready += rows[:count]
        del rows[:count]
    ready.sort(key=lambda row: row[0])  # two ordered halves: a merge, for this sort
    last: tuple[int, Row] | None = None
    for time_ns, row in ready:
        if last is not None and last[0] == time_ns:
            last[1].update(row)
            continue
        if last is not None:
            yield last
        last = time_ns, row
    if last is not None:
        yield last
