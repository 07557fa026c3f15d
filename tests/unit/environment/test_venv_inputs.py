"""What an environment is to hold: files, names and headers, and what cannot be kept by a hash."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.environment.venv_inputs import check_python, logical_lines, parse_header, read_inputs
from sandbox.errors import SpecError

HEADER = """\
#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "numpy>=2",
#
#   "rich",
# ]
# ///
print()
"""


def test_a_scripts_header_says_what_it_requires(tmp_path: Path) -> None:
    script = tmp_path / "infer.py"
    script.write_text(HEADER)

    inputs = read_inputs([script], ["onnx"])

    assert inputs.requirements == ("numpy>=2", "rich", "onnx")
    assert inputs.requires_python == ((">=3.11", str(script)),)
    assert not inputs.files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER + HEADER, "2 `script` blocks"),
        ("# /// script\n# dependencies = [\n# ///\n", "not TOML"),
        ("# /// script\n# dependencies = 'numpy'\n# ///\n", "not a list"),
        ("# /// script\n# requires-python = 3\n# ///\n", "not a text"),
    ],
)
def test_a_header_that_cannot_be_meant_is_named(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_header(text, "x.py")


def test_a_script_without_a_header_is_told_how_one_looks(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("# /// other\n# x = 1\n# ///\n")

    with pytest.raises(SpecError, match="has no header") as caught:
        read_inputs([script], [])

    assert "# /// script" in str(caught.value.hint)


@given(st.text())
def test_any_text_has_a_header_or_none_or_is_refused(text: str) -> None:
    try:
        assert parse_header(text, "x.py") is None or "# ///" in text
    except SpecError:
        assert "# /// script" in text


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_any_text_is_lines_without_comments(text: str) -> None:
    for line in logical_lines(text):
        assert line
        assert not line.startswith("#")


def test_lines_go_on_after_a_backslash_and_end_at_a_comment() -> None:
    text = "numpy \\\n  --hash=sha256:1 # why\n\n# none\nx @ https://h/x.whl#sha256=1\n"

    assert list(logical_lines(text)) == [
        "numpy    --hash=sha256:1",
        "x @ https://h/x.whl#sha256=1",
    ]


def test_the_digest_follows_the_files_that_a_file_names(tmp_path: Path) -> None:
    top, other = tmp_path / "requirements.txt", tmp_path / "other.txt"
    top.write_text("numpy\n-r other.txt\n")
    other.write_text("rich\n-r requirements.txt\n")  # each names the other: read once

    before = read_inputs([top], []).digest
    same = read_inputs([top], []).digest
    other.write_text("rich==13\n")

    assert before == same != read_inputs([top], []).digest


def test_the_digest_follows_the_content_of_a_local_wheel(tmp_path: Path) -> None:
    wheel, file = tmp_path / "x-1-py3-none-any.whl", tmp_path / "requirements.txt"
    wheel.write_bytes(b"one")
    file.write_text("./x-1-py3-none-any.whl\n")
    before = read_inputs([file], []).digest

    wheel.write_bytes(b"two")

    assert read_inputs([file], []).digest != before
    assert read_inputs([], [f"x @ file://{wheel}"]).digest


@pytest.mark.parametrize("line", ["-e .", "--editable=.", ".", "./src", "x @ file://{}"])
def test_what_may_change_without_a_new_name_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "src").mkdir()
    file = tmp_path / "requirements.txt"
    file.write_text(line.format(tmp_path) + "\n")

    with pytest.raises(SpecError, match="content may change"):
        read_inputs([file], [])


def test_where_packages_come_from_is_kept_with_whole_paths(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("--no-index\n-f wheels\n--extra-index-url=https://e/simple\nnumpy\n")

    assert read_inputs([file], []).options == (
        "--no-index",
        f"--find-links {tmp_path / 'wheels'}",
        "--extra-index-url=https://e/simple",
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.txt: No such file"):
        read_inputs([tmp_path / "none.txt"], [])


@pytest.mark.parametrize("text", ["", "  ", "-r x", "--upgrade"])
def test_an_option_is_no_package(text: str) -> None:
    with pytest.raises(SpecError, match="is not a requirement"):
        read_inputs([], [text])


@pytest.mark.parametrize(
    "specifier", [">=3.11", "==3.11.*", "~=3.11", "~=3.11.2", "!=3.12", ">3.10,<3.12", "<=3.11.7"]
)
def test_this_python_is_accepted(specifier: str) -> None:
    check_python([(specifier, "x.py")], (3, 11, 7))


@pytest.mark.parametrize(
    "specifier", [">=3.12", "==3.10.*", "~=3.12", "~=3.11.8", "!=3.11.*", "<3.11", "==3.11"]
)
def test_another_python_is_refused_with_both_versions(specifier: str) -> None:
    with pytest.raises(SpecError, match=r"requires Python .*, this is 3\.11\.7"):
        check_python([(specifier, "x.py")], (3, 11, 7))


@given(st.text())
def test_any_specifier_holds_or_is_refused(specifier: str) -> None:
    with suppress(SpecError):
        check_python([(specifier, "x.py")], (3, 11, 7))
