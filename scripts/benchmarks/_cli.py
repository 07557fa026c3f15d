"""Calling the sandbox's own command line, in a home of its own that is removed afterwards."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cli:
    """The command line and the environment to call it with."""

    home: Path
    environment: dict[str, str]

    def run(self, *words: str) -> list[str]:
        """Return the command line of `sandbox run WORDS`."""
        return [str(Path(sys.executable).with_name("sandbox")), "run", *words]


@contextmanager
def cli() -> Iterator[Cli]:
    """Yield the command line with an empty home."""
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as directory:
        home = Path(directory)
        # PYTHONDONTWRITEBYTECODE, for one, would make every start compile what it imports.
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("SANDBOX_", "PYTHON"))
        }
        yield Cli(home, {**kept, "SANDBOX_HOME": str(home)})
