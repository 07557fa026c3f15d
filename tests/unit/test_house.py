"""Rules of the house that no tool checks: start-up, names, sizes, nothing forgotten."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sandbox
from sandbox import errors
from sandbox.records.result import Summary, Totals
from sandbox.records.sample import COLUMNS

PROJECT = Path(__file__).resolve().parents[2]
MAX_LINES = 400
MAX_PUBLIC_NAMES = 15
MAX_MODULES_AT_START = 75
MAX_MODULES_OF_A_RUN = 170

BANNED_AT_START = {
    "asyncio",
    "backports.zstd",
    "cgroupspy",
    "dask",
    "http",
    "importlib.metadata",
    "jeepney",
    "logging",
    "matplotlib",
    "numpy",
    "onnxruntime",
    "psutil",
    "pyroute2",
    "rich",
    "sqlite3",
    "tabulate",
    "torch",
}

# `sandbox.records.light` is there for the records of a run: half a millisecond less for each.
GENERATES_CODE = {"dataclasses"}

# In pieces, so that this file does not find itself.
WORKPLACE_WORDS = ("/wo" + "rk/", "." + "library", "helper" + " agent", "/fa" + "rm/")


def tracked(*patterns: str) -> list[Path]:
    """Return the project's own files; ignored ones are not the project's."""
    listing = subprocess.run(
        [
            "git",
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            *patterns,
        ],
        cwd=PROJECT,
        capture_output=True,
        check=False,
        timeout=30,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout: the list of the project's files is unknown")
    names = listing.stdout.decode().split("\0")
    return [PROJECT / name for name in names if name and (PROJECT / name).is_file()]


def fresh_interpreter(code: str) -> str:
    """Run `code` in a new interpreter, as `sandbox` itself starts."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={k: v for k, v in os.environ.items() if not k.startswith(("COV", "PYTEST"))},
    )
    return done.stdout


# --- start-up -------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["sandbox", "sandbox.cli", "sandbox.cli.run"])
def test_start_up_loads_nothing_heavy(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The time is only printed: on a shared machine a bound on time is a bound on luck."""
    code = (
        "import sys, time; before = set(sys.modules)\n"  # what a venv's .pth files load is not ours
        f"start = time.perf_counter_ns(); import {module}; end = time.perf_counter_ns()\n"
        "print((end - start) // 1_000_000, *sorted(set(sys.modules) - before))"
    )

    milliseconds, *loaded = fresh_interpreter(code).split()

    with capsys.disabled():
        print(f"[import {module}: {milliseconds} ms]", end="")
    assert module in loaded
    assert not set(loaded) & BANNED_AT_START


def test_start_up_is_of_few_modules() -> None:
    """Modules can be counted alike everywhere, unlike milliseconds."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "import sandbox.cli.run\n"
        "print(*sorted(set(sys.modules) - before))"
    )

    added = fresh_interpreter(code).split()

    assert "typer" not in added
    assert len(added) <= MAX_MODULES_AT_START, added


def test_a_whole_run_loads_no_more_than_it_needs() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "import sandbox.cli.run, sandbox.engine.order, sandbox.engine.conclude\n"
        "import sandbox.kernel.launch, sandbox.kernel.guard, sandbox.report.table\n"
        "import sandbox.kernel.hybrid, sandbox.kernel.unified, sandbox.kernel.traffic\n"
        "import sandbox.kernel.scope, sandbox.kernel.stand_in\n"
        "print(*sorted(set(sys.modules) - before))"
    )

    added = fresh_interpreter(code).split()

    assert not set(added) & {*BANNED_AT_START, *GENERATES_CODE, "typer"}
    assert len(added) <= MAX_MODULES_OF_A_RUN, added


# --- names and pages ------------------------------------------------------------------------------


def test_the_package_exports_few_names_and_each_can_be_imported() -> None:
    assert len(sandbox.__all__) <= MAX_PUBLIC_NAMES
    for name in sandbox.__all__:
        assert getattr(sandbox, name) is not None, name


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        _ = sandbox.nothing_of_the_kind


def test_the_version_is_the_distributions() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    assert sandbox.__version__ == project["version"]
    assert importlib.metadata.version("cgroup-sandbox") == project["version"]


