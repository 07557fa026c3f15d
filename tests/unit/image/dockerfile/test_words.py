"""Variables, quotes and escapes, as BuildKit's own words about them have it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.image.dockerfile.words import expand, expand_document, split_words

VARIABLES = {"HOME": "/root", "SH": "bash", "EMPTY": "", "PATHS": "/a/b/c.tar.gz", "LONG": "xaxax"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        # Quotes.
        ("a'b'c", "abc"),
        ("'$HOME'", "$HOME"),
        ("'\\$HOME'", "\\$HOME"),
        ('"$HOME"', "/root"),
        ("\"'$HOME'\"", "'/root'"),
        ("'\"'", '"'),
        ("''", ""),
        ('"a  b"', "a  b"),
        # Escapes: of anything outside of quotes, of three characters within double ones.
        ("a\\tb", "atb"),
        ('"a\\tb"', "a\\tb"),
        ('"a\\\\b"', "a\\b"),
        ('"\\""', '"'),
        ("'a\\\\b'", "a\\\\b"),
        ("\\'", "'"),
        ("end\\", "end"),
        ("end\\\\", "end\\"),
        # Names.
        ("$HOME.x", "/root.x"),
        ("$HOMEx", ""),
        ("${HOME}x", "/rootx"),
        ("\\$HOME", "$HOME"),
        ("\\${HOME}", "${HOME}"),
        ("\\\\$HOME", "\\/root"),
        ("$.", "$."),
        ("$", "$"),
        ("a$", "a$"),
        ("$1x", "x"),
        ("$12x", "x"),
        ("$@@", "@"),
        ("$$", ""),
        ("${1:-one}", "one"),
        ("${*:-all}", "all"),
        ("${HOME}}", "/root}"),
        # Defaults: with a colon an empty value counts as unset.
        ("${NO:-word}", "word"),
        ("${NO-word}", "word"),
        ("${EMPTY:-word}", "word"),
        ("${EMPTY-word}", ""),
        ("${HOME:-word}", "/root"),
        ("${NO:-$SH}", "bash"),
        ("${NO:-${ALSO:-deep}}", "deep"),
        ("${NO:-a b}", "a b"),
        ("${NO:-'a b'}", "a b"),
        ("${NO:-\\}}", "}"),
        ("${NO:-\\$SH}", "$SH"),
        ("${NO:-}", ""),
        # Others.
        ("${HOME:+word}", "word"),
        ("${HOME+word}", "word"),
        ("${EMPTY:+word}", ""),
        ("${EMPTY+word}", "word"),
        ("${NO:+word}", ""),
        ("${NO+word}", ""),
        ("${HOME?}", "/root"),
        ("${HOME:?why}", "/root"),
        ("${EMPTY?}", ""),
        # Patterns.
        ("${PATHS#*/}", "a/b/c.tar.gz"),
        ("${PATHS##*/}", "c.tar.gz"),
        ("${PATHS%.*}", "/a/b/c.tar"),
        ("${PATHS%%.*}", "/a/b/c"),
        ("${PATHS%/?.tar.gz}", "/a/b"),
        ("${PATHS#x}", "/a/b/c.tar.gz"),
        ("${PATHS%x}", "/a/b/c.tar.gz"),
        ("${NO#x}", ""),
        ("${LONG/a/b}", "xbxax"),
        ("${LONG//a/b}", "xbxbx"),
        ("${LONG//a/}", "xxx"),
        ("${LONG/a*a/-}", "x-x"),
        ("${LONG//x?/.}", "..x"),
        ("${PATHS//\\//:}", ":a:b:c.tar.gz"),
        ("${LONG/z/b}", "xaxax"),
        ("${NO/a/b}", ""),
        ("${LONG//a/$SH}", "xbashxbashx"),
        # Beyond ASCII.
        ("안녕'하'세요\\t", "안녕하세요t"),
        ("$안녕", ""),
        # What begins a heredoc in a command has no meaning here.
        ("a<b << c", "a<b << c"),
    ],
)
def test_a_text_becomes_one_word(text: str, expected: str) -> None:
    assert expand(text, VARIABLES) == expected


def test_the_backquote_can_be_the_escape_character() -> None:
    assert expand("`$HOME \\$SH", VARIABLES, "`") == "$HOME \\bash"
    assert expand('"`$HOME C:\\x"', VARIABLES, "`") == "$HOME C:\\x"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("'open", "a single quote is open"),
        ('"open', "a double quote is open"),
        ('"open\\"', "a double quote is open"),
        ("he\\\\'llo", "a single quote is open"),
        ("${", "a name is missing"),
        ("${}", "a name is missing"),
        ("${:-x}", "a name is missing"),
        ("${{a}", "a name is missing"),
        ("${HOME", "`}` is missing"),
        ("${NO:-x", "`}` is missing"),
        ("${NO:-${ALSO}", "`}` is missing"),
        ("${HOME:=x}", "`:=` is not known"),
        ("${HOME^}", "`^` is not known"),
        ("${HOME:#x}", "`:#` is not known"),
        ("${.}", "`.` is not known"),
        ("${HOME/x}", "`/` is missing"),
        ("${HOME/x/y", "`}` is missing"),
        ("${HOME#\\x}", "`\\x` is no escape"),
        ("${NO?}", "NO: is not allowed to be unset"),
        ("${NO:?say it}", "NO: say it"),
        ("${EMPTY:?}", "EMPTY: is not allowed to be empty"),
        ("${a:-" * 300, "nested too deeply"),
    ],
)
def test_what_cannot_be_expanded_is_named(text: str, why: str) -> None:
    with pytest.raises(SpecError, match=r".") as error:
        expand(text, VARIABLES)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\tc", ("a", "b", "c")),
        ("  a  ", ("a",)),
        ("'a b' c", ("a b", "c")),
        ("a\\ b c", ("a b", "c")),
        ("$TWO x", ("1", "2", "x")),
        ('"$TWO" x', ("1 2", "x")),
        ("$NO", ()),
        ("", ()),
    ],
)
def test_words_are_split_after_variables_are_replaced(text: str, expected: tuple[str, ...]) -> None:
    assert split_words(text, {"TWO": "1 2"}) == expected


def test_a_document_keeps_its_quotes() -> None:
    text = 'it\'s "$HOME" and \\$HOME\n'
    assert expand_document(text, VARIABLES) == 'it\'s "/root" and $HOME\n'


NAMES = st.sampled_from(["HOME", "NO", "EMPTY"])
TEXTS = st.text(alphabet="ab$ {}:-+?#%/*\\'\"HOMENO\n\u00e9<`", max_size=40)


@given(TEXTS)
def test_any_text_is_a_word_or_an_error_of_ours(text: str) -> None:
    for read in (expand, split_words, expand_document):
        with suppress(SpecError):
            read(text, VARIABLES)


@given(st.text(max_size=30))
def test_single_quotes_keep_everything(text: str) -> None:
    text = text.replace("'", "")
    assert expand(f"'{text}'", VARIABLES) == text


@given(st.text(max_size=30))
def test_a_value_is_not_expanded_again(value: str) -> None:
    assert expand("a${X}b", {"X": value}) == f"a{value}b"
    assert expand('"$X"', {"X": value}) == value


@given(NAMES, st.text(alphabet="xyz ", max_size=5))
def test_a_default_and_an_alternative_exclude_each_other(name: str, word: str) -> None:
    value = VARIABLES.get(name, "")
    assert expand(f"${{{name}:-{word}}}", VARIABLES) == (value or word)
    assert expand(f"${{{name}:+{word}}}", VARIABLES) == (word if value else "")


def matches(pattern: str, text: str) -> bool:
    """Match as slowly and as plainly as can be."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return matches(pattern[1:], text) or (bool(text) and matches(pattern, text[1:]))
    return bool(text) and pattern[0] in {text[0], "?"} and matches(pattern[1:], text[1:])


