"""Instructions as they are written: lines that go on, comments, directives, forms, flags."""

from __future__ import annotations

import pytest

from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.parse import parse, parse_trigger
from sandbox.image.dockerfile.syntax import Command, Instruction


def one(text: str, escape: str = "\\") -> Instruction:
    """Return the only instruction of a stage."""
    directive = "" if escape == "\\" else f"# escape={escape}\n"
    (stage,) = parse(f"{directive}FROM scratch\n{text}\n", "Dockerfile").stages
    (instruction,) = stage.instructions
    return instruction


def shell(text: str) -> Command:
    return Command(words=(text,), is_shell=True)


def words(*each: str) -> Command:
    return Command(words=each, is_shell=False)


def run(text: str, escape: str = "\\") -> Command:
    instruction = one(f"RUN {text}", escape)
    assert isinstance(instruction, syntax.Run)
    return instruction.command


# --- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a \\\nb", "a b"),
        ("a\\\nb", "ab"),
        ("a \\  \nb", "a b"),
        ("a \\\n   b", "a    b"),
        ("a \\\n# about b\nb", "a b"),
        ("a \\\n   # about b\n#\nb", "a b"),
        ("a \\\n\n  \nb", "a b"),
        ("a \\\r\nb\r", "a b"),
        ("a \\\\\\", "a \\\\\\"),
        ("a # b", "a # b"),
        ("a \\", "a"),
        ("\\\na", "a"),
        ("a \\\nRUN b", "a RUN b"),
        ("   a  ", "a"),
    ],
)
def test_a_line_goes_on(text: str, expected: str) -> None:
    assert run(text) == shell(expected)


def test_an_escape_character_after_another_does_not_go_on() -> None:
    stage = parse("FROM scratch\nRUN a \\\\\nRUN b\n", "Dockerfile").stages[0]
    assert [each.line for each in stage.instructions] == [2, 3]


def test_the_backquote_goes_on_when_it_is_the_escape_character() -> None:
    assert run("dir c:\\ `\n && x", "`") == shell("dir c:\\  && x")


@pytest.mark.parametrize(
    ("text", "escape"),
    [
        ("# escape=`\n", "`"),
        ("#escape = `  \n", "`"),
        ("# ESCAPE=`\n", "`"),
        ("# syntax=docker/dockerfile:1\n# escape=`\n", "`"),
        ("\ufeff# escape=`\r\n", "`"),
        ("# escape=\\\n", "\\"),
        ("# a comment\n# escape=`\n", "\\"),
        ("\n# escape=`\n", "\\"),
        ("# other=1\n# escape=`\n", "\\"),
    ],
)
def test_directives_stand_at_the_very_top(text: str, escape: str) -> None:
    assert parse(f"{text}FROM scratch\n", "Dockerfile").escape == escape


def test_lines_are_counted_in_the_file() -> None:
    text = (
        "# syntax=docker/dockerfile:1\n\nARG A\n\n# c\nFROM a AS b\nRUN x \\\n  # c\n  y\n"
        "COPY <<E /e\n1\n\nE\nRUN z\nfrom b\nENV a=b"
    )
    dockerfile = parse(text.encode(), "Dockerfile")

    assert [arg.line for arg in dockerfile.global_args] == [3]
    assert [stage.line for stage in dockerfile.stages] == [6, 15]
    lines = [each.line for stage in dockerfile.stages for each in stage.instructions]
    assert lines == [7, 10, 14, 16]
    assert dockerfile.directives == {"syntax": "docker/dockerfile:1"}


def test_the_text_of_an_instruction_is_kept_for_people() -> None:
    instruction = one("  run   echo a \\\n  b  ")
    assert instruction.source == "run   echo a   b"
    assert syntax.keyword(instruction) == "RUN"


def test_bytes_that_are_no_utf8_are_kept() -> None:
    dockerfile = parse(b"FROM scratch\nENV A=\xff\xe9\n", "Dockerfile")
    (env,) = dockerfile.stages[0].instructions
    assert isinstance(env, syntax.Env)
    assert env.pairs[0][1].encode("utf-8", "surrogateescape") == b"\xff\xe9"


