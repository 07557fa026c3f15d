"""The configuration of an image: of OCI, of docker, and damaged."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ImageError
from sandbox.image.config import parse_config

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def parse(config: Any = None, **document: Any) -> Any:
    return parse_config(json.dumps({"config": config, **document}).encode())


def test_everything_that_a_run_needs_is_read() -> None:
    config = parse(
        {
            "Env": ["PATH=/bin", "A=1", "A=2", "EMPTY=", "UNSET"],
            "Entrypoint": ["/start"],
            "Cmd": ["a", "b"],
            "WorkingDir": "/work",
            "User": "1000:50",
            "Volumes": {"/data": {}},
            "StopSignal": "SIGINT",
            "ExposedPorts": {"80/tcp": {}},
            "Labels": {"k": "v"},
        },
        architecture="arm64",
        variant="v8",
        os="linux",
        created="2026-01-01T00:00:00Z",
        rootfs={"type": "layers", "diff_ids": ["sha256:" + "0" * 64]},
    )

    assert config.env == (("PATH", "/bin"), ("A", "2"), ("EMPTY", ""))
    assert (config.entrypoint, config.cmd) == (("/start",), ("a", "b"))
    assert (config.working_dir, config.user, config.volumes) == ("/work", "1000:50", ("/data",))
    assert (config.stop_signal, config.exposed_ports) == ("SIGINT", ("80/tcp",))
    assert config.labels == (("k", "v"),)
    assert (config.os, config.architecture, config.variant) == ("linux", "arm64", "v8")
    assert config.diff_ids == ("sha256:" + "0" * 64,)


def test_null_is_as_good_as_nothing() -> None:
    empty = parse(None)

    assert empty == parse({"Env": None, "Cmd": None, "Labels": None, "User": None})
    assert (empty.env, empty.cmd, empty.stop_signal) == ((), (), None)


@pytest.mark.parametrize(
    "config",
    [
        {"Env": ["=x"]},
        {"Env": [1]},
        {"Env": {"a": "b"}},
        {"Cmd": [["x"]]},
        {"Cmd": ["a\0b"]},
        {"WorkingDir": 1},
        {"Volumes": ["/a"]},
        {"Labels": {"a": 1}},
    ],
)
def test_what_cannot_be_meant_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ImageError, match="configuration has a wrong"):
        parse(config)


def test_a_digest_that_is_a_path_is_refused() -> None:
    with pytest.raises(ImageError, match="diff_ids"):
        parse({}, rootfs={"diff_ids": ["sha256:../../../etc"]})


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ImageError):
        parse_config(data)


@given(JSON, st.sampled_from(["Env", "Cmd", "User", "Volumes", "Labels"]))
def test_any_value_is_read_or_refused(value: Any, key: str) -> None:
    with contextlib.suppress(ImageError):
        parse({key: value})
