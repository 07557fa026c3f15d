"""The documentation's terminal sessions are true: each command is typed, each label is printed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
SLOW_PAGES = {  # CI runs them; the others take a second or less, but for the first page
    "docs/how-to/build-an-image.md",
    "docs/how-to/choose-a-model-for-a-budget.md",
    "docs/how-to/compare-commands.md",
    "docs/how-to/control-running-sandboxes.md",
    "docs/how-to/find-the-smallest-limit.md",
    "docs/how-to/keep-results.md",
    "docs/how-to/mark-phases.md",
    "docs/how-to/profile-models.md",
    "docs/how-to/run-in-a-venv.md",
    "docs/how-to/run-in-the-background.md",
    "docs/how-to/use-in-ci.md",
    "docs/how-to/watch-running-sandboxes.md",
    "docs/tutorial/choose-a-model.md",
    "docs/tutorial/first-run.md",
}


@pytest.fixture(scope="module")
def console() -> ModuleType:
    """scripts/console.py, which also renews the pages."""
    spec = importlib.util.spec_from_file_location("console", PROJECT / "scripts/console.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["console"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def _model() -> None:
    """What the reader has after `scripts/demo`."""
    if not (PROJECT / "examples/infer/model.onnx").exists():
        command = [sys.executable, PROJECT / "examples/infer/build_model.py"]
        subprocess.run(command, check=True, timeout=50)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("_model")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW_PAGES else [])
        for page in PAGES
        for name in [str(page.relative_to(PROJECT))]
    ],
)
def test_the_page_shows_what_happens(page: Path, console: ModuleType) -> None:
    steps = console.parse_page(page.read_text())

    if steps:
        console.run_session(steps, timeout_seconds=100)

    assert console.differences(steps) == []


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    for page in PAGES:
        text = page.read_text()
        assert "```console" not in re.sub(r"^```console\n\$ ", "", text, flags=re.MULTILINE), page
        for shell in re.finditer(r"(^.*\n)?^```(?:sh|bash|shell)$", text, flags=re.MULTILINE):
            assert shell[1].startswith("<!-- not run: "), f"{page}: {shell[0]}"


def test_a_page_that_is_not_true_is_found(console: ModuleType) -> None:
    page = (
        "```console\n$ echo used 17 MiB\nused 99 MiB\n$ echo other\nanother\n```\n"
        "<!-- file: hello.py -->\n```python\nprint('a file')\n```\n"
        "```console\n$ python hello.py\na file\n$ false\n$ exit_with() { return $1; }\n"
        "$ exit_with 3\n$ echo $?\n4\n```\n"
    )
    steps = console.parse_page(page)

    console.run_session(steps, timeout_seconds=20)

    assert console.differences(steps) == [
        "$ echo other: `another` is not in ['other']",
        "$ false: status 1: []",
        "status ['3'], the page says ['4']",
    ]
    assert "$ echo other\nother\n" in console.renewed(page, steps)
