"""Beside BuildKit's own parser, by a binding of it: lines, keywords, flags, heredocs, words."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.image.dockerfile.arguments import parse_list, split_quoted, split_statement
from sandbox.image.dockerfile.lines import read_texts
from sandbox.image.dockerfile.parse import takes_heredocs

# Go's runtime has threads, which take signals that other tests block: it gets a process of its own.
SERVER = """
import json, sys
import dockerfile

for line in sys.stdin:
    try:
        found = [
            [each.start_line, (each.cmd or "").upper(), each.flags, each.value,
             [[h.name, h.file_descriptor, h.content] for h in each.heredocs]]
            for each in dockerfile.parse_string(json.loads(line))
        ]
    except dockerfile.GoParseError:
        found = None
    print(json.dumps(found), flush=True)
"""

# A wheel that is not there for every machine; where it is, it is one of our own extras.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("dockerfile") is None, reason="BuildKit's parser is not installed"
)

LISTS = {"RUN", "CMD", "ENTRYPOINT", "COPY", "ADD", "SHELL", "VOLUME"}
Statement = tuple[int, str, tuple[str, ...], tuple[tuple[str, int, str], ...], Any]
Theirs = Callable[[str], list[Statement] | None]


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


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    """What the binding reads, or None for what it refuses."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        asked, answers = server.stdin, server.stdout

        def ask(text: str) -> list[Statement] | None:
            asked.write(json.dumps(text) + "\n")
            asked.flush()
            found = json.loads(answers.readline())
            return None if found is None else [statement(*each) for each in found]

        yield ask
        asked.close()
        server.wait(20)


def statement(line: int, keyword: str, flags: Any, words: Any, heredocs: Any) -> Statement:
    has_words = keyword in {"RUN", "CMD", "ENTRYPOINT", "ARG"}
    value = tuple(words) if has_words else None
    return (line, keyword, tuple(flags), tuple(map(tuple, heredocs)), value)


def check(text: str, theirs: Theirs) -> None:
    expected = theirs(text)
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
@given(
    beginning=st.sampled_from(["", "\ufeff", "USER é\n"]),
    text=st.lists(PIECES, max_size=15).map("".join),
)
@settings(max_examples=200, deadline=None)
def test_any_file_is_cut_as_buildkit_cuts_it(theirs: Theirs, beginning: str, text: str) -> None:
    # Only the backslash escaped in flags once, whatever a directive said.
    assume("--" not in text or "escape=`" not in text)
    check(beginning + text, theirs)


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
def test_files_as_people_write_them(theirs: Theirs, text: str) -> None:
    assert ours(text) == theirs(text)


@given(
    words=st.lists(st.text(st.characters(exclude_characters="\0")), max_size=4),
    blank=st.sampled_from(["", " ", "\t"]),
)
@settings(deadline=None)
def test_the_exec_form_is_the_same(theirs: Theirs, words: list[str], blank: str) -> None:
    check(f"FROM a\nCMD {blank}{json.dumps(words)}{blank}", theirs)