# --- the exec form --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["a", "b c"]', words("a", "b c")),
        ('[ "a" ,"b" ]  ', words("a", "b")),
        ('[""]', words("")),
        ('["\\u00e9\\n"]', words("é\n")),
        ('["a" \\\n, "b"]', words("a", "b")),
        ("['a']", shell("['a']")),
        ('["a', shell('["a')),
        ('["a" "b"]', shell('["a" "b"]')),
        ('["a"] x', shell('["a"] x')),
        ("[NaN]", shell("[NaN]")),
        ("[ -f a ] && b", shell("[ -f a ] && b")),
        ("echo [1]", shell("echo [1]")),
    ],
)
def test_a_json_array_of_texts_is_the_exec_form(text: str, expected: Command) -> None:
    instruction = one(f"CMD {text}")
    assert isinstance(instruction, syntax.Cmd)
    assert instruction.command == expected
    entrypoint = one(f"ENTRYPOINT {text}")
    assert isinstance(entrypoint, syntax.Entrypoint)
    assert entrypoint.command == expected


def test_what_looks_like_json_but_is_none_is_warned_of() -> None:
    text = "FROM scratch\nRUN ['a']\nCMD [ -f x ] && y\nENTRYPOINT [\"a\", 'b']\n"
    assert [each.line for each in parse(text, "Dockerfile").warnings] == [2, 4]


def test_entrypoint_and_cmd_can_be_emptied() -> None:
    for keyword in ("CMD", "ENTRYPOINT"):
        instruction = one(f"{keyword} []")
        assert isinstance(instruction, syntax.Cmd | syntax.Entrypoint)
        assert instruction.command == words()


# --- each instruction -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", (("a", "b"),)),
        ("a=b c=d", (("a", "b"), ("c", "d"))),
        ("a='b c' d=\"e f\"", (("a", "'b c'"), ("d", '"e f"'))),
        ("a=b\\ c d=e", (("a", "b\\ c"), ("d", "e"))),
        ("a=", (("a", ""),)),
        ("a=b=c", (("a", "b=c"),)),
        ("a b c", (("a", "b c"),)),
        ("a   b  'c", (("a", "b  'c"),)),
        ('a "b"', (("a", '"b"'),)),
        ("a b=c", (("a", "b=c"),)),
        ("a=b \\\n    c=d", (("a", "b"), ("c", "d"))),
        ("a=\"x'y\" b='", (("a", '"x\'y"'), ("b", "'"))),
        ("a=b\\", (("a", "b"),)),
    ],
)
def test_names_and_values(text: str, pairs: tuple[tuple[str, str], ...]) -> None:
    env, label = one(f"ENV {text}"), one(f"LABEL {text}")
    assert isinstance(env, syntax.Env)
    assert isinstance(label, syntax.Label)
    assert env.pairs == label.pairs == pairs


def test_arguments_may_have_no_value() -> None:
    instruction = one("ARG a b=c d= e='x y'")
    assert isinstance(instruction, syntax.Arg)
    assert instruction.pairs == (("a", None), ("b", "c"), ("d", ""), ("e", "'x y'"))


def test_stages() -> None:
    text = (
        "ARG V\nFROM --platform=$BUILDPLATFORM a:$V As Base\nFROM base\n"
        "FROM x@sha256:0 as a_1.b-c\n"
    )
    first, second, third = parse(text, "Dockerfile").stages
    assert (first.base, first.name, first.platform) == ("a:$V", "base", "$BUILDPLATFORM")
    assert (second.base, second.name, second.platform) == ("base", None, None)
    assert third.name == "a_1.b-c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b /c/", {"sources": ("a", "b"), "destination": "/c/"}),
        ('["a b", "c d"]', {"sources": ("a b",), "destination": "c d"}),
        ("--from=base a b", {"from_stage": "base"}),
        ("--chown=a:b --chmod=u+x a b", {"chown": "a:b", "chmod": "u+x"}),
        ("--exclude=*.a --exclude=*.b a b", {"excludes": ("*.a", "*.b")}),
        ("--parents a b", {"parents": True}),
        ("--parents=false --link=TRUE a b", {"parents": False, "link": True}),
        ("--link a b", {"link": True}),
        ("--chown='a b' a b", {"chown": "a b"}),
        ("--from=x -- --a b", {"sources": ("--a",)}),
        ("--chmod=755 \\\n a \\\n b", {"chmod": "755", "sources": ("a",)}),
        ('["a" b] c', {"sources": ('["a"', "b]")}),
    ],
)
def test_copy(text: str, expected: dict[str, object]) -> None:
    copy = one(f"COPY {text}")
    assert isinstance(copy, syntax.Copy)
    assert {name: getattr(copy, name) for name in expected} == expected


