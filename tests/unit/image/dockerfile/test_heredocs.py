"""Heredocs, by the cases that BuildKit's documentation shows and its rules imply."""

from __future__ import annotations

import pytest

from sandbox.errors import SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.parse import parse
from sandbox.image.dockerfile.syntax import Heredoc, Instruction


def instructions(text: str) -> tuple[Instruction, ...]:
    return parse(f"FROM scratch\n{text}", "Dockerfile").stages[0].instructions


def heredocs(text: str) -> tuple[Heredoc, ...]:
    first = instructions(text)[0]
    if isinstance(first, syntax.Run):
        return first.command.heredocs
    assert isinstance(first, syntax.Copy | syntax.Add)
    return first.heredocs


@pytest.mark.parametrize(
    ("begin", "end", "expand", "chomp"),
    [
        ("<<EOF", "EOF", True, False),
        ("<<-EOF", "EOF", True, True),
        ("<<-EOF", "\t\tEOF", True, True),
        ("<<'EOF'", "EOF", False, False),
        ('<<"EOF"', "EOF", False, False),
        ("<<E'O'F", "EOF", False, False),
        ("<<-'EOF'", "EOF", False, True),
        ("<< EOF", "EOF", True, False),
        ("<<\\EOF", "EOF", True, False),
        ("<<end-of.it", "end-of.it", True, False),
        ("<<'a b'", "a b", False, False),
    ],
)
def test_what_begins_and_ends_one(begin: str, end: str, *, expand: bool, chomp: bool) -> None:
    (heredoc,) = heredocs(f"RUN cat {begin}\n1\n\n\t2 \\\n# 3\n{end}\n")
    assert heredoc.content == "1\n\n\t2 \\\n# 3\n"
    assert (heredoc.expand, heredoc.chomp) == (expand, chomp)


@pytest.mark.parametrize("end", [" EOF", "EOF ", "EOFF", "\tEOF", "eof"])
def test_the_word_stands_alone_on_its_line(end: str) -> None:
    with pytest.raises(SpecError, match="Dockerfile:2: the heredoc `<<EOF` has no end"):
        instructions(f"RUN cat <<EOF\n1\n{end}\n")


def test_leading_tabs_go_after_a_dash() -> None:
    (heredoc,) = heredocs("COPY <<-E /e\n\ta\n\t\tb \tc\n  d\n\n\tE\n")
    assert heredoc.content == "\ta\n\t\tb \tc\n  d\n\n"
    assert heredoc.text() == "a\nb \tc\n  d\n\n"


def test_several_in_one_instruction() -> None:
    first, second = heredocs("COPY <<one <<'two' file /d/\n1\none\n$2\ntwo\nRUN x\n")
    assert (first.name, first.content, first.expand) == ("one", "1\n", True)
    assert (second.name, second.content, second.expand) == ("two", "$2\n", False)


def test_they_are_sources_beside_others() -> None:
    (copy,) = instructions("COPY --chmod=644 <<one file <<two /d/\none\n2\ntwo\n")
    assert isinstance(copy, syntax.Copy)
    assert (copy.sources, copy.destination, copy.chmod) == (("file",), "/d/", "644")
    assert [each.name for each in copy.heredocs] == ["one", "two"]


def test_what_follows_is_an_instruction_again() -> None:
    run, cmd = instructions("RUN <<E\nFROM x\nRUN y\nE\nCMD z")
    assert isinstance(run, syntax.Run)
    assert run.command.words == ("<<E",)
    assert run.command.heredocs[0].content == "FROM x\nRUN y\n"
    assert isinstance(cmd, syntax.Cmd)


def test_a_descriptor_may_stand_before() -> None:
    (heredoc,) = heredocs("RUN cat 3<<E <&3\n1\nE\n")
    assert heredoc.descriptor == 3


def test_a_line_goes_on_before_the_body() -> None:
    (heredoc,) = heredocs("RUN cat \\\n  <<E | \\\n  sort\n1\nE\n")
    assert heredoc.content == "1\n"


def test_the_ends_of_lines_are_kept_as_they_are() -> None:
    (heredoc,) = heredocs("RUN <<E\r\n1\r\n2\nE\r\n")
    assert heredoc.content == "1\r\n2\n"


@pytest.mark.parametrize(
    "text",
    [
        'RUN ["cat", "<<E"]',
        'RUN echo "<<E"',
        "RUN echo '<<E'",
        "RUN echo \\<<E",
        "RUN cat <<<E",
        "RUN echo $((1<<2<<3))",
        "RUN a <<",
        "RUN it's <<E",
        "ENV a=<<E",
        "CMD cat <<E",
        'COPY ["<<E", "/e"]',
        "HEALTHCHECK CMD cat <<E",
    ],
)
def test_what_only_looks_like_one(text: str) -> None:
    assert len(instructions(f"{text}\nUSER x\n")) == 2


def test_one_in_a_trigger() -> None:
    trigger, user = instructions("ONBUILD RUN <<E\n1\nE\nUSER x\n")
    assert isinstance(trigger, syntax.Onbuild)
    assert trigger.expression == "RUN <<E\n1\nE"
    assert isinstance(user, syntax.User)


def test_a_destination_is_none() -> None:
    with pytest.raises(SpecError, match="Dockerfile:2: COPY needs a destination"):
        instructions("COPY a <<E\nE\n")
