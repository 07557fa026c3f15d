"""`sandbox image build`: a Dockerfile to an image."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandbox.cli.bench_options import Memory
from sandbox.cli.console import say
from sandbox.cli.limit_options import Cpus
from sandbox.errors import SpecError
from sandbox.spec import Limits

if TYPE_CHECKING:
    from sandbox.build.options import BuildOptions


Insecure = Annotated[
    list[str] | None,
    typer.Option(
        "--insecure",
        metavar="HOST[:PORT]",
        help="Registry that may do without TLS, or with any certificate; may be repeated.",
    ),
]


class Progress(StrEnum):
    """How to tell of the steps."""

    AUTO = "auto"
    PLAIN = "plain"
    QUIET = "quiet"


def build(
    context: Annotated[
        Path,
        typer.Argument(
            metavar="CONTEXT",
            help="The directory that COPY takes its files from; - is none: the file is on stdin.",
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The Dockerfile; CONTEXT/Dockerfile unless given, - is stdin.",
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", "-t", metavar="NAME", help="What to call the image; may be repeated."
        ),
    ] = None,
    build_arg: Annotated[
        list[str] | None,
        typer.Option(
            "--build-arg", metavar="NAME[=VALUE]", help="The value of an ARG; may be repeated."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="STAGE", help="End with this stage, not with the last."),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do every step anew.")] = False,
    pull: Annotated[
        bool, typer.Option("--pull", help="Ask the registry for base images that are here too.")
    ] = False,
    platform: Annotated[
        str | None,
        typer.Option("--platform", metavar="OS/ARCH", help="What the image is for."),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            "--network",
            metavar="host|none|private",
            help="What RUN finds: the host's network, none, or one of its own behind the host.",
        ),
    ] = "host",
    cpus: Cpus = None,
    memory: Memory = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="id=NAME,src=FILE",
            help="For RUN --mount=type=secret; env=VARIABLE instead of a file; may be repeated.",
        ),
    ] = None,
    insecure: Insecure = None,
    progress: Annotated[
        Progress, typer.Option("--progress", help="How to tell of the steps.")
    ] = Progress.AUTO,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the image's id.")
    ] = False,
) -> None:
    """Build an image from a Dockerfile; steps that were done before are not done again.

    Each RUN is a run: limited, and killed with all of its processes.
    """
    from sandbox.build.images import build_image
    from sandbox.build.options import BuildOptions, Secret
    from sandbox.environment.root_flags import parse_network

    options = BuildOptions(
        tags=tuple(tag or ()),
        build_args=_arguments(build_arg or []),
        target=target,
        use_cache=not no_cache,
        pull=pull,
        platform=platform,
        network=parse_network(network),
        limits=Limits(cpus=cpus, memory_bytes=memory),
        secrets=tuple(map(Secret.parse, secret or ())),
        insecure=frozenset(insecure or ()),
    )
    is_quiet = quiet or progress is Progress.QUIET
    built = build_image(context, file, options, tell=None if is_quiet else say)
    typer.echo(built.image_id)
    if not is_quiet:
        _report(built.image_id, options, built.steps, built.cached)


def _arguments(texts: list[str]) -> dict[str, str]:
    """Return build arguments; a name alone takes the value of our environment, as docker does."""
    import os

    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            raise SpecError(f"`--build-arg {text}` has no name", hint="write `NAME=VALUE`")
        if equals:
            values[name] = value
        elif name in os.environ:
            values[name] = os.environ[name]
    return values


def _report(image_id: str, options: "BuildOptions", steps: int, cached: int) -> None:
    names = ", ".join(options.tags) or image_id[7:19]
    say(f"{names}: {steps} step{'s' * (steps != 1)}, {cached} from the cache")
