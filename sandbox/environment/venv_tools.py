"""The two tools that resolve and install: uv where there is one, else venv and pip.

Both run before a run's group exists, as processes of their own whose output is kept: it is shown
only when they fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from sandbox.environment.venv_inputs import Inputs, without_password
from sandbox.errors import HostError, SandboxError, SpecError
from sandbox.records.light import dataclass

Progress = Callable[[str], None]
"""Told again and again what is being done."""

_TICK_SEC = 0.1
_SHOWN_LINES = 8
_OFFLINE = re.compile(
    r"dns error|name resolution|name or service not known|failed to establish|connection refused"
    r"|network is unreachable|no route to host|tcp connect|error sending request"
    r"|could not connect|failed to fetch|timed out|connectivity is disabled",
    re.IGNORECASE,
)
_HINT_OFFLINE = (
    "go online once: what was built is kept; or name a directory of wheels "
    "(`--find-links DIR` in the file, or PIP_FIND_LINKS), or an environment of your own with --venv"
)
# What pip is told by variables holds for uv too, unless uv has settings of its own.
_INDEX_FLAGS = {
    "PIP_INDEX_URL": "--default-index",
    "PIP_EXTRA_INDEX_URL": "--index",
    "PIP_FIND_LINKS": "--find-links",
}
_UV_INDEX_VARIABLES = frozenset(
    {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"}
)
_NO = frozenset({"", "0", "false", "no", "off", "n", "f"})
_RESOLVING_VARIABLE = re.compile(
    r"(?:UV|PIP)_(?:\w*INDEX\w*|FIND_LINKS|PRE|PRERELEASE|RESOLUTION|EXCLUDE_NEWER|CONSTRAINT"
    r"|OVERRIDE|NO_BINARY|ONLY_BINARY|PREFER_BINARY)"
)


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where a tool may work, and what keeps others out as long as it does."""

    scratch: Path
    """An empty directory for files that nobody needs afterwards."""
    lock_fd: int
    """Locks the place; stays open in the tool, which may live longer than we do."""


class Tool(Protocol):
    """One way to resolve and install."""

    @property
    def name(self) -> str:
        """`uv` or `pip`."""

    def resolve(self, inputs: Inputs, place: Workplace, progress: Progress) -> str:
        """Return every package, direct or not, one a line, pinned."""

    def install(
        self, lock: str, inputs: Inputs, directory: Path, place: Workplace, progress: Progress
    ) -> None:
        """Make an environment in `directory` that holds exactly what `lock` says."""


def find_tool(environ: Mapping[str, str] | None = None) -> Tool:
    """Return uv from PATH or from beside our own Python; else pip."""
    variables = os.environ if environ is None else environ
    beside = Path(sys.executable).parent / "uv"
    uv = shutil.which("uv", path=variables.get("PATH", os.defpath))
    if uv is None and os.access(beside, os.X_OK):
        uv = str(beside)
    return Pip() if uv is None else Uv(uv)


def base_python() -> str:
    """Return the Python that environments are made from: the one that we ourselves run on."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def resolving_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the settings that may change what a requirement is resolved to."""
    return sorted(
        f"{name}={value}" for name, value in environ.items() if _RESOLVING_VARIABLE.fullmatch(name)
    )


class Uv:
    """Resolving and installing by uv."""

    name = "uv"

    def __init__(self, program: str) -> None:
        self._program = program

    def resolve(self, inputs: Inputs, place: Workplace, progress: Progress) -> str:
        """See `Tool`."""
        asked = _write_asked(inputs, place.scratch)
        words = ["pip", "compile", *index_flags(os.environ), "--quiet"]
        words += ["--generate-hashes", "--no-header"]
        words += ["--no-annotate", "--python", base_python(), *map(str, asked)]
        return self._run(words, f"resolving {inputs.describe()}", place, progress)

    def install(
        self, lock: str, inputs: Inputs, directory: Path, place: Workplace, progress: Progress
    ) -> None:
        """See `Tool`."""
        make = ["venv", "--quiet", "--no-config", "--python", base_python(), str(directory)]
        self._run(make, "making a virtual environment", place, progress)
        python = str(directory / "bin/python")
        pinned = _write_lock(lock, inputs, place.scratch)
        # Compiled now: the measured run is to compile nothing but its own modules.
        words = ["pip", "install", *index_flags(os.environ), "--quiet"]
        words += ["--no-deps", "--compile-bytecode"]
        words += ["--python", python, "-r", str(pinned)]
        self._run(words, f"installing {count_packages(lock)}", place, progress)

    def _run(self, words: Sequence[str], doing: str, place: Workplace, progress: Progress) -> str:
        environment = {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        return run_tool([self._program, *words], doing, progress, environment, place.lock_fd)


class Pip:
    """Resolving and installing by the standard library's venv and its pip."""

    name = "pip"

    def resolve(self, inputs: Inputs, place: Workplace, progress: Progress) -> str:
        """See `Tool`."""
        asked = _write_asked(inputs, place.scratch)
        python = self._make(place.scratch / "pip", place, progress)
        report = place.scratch / "report.json"
        words = ["install", "--dry-run", "--ignore-installed", "--quiet"]
        words += ["--report", str(report)]
        words += [word for path in asked for word in ("-r", str(path))]
        self._run(python, words, f"resolving {inputs.describe()}", place, progress)
        return lock_of_report(json.loads(report.read_bytes()))

    def install(
        self, lock: str, inputs: Inputs, directory: Path, place: Workplace, progress: Progress
    ) -> None:
        """See `Tool`."""
        python = self._make(directory, place, progress)
        pinned = _write_lock(lock, inputs, place.scratch)
        words = ["install", "--quiet", "--no-deps", "-r", str(pinned)]
        self._run(python, words, f"installing {count_packages(lock)}", place, progress)

    def _make(self, directory: Path, place: Workplace, progress: Progress) -> str:
        words = [base_python(), "-m", "venv", str(directory)]
        try:
            run_tool(words, "making a virtual environment", progress, {}, place.lock_fd)
        except HostError as error:
            raise HostError(
                str(error), hint="install uv (`pip install uv`), or the package python3-venv"
            ) from None
        return str(directory / "bin/python")

    def _run(
        self, python: str, words: Sequence[str], doing: str, place: Workplace, progress: Progress
    ) -> None:
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "NO_COLOR": "1"}
        run_tool([python, "-m", "pip", *words], doing, progress, quiet, place.lock_fd)


