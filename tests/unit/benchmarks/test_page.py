"""Figures get into the page between their marks, with where they were measured."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture
def page(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("_page")


@pytest.mark.parametrize(("load_average", "is_busy"), [(1.5, False), (14.0, True)])
def test_a_machine_that_was_busy_is_called_so(
    page: ModuleType, load_average: float, *, is_busy: bool
) -> None:
    host = {
        "cpu": "C", "cpus": 2, "kernel": "6.1.0-56-amd64", "python": "3.11.7",
        "load": load_average,
    }  # fmt: skip

    said = page.described(host)

    assert said.startswith("On C, 2 CPUs, Linux 6.1.0, Python 3.11.7, load")
    assert ("busy" in said) == is_busy


@pytest.mark.parametrize("name", ["stats", "image", "build"])
def test_only_what_is_between_the_marks_is_renewed(page: ModuleType, name: str) -> None:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = f"before\n{begin}\nold\n{end}\nafter\n"

    assert page.renewed(text, name, "new\n") == f"before\n{begin}\nnew\n{end}\nafter\n"
    for broken in ("before\n", f"{begin}\n", f"{end}\n"):
        with pytest.raises(ValueError, match="has no <!--"):
            page.renewed(broken, name, "new\n")
    assert page.renewed(page.PAGE.read_text(), name, "new\n") != page.PAGE.read_text()
