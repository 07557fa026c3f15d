"""Run the benchmarks that are named, or all: each prints its budget, its figure and its peer."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import _measure

# In the order of their length, so that the first answers come soon.
NAMES = (
    *(
        "launch",
        "rootfs",
        "network",
        "protection",
        "api",
        "tick",
        "slowdown",
        "many",
        "stats",
        "kill",
    ),
    *("image", "build", "profiles"),
)
_PART_OF_LAUNCH = "protection"


def main() -> int:
    """Measure, print, and return 1 when a bar was passed."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--pairs", type=int, default=15, help="interleaved pairs (default 15)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="length of one measurement (default 2)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    # As ^C does, so that daemons, groups and directories of ours are removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    options = _measure.Options(pairs=asked.pairs, seconds=asked.seconds)
    print(_measure.host_line(), flush=True)
    results: list[_measure.Result] = []
    for name in asked.names or (name for name in NAMES if name != _PART_OF_LAUNCH):
        print(f"\n{name}", flush=True)
        for result in importlib.import_module(name).measure(options):
            results.append(result)
            print(result.line(), flush=True)
    if asked.json is not None:
        _write(asked.json, results)
    return int(any(result.ok is False for result in results))


def _write(path: Path, results: list[_measure.Result]) -> None:
    content: dict[str, Any] = {
        "host": _measure.host(),
        "results": [asdict(result) for result in results],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
