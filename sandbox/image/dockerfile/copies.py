"""COPY and ADD: their flags, and what their sources can be."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sandbox.errors import SpecError
from sandbox.image.dockerfile.arguments import Flags, Statement, parse_list, split_blanks, strip
from sandbox.image.dockerfile.lines import parse_heredoc
from sandbox.image.dockerfile.syntax import Add, Copy, Heredoc
from sandbox.image.dockerfile.words import expand
from sandbox.records.light import dataclass

_GIT = re.compile(
    r"(?i)(?:git://|ssh://|git@|git\+|github\.com/)|https?://[^?#]*\.git(?:[?#].*)?\Z"
)
_ADDRESS = re.compile(r"(?i)https?://")
_CLONE = "clone it before the build and COPY it, or `RUN git clone …`"
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class _Files:
    sources: tuple[str, ...]
    heredocs: tuple[Heredoc, ...]
    destination: str


def is_address(source: str) -> bool:
    """Return whether a source of ADD is fetched: `http://…` or `https://…`."""
    return _ADDRESS.match(source) is not None


def is_git(source: str) -> bool:
    """Return whether docker takes a source of ADD for a git repository."""
    return _GIT.match(source) is not None


def parse_copy(statement: Statement) -> Copy:
    """Return the record of COPY.

    Raises:
        SpecError: something is wrong with it.
    """
    flags = Flags(statement)
    from_stage = flags.text("from")
    chown, chmod = flags.text("chown"), flags.text("chmod")
    excludes = flags.texts("exclude")
    parents, link = flags.is_on("parents"), flags.is_on("link")
    flags.finish()
    _check_from(statement, from_stage)
    files = _files(statement)
    _check(statement, lambda: check_sources("COPY", files.sources))
    return Copy(
        line=statement.line,
        source=strip(statement.text),
        sources=files.sources,
        heredocs=files.heredocs,
        destination=files.destination,
        from_stage=from_stage or None,
        chown=chown or None,
        chmod=chmod or None,
        excludes=excludes,
        parents=bool(parents),
        link=bool(link),
    )


def parse_add(statement: Statement) -> Add:
    """Return the record of ADD.

    Raises:
        SpecError: something is wrong with it, or it is about a git repository.
    """
    flags = Flags(statement)
    chown, chmod = flags.text("chown"), flags.text("chmod")
    excludes = flags.texts("exclude")
    link, unpack = flags.is_on("link"), flags.is_on("unpack")
    checksum = flags.text("checksum")
    if flags.is_on("keep-git-dir") is not None:
        raise statement.refusal("ADD does not clone git repositories: `--keep-git-dir`", _CLONE)
    flags.finish()
    files = _files(statement)
    _check(statement, lambda: check_sources("ADD", files.sources))
    if files.heredocs and checksum:
        raise statement.refusal("`--checksum` is for one address", "write an ADD for each of them")
    if checksum and not any("$" in text for text in (checksum, *files.sources)):
        _check(statement, lambda: check_checksum(checksum, files.sources))
    return Add(
        line=statement.line,
        source=strip(statement.text),
        sources=files.sources,
        heredocs=files.heredocs,
        destination=files.destination,
        chown=chown or None,
        chmod=chmod or None,
        excludes=excludes,
        link=bool(link),
        checksum=checksum or None,
        unpack=unpack,
    )


def check_sources(keyword: str, sources: Sequence[str]) -> None:
    """Refuse sources that an instruction cannot fetch, before or after they are expanded.

    Raises:
        SpecError: one of them is a git repository, or COPY is to fetch it.
    """
    for source in sources:
        if keyword == "COPY" and (is_address(source) or is_git(source)):
            raise SpecError(
                f"COPY does not fetch `{source}`", hint="ADD fetches http:// and https://"
            )
        if is_git(source):
            raise SpecError(f"ADD does not clone git repositories: `{source}`", hint=_CLONE)


def check_checksum(checksum: str, sources: Sequence[str]) -> None:
    """Refuse what cannot be the digest of what ADD fetches.

    Raises:
        SpecError: it is no digest, or the source is not fetched.
    """
    if not _CHECKSUM.fullmatch(checksum):
        raise SpecError(
            f"`--checksum={checksum}` is no digest", hint="it is `sha256:` and 64 digits"
        )
    if len(sources) != 1 or not is_address(sources[0]):
        raise SpecError(
            "`--checksum` is for one address", hint="write an ADD with http:// or https:// for it"
        )


def _check(statement: Statement, check: Callable[[], None]) -> None:
    try:
        check()
    except SpecError as exc:
        raise statement.refusal(str(exc), exc.hint) from exc


def _check_from(statement: Statement, from_stage: str | None) -> None:
    """Refuse variables in `--from`: what is built is decided before any of them has a value."""
    if from_stage is None:
        return
    try:
        is_plain = expand(from_stage, {}, statement.escape) == from_stage
    except SpecError:
        is_plain = False
    if not is_plain:
        raise statement.refusal(
            f"`--from={from_stage}` takes no variables",
            "make a stage of it: `FROM $NAME AS other`, and write `--from=other`",
        )


def _files(statement: Statement) -> _Files:
    """Return what is copied and where to."""
    keyword = statement.keyword
    try:
        words = parse_list(statement.rest)
    except ValueError as exc:
        raise statement.refusal(str(exc), 'such as `["a file", "/there/"]`') from exc
    is_list = words is not None
    if words is None:
        words = split_blanks(statement.rest)
    if len(words) < 2:  # noqa: PLR2004 - one source, one destination
        what = f"`{words[0]}` to go somewhere" if words else "a source and a destination"
        raise statement.refusal(f"{keyword} needs {what}", f"write `{keyword} SOURCE… DESTINATION`")
    *named, destination = words
    if is_list:
        return _Files(sources=tuple(named), heredocs=(), destination=destination)
    if parse_heredoc(destination) is not None:
        raise statement.refusal(
            f"{keyword} needs a destination after `{destination}`", "it cannot be a heredoc"
        )
    bodies = {heredoc.name: heredoc for heredoc in statement.heredocs}
    sources: list[str] = []
    heredocs: list[Heredoc] = []
    for word in named:
        begun = parse_heredoc(word)
        if begun is None:
            sources.append(word)
        elif begun.name in bodies:
            heredocs.append(bodies[begun.name])
    return _Files(sources=tuple(sources), heredocs=tuple(heredocs), destination=destination)
