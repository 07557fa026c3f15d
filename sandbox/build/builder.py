"""A build in its order: the stages that are needed, one after the other, and what they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from sandbox.build.bases import Bases
from sandbox.build.cache import BuildCache, Step
from sandbox.build.options import BuildOptions
from sandbox.build.progress import BuildProgress
from sandbox.build.running import Runner
from sandbox.build.state import ImageState
from sandbox.errors import SpecError
from sandbox.image.dockerfile.scope import global_variables, platform_arguments, unused_arguments
from sandbox.image.dockerfile.selection import View
from sandbox.image.dockerfile.stages import PlannedStage, plan_stages
from sandbox.image.dockerfile.syntax import Dockerfile
from sandbox.image.dockerfile.tree import ContextEntry
from sandbox.image.ingest import Ingest, LayerMeta
from sandbox.image.manifest import host_platform
from sandbox.image.store import TREE
from sandbox.records.light import dataclass

_LOCK_DIGITS = 3
_LAST_SEC = 253_402_300_799
"""The end of the year 9999: RFC 3339 has four digits for it."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When a build is."""

    text: str
    """RFC 3339."""
    sec: int
    latest_sec: int | None
    """What SOURCE_DATE_EPOCH says: no file may be younger."""


def find_moment(variables: Mapping[str, str]) -> Moment:
    """Return now, or the moment that SOURCE_DATE_EPOCH says; empty says nothing.

    Raises:
        SpecError: it is no time in seconds since 1970, up to the year 9999.
    """
    asked = variables.get("SOURCE_DATE_EPOCH", "")
    if asked:
        is_number = asked.isascii() and asked.isdecimal() and len(asked) <= len(str(_LAST_SEC))
        sec = int(asked) if is_number else _LAST_SEC + 1
        if sec > _LAST_SEC:
            raise SpecError(
                f"SOURCE_DATE_EPOCH is `{asked}`, which is no time in seconds since 1970",
                hint="set it to what `date +%s` or `git log -1 --format=%ct` prints, or unset it",
            )
        return Moment(text=_write_time(sec, 0), sec=sec, latest_sec=sec)
    now_ns = time.time_ns()
    sec, rest_ns = divmod(now_ns, 1_000_000_000)
    return Moment(text=_write_time(sec, rest_ns), sec=sec, latest_sec=None)


def _write_time(sec: int, rest_ns: int) -> str:
    fraction = f".{rest_ns:09d}".rstrip("0").rstrip(".")  # as Go writes it, and so Docker
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(sec)) + fraction + "Z"


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a build works with."""

    options: BuildOptions
    ingest: Ingest
    runner: Runner
    progress: BuildProgress
    moment: Moment
    undo: ExitStack
    """Closed at the end of the build."""


class Builder:
    """One build; its stages reach what they share through it."""

    def __init__(self, dockerfile: Dockerfile, view: View[ContextEntry], site: Site) -> None:
        """Build `dockerfile` with the files of the context that `view` shows.

        Raises:
            SpecError: an ARG before the first FROM cannot be expanded.
        """
        self.file = dockerfile
        self.view = view
        self.options = options = site.options
        self.ingest = site.ingest
        self.runner = site.runner
        self.progress = site.progress
        self.moment = site.moment
        self.bases = Bases(site.ingest, options, site.progress, site.undo)
        self.done: dict[int, ImageState] = {}
        """Stages by their numbers."""
        predefined = platform_arguments(self.bases.platform, host_platform(), options.target)
        self.globals = global_variables(dockerfile, options.build_args, predefined)
        self._cache = BuildCache(site.ingest)

    def build(self) -> ImageState:
        """Build all stages that are needed and return the one that was asked for.

        Raises:
            SandboxError: a step failed; its file and line come first.
            OSError: the store cannot be written.
        """
        for warning in self.file.warnings:
            self.progress.note(f"warning: {self.file.name}:{warning.line}: {warning.text}")
        for name in unused_arguments(self.file, self.options.build_args):
            self.progress.note(f"warning: no ARG declares the build argument `{name}`")
        planned = plan_stages(self.file, self.globals, self.options.target)
        self._build_stages(planned)
        return self.done[planned[-1].index]

    def _build_stages(self, planned: Sequence[PlannedStage]) -> None:
        from sandbox.build.stage import StageBuild

        for stage in planned:
            if stage.index not in self.done:
                self.done[stage.index] = StageBuild(self, stage, is_one=len(planned) == 1).build()

    def stage(self, index: int) -> ImageState:
        """Return what a stage has come to; what only an ONBUILD of a base needs is built now.

        Raises:
            SandboxError: a step failed; its file and line come first.
            OSError: the store cannot be written.
        """
        if index not in self.done:
            self._build_stages(plan_stages(self.file, self.globals, str(index)))
        return self.done[index]

    def begin(self, planned: PlannedStage) -> ImageState:
        """Return what a stage begins with.

        Raises:
            SandboxError: its image cannot be fetched, or is for another platform.
        """
        if planned.base_stage is not None:
            return self.done[planned.base_stage].fork()
        if planned.base_image is not None:
            return self.bases.image(planned.base_image, planned.platform)
        return self.bases.scratch(planned.platform)

    def do(
        self,
        state: ImageState,
        key: str,
        text: str,
        make: Callable[[], LayerMeta | None],
        *,
        comment: str = "",
    ) -> None:
        """Do a step that makes a layer, or take what it has made before; others who want it wait.

        What changes nothing makes none. The `comment` stands in the image's history.

        Raises:
            SandboxError: it failed; that is not remembered.
            OSError: the store cannot be written.
        """
        step = self._find(key)
        if step is None:
            # Not a lock for each key, whose files would stay for ever.
            with self.ingest.store.locked(f"build-{key[:_LOCK_DIGITS]}"):
                step = self._find(key)
                if step is None:
                    step = Step(created=self.moment.text, layer=make())
                    self._cache.keep(key, step)
                else:
                    self.progress.cached += 1
        else:
            self.progress.cached += 1
        layer = step.layer
        if layer is None:
            state.advance(key, step.created, text)
        else:
            tree = self.ingest.store.layer_path(layer.diff_id) / TREE
            state.advance(key, step.created, text, (layer, tree), comment=comment)

    def _find(self, key: str) -> Step | None:
        return self._cache.find(key) if self.options.use_cache else None

    def key_of_twin(self, quick: str, make: Callable[[], str]) -> str:
        """Return the key that a quick one stands for; if that is not known yet, make it."""
        key = self._cache.find_twin(quick)
        if key is None:
            key = make()
            self._cache.keep_twin(quick, key)
        return key

    def note(self, state: ImageState, key: str, text: str) -> None:
        """Note a step that only changes the configuration, with the time when it first did."""
        step = self._find(key)
        if step is None:
            step = Step(created=self.moment.text, layer=None)
            self._cache.keep(key, step)
        state.advance(key, step.created, text)
