"""Compare: each step is a word.

`measure FILE [ROW...]` in the server guest: take all figures, or those of some rows;
`page PAGE FILE...`: write them; rows of later files take the place of earlier ones.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _measures
import _page
import _peers

ROWS: tuple[Callable[[_peers.Tool], str], ...] = (
    _measures.memory_limit,
    _measures.cpu_limit,
    _measures.process_limit,
    _measures.time_to_dead,
    _measures.survivors,
    _measures.groups_after_kill,
    _measures.groups_after_runs,
    _measures.exit_status,
    _measures.peak_error,
    _measures.cpu_error,
    _measures.launch_ratio,
    _measures.sampling_cost,
)


def measure(file: Path, names: list[str]) -> int:
    """Take figures of every tool; return 1 if one of ours is missing."""
    _peers.prepare()
    tools = _peers.TOOLS
    content: dict[str, Any] = {
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "versions": {tool.name: _version(tool) for tool in tools},
        "rows": {},
    }
    for row in (row for row in ROWS if not names or row.__name__ in names):
        cells = content["rows"][row.__name__] = {tool.name: _cell(row, tool) for tool in tools}
        print(f"{row.__name__}: {cells}", flush=True)
        file.write_text(json.dumps(content, indent=2) + "\n")
    ours = [cells.get("sandbox", "") for cells in content["rows"].values()]
    return int(any(cell.startswith("unavailable") for cell in ours))


def _cell(row: Callable[[_peers.Tool], str], tool: _peers.Tool) -> str:
    try:
        return row(tool)
    except _peers.UnavailableError as why:
        return f"unavailable: {why}"
    except (OSError, ValueError, IndexError, KeyError, subprocess.SubprocessError) as error:
        print(f"{row.__name__} of {tool.name}: {error!r}", file=sys.stderr)
        return f"unavailable: it failed with {type(error).__name__}"


def _version(tool: _peers.Tool) -> str:
    return _peers.must(*tool.version).splitlines()[0].strip()


def main() -> int:
    """Measure, or write."""
    match sys.argv[1:]:
        case ["measure", file, *names]:
            return measure(Path(file), names)
        case ["page", page, first, *later]:
            figures = json.loads(Path(first).read_text())
            for file in later:
                figures["rows"].update(json.loads(Path(file).read_text())["rows"])
            Path(page).write_text(_page.render(figures))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
