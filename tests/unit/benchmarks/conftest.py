"""The scripts that write pages import each other by their names, as scripts do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

DIRECTORY = Path(__file__).resolve().parents[3] / "scripts" / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """`load(name)` imports one of the benchmarks' scripts; afterwards none of them is there."""
    monkeypatch.syspath_prepend(str(DIRECTORY))
    yield importlib.import_module
    for name, module in tuple(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").parent == DIRECTORY:
            del sys.modules[name]
