"""Patterns of paths: Go's, and those of .dockerignore."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.image.dockerfile.globs import PathPatterns, clean_path, has_wildcards, match
from sandbox.image.dockerfile.ignore import parse_ignore

# The documentation of Go's `path.Match`, case by case in our own words.
GO = [
    ("abc", "abc", True),
    ("*", "abc", True),
    ("*", "", True),
    ("*", "a/b", False),
    ("*c", "abc", True),
    ("a*", "a", True),
    ("a*", "ab/c", False),
    ("a*/b", "abc/b", True),
    ("a*/b", "a/c/b", False),
    ("a**b", "axb", True),
    ("a**b", "a/b", False),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("a?c", "aéc", True),
    ("a[bc]d", "abd", True),
    ("a[b-d]e", "ace", True),
    ("a[b-d]e", "aee", False),
    ("a[^b-d]e", "aee", True),
    ("a[^b-d]e", "ace", False),
    ("a[\\]]b", "a]b", True),
    ("a[\\-x]b", "a-b", True),
    ("[x\\-]", "-", True),
    ("[z-a]", "m", False),
    ("[^z-a]", "m", True),
    ("a\\*b", "a*b", True),
    ("a\\*b", "axb", False),
    ("a[[]0].t", "a[0].t", True),
    ("a.c", "abc", False),
    ("(a|b)+", "(a|b)+", True),
    ("", "", True),
    ("", "a", False),
]


@pytest.mark.parametrize(("pattern", "name", "expected"), GO)
def test_go_patterns(pattern: str, name: str, *, expected: bool) -> None:
    assert match(pattern, name) is expected


@pytest.mark.parametrize(
    "pattern", ["[", "[]", "[a", "[^", "[^]", "[a-]", "[-a]", "a\\", "[\\", "[a\\"]
)
def test_bad_patterns(pattern: str) -> None:
    with pytest.raises(SpecError, match="is no pattern"):
        match(pattern, "a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", False), ("a*", True), ("a?", True), ("a[b]", True), ("a\\*", False), ("a\\\\*", True)],
)
def test_what_is_a_pattern(text: str, *, expected: bool) -> None:
    assert has_wildcards(text) is expected


@given(st.text(alphabet="ab/*?[]^-\\é", max_size=12), st.text(alphabet="ab/é]", max_size=8))
def test_any_pattern_matches_or_not_or_is_none(pattern: str, name: str) -> None:
    with suppress(SpecError):
        match(pattern, name)


@given(st.text(max_size=12))
def test_an_escaped_name_matches_itself_only(name: str) -> None:
    pattern = "".join(f"\\{character}" for character in name)
    assert match(pattern, name)
    assert not match(pattern, f"{name}x")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", "a/b"),
        ("/a//b/", "a/b"),
        ("./a/./b/.", "a/b"),
        ("a/../b", "b"),
        ("../../a", "a"),
        ("..", "."),
        ("", "."),
        ("/", "."),
    ],
)
def test_paths_are_cleaned(path: str, expected: str) -> None:
    assert clean_path(path) == expected


# --- .dockerignore --------------------------------------------------------------------------------


def ignore(text: str) -> PathPatterns:
    return parse_ignore(text.encode(), ".dockerignore")


@pytest.mark.parametrize(
    ("text", "ignored", "kept"),
    [
        ("a", ["a", "a/b", "a/b/c"], ["b", "b/a", "ab"]),
        ("/a/", ["a", "a/b"], ["b/a"]),
        ("./a/../b", ["b"], ["a"]),
        ("*.md", ["a.md", "a.md/b"], ["b/a.md"]),
        ("**/*.md", ["a.md", "b/a.md", "b/c/a.md", "b/a.md/c"], ["a.mdx"]),
        ("a/*", ["a/b", "a/b/c"], ["a"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab"]),
        ("**", ["a", "a/b"], []),
        ("*", ["a", "a/b"], []),
        ("**/a", ["a", "b/a", "b/c/a/d"], ["ba"]),
        ("**.go", ["a.go", "b/c.go"], ["a.gox"]),
        ("a/**/b", ["a/b", "a/c/b", "a/c/d/b/e"], ["ab", "b", "a/cb"]),
        ("a?b", ["axb"], ["a/b", "ab"]),
        ("[a-c]", ["a", "c/x"], ["d"]),
        ("a\\*", ["a*"], ["ab"]),
        ("# a\na#b\n #c", ["a#b", "#c"], ["a", "# a"]),
        ("  a  \n\n\t\nb\r\n", ["a", "b"], []),
        ("\ufeffa", ["a"], []),
        ("a.c", ["a.c"], ["abc"]),
        (".", [], ["a"]),
        ("/", [], ["a"]),
        ("../a", [], ["a"]),
        # What stands last decides.
        ("*\n!a", ["b"], ["a", "a/b"]),
        ("!a\n*", ["a", "b"], []),
        ("a\n!a/b", ["a", "a/c"], ["a/b", "a/b/c"]),
        ("*.md\n!r*.md\nread*.md", ["a.md", "readme.md"], ["run.md"]),
        ("a\n! /a/b/ ", ["a/c"], ["a/b"]),
        ("*\n!!a", ["a"], ["!a"]),
        ("**\n!**/*.py\n**/t.py", ["a", "b/t.py"], ["c.py", "d/e.py"]),
    ],
)
def test_ignored_paths(text: str, ignored: list[str], kept: list[str]) -> None:
    patterns = ignore(text)
    assert [path for path in [*ignored, *kept] if patterns.matches(path)] == ignored


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a\n\n!\n", 3, "`!` takes nothing back"),
        ("!  ", 1, "`!` takes nothing back"),
        ("a\n[b", 2, "`[b` is no pattern"),
        ("# c\n!b\\\n", 2, "`b\\` is no pattern"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(text: str, line: int, what: str) -> None:
    with pytest.raises(SpecError, match=r".") as error:
        ignore(text)
    assert str(error.value).startswith(f".dockerignore:{line}: {what}")


@given(st.binary(max_size=60))
def test_any_bytes_are_patterns_or_an_error_with_its_line(data: bytes) -> None:
    with suppress(SpecError):
        parse_ignore(data, ".dockerignore").matches("a/b.c")


@given(
    st.lists(st.from_regex(r"!?[ab/*?]{1,6}", fullmatch=True), max_size=4),
    st.text(alphabet="ab/", min_size=1, max_size=8).map(clean_path),
)
def test_states_of_directories_lead_to_the_same_decision(lines: list[str], path: str) -> None:
    patterns = ignore("\n".join(lines))
    parts = path.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    decision = False
    for line in lines:
        single = ignore(line.removeprefix("!"))
        if any(single.matches(each) for each in above):
            decision = not line.startswith("!")
    assert patterns.matches(path) is decision


def test_no_pattern_takes_long() -> None:
    patterns = ignore("**/" * 30 + "x")
    assert not patterns.matches("a/" * 200 + "y")
