"""COPY and ADD: their flags, and what their sources can be."""

from __future__ import annotations

import re

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
    for source in files.sources:
        if is_address(source) or is_git(source):
            raise statement.refusal(
                f"COPY does not fetch `{source}`", "ADD fetches http:// and https://"
            )
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
        raise _git_refusal(statement, "--keep-git-dir")
    flags.finish()
    files = _files(statement)
    for source in files.sources:
        check_add(statement, source)
    if checksum and "$" not in checksum:
        _check_checksum(statement, checksum)
    if checksum and (len(files.sources) != 1 or files.heredocs):
        raise statement.refusal("`--checksum` is for one address", "write an ADD for each of them")
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


def check_add(statement: Statement, source: str) -> None:
    """Refuse a git repository as a source of ADD.

    Raises:
        SpecError: it is one.
    """
    if is_git(source):
        raise _git_refusal(statement, source)


def _git_refusal(statement: Statement, what: str) -> SpecError:
    return statement.refusal(
        f"ADD does not clone git repositories: `{what}`",
        "clone it before the build and COPY it, or `RUN git clone …`",
    )


def _check_checksum(statement: Statement, checksum: str) -> None:
    if not _CHECKSUM.fullmatch(checksum):
        raise statement.refusal(
            f"`--checksum={checksum}` is no digest", "it is `sha256:` and 64 digits"
        )


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
