"""Run the tests in three parts at once: the pure ones, and those on this kernel in two halves.

Many of the latter wait more than they work. Arguments go to every part; with paths among them those
alone are run, by one pytest. Not started from a shell's background: it would have SIGINT ignored,
and so would the programs of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NATIVE = Path("tests/native")
FIRST_HALF = "abcde"
NOTHING_SELECTED = 5


def native(*, is_first: bool) -> list[str]:
    """Return the files of one half, by the first letter of their subject."""
    files = sorted(NATIVE.glob("test_*.py"))
    return [str(file) for file in files if (file.name[len("test_")] in FIRST_HALF) == is_first]


def main() -> int:
    """Run all parts, show their output one after the other, return the first failure's status."""
    command = [sys.executable, "-m", "pytest"]
    arguments = sys.argv[1:]
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        os.execv(sys.executable, [*command, *arguments])
    parts = {
        "unit": ["tests/unit"],
        "native-1": native(is_first=True),
        "native-2": native(is_first=False),
    }
    out = Path("out")
    out.mkdir(exist_ok=True)
    started = {}
    for name, paths in parts.items():
        with (out / f"{name}.log").open("wb") as log:
            started[name] = subprocess.Popen(
                [*command, *paths, "--junitxml", str(out / f"{name}.xml"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    try:
        statuses = [process.wait() for process in started.values()]
    except KeyboardInterrupt:  # the terminal has told them too
        statuses = [process.wait() for process in started.values()]
    for name in parts:
        sys.stdout.write((out / f"{name}.log").read_text(encoding="utf-8", errors="replace"))
    if set(statuses) == {NOTHING_SELECTED}:
        return NOTHING_SELECTED
    return next((status for status in statuses if status not in {0, NOTHING_SELECTED}), 0)


if __name__ == "__main__":
    sys.exit(main())