def lock_of_report(report: dict[str, Any]) -> str:
    """Return pinned lines from pip's own report of what it would install.

    Raises:
        SpecError: a package comes from a local directory, whose content may change.
    """
    lines: list[tuple[str, str]] = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        source = item["download_info"]
        digest = source.get("archive_info", {}).get("hashes", {}).get("sha256", "")
        if "dir_info" in source:
            raise SpecError(
                f"{name} comes from the directory {source['url']}",
                hint="give its wheel or its address instead",
            )
        if "vcs_info" in source:
            vcs = source["vcs_info"]
            pinned = f"{name} @ {vcs['vcs']}+{source['url']}@{vcs['commit_id']}"
        elif item.get("is_direct"):
            pinned = f"{name} @ {source['url']}"
        else:
            pinned = f"{name}=={version}"
        lines.append((pinned, digest))
    # pip wants hashes for all packages or for none.
    has_hashes = all(digest for _, digest in lines)
    rows = (
        f"{pinned} --hash=sha256:{digest}" if has_hashes else pinned for pinned, digest in lines
    )
    return "".join(f"{row}\n" for row in sorted(rows))


def packages_of(lock: str) -> tuple[str, ...]:
    """Return the `name==version` of each pinned line."""
    lines = re.sub(r"\\\n", " ", lock).splitlines()
    return tuple(
        without_password(line.split(" --hash", 1)[0].split(" ;", 1)[0].strip())
        for line in lines
        if line.strip() and not line.lstrip().startswith(("#", "--"))
    )


def count_packages(lock: str) -> str:
    """Return `3 packages`."""
    count = len(packages_of(lock))
    return f"{count} package" + ("" if count == 1 else "s")


def _write_asked(inputs: Inputs, scratch: Path) -> list[Path]:
    named = scratch / "named.txt"
    named.write_text("".join(f"{line}\n" for line in inputs.requirements), "utf-8")
    return [*inputs.files, named]


def _write_lock(lock: str, inputs: Inputs, scratch: Path) -> Path:
    pinned = scratch / "pinned.txt"
    pinned.write_text("".join(f"{line}\n" for line in inputs.options) + lock, "utf-8")
    return pinned


def index_flags(environ: Mapping[str, str]) -> list[str]:
    """Return flags for uv that say what pip's variables say about where packages come from."""
    flags = ["--no-index"] if environ.get("PIP_NO_INDEX", "").lower() not in _NO else []
    if _UV_INDEX_VARIABLES.isdisjoint(environ):
        for name, flag in _INDEX_FLAGS.items():
            flags += [word for value in environ.get(name, "").split() for word in (flag, value)]
    return flags


def run_tool(
    command: Sequence[str],
    doing: str,
    progress: Progress,
    environment: Mapping[str, str],
    lock_fd: int | None = None,
) -> str:
    """Run one tool to its end and return what it printed on stdout.

    Raises:
        HostError: it failed; the text holds the last lines of what it said.
    """
    import subprocess

    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                env={**inherited, **environment},
                pass_fds=() if lock_fd is None else (lock_fd,),
            )
        except OSError as exc:
            raise HostError(f"cannot start {command[0]}: {exc.strerror}") from exc
        with process:
            _wait(process, doing, progress)
        said.seek(0)
        printed.seek(0)
        output = printed.read().decode("utf-8", "replace")
        if process.returncode != 0:
            raise _failure(doing, said.read().decode("utf-8", "replace") or output)
    return output


def _wait(process: Any, doing: str, progress: Progress) -> None:
    import subprocess

    try:
        while process.poll() is None:
            progress(doing)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TICK_SEC)
    except BaseException:
        process.kill()
        raise


def _failure(doing: str, said: str) -> SandboxError:
    said = without_password(said)
    lines = [line.strip().removeprefix("error: ") for line in said.splitlines() if line.strip()]
    if _OFFLINE.search(said):
        return HostError(
            f"cannot build the environment: {doing} failed, no package index can be reached",
            hint=_HINT_OFFLINE,
        )
    shown = "\n  ".join(lines[-_SHOWN_LINES:]) or "it said nothing"
    return HostError(
        f"cannot build the environment: {doing} failed:\n  {shown}",
        hint="that is what the tool said; check names, versions and the index",
    )
