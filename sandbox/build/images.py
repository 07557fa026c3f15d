"""Build an image: from a Dockerfile and a context, or from variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sandbox.build.options import BuildOptions, Built, Tell, Variables
from sandbox.errors import ImageError, SpecError, StoreError
from sandbox.records.light import dataclass

_MOST_BYTES = 8 << 20
"""Of a Dockerfile."""
_STDIN = "-"
_ADDRESS = re.compile(r"[a-z]+://?\w|git@|github\.com/")
"""`//` in a path is one slash."""
_COMPRESSED = (b"\x1f\x8b", b"BZ", b"\xfd7", b"\x28\xb5")


def build_image(
    context: Path,
    dockerfile: Path | None = None,
    options: BuildOptions | None = None,
    *,
    home: Path | None = None,
    tell: Tell | None = None,
) -> Built:
    """Build the image that a Dockerfile describes.

    Args:
        context: The directory whose files COPY and ADD can have; `-` is none, and the file is on
            stdin.
        dockerfile: The file; `Dockerfile` in the context unless given, `-` is stdin.
        options: How.
        home: Where images and runs are kept; found as the command line does unless given.
        tell: Called with each line of progress.

    Raises:
        SandboxError: something is wrong with the file, which is told with its line, or a step
            failed; nothing of it stays.
    """
    asked = _Asked(options=options or BuildOptions(), home=home, tell=tell)
    if str(context) == _STDIN:
        return _build_without_context(dockerfile, asked)
    _check_context(context)
    if dockerfile is not None and str(dockerfile) == _STDIN:
        return _build(_read_stdin(), "stdin", context, asked)
    path = context / "Dockerfile" if dockerfile is None else dockerfile
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise SpecError(
            f"cannot read {path}: {exc.strerror}",
            hint=_other_dockerfile(context)
            if dockerfile is None
            else "`-f` is meant from here, not from the context",
        ) from exc
    if len(data) > _MOST_BYTES:
        raise SpecError(
            f"{path} is no Dockerfile: it is larger than 8 MiB", hint="`-f FILE` names another one"
        )
    return _build(data, _shown(path, context), context, asked, path)


def _check_context(context: Path) -> None:
    if _ADDRESS.match(str(context)):
        raise SpecError(
            f"the context {context} is not on this machine",
            hint="clone or fetch it, and name its directory",
        )
    if not context.is_dir():
        raise SpecError(
            f"the context {context} is no directory",
            hint="the last argument is the directory that COPY takes its files from",
        )


def _other_dockerfile(context: Path) -> str:
    """Return how to name the Dockerfile: by what looks like one, if something does."""
    alike: list[Path] = []
    with suppress(OSError):  # it cannot be listed: then nothing is known of it
        alike = [
            found
            for found in sorted(context.iterdir())
            if found.name.lower().split(".")[0] in {"dockerfile", "containerfile"}
            and found.name != "Dockerfile"
        ]
    return f"`-f {alike[0]}`, if that is it" if alike else "`-f FILE` names another Dockerfile"


def _build_without_context(dockerfile: Path | None, asked: _Asked) -> Built:
    from tempfile import TemporaryDirectory

    if dockerfile is not None:
        raise SpecError(
            "with `-` as the context the Dockerfile is on stdin, and `-f` has no meaning",
            hint="`-f - DIRECTORY` takes the Dockerfile from stdin, and files of a directory",
        )
    with TemporaryDirectory(prefix="sandbox-context-") as directory:
        return _build(_read_stdin(), "stdin", Path(directory), asked)


def _read_stdin() -> bytes:
    import sys

    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES or data[:2] in _COMPRESSED or data[257:262] == b"ustar":
        raise SpecError(
            "what comes on stdin is no Dockerfile",
            hint="an archive has to be unpacked: name the directory of its files",
        )
    return data


def _shown(path: Path, context: Path) -> str:
    """Return how errors name a Dockerfile: short if it is the usual one."""
    return path.name if path == context / "Dockerfile" else str(path)


def build_from_variables(
    variables: Variables,
    options: BuildOptions | None = None,
    *,
    home: Path | None = None,
    tell: Tell | None = None,
) -> Built:
    """Build the image that variables describe, as Auptimizer's Profiler would.

    Raises:
        SandboxError: a variable cannot be meant, or a step failed; nothing of it stays.
    """
    from tempfile import TemporaryDirectory

    from sandbox.build.variables import write_dockerfile

    text = write_dockerfile(variables)
    with ExitStack() as undo:
        context = variables.directory
        if context is None:
            context = Path(undo.enter_context(TemporaryDirectory(prefix="sandbox-context-")))
        elif not context.is_dir():
            raise SpecError(f"there is no directory {context}", hint="make it, or name another one")
        asked = _Asked(options=options or BuildOptions(), home=home, tell=tell)
        return _build(text.encode(), "variables", context, asked)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    options: BuildOptions
    home: Path | None
    tell: Tell | None


def _build(data: bytes, name: str, context: Path, asked: _Asked, path: Path | None = None) -> Built:
    from sandbox.build.builder import Builder, Site, find_moment
    from sandbox.build.finishing import add_image
    from sandbox.build.progress import BuildProgress
    from sandbox.build.running import Runner
    from sandbox.image.built import remove_abandoned
    from sandbox.image.dockerfile.parse import parse
    from sandbox.image.dockerfile.selection import View
    from sandbox.image.dockerfile.tree import Context, read_ignored
    from sandbox.image.ingest import adding
    from sandbox.image.reference import parse_reference
    from sandbox.image.store import ImageStore

    options = asked.options
    _check(options)
    names = tuple(str(parse_reference(tag)) for tag in options.tags)
    dockerfile = parse(data, name)
    place = _open_home(asked.home)
    progress = BuildProgress(asked.tell)
    with (
        _telling(place),
        Context(context.absolute()) as files,
        adding(ImageStore(place / "images")) as ingest,
        ExitStack() as undo,
    ):
        site = Site(
            options=options,
            ingest=ingest,
            runner=Runner(ingest, options, place, progress.say),
            progress=progress,
            moment=find_moment({**os.environ, **options.build_args}),
            undo=undo,
        )
        ignored, ignored_by = read_ignored(files, path)
        view = View(tree=files, ignored=ignored, ignored_by=ignored_by)
        remove_abandoned(ingest.store)
        state = Builder(dockerfile, view, site).build()
        image_id = add_image(ingest, state, site.moment, names)
    return Built(image_id=image_id, references=names, steps=progress.steps, cached=progress.cached)


def _check(options: BuildOptions) -> None:
    """Refuse before the first step what no step could be given.

    Raises:
        SpecError: a secret is not there.
        HostError: a limit is above what this host has.
    """
    from sandbox.build.commands import check_secret
    from sandbox.kernel.check import check
    from sandbox.kernel.host import read_host
    from sandbox.kernel.place import find_place
    from sandbox.kernel.roots import Roots

    for secret in options.secrets:
        check_secret(secret)
    roots = Roots()
    check(options.limits.with_defaults(), read_host(roots, find_place(roots)))


def _open_home(home: Path | None) -> Path:
    from sandbox.store.home import find_home, open_home

    place = home or find_home()
    try:
        os.close(open_home(place, make=True))
    except OSError as exc:
        raise StoreError(
            f"cannot use {place}: {exc.strerror}",
            hint="set SANDBOX_HOME to a directory of your own",
        ) from exc
    return place


@contextmanager
def _telling(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        where = f" ({exc.filename})" if exc.filename else ""
        raise ImageError(
            f"cannot build in {place}: {exc.strerror or exc}{where}",
            hint="free some space there, or set SANDBOX_HOME to another disk",
        ) from exc
