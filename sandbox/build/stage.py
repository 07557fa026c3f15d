"""One stage: its base, then each instruction; what fails says its file and its line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from sandbox.build.archive import ArchiveWriter
from sandbox.build.binding import selected, take_tree
from sandbox.build.builder import Builder
from sandbox.build.commands import Preparation, reads_of
from sandbox.build.configuring import configure
from sandbox.build.copying import Copying, find_owner
from sandbox.build.layers import add_archive
from sandbox.build.placing import Dressing, Placement
from sandbox.build.progress import shorten
from sandbox.build.running import Job, StepError
from sandbox.build.stack import Stack
from sandbox.build.state import ImageState, key_of
from sandbox.errors import DockerfileError, ImageError, SandboxError, SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.fields import expand_fields, mounts_of
from sandbox.image.dockerfile.parse import parse_trigger
from sandbox.image.dockerfile.scope import PROXY_ARGUMENTS, declare, proxy_variables
from sandbox.image.dockerfile.selection import View
from sandbox.image.dockerfile.stages import PlannedStage, find_source
from sandbox.image.ingest import LayerMeta
from sandbox.records.enclosure import Network

_LAYERED = (syntax.Run, syntax.Copy, syntax.Add, syntax.Workdir)
_TAIL = 10


class StageBuild:
    """One stage under way."""

    def __init__(self, builder: Builder, planned: PlannedStage, *, is_one: bool) -> None:
        """Build the stage that was planned; `is_one` says that there is no other."""
        self._builder = builder
        self._planned = planned
        self._file = builder.file
        self._name = "" if is_one else f"{planned.stage.name or f'stage-{planned.index}'} "
        self._number = 1

    def build(self) -> ImageState:
        """Take all steps and return what the image is then.

        Raises:
            SandboxError: a step failed; its file and line come first.
            OSError: the store cannot be written.
        """
        stage = self._planned.stage
        with self._naming(stage.line, stage.source):
            count = sum(isinstance(each, _LAYERED) for each in stage.instructions)
            self._count = 1 + count
            with self._builder.progress.step(self._place(), stage.source):
                self._state = self._builder.begin(self._planned)
            triggers = self._triggers()
        self._count += sum(isinstance(each, _LAYERED) for each in triggers)
        for instruction in (*triggers, *stage.instructions):
            with self._naming(instruction.line, instruction.source):
                self._take(instruction)
        return self._state

    def _triggers(self) -> list[syntax.Instruction]:
        """Return what the base wants to have done first; only those who build on it do that."""
        texts = self._state.config.pop("OnBuild", None) or ()
        line = self._planned.stage.line
        return [parse_trigger(text, self._file.name, line) for text in texts]

    def _place(self) -> str:
        return f"{self._name}{self._number}/{self._count}"

    @contextmanager
    def _naming(self, line: int, source: str) -> Iterator[None]:
        """Tell in each error which instruction it was."""
        where = f"{self._file.name}:{line}: "
        try:
            yield
        except OSError as exc:
            place = f" ({exc.filename})" if exc.filename else ""
            raise ImageError(
                f"{where}{shorten(source)}: {exc.strerror or exc}{place}",
                hint="free some space, or set SANDBOX_HOME to another disk"
                if exc.errno in {errno.ENOSPC, errno.EDQUOT}
                else None,
            ) from exc
        except StepError as exc:
            tail = "".join(f"\n  | {text}" for text in exc.tail[-_TAIL:])
            raise ImageError(f"{where}{shorten(source)} {exc}{tail}", hint=exc.hint) from exc
        except SandboxError as exc:
            if str(exc).startswith(where):
                raise
            text = f"{where}{shorten(source)}: {exc}"
            if isinstance(exc, SpecError):
                raise DockerfileError(text, hint=exc.hint) from exc
            exc.args = (text,)
            raise

    # --- one instruction --------------------------------------------------------------------------

    def _take(self, instruction: syntax.Instruction) -> None:
        done = expand_fields(instruction, self._state.variables(), self._file)
        if isinstance(done, _LAYERED):
            self._number += 1
            with self._builder.progress.step(self._place(), done.source):
                self._layered(done)
        elif isinstance(done, syntax.Arg):
            self._declare(done)
        else:
            configure(self._state, done)
            said = {**vars(done), "line": 0, "source": ""}
            key = self._state.next_key(syntax.keyword(done), said)
            self._builder.note(self._state, key, done.source)

    def _declare(self, arg: syntax.Arg) -> None:
        self._state.arguments |= declare(
            arg,
            self._file,
            given=self._builder.options.build_args,
            outside=self._builder.globals,
            variables=self._state.variables(),
        )
        # Its value is in the keys of the steps that see it, not of all that follow.
        key = self._state.next_key("ARG", [name for name, _ in arg.pairs])
        self._builder.note(self._state, key, arg.source)

    def _layered(self, instruction: syntax.Instruction) -> None:
        match instruction:
            case syntax.Run():
                self._run(instruction)
            case syntax.Workdir():
                self._enter(instruction)
            case syntax.Copy() | syntax.Add():
                self._copy(instruction)
            case _:
                raise TypeError(f"{type(instruction).__name__} makes no layer")

    # --- WORKDIR ----------------------------------------------------------------------------------

    def _enter(self, instruction: syntax.Workdir) -> None:
        state, builder = self._state, self._builder
        configure(state, instruction)
        key = state.next_key("WORKDIR", state.workdir)
        path = os.fsencode(state.workdir)
        real, node = Stack(state.trees).resolve(path)
        if node is not None and not node.is_directory:
            raise ImageError(f"`{state.workdir}` is there already, and is no directory")
        if node is not None or not real:
            builder.note(state, key, instruction.source)
            return

        def write(writer: ArchiveWriter) -> None:
            # As BuildKit: who works there may write there. One that is not known is root for now.
            owner = (0, 0)
            with suppress(SandboxError):
                owner = find_owner(state.user or "0", state.trees)
            dressing = Dressing(owner=owner, now_sec=builder.moment.sec)
            placement = Placement(Stack(state.trees), writer, dressing)
            placement.begin()
            placement.make_directory(real)

        latest = builder.moment.latest_sec
        builder.do(
            state, key, instruction.source, lambda: add_archive(builder.ingest, write, latest)
        )

    # --- RUN --------------------------------------------------------------------------------------

    def _run(self, run: syntax.Run) -> None:
        state, builder = self._state, self._builder
        mounts = mounts_of(run, state.variables(), self._file)
        arguments = {
            name: value
            for name, value in state.arguments.items()
            if name not in state.environment and name not in PROXY_ARGUMENTS
        }
        proxies = proxy_variables(builder.options.build_args)
        argv = reads_of(run, state.shell)
        network = self._network(run)
        documents = [each.text() for each in run.command.heredocs]
        shown = [
            self._content(run, mount)
            for mount in mounts
            if mount.kind == "bind" or (mount.kind == "cache" and mount.from_stage is not None)
        ]
        comment = builder.runner.comment
        # What was made for one user only is not what others want who have more.
        lone = [comment] if comment else []
        key = state.next_key("RUN", argv, arguments, network, mounts, documents, shown, *lone)

        def make() -> LayerMeta | None:
            return self._execute(run, mounts, {**proxies, **arguments}, network)

        builder.do(state, key, f"RUN {' '.join(argv)}", make, comment=comment)

    def _shown(self, run: syntax.Run, mount: syntax.Mount) -> tuple[View[Any], list[str] | None]:
        return self._view(run, mount.from_stage)

    def _content(self, run: syntax.Run, mount: syntax.Mount) -> object:
        view, names = self._shown(run, mount)
        return selected(mount, view).content() if names is None else names

    def _origins(self, run: syntax.Run, mounts: Sequence[syntax.Mount]) -> dict[str, str]:
        """Return what names the content of the stages that caches begin with."""
        return {
            name: key_of(self._view(run, name)[1])
            for name in {mount.from_stage for mount in mounts if mount.kind == "cache"}
            if name is not None
        }

    def _network(self, run: syntax.Run) -> Network:
        asked = self._builder.options.network
        return asked if run.network == "default" else Network(run.network)

    def _execute(
        self,
        run: syntax.Run,
        mounts: Sequence[syntax.Mount],
        variables: dict[str, str],
        network: Network,
    ) -> LayerMeta | None:
        state, builder = self._state, self._builder
        with ExitStack() as undo:
            work = undo.enter_context(builder.runner.work_directory())
            give = builder.runner.give
            preparation = Preparation(builder.ingest, state, work, undo, give)
            prepared = preparation.prepare(
                run,
                tuple(mounts),
                secrets={secret.id: secret for secret in builder.options.secrets},
                origins=self._origins(run, mounts),
                take_tree=lambda mount, path: take_tree(
                    mount, self._shown(run, mount)[0], path, give
                ),
            )
            job = Job(
                argv=prepared.argv,
                trees=tuple(state.trees),
                environment={**variables, **state.environment, **prepared.environment},
                user=state.user,
                workdir=state.workdir,
                network=network,
                mounts=prepared.mounts,
                latest_sec=builder.moment.latest_sec,
            )
            return builder.runner.run(job, work)

    # --- COPY and ADD -----------------------------------------------------------------------------

    def _copy(self, instruction: syntax.Copy | syntax.Add) -> None:
        state, builder = self._state, self._builder
        from_stage = instruction.from_stage if isinstance(instruction, syntax.Copy) else None
        view, names = self._view(instruction, from_stage)
        copying = Copying(
            instruction,
            view,
            state,
            now_sec=builder.moment.sec,
            keeps_owner=from_stage is not None,
        )
        with copying.downloads(builder.ingest, builder.options.insecure) as digests:
            said = [*copying.said(), digests]
            if names is None:
                key = state.next_key(*said, copying.content())
            else:
                # Whole layers are compared before all of their files are read.
                quick = state.next_key("quick", *said, names)
                key = builder.key_of_twin(quick, lambda: state.next_key(*said, copying.content()))
            latest = builder.moment.latest_sec
            builder.do(
                state,
                key,
                instruction.source,
                lambda: add_archive(builder.ingest, copying.write, latest),
            )

    def _view(
        self, instruction: syntax.Instruction, from_stage: str | None
    ) -> tuple[View[Any], list[str] | None]:
        """Return where files are taken from, and the names of its layers if it has some."""
        builder = self._builder
        if from_stage is None:
            return builder.view, None
        index = find_source(self._file, self._planned.index, instruction, from_stage)
        if index is not None:
            source, what = builder.stage(index), f"the stage `{from_stage}`"
        else:
            source, what = builder.bases.image(from_stage, None), f"the image `{from_stage}`"
        names = [layer.diff_id for layer in source.layers]
        return View(tree=Stack(source.trees), what=what), names
