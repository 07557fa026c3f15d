"""A profile from its first model to its last: run, keep, go on; what is done need not be redone."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.analysis.profile import profile_of
from sandbox.errors import SandboxError, SpecError, StoreError
from sandbox.profiler.models import Model
from sandbox.profiler.settings import Settings
from sandbox.records.codec import from_plain, to_json, to_plain
from sandbox.records.light import dataclass, replace
from sandbox.records.profile import ModelProfile
from sandbox.records.result import Outcome, RunResult
from sandbox.records.sample import Block
from sandbox.records.venv import Venv
from sandbox.report.profile import render_samples
from sandbox.spec import DEFAULT_INTERVAL_NS, Capture, RunSpec

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a session does its work with; tests pass their own."""

    execute: Callable[[RunSpec], RunResult]
    blocks_of: Callable[[RunResult], Iterable[Block]]
    output_of: Callable[[RunResult], str]
    """The end of what a run has written."""
    say: Callable[[str], None]
    """Told to people, a line at a time."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """All rows of a session."""

    rows: tuple[ModelProfile, ...]
    stopped_with: int | None = None
    """The exit status, when a signal ended the session before all models were run."""


def run_profile(
    settings: Settings,
    models: Sequence[Model],
    venv: Venv | None,
    around: Around,
    *,
    resume: bool,
) -> Profile:
    """Run the script once for each model, or once without any.

    A model that fails is a row like the others. After each one its samples are in a file of its
    own, and its row is kept, so that `resume` can go on after whatever ends the session.

    Raises:
        SpecError: two models would have the same file.
        StoreError: a file cannot be written.
    """
    wanted: list[Model | None] = list(models) or [None]
    keeping = _Keeping(settings, models, venv)
    done = keeping.read() if resume else {}
    rows: list[ModelProfile] = []
    for model in wanted:
        argument = None if model is None else model.argument
        if argument in done:
            around.say(f"{done[argument].name}: already done")
            rows.append(done[argument])
            continue
        row = _run_one(settings, model, venv, around)
        if row.outcome is Outcome.KILLED:
            return Profile(rows=tuple(rows), stopped_with=row.exit_code)
        rows.append(row)
        keeping.write(rows)
    keeping.remove()
    return Profile(rows=tuple(rows))


def sample_path(settings: Settings, model: Model | None) -> Path:
    """Return where the samples of one run are kept."""
    if model is None:
        return settings.output
    name = model.name.replace("/", "_")
    return settings.output.with_name(f"{name}_{settings.output.name}")


def check_paths(settings: Settings, models: Sequence[Model]) -> None:
    """Refuse models whose files would be one.

    Raises:
        SpecError: two are the same.
    """
    seen: dict[Path, Model] = {}
    for model in models:
        path = sample_path(settings, model)
        if path in seen:
            raise SpecError(
                f"{seen[path].argument} and {model.argument} would both write to {path}",
                hint="rename one of them",
            )
        seen[path] = model


def spec_of(settings: Settings, model: Model | None, venv: Venv | None) -> RunSpec:
    """Return the run of one model."""
    fields = {"workdir": settings.workdir, **settings.fields}
    return RunSpec(
        command=settings.argv(None if model is None else model.argument),
        limits=settings.limits,
        environment=settings.environment,
        venv=venv,
        root=settings.root,
        capture=Capture.FILE,
        interval_ns=min(settings.step_ns, DEFAULT_INTERVAL_NS),
        **fields,
    )


def _run_one(
    settings: Settings, model: Model | None, venv: Venv | None, around: Around
) -> ModelProfile:
    name = Path(settings.script).stem if model is None else model.name
    argument = None if model is None else model.argument
    around.say(f"{name}: running")
    try:
        result = around.execute(spec_of(settings, model, venv))
    except SandboxError as error:
        around.say(f"{name}: {error}")
        return ModelProfile(
            name=name,
            model=argument,
            run_id=None,
            outcome=Outcome.NOT_STARTED,
            exit_code=error.exit_code,
            reason=str(error),
        )
    row, samples = profile_of(
        result, around.blocks_of(result), name=name, model=argument, step_ns=settings.step_ns
    )
    path = sample_path(settings, model)
    text = render_samples(settings.argv(argument), row, samples)
    _write(path, text, append=model is None)
    if not row.is_good:
        around.say(f"{name}: {row.reason}")
        # Of one that was stopped, how it took that is no news.
        output = "" if row.outcome is Outcome.KILLED else around.output_of(result)
        for line in output.rstrip().splitlines():
            around.say(f"  {line}")
    return row


def append_summary(settings: Settings, text: str) -> None:
    """Append the table of a session to OUTPUTFILE, with its date.

    Raises:
        StoreError: it cannot be written.
    """
    date = time.strftime("%Y-%m-%d %H:%M:%S %z")
    _write(settings.output, f"Usage stats of the experiment of {date}\n{text}\n\n", append=True)


def _write(path: Path, text: str, *, append: bool) -> None:
    try:
        with path.open("a" if append else "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    except OSError as exc:
        raise StoreError(
            f"cannot write {path}: {exc.strerror}",
            hint="make place or another OUTPUTFILE; `sandbox runs ls` lists what was run",
        ) from exc


class _Keeping:
    """The rows of a session that is not at its end: a file beside OUTPUTFILE."""

    def __init__(self, settings: Settings, models: Sequence[Model], venv: Venv | None) -> None:
        self._path = settings.output.with_name(f".{settings.output.name}.resume")
        about = {
            "command": settings.argv(None),
            "directory": str(settings.directory),
            "limits": to_plain(settings.limits),
            "fields": to_plain(settings.fields),
            "image": None
            if settings.image is None
            else to_plain(replace(settings.image, places=())),
            "root": None if settings.root is None else to_plain(replace(settings.root, image=None)),
            "step_ns": settings.step_ns,
            "venv": to_plain(venv),
            "models": [model.argument for model in models],
        }
        self._digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def read(self) -> dict[str | None, ModelProfile]:
        """Return the rows that are done by model; none when the session was another one."""
        try:
            kept = json.loads(self._path.read_bytes())
            rows = [from_plain(ModelProfile, row) for row in kept["rows"]]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError) as exc:
            raise StoreError(f"cannot go on with {self._path}: {exc}", hint="remove it") from None
        if kept.get("digest") != self._digest:
            raise StoreError(
                f"{self._path} is of another session: its models or variables differ",
                hint="leave out --resume to begin anew",
            )
        return {row.model: row for row in rows if row.is_good}

    def write(self, rows: Sequence[ModelProfile]) -> None:
        """Keep the rows, whole or not at all."""
        part = self._path.with_name(f"{self._path.name}.part")
        _write(part, to_json({"digest": self._digest, "rows": rows}), append=False)
        part.replace(self._path)

    def remove(self) -> None:
        """Forget them: the session is at its end."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
