"""The environment file's syntax is what a shell reads in it; what needs a shell is refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.profiler.env_template import parse_env_template

ENVIRON = {"HOME": "/home/you", "MODELS": "/models"}


def parse(text: str) -> dict[str, str]:
    found = parse_env_template(text, "env.template", ENVIRON)
    return {name: value.text for name, value in found.items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=one", "one"),
        ("A=", ""),
        ('A=""', ""),
        ("export A=one", "one"),
        ("  A=one  # why", "one"),
        ("A=a#b", "a#b"),
        ('A="two words" # why', "two words"),
        ("A='$MODELS and \"'", '$MODELS and "'),
        ('A="$MODELS/x ${HOME}"', "/models/x /home/you"),
        ("A=$MODELS/'a b'\"c\"", "/models/a bc"),
        ("A=~/bench", "/home/you/bench"),
        ('A=a\\ b"\\"c\\n"', 'a b"c\\n'),
        ('A="one \\\ntwo"', "one two"),
        ("A='one\ntwo'", "one\ntwo"),
        ("A=1\nA=2", "2"),
        ("A=one\r\n", "one"),
        ("\ufeffA=one", "one"),
        ("A=5$", "5$"),
    ],
)
def test_a_value_is_what_a_shell_reads(text: str, value: str) -> None:
    assert parse(text)["A"] == value


def test_what_stands_above_can_be_used() -> None:
    assert parse('DIR=bench\nOUT="$DIR/out.txt"\n')["OUT"] == "bench/out.txt"


def test_every_value_knows_its_line() -> None:
    found = parse_env_template("# one\n\nA='x\ny'\nB=2 # c\nC=3", "f", {})

    assert {name: value.line for name, value in found.items()} == {"A": 3, "B": 5, "C": 6}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("A=1\nhello", 2, "is not NAME=VALUE"),
        ("A = 1", 1, "blanks around `=`"),
        ("A= 1", 1, "blanks around `=`"),
        ("A=pip install x", 1, "blanks and is not quoted"),
        ('\nA="x\n\n', 2, "the quotation has no end"),
        ("A='x", 1, "the quotation has no end"),
        ("A=\u201cx\u201d", 1, "no quotation mark of a shell"),
        ("A=$(pwd)", 1, "needs a shell"),
        ("A=`pwd`", 1, "needs a shell"),
        ('A="`pwd`"', 1, "needs a shell"),
        ("A=${B:-x}", 1, "needs a shell"),
        ("A=1;B=2", 1, "needs a shell"),
        ("\n\nA=$NOWHERE", 3, "$NOWHERE is not set"),
    ],
)
def test_an_error_has_its_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)

    assert str(caught.value).startswith(f"env.template:{line}: ")
    assert words in str(caught.value)
    assert caught.value.hint


@given(st.text())
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    try:
        parse(text)
    except SpecError as error:
        assert str(error).startswith("env.template:")  # noqa: PT017 - either answer is right


@settings(max_examples=60)
@example("\\\n~")
@example("\\\n\\\n~/a")
@given(st.text(alphabet="ab \"'\\$#~=\n-.", max_size=14))
def test_where_we_read_a_value_bash_reads_the_same(text: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    source = f"A={text}\n\n"
    try:
        ours = parse(source)["A"]
    except SpecError:
        return  # more is refused than bash would
    command = [bash, "-c", f'HOME=/home/you\n{source}printf %s "$A"']
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert ours == done.stdout


def test_a_file_with_everything_in_it_is_read() -> None:
    text = (
        '# Docker image\nIMAGEREPO=tensorflow/tensorflow:1.15.0-py3\nAPTREQUIREMENTS="wget"\n'
        'PRERUN="wget https://e/x.whl && pip install x.whl"\nDIR=bench\nDOCKCPUS="4.0"\n'
        'DOCKMEMORY="2.0g"\nDOCKER_ARGS=\n'
    )

    assert parse(text)["PRERUN"] == "wget https://e/x.whl && pip install x.whl"
    assert parse(text)["DOCKER_ARGS"] == ""