def test_every_error_class_is_in_the_documentation() -> None:
    page = (PROJECT / "docs/reference/exit-codes.md").read_text()
    classes = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.SandboxError)
    ]

    assert len(classes) >= 5
    for name in classes:
        assert f"`{name}`" in page
        assert getattr(errors, name).__doc__


def test_every_outcome_is_in_the_documentation() -> None:
    page = (PROJECT / "docs/reference/exit-codes.md").read_text()

    for outcome in sandbox.Outcome:
        assert f"`{outcome}`" in page


def test_every_link_between_the_pages_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(PROJECT)}: {target}"
        for page in tracked("*.md")
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert not broken


def test_every_page_is_reachable_from_the_index() -> None:
    index = (PROJECT / "docs/README.md").read_text()
    pages = [page.relative_to(PROJECT / "docs") for page in tracked("docs/*.md")]

    assert len(pages) > 5
    missing = [str(page) for page in pages if str(page) != "README.md" and f"({page})" not in index]
    assert not missing


# --- sizes, words, habits -------------------------------------------------------------------------


def test_every_module_is_short_enough_to_read() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in tracked("sandbox/*.py")}

    assert lengths
    assert not {path: n for path, n in lengths.items() if n > MAX_LINES}


def test_every_module_says_what_it_knows() -> None:
    silent = [
        path
        for path in tracked("sandbox/*.py")
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]

    assert not silent


def test_the_project_speaks_only_of_itself() -> None:
    found = []
    for path in tracked():
        content = path.read_bytes()
        found += [(path, word) for word in WORKPLACE_WORDS if word.encode() in content]

    assert not found


def test_every_suppressed_warning_names_its_rule() -> None:
    vague = [
        f"{path.name}:{number}"
        for path in tracked("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"#\s*(noqa\s*$|type:\s*ignore\s*$)", line)
    ]

    assert not vague


@pytest.mark.parametrize("folder", ["scripts", "examples", "tests/loads"])
def test_every_script_and_example_is_named_by_a_test_or_another_script(folder: str) -> None:
    users = [
        path
        for path in tracked("tests/*.py", "scripts/*", ".ci/*", "README.md", "docs/*.md")
        if path.suffix in {"", ".py", ".md"}
    ]
    texts = {path: path.read_text() for path in users}
    forgotten = []
    for path in tracked(f"{folder}/*"):
        if path.name.startswith(("README", "__init__")):
            continue
        stem = re.escape(path.stem)
        named = re.compile(
            rf'\b{re.escape(path.name)}\b|"{stem}"|^(import|from) {stem}\b', re.MULTILINE
        )
        if not any(named.search(text) for user, text in texts.items() if user != path):
            forgotten.append(path)

    assert not forgotten


def test_the_examples_requirements_are_the_demo_extra() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lines = (PROJECT / "examples/infer/requirements.txt").read_text().split()

    assert sorted(lines) == sorted(extras["optional-dependencies"]["demo"])


def test_every_script_is_executable_and_short() -> None:
    for path in tracked("scripts/*"):
        if path.suffix or path.name.startswith("_"):
            continue
        assert os.access(path, os.X_OK), path
        assert path.read_bytes().startswith(b"#!"), path


def test_every_metric_is_in_the_documentation() -> None:
    page = (PROJECT / "docs/reference/metrics.md").read_text()
    names = [field.name for record in (Totals, Summary) for field in dataclasses.fields(record)]

    missing = [name for name in [*names, *COLUMNS] if f"`{name}`" not in page]

    assert not missing
    for column in COLUMNS.values():
        assert column.meaning in page


def test_every_setting_of_the_environment_is_in_the_documentation() -> None:
    pages = "\n".join(page.read_text() for page in tracked("docs/*.md"))
    code = "\n".join(path.read_text() for path in tracked("sandbox/*.py"))

    settings = set(re.findall(r"\bSANDBOX_[A-Z_]+\b", code))

    assert "SANDBOX_HOME" in settings
    assert not {name for name in settings if f"`{name}`" not in pages and f"${name}" not in pages}


def test_every_refusal_of_a_value_says_what_to_do_next() -> None:
    lacking = []
    for path in tracked("sandbox/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            hints = [word for word in node.keywords if word.arg == "hint"]
            if node.func.id == "SpecError" and not hints:
                lacking.append(f"{path}:{node.lineno}")

    assert not lacking
