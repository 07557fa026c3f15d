"""Which stages are needed for a target, and what each begins with and copies from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandbox.errors import SpecError
from sandbox.image.dockerfile.arguments import nearest
from sandbox.image.dockerfile.mounts import read_from
from sandbox.image.dockerfile.syntax import Copy, Dockerfile, Instruction, Run, Stage, refusal
from sandbox.image.dockerfile.words import expand
from sandbox.records.light import dataclass

SCRATCH = "scratch"


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """A stage that is needed."""

    index: int
    """Its number in the file, from 0."""
    stage: Stage
    base_stage: int | None
    """The number of the stage that it begins with."""
    base_image: str | None
    """The image that it begins with; None also for `scratch`."""
    platform: str | None
    """What `--platform` says, expanded."""

    @property
    def is_scratch(self) -> bool:
        """Return whether it begins with nothing."""
        return self.base_stage is None and self.base_image is None


def plan_stages(
    dockerfile: Dockerfile, variables: Mapping[str, str], target: str | None = None
) -> tuple[PlannedStage, ...]:
    """Return the stages that a target needs, in the file's order; it is the last of them.

    Args:
        dockerfile: The file.
        variables: As of `scope.global_variables`.
        target: A stage's name or number; None is the last stage.

    Raises:
        SpecError: there is no such stage, a FROM cannot be expanded, or an instruction takes files
            from a stage that is not before its own.
    """
    last = find_target(dockerfile, target)
    needed: dict[int, PlannedStage] = {}
    waiting = [last]
    while waiting:
        index = waiting.pop()
        if index in needed:
            continue
        planned = _plan(dockerfile, index, variables)
        needed[index] = planned
        if planned.base_stage is not None:
            waiting.append(planned.base_stage)
        waiting += _sources(dockerfile, index)
    return tuple(needed[index] for index in sorted(needed))


def find_target(dockerfile: Dockerfile, target: str | None) -> int:
    """Return the number of the stage that `--target` means.

    Raises:
        SpecError: there is none of that name or number.
    """
    count = len(dockerfile.stages)
    if target is None:
        return count - 1
    index = _find(dockerfile, target, count)
    if index is None:
        names = [stage.name for stage in dockerfile.stages if stage.name is not None]
        hint = nearest(target.lower(), names) if names else "no stage has a name: give its number"
        raise SpecError(f"{dockerfile.name} has no stage `{target}`", hint=hint)
    return index


def find_source(
    dockerfile: Dockerfile, index: int, instruction: Instruction, name: str
) -> int | None:
    """Return the stage that `--from` means, None if it is an image.

    Args:
        dockerfile: The file.
        index: The stage that the instruction stands in.
        instruction: COPY, or RUN with a mount.
        name: What `from` says.

    Raises:
        SpecError: the stage is not before this one.
    """
    found = _find(dockerfile, name, index)
    if found is None:
        later = _find(dockerfile, name, len(dockerfile.stages))
        if later is not None or name.isdecimal():
            which = (
                "this stage itself"
                if later == index
                else f"no stage before line {instruction.line}"
            )
            raise refusal(
                dockerfile.name,
                instruction.line,
                f"`from={name}` is {which}",
                "files can be taken from stages that stand before",
            )
    return found


def _find(dockerfile: Dockerfile, name: str, before: int) -> int | None:
    """Return the last stage of a name or number, of those before a number."""
    wanted = name.lower()
    for index in reversed(range(before)):
        if dockerfile.stages[index].name == wanted:
            return index
    if name.isascii() and name.isdigit() and len(name) < 6 and int(name) < before:  # noqa: PLR2004
        return int(name)
    return None


def _sources(dockerfile: Dockerfile, index: int) -> Iterator[int]:
    for instruction in dockerfile.stages[index].instructions:
        for name in sources_of(instruction):
            found = find_source(dockerfile, index, instruction, name)
            if found is not None:
                yield found


def sources_of(instruction: Instruction) -> tuple[str, ...]:
    """Return the stages and images that an instruction takes files from."""
    if isinstance(instruction, Copy):
        return () if instruction.from_stage is None else (instruction.from_stage,)
    if isinstance(instruction, Run):
        return tuple(name for name in map(read_from, instruction.mounts) if name is not None)
    return ()


def _plan(dockerfile: Dockerfile, index: int, variables: Mapping[str, str]) -> PlannedStage:
    stage = dockerfile.stages[index]
    base = _word(dockerfile, stage, stage.base, variables)
    if not base:
        raise refusal(
            dockerfile.name,
            stage.line,
            f"`FROM {stage.base}` names no image: a variable has no value",
            "give the ARG before the first FROM a default, or pass `--build-arg`",
        )
    platform = None
    if stage.platform is not None:
        platform = _word(dockerfile, stage, stage.platform, variables)
        if not platform:
            raise refusal(
                dockerfile.name, stage.line, f"`--platform={stage.platform}` has no value"
            )
    base_stage = _named(dockerfile, base, index)
    is_image = base_stage is None and base != SCRATCH
    return PlannedStage(
        index=index,
        stage=stage,
        base_stage=base_stage,
        base_image=base if is_image else None,
        platform=platform,
    )


def _named(dockerfile: Dockerfile, name: str, before: int) -> int | None:
    """Return the last stage of that name before another; FROM knows no numbers."""
    for index in reversed(range(before)):
        if dockerfile.stages[index].name == name.lower():
            return index
    return None


def _word(dockerfile: Dockerfile, stage: Stage, text: str, variables: Mapping[str, str]) -> str:
    try:
        return expand(text, variables, dockerfile.escape)
    except SpecError as exc:
        raise refusal(dockerfile.name, stage.line, str(exc), exc.hint) from exc
