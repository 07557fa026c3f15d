"""The variables of an environment file, checked: each error names its file, line and variable."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sandbox.environment.root_check import check_root
from sandbox.errors import HostError, SpecError
from sandbox.profiler.docker_args import DockerArgs
from sandbox.profiler.env_template import Value, parse_env_template
from sandbox.profiler.images import ImagePlan
from sandbox.records.enclosure import RootSpec
from sandbox.records.light import dataclass, field
from sandbox.spec import MIN_INTERVAL_NS, Limits
from sandbox.units import format_cpu_list, parse_cpus, parse_duration, parse_size

REQUIRED = ("DIR", "SCRIPT", "COMMAND", "SAMPLETIME", "OUTPUTFILE")
OPTIONAL = (
    "IMAGEREPO",
    "APTREQUIREMENTS",
    "PIPREQUIREMENTS",
    "PRERUN",
    "DOCFILE",
    "DOCKCPUS",
    "DOCKMEMORY",
    "DOCK_ARGS",
    "DOCKER_ARGS",
)
_EXAMPLES = {
    "DIR": "DIR=bench, the directory of the script",
    "SCRIPT": "SCRIPT=test_perf.py, below DIR",
    "COMMAND": "COMMAND=python3, or another program that runs SCRIPT",
    "SAMPLETIME": "SAMPLETIME=1, in seconds",
    "OUTPUTFILE": "OUTPUTFILE=out.txt",
}
_SOURCE_SEC = 30

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is to be profiled, and how."""

    path: Path
    directory: Path
    command: tuple[str, ...]
    """What executes the script, its own arguments included."""
    script: str
    script_arguments: tuple[str, ...] = ()
    step_ns: int
    output: Path
    packages: tuple[str, ...] = ()
    """PIPREQUIREMENTS."""
    prerun: str | None = None
    image: ImagePlan | None = None
    """What IMAGEREPO and its variables, or DOCFILE, ask for; None runs on the host."""
    root: RootSpec | None = None
    """How to run in it; the image itself is known once it is built."""
    limits: Limits = field(default_factory=Limits)
    fields: dict[str, Any] = field(default_factory=dict)
    """What DOCK_ARGS set of the run besides limits: user, workdir, stop signal."""
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    """What is unusual, and goes on all the same."""

    @property
    def workdir(self) -> str | None:
        """Where the script is started, unless DOCK_ARGS says so; None: where the image says."""
        return str(self.directory) if self.image is None else None

    def argv(self, model: str | None) -> tuple[str, ...]:
        """Return the command of one run: the model is the script's first argument."""
        words = () if model is None else (model,)
        return (*self.command, self.script, *words, *self.script_arguments)


