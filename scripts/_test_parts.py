"""Run the tests in two parts at once: the pure ones, and those on this kernel beside them.

The latter wait more than they work, and go one after the other. Arguments go to both parts; with
paths among them those alone are run, by one pytest. Not started from a shell's background: it would
have SIGINT ignored, and so would the programs of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NOTHING_SELECTED = 5


def main() -> int:
    """Run all parts, show their output one after the other, return the first failure's status."""
    command = [sys.executable, "-m", "pytest"]
    arguments = sys.argv[1:]
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        os.execv(sys.executable, [*command, *arguments])
    parts = {"unit": "tests/unit", "native": "tests/native"}
    out = Path("out")
    out.mkdir(exist_ok=True)
    started = {}
    for name, path in parts.items():
        with (out / f"{name}.log").open("wb") as log:
            started[name] = subprocess.Popen(
                [*command, path, "--junitxml", str(out / f"{name}.xml"), *arguments],
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