PATTERNS = st.text(alphabet="ab*?", max_size=6)
VALUES = st.text(alphabet="abc", max_size=8)


@given(PATTERNS, VALUES)
def test_the_shortest_and_the_longest_are_removed(pattern: str, value: str) -> None:
    ends = [end for end in range(len(value) + 1) if matches(pattern, value[:end])]
    starts = [start for start in range(len(value) + 1) if matches(pattern, value[start:])]
    variables = {"V": value}

    assert expand(f"${{V#{pattern}}}", variables) == (value[ends[0] :] if ends else value)
    assert expand(f"${{V##{pattern}}}", variables) == (value[ends[-1] :] if ends else value)
    assert expand(f"${{V%{pattern}}}", variables) == (value[: starts[-1]] if starts else value)
    assert expand(f"${{V%%{pattern}}}", variables) == (value[: starts[0]] if starts else value)


@given(PATTERNS.filter(bool), VALUES)  # `//` would mean every match
def test_the_first_longest_match_is_replaced(pattern: str, value: str) -> None:
    found = [
        (start, end)
        for start in range(len(value) + 1)
        for end in reversed(range(start, len(value) + 1))
        if matches(pattern, value[start:end])
    ]
    expected = value
    if found:
        start, end = found[0]
        expected = value[:start] + "-" + value[end:]
    assert expand(f"${{V/{pattern}/-}}", {"V": value}) == expected


def test_no_pattern_takes_long() -> None:
    value = "a" * 3_000
    assert expand("${V##" + "*a" * 30 + "b}", {"V": value}) == value
