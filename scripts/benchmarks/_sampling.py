"""The process that is measured: our loop, sampler, reader and record, on groups that exist.

It prints one line of JSON. `--files` prints instead which files one fast and one slow reading
take, so that the peer in C can be told to read the same ones.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path

from _group import find_group

from sandbox.kernel.group import Reader
from sandbox.records.sample import TIME, SampleSink
from sandbox.sampling.clock import monotonic
from sandbox.sampling.loop import Loop
from sandbox.sampling.sampler import Sampler
from sandbox.store.directory import open_directory

WARM_UP_NS = 1_300_000_000  # past the first block, which loads the compressor
_HARD_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


class FastOnly:
    """A reader whose slow table is empty."""

    def __init__(self, reader: Reader) -> None:
        self.fast_columns = reader.fast_columns
        self.slow_columns: tuple[str, ...] = ()
        self.read_fast = reader.read_fast
        self.close = reader.close

    def read_slow(self) -> list[int]:
        """Read nothing."""
        return []


class FastRecord:
    """A sink whose slow table stays empty."""

    def __init__(self, sink: SampleSink) -> None:
        self.fast = sink.fast
        self.close = sink.close

    def slow(self, row: Sequence[int]) -> None:
        """Drop the row."""


class NoRecord:
    """A sink that keeps nothing."""

    def fast(self, row: Sequence[int]) -> None:
        """Drop the row."""

    def slow(self, row: Sequence[int]) -> None:
        """Drop the row."""

    def close(self) -> None:
        """Do nothing."""


def main() -> None:
    """Sample the groups that are named, or say what would be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_ids", nargs="+")
    parser.add_argument("--interval-ns", type=int, default=10_000_000)
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--slow", action="store_true", help="the slow table too")
    parser.add_argument("--home", type=Path, help="where to keep a record; without it none is kept")
    parser.add_argument("--files", action="store_true")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (_HARD_LIMIT, _HARD_LIMIT))
    if asked.files:
        print(json.dumps(files_of(asked.run_ids[0])))
        return
    print(json.dumps(sample(asked)))


def files_of(run_id: str) -> dict[str, list[str]]:
    """Return the files that one reading of each table preads, in order."""
    seen: list[str] = []
    pread = os.pread

    def noted(fd: int, length: int, offset: int) -> bytes:
        seen.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        return pread(fd, length, offset)

    os.pread = noted
    reader = open_reader(run_id)
    reader.read_fast()  # the first one may look further than those that follow
    seen.clear()
    reader.read_fast()
    fast = list(seen)
    seen.clear()
    reader.read_slow()
    return {"fast": fast, "slow": list(seen)}


def open_reader(run_id: str) -> Reader:
    """Return a reader of a group that somebody else made."""
    group = find_group(run_id)
    group.start()
    return group.open_reader()


def sample(asked: argparse.Namespace) -> dict[str, float]:
    """Sample as a run does, and return the CPU time of one tick."""
    samplers: list[Sampler] = []
    sinks: list[SampleSink] = []
    for run_id in asked.run_ids:
        reader = open_reader(run_id)
        if not asked.slow:
            reader = FastOnly(reader)
        sink: SampleSink = NoRecord()
        if asked.home is not None:
            directory = open_directory(asked.home, run_id, run_id)
            sink = directory.open_sink((TIME, *reader.fast_columns), (TIME, *reader.slow_columns))
            sink = sink if asked.slow else FastRecord(sink)
        sinks.append(sink)
        samplers.append(Sampler(reader, sink, monotonic, asked.interval_ns))
    starts_ns = [sampler.first() for sampler in samplers]

    loop = Loop()
    ticks_left = asked.ticks + WARM_UP_NS // asked.interval_ns
    cpu_started_ns = wall_started_ns = 0

    def tick(expirations: int) -> None:
        nonlocal ticks_left, cpu_started_ns, wall_started_ns
        if ticks_left == asked.ticks:
            cpu_started_ns, wall_started_ns = time.process_time_ns(), time.monotonic_ns()
        for sampler in samplers:
            sampler.tick(expirations)
        ticks_left -= 1
        if not ticks_left:
            loop.stop()

    loop.every(asked.interval_ns, tick, starts_ns[0])
    loop.run()
    cpu_ns, wall_ns = time.process_time_ns() - cpu_started_ns, time.monotonic_ns() - wall_started_ns
    loop.close()
    for sink in sinks:
        sink.close()
    overhead = samplers[0].overhead()
    return {
        "cpu_ns_per_tick": cpu_ns / asked.ticks,
        "cpu_share": cpu_ns / wall_ns,
        "missed": overhead.missed_ticks,
        "max_late_ns": overhead.max_late_ns,
    }


if __name__ == "__main__":
    main()
