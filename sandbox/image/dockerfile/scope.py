"""Which build arguments there are, and where: before the first FROM, in a stage, and everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandbox.errors import SpecError
from sandbox.image.dockerfile.syntax import Arg, Dockerfile, refusal
from sandbox.image.dockerfile.words import expand
from sandbox.image.manifest import Platform

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
PROXY_ARGUMENTS = frozenset({*_PROXIES, *map(str.lower, _PROXIES)})
"""What RUN gets from --build-arg without an ARG; neither the cache nor the history knows them."""

PLATFORM_ARGUMENTS = tuple(
    f"{which}{what}"
    for which in ("BUILD", "TARGET")
    for what in ("PLATFORM", "OS", "OSVERSION", "ARCH", "VARIANT")
)
_MORE = frozenset({"TARGETSTAGE", "SOURCE_DATE_EPOCH"})


def platform_arguments(target: Platform, build: Platform, stage: str | None) -> dict[str, str]:
    """Return the arguments that are there without being given.

    Args:
        target: What the image is for.
        build: What this machine is.
        stage: The name of the stage that is asked for.
    """
    found = {"TARGETSTAGE": stage or "default"}
    for which, platform in (("BUILD", build), ("TARGET", target)):
        found |= {
            f"{which}PLATFORM": str(platform),
            f"{which}OS": platform.os,
            f"{which}OSVERSION": "",
            f"{which}ARCH": platform.architecture,
            f"{which}VARIANT": platform.variant,
        }
    return found


def global_variables(
    dockerfile: Dockerfile, given: Mapping[str, str], predefined: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of FROM: those of the ARGs before it, and the predefined ones.

    Args:
        dockerfile: The file.
        given: `--build-arg`: it wins over the file's own values.
        predefined: As of `platform_arguments`.

    Raises:
        SpecError: a value cannot be expanded.
    """
    found = {name: given.get(name, value) for name, value in predefined.items()}
    for arg in dockerfile.global_args:
        for name, value in arg.pairs:
            if name in given:
                found[name] = given[name]
            elif value is not None:
                found[name] = _expanded(arg, value, found, dockerfile)
    return found


def declare(
    arg: Arg,
    dockerfile: Dockerfile,
    *,
    given: Mapping[str, str],
    outside: Mapping[str, str],
    variables: Mapping[str, str],
) -> dict[str, str]:
    """Return the build arguments that get a value by an ARG within a stage.

    That an ENV of the same name wins is for the caller, who knows which is which.

    Args:
        arg: The instruction.
        dockerfile: Its file.
        given: `--build-arg`.
        outside: What `global_variables` gives: a bare `ARG NAME` takes its value from there.
        variables: What the variables in default values stand for.

    Raises:
        SpecError: a value cannot be expanded.
    """
    found: dict[str, str] = {}
    for name, value in arg.pairs:
        if name in given:
            found[name] = given[name]
        elif value is not None:
            found[name] = _expanded(arg, value, {**variables, **found}, dockerfile)
        elif name in outside:
            found[name] = outside[name]
    return found


def _expanded(arg: Arg, value: str, variables: Mapping[str, str], dockerfile: Dockerfile) -> str:
    try:
        return expand(value, variables, dockerfile.escape)
    except SpecError as exc:
        raise refusal(dockerfile.name, arg.line, str(exc), exc.hint) from exc


def proxy_variables(given: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of `--build-arg`, for the environment of RUN."""
    return {name: value for name, value in given.items() if name in PROXY_ARGUMENTS}


def unused_arguments(dockerfile: Dockerfile, given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of `--build-arg` that no ARG declares, most likely misspelled."""
    known = {*PROXY_ARGUMENTS, *PLATFORM_ARGUMENTS, *_MORE, *_declared(dockerfile)}
    return tuple(sorted(set(given) - known))


def _declared(dockerfile: Dockerfile) -> Iterator[str]:
    inside = (instruction for stage in dockerfile.stages for instruction in stage.instructions)
    for instruction in (*dockerfile.global_args, *inside):
        if isinstance(instruction, Arg):
            yield from (name for name, _ in instruction.pairs)
