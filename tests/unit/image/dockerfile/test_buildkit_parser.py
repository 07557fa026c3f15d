"""Beside BuildKit's own parser, by a binding of it: lines, keywords, flags, heredocs, words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.image.dockerfile.arguments import parse_list, split_quoted, split_statement
from sandbox.image.dockerfile.lines import read_texts
from sandbox.image.dockerfile.parse import takes_heredocs

# A wheel that is not there for every machine; where it is, it is one of our own extras.
buildkit = pytest.importorskip("dockerfile")

LISTS = {"RUN", "CMD", "ENTRYPOINT", "COPY", "ADD", "SHELL", "VOLUME"}
Statement = tuple[int, str, tuple[str, ...], tuple[tuple[str, int, str], ...], Any]


def ours(text: str) -> list[Statement]:
    """Return what we read, in the words of the binding."""
    texts = read_texts(text, "Dockerfile", takes_heredocs)
    escape = texts.directives.get("escape", "\\")
    if not texts.texts:
        raise SpecError("empty")
    found: list[Statement] = []
    for each in texts.texts:
        keyword, flags, rest = split_statement(each.text, escape)
        heredocs = tuple((h.name, h.descriptor, h.content) for h in each.heredocs)
        if keyword.upper() == "ONBUILD":
            heredocs = ()  # the binding reads them, and keeps them to itself
        found.append((each.line, keyword.upper(), flags, heredocs, value(keyword, rest, escape)))
    return found


def value(keyword: str, rest: str, escape: str) -> Any:
    """Return the arguments as the binding gives them, of instructions that are simple there."""
    if keyword.upper() == "ONBUILD":  # what it holds is read at once, there and here
        inner, _, rest = split_statement(rest, escape)
        value(inner, rest, escape)
        return None
    words = parse_list(rest) if keyword.upper() in LISTS else None
    if keyword.upper() in {"RUN", "CMD", "ENTRYPOINT"}:
        return (rest,) * bool(rest) if words is None else words
    if keyword.upper() == "ARG":
        return split_quoted(rest, escape)
    return None


def theirs(text: str) -> list[Statement]:
    return [
        (
            each.start_line,
            (each.cmd or "").upper(),
            tuple(each.flags),
            tuple((h.name, h.file_descriptor, h.content) for h in each.heredocs),
            each.value if (each.cmd or "").upper() in {"RUN", "CMD", "ENTRYPOINT", "ARG"} else None,
        )
        for each in buildkit.parse_string(text)
    ]


def check(text: str) -> None:
    try:
        expected = theirs(text)
    except buildkit.GoParseError:
        expected = None
    try:
        found = ours(text)
    except (SpecError, ValueError):
        found = None
    if expected is not None and any(each[1] == "" for each in expected):
        return  # a line that only goes on: BuildKit refuses it one step later
    if expected is None or found is None:
        # What ENV and LABEL are, we judge one step later.
        assert (expected is None) == (found is None) or "ENV" in text or "LABEL" in text
        return
    assert found == expected


PIECES = st.sampled_from(
    [
        *("RUN ", "COPY ", "ADD ", "CMD ", "ENTRYPOINT ", "ARG ", "USER ", "WORKDIR ", "ONBUILD "),
        *("FROM a", "\nFROM a\n", "\n", "\r\n", "\nRUN ", "\nCOPY ", "\n# c\n", " # c", "\n\n"),
        *("\\", "\\\n", "\\ \n", "`", "`\n", "\t", "  ", " "),
        # Not `<< E`: blanks before the word are newer than the binding.
        *("<<E", "<<-E", "<<'E'", '<<"E"', "3<<E", "<<<E", "\nE\n", "\n\tE\n", "\nx\n"),
        *(
            "--from=b",
            "--mount=type=cache,target=/x ",
            "--x='a b' ",
            '--x="a" ',
            "-- ",
            "--",
            "--a",
        ),
        # Text after an array made no difference once; it does now, and then a shell reads all.
        *(
            '["a", "b"]\n',
            '["a"',
            "[]\n",
            "['a']",
            "[1]\n",
            '"',
            "'",
            "a",
            "b=c",
            "$a",
            "${a}",
            "#",
        ),
        *("# escape=`\n", "# syntax=x\n"),
    ]
)


# Beyond ASCII only where it is text: in flags the binding takes bytes for characters.
@given(st.sampled_from(["", "\ufeff", "USER é\n"]), st.lists(PIECES, max_size=15).map("".join))
@settings(max_examples=200, deadline=None)
def test_any_file_is_cut_as_buildkit_cuts_it(beginning: str, text: str) -> None:
    # Only the backslash escaped in flags once, whatever a directive said.
    assume("--" not in text or "escape=`" not in text)
    check(beginning + text)


REAL = [
    """# syntax=docker/dockerfile:1
ARG GO_VERSION=1.24
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS base
WORKDIR /src
RUN --mount=type=cache,target=/root/.cache \\
    --mount=type=bind,source=go.mod,target=go.mod \\
    # get what is needed
    go mod download
FROM base AS build
COPY --link . .
RUN <<EOT
set -e
  go build -o /out ./...
EOT
ENTRYPOINT ["/out/tool"]
CMD ["--help"]
""",
    """from debian:12
maintainer Somebody <a@b>
env A=1 \\
    B="two words" \\

    C='3'
run apt-get update && \\
    apt-get install -y \\
      # a comment amid
      curl
expose 80 443/tcp
copy ["a file", "/there/"]
healthcheck --interval=5m --timeout=3s cmd curl -f http://localhost/ || exit 1
onbuild run <<-'E' | cat
\tone
\tE
volume /data
user nobody
""",
    "# escape=`\r\nFROM windows\r\nCOPY a c:\\\\`\r\nRUN dir c:\\ `\r\n && echo\r\n",
]


@pytest.mark.parametrize("text", REAL)
def test_files_as_people_write_them(text: str) -> None:
    assert ours(text) == theirs(text)


@given(
    st.lists(st.text(st.characters(exclude_characters="\0")), max_size=4),
    st.sampled_from(["", " ", "\t"]),
)
@settings(deadline=None)
def test_the_exec_form_is_the_same(words: list[str], blank: str) -> None:
    check(f"FROM a\nCMD {blank}{json.dumps(words)}{blank}")