def test_add() -> None:
    digest = "sha256:" + "0" * 64
    add = one(f"ADD --checksum={digest} --unpack=false https://h/x.tar /x/")
    assert isinstance(add, syntax.Add)
    assert add.sources == ("https://h/x.tar",)
    assert (add.checksum, add.unpack) == (digest, False)
    plain = one("ADD x.tar y /x/")
    assert isinstance(plain, syntax.Add)
    assert (plain.checksum, plain.unpack) == (None, None)


def test_run_flags() -> None:
    run_ = one(
        "RUN --mount=type=cache,target=/a --mount=target=/b --network=none --security=sandbox x"
    )
    assert isinstance(run_, syntax.Run)
    assert run_.mounts == ("type=cache,target=/a", "target=/b")
    assert run_.network == "none"
    assert run_.command == shell("x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NONE", {"test": ("NONE",)}),
        ("CMD a  b", {"test": ("CMD-SHELL", "a  b")}),
        ('cmd ["a", "b"]', {"test": ("CMD", "a", "b")}),
        ("CMD\ta", {"test": ("CMD-SHELL", "a")}),
        (
            "--interval=1m30s --timeout=1.5s --start-period=1h --retries=3 CMD x",
            {
                "interval_ns": 90 * 10**9,
                "timeout_ns": 1_500_000_000,
                "start_period_ns": 3600 * 10**9,
                "retries": 3,
            },
        ),
        ("--start-interval=.5s CMD x", {"start_interval_ns": 500_000_000}),
        ("--interval=0 CMD x", {"interval_ns": 0}),
    ],
)
def test_healthchecks(text: str, expected: dict[str, object]) -> None:
    check = one(f"HEALTHCHECK {text}")
    assert {name: getattr(check, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("WORKDIR /a b", "path", "/a b"),
        ("USER a:b", "user", "a:b"),
        ("STOPSIGNAL 15", "signal", "15"),
        ("MAINTAINER A B <c@d>", "name", "A B <c@d>"),
        ("EXPOSE 80 443/tcp", "ports", ("80", "443/tcp")),
        ("VOLUME /a /b", "paths", ("/a", "/b")),
        ('VOLUME ["/a b", " /c "]', "paths", ("/a b", "/c")),
        ('SHELL ["/bin/bash", "-c"]', "words", ("/bin/bash", "-c")),
        ("ONBUILD run echo a", "expression", "run echo a"),
        ("onbuild  COPY <<E /e\nx\nE", "expression", "COPY <<E /e\nx\nE"),
    ],
)
def test_others(text: str, field: str, expected: object) -> None:
    assert getattr(one(text), field) == expected


def test_a_trigger_is_an_instruction_at_the_line_of_its_from() -> None:
    instruction = parse_trigger("COPY <<E /e\nx\nE", "Dockerfile", 7)
    assert isinstance(instruction, syntax.Copy)
    assert (instruction.line, instruction.heredocs[0].content) == (7, "x\n")


def test_what_is_most_likely_not_meant_is_warned_of() -> None:
    text = "# syntax=example.com/other:1\nFROM a AS x\nRUN a \\\n\n b\nFROM b AS x\n"
    warnings = parse(text, "Dockerfile").warnings
    assert [each.line for each in warnings] == [1, 3, 6]
    assert "example.com/other:1" in warnings[0].text
    assert "line 2" in warnings[2].text
