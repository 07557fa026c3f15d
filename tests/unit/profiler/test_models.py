"""Lists of models, and names that keep models apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.profiler.models import Model, names_of, parse_model_file, parse_model_list, read_models


def test_a_file_has_one_model_a_line_and_comments() -> None:
    text = "\ufeff# the small ones\nmobilenet v1.tflite\n\n  net.onnx  # quick\r\nnet#2.onnx\n"

    assert parse_model_file(text) == ("mobilenet v1.tflite", "net.onnx", "net#2.onnx")


def test_a_list_may_have_blanks_and_ends() -> None:
    assert parse_model_list(" a.txt, b ,,c") == ("a.txt", "b", "c")


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (("dir/net.onnx",), ("net",)),
        (("mobilenet_v1_0.75_224.tflite",), ("mobilenet_v1_0.75_224",)),
        (("a/net.onnx", "b/net.onnx"), ("a/net", "b/net")),
        (("net.onnx", "net.tflite"), ("net.onnx", "net.tflite")),
        (("a/x/net.onnx", "b/x/net.onnx"), ("a/x/net", "b/x/net")),
        (("net", "net"), ("net", "net#2")),
        (("Net.onnx", "net.onnx"), ("Net", "net")),
    ],
)
def test_names_are_short_and_apart(models: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert names_of(models) == names


@given(st.lists(st.text(alphabet="ab./", min_size=1, max_size=6), max_size=6, unique=True))
def test_different_models_have_different_names_unless_they_are_numbered(models: list[str]) -> None:
    assert len(names_of(models)) == len(models)


def test_one_of_the_flags_names_the_models(tmp_path: Path) -> None:
    file = tmp_path / "list"  # any name
    file.write_text("a/net.onnx\n")

    assert read_models(None, None) == ()
    assert read_models(None, file) == (Model("a/net.onnx", "net"),)
    with pytest.raises(SpecError, match="both given"):
        read_models("x", file)
    with pytest.raises(SpecError, match="names no model"):
        read_models(" , ", None)
    with pytest.raises(SpecError, match="No such file"):
        read_models(None, tmp_path / "none")
    file.write_text("# nothing\n")
    with pytest.raises(SpecError, match="names no model"):
        read_models(None, file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not text"):
        read_models(None, file)