def read_settings(path: Path, *, source: bool, environ: Mapping[str, str]) -> Settings:
    """Read an environment file; with `source` a shell does, so that it may hold commands.

    Raises:
        SpecError: a variable is missing, wrong, or cannot be had here.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise SpecError(
            f"{path} is no environment file: it is not text",
            hint="it has a line `NAME=VALUE` for each variable, in UTF-8",
        ) from None
    except OSError as exc:
        raise SpecError(
            f"cannot read the environment file {path}: {exc.strerror}",
            hint="name it with -e; docs/how-to/profile-models.md shows one",
        ) from None
    if source:
        values = _sourced(text, path, environ)
    else:
        values = parse_env_template(text, str(path), environ)
    return _Reading(values, path).settings()


def _sourced(text: str, path: Path, environ: Mapping[str, str]) -> dict[str, Value]:
    """Let bash read the file, and take the variables that are set in it."""
    import subprocess

    shell = shutil.which("bash") or "/bin/sh"
    code = 'set -a; . "$1" >&2 || exit; exec env -0'
    try:
        done = subprocess.run(
            [shell, "-c", code, shell, str(path.absolute())],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SOURCE_SEC,
            check=False,
            env=dict(environ),
        )
    except subprocess.TimeoutExpired:
        raise SpecError(
            f"{path} is not read to its end after {_SOURCE_SEC} s",
            hint="what of it takes so long, or waits?",
        ) from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise SpecError(
            f"{shell} cannot read {path}: {said or f'status {done.returncode}'}",
            hint="without `--source-env` it is read here, without a shell",
        )
    found = dict(
        entry.partition("=")[::2] for entry in done.stdout.decode("utf-8", "replace").split("\0")
    )
    lines = {
        match[1]: text.count("\n", 0, match.start()) + 1
        for match in re.finditer(r"(?am)^[ \t]*(?:export[ \t]+)?([A-Z_]\w*)=", text)
    }
    return {
        name: Value(found[name], lines.get(name, 1))
        for name in {*lines, *REQUIRED, *OPTIONAL}
        if name in found
    }


class _Reading:
    """The variables on their way to settings."""

    def __init__(self, values: Mapping[str, Value], path: Path) -> None:
        self._values = values
        self._path = path
        self._notes: list[str] = []

    def settings(self) -> Settings:
        self._note_unknown()
        self._check_required()
        directory = self._directory()
        command = self._words("COMMAND")
        script, *arguments = self._words("SCRIPT")
        docfile, context = self._docfile()
        has_image = docfile is not None or bool(self._text("IMAGEREPO").strip())
        packages = tuple(self._words("PIPREQUIREMENTS"))
        args = self._docker_args(in_image=has_image)
        limits = self._limits(args)
        if not has_image:
            self._check_host(command[0], packages)
        if docfile is None and not (directory / script).exists():
            raise self._error("SCRIPT", f"there is no {script} in {directory}", _EXAMPLES["SCRIPT"])
        prerun = self._text("PRERUN").strip() or None
        image = ImagePlan(
            base=self._text("IMAGEREPO").strip(),
            apt=tuple(self._words("APTREQUIREMENTS")),
            pip=packages,
            prerun=prerun,
            directory=str(directory),
            docfile=docfile,
            context=context,
            platform=args.root.get("platform"),
            places=tuple((name, f"{self._path}:{at.line}") for name, at in self._values.items()),
        )
        step_ns = self._parsed("SAMPLETIME", parse_duration)
        if step_ns < MIN_INTERVAL_NS:
            raise self._error("SAMPLETIME", "the shortest sample time is 0.001 s", None)
        output = Path(self._text("OUTPUTFILE"))
        if not output.absolute().parent.is_dir() or output.is_dir():
            raise self._error(
                "OUTPUTFILE", f"{output} cannot be a file", "its directory is missing"
            )
        return Settings(
            path=self._path,
            directory=directory,
            command=tuple(command),
            script=script,
            script_arguments=tuple(arguments),
            step_ns=step_ns,
            output=output,
            packages=() if has_image else packages,
            prerun=None if has_image else prerun,
            image=image if has_image else None,
            root=RootSpec(**args.root) if has_image else None,
            limits=limits,
            fields=args.fields,
            environment=args.environment,
            notes=tuple(self._notes),
        )

    def _note_unknown(self) -> None:
        known = {*REQUIRED, *OPTIONAL}
        for name, value in self._values.items():
            if name in known or not name.isupper():
                continue
            near = difflib.get_close_matches(name, known, n=1)
            meant = f": did you mean {near[0]}?" if near else ""
            self._notes.append(f"{self._path}:{value.line}: {name} is not a known variable{meant}")

    def _check_required(self) -> None:
        missing = [name for name in REQUIRED if not self._text(name).strip()]
        if not missing:
            return
        name = missing[0]
        line = self._values[name].line if name in self._values else 1
        state = "is empty" if name in self._values else "is missing"
        others = " and ".join(filter(None, (", ".join(missing[1:-1]), *missing[1:][-1:])))
        more = f" (so {'is' if len(missing) == 2 else 'are'} {others})" if others else ""  # noqa: PLR2004
        unknown = [other for other in self._values if other not in {*REQUIRED, *OPTIONAL}]
        near = difflib.get_close_matches(name, unknown, n=1)
        hint = _EXAMPLES[name]
        if near and name not in self._values:
            hint = f"line {self._values[near[0]].line} has {near[0]}: did you mean {name}?"
        raise SpecError(f"{self._path}:{line}: {name} {state}{more}", hint=hint)

    def _check_host(self, program: str, packages: tuple[str, ...]) -> None:
        """Refuse what cannot be had without an image."""
        if self._text("APTREQUIREMENTS").strip():
            raise self._error(
                "APTREQUIREMENTS",
                "packages of the system cannot be installed for one run on the host",
                "name an image with IMAGEREPO, or install them and leave it empty",
            )
        if "/" not in program and not packages and shutil.which(program) is None:
            from sandbox.kernel.launch_error import find_versioned

            other = find_versioned(program)
            hint = _EXAMPLES["COMMAND"] if other is None else f"COMMAND={other}, which is here"
            raise self._error("COMMAND", f"there is no program {program}", hint)

    def _docfile(self) -> tuple[str | None, str]:
        """Return the file of DOCFILE and the directory it is meant from; it need not be there."""
        text = self._text("DOCFILE").strip()
        for directory in (Path(), self._path.parent):
            path = directory / text
            if text and path.is_file():
                ignored = ("IMAGEREPO", "APTREQUIREMENTS", "PIPREQUIREMENTS", "PRERUN")
                lost = [name for name in ignored if self._text(name).strip()]
                if lost:
                    self._notes.append(f"the image is built by {path}, not of {', '.join(lost)}")
                return str(path.absolute()), str(directory.absolute())
        return None, ""

    def _directory(self) -> Path:
        """Return DIR: as it stands from here, else from beside the environment file."""
        text = self._text("DIR")
        places = [Path(text), self._path.parent / text]
        for place in places:
            if place.is_dir():
                return place.absolute()
        raise self._error("DIR", f"there is no directory {text}", _EXAMPLES["DIR"])

    def _docker_args(self, *, in_image: bool) -> DockerArgs:
        args = DockerArgs(in_image=in_image)
        for name in ("DOCK_ARGS", "DOCKER_ARGS"):
            with self._at(name):
                args.take(self._words(name))
        if in_image:
            with self._at("DOCKER_ARGS" if self._text("DOCKER_ARGS").strip() else "DOCK_ARGS"):
                check_root(RootSpec(**args.root))
        return args

    def _limits(self, args: DockerArgs) -> Limits:
        values = dict(args.limits)
        for name, field_name, parse in (
            ("DOCKCPUS", "cpus", parse_cpus),
            ("DOCKMEMORY", "memory_bytes", parse_size),
        ):
            if self._text(name).strip():
                values[field_name] = self._parsed(name, parse)
        where = "DOCKMEMORY" if self._text("DOCKMEMORY").strip() else "DOCK_ARGS"
        where = "DOCKCPUS" if "cpus" in values and self._text("DOCKCPUS").strip() else where
        self._check_cpus(values)
        with self._at(where):
            return Limits(**values)

    def _check_cpus(self, values: Mapping[str, Any]) -> None:
        available = sorted(os.sched_getaffinity(0))
        cpus = values.get("cpus")
        foreign = sorted({*values.get("cpuset_cpus", ())} - {*available})
        if cpus is not None and cpus > len(available):
            name = "DOCKCPUS" if self._text("DOCKCPUS").strip() else "DOCK_ARGS"
            raise self._error(
                name,
                f"{cpus:g} CPUs were asked for, but this host has {len(available)} "
                f"({format_cpu_list(available)})",
                f"ask for at most {len(available)}, or profile on a larger host",
            )
        if foreign:
            raise self._error(
                "DOCK_ARGS",
                f"CPU {format_cpu_list(foreign)} was asked for, but this host has "
                f"{format_cpu_list(available)}",
                f"choose among them: `--cpuset-cpus {format_cpu_list(available)}`",
            )

    def _text(self, name: str) -> str:
        return self._values[name].text if name in self._values else ""

    def _words(self, name: str) -> list[str]:
        with self._at(name):
            try:
                return shlex.split(self._text(name))
            except ValueError as exc:
                raise SpecError(
                    f"`{self._text(name)}`: {str(exc).lower()}", hint="close the quotes"
                ) from None

    def _parsed(self, name: str, parse: Callable[[str], T]) -> T:
        with self._at(name):
            return parse(self._text(name))

    @contextmanager
    def _at(self, name: str) -> Iterator[None]:
        """Give errors their file, line and variable."""
        try:
            yield
        except (SpecError, HostError) as error:
            raise self._error(name, str(error), error.hint) from None

    def _error(self, name: str, message: str, hint: str | None) -> SpecError:
        line = self._values[name].line if name in self._values else 1
        return SpecError(f"{self._path}:{line}: {name}: {message}", hint=hint)
