"""Build arguments in their places, and the stages that a target needs."""

from __future__ import annotations

import pytest

from sandbox.errors import SpecError
from sandbox.image.dockerfile.parse import parse
from sandbox.image.dockerfile.scope import (
    declare,
    global_variables,
    platform_arguments,
    proxy_variables,
    unused_arguments,
)
from sandbox.image.dockerfile.stages import find_target, plan_stages
from sandbox.image.dockerfile.syntax import Arg
from sandbox.image.manifest import Platform

ARM = Platform(os="linux", architecture="arm", variant="v7")
AMD = Platform(os="linux", architecture="amd64")

STAGES = """\
ARG BASE=debian
FROM ${BASE} AS base
FROM scratch AS data
COPY a /a
FROM base AS build
COPY --from=data /a /a
RUN --mount=from=tools,target=/t --mount=type=cache,target=/c x
FROM base AS unused
COPY --from=1 /a /a
FROM alpine AS tools2
FROM build
COPY --from=example.com/image /x /x
COPY --from=0 /y /y
"""


def needed(text: str, target: str | None = None, **given: str) -> list[int]:
    dockerfile = parse(text, "Dockerfile")
    variables = global_variables(dockerfile, given, {})
    return [planned.index for planned in plan_stages(dockerfile, variables, target)]


def test_only_what_a_target_needs_is_planned() -> None:
    assert needed(STAGES) == [0, 1, 2, 5]
    assert needed(STAGES, "build") == [0, 1, 2]
    assert needed(STAGES, "BUILD") == [0, 1, 2]
    assert needed(STAGES, "2") == [0, 1, 2]
    assert needed(STAGES, "data") == [1]
    assert needed(STAGES, "unused") == [0, 1, 3]
    assert needed(STAGES, "tools2") == [4]


def test_a_mount_can_need_a_stage() -> None:
    text = "FROM a AS tools\nFROM b\nRUN --mount=from=tools,target=/t x\n"
    assert needed(text) == [0, 1]


def test_what_a_stage_begins_with() -> None:
    text = (
        "ARG V\nFROM a:${V:-1} AS x\nFROM --platform=linux/$ARCH X\nFROM scratch\n"
        "COPY --from=1 a a\n"
    )
    dockerfile = parse(text, "Dockerfile")
    first, second, third = plan_stages(dockerfile, {"ARCH": "arm64"})

    assert (first.base_image, first.base_stage, first.platform) == ("a:1", None, None)
    assert (second.base_image, second.base_stage, second.platform) == (None, 0, "linux/arm64")
    assert third.is_scratch


def test_of_two_stages_of_one_name_the_last_before_counts() -> None:
    text = "FROM a AS x\nFROM b AS x\nFROM x\n"
    assert needed(text) == [1, 2]
    assert needed(text, "x") == [1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("FROM $NO\n", "Dockerfile:1: `FROM $NO` names no image: a variable has no value"),
        ("FROM ${NO:?needed}\n", "Dockerfile:1: NO: needed"),
        ("FROM --platform=$NO a\n", "Dockerfile:1: `--platform=$NO` has no value"),
        (
            "FROM a AS x\nCOPY --from=x a a\n",
            "Dockerfile:2: `from=x` is this stage itself",
        ),
        (
            "FROM a\nCOPY --from=y a a\nFROM b AS y\nFROM scratch\nCOPY --from=0 a a\n",
            "Dockerfile:2: `from=y` is no stage before line 2",
        ),
        ("FROM a\nCOPY --from=1 a a\n", "Dockerfile:2: `from=1` is no stage before line 2"),
    ],
)
def test_stages_that_cannot_be_planned(text: str, error: str) -> None:
    dockerfile = parse(text, "Dockerfile")
    with pytest.raises(SpecError, match=r".") as caught:
        plan_stages(dockerfile, {})
    assert str(caught.value) == error


def test_a_bad_stage_that_is_not_needed_does_not_matter() -> None:
    assert needed("FROM $NO AS x\nFROM a\n") == [1]


def test_a_target_that_is_not_there() -> None:
    dockerfile = parse("FROM a AS build\nFROM b\n", "Dockerfile")
    with pytest.raises(SpecError, match="Dockerfile has no stage `biuld`") as error:
        find_target(dockerfile, "biuld")
    assert error.value.hint == "is `build` meant?"
    with pytest.raises(SpecError, match="no stage `2`"):
        find_target(dockerfile, "2")


# --- arguments ------------------------------------------------------------------------------------


def test_arguments_before_from() -> None:
    dockerfile = parse("ARG A=1\nARG B=${A}2 C D=$NO\nARG A=3\nFROM x\n", "Dockerfile")
    assert global_variables(dockerfile, {}, {}) == {"A": "3", "B": "12", "D": ""}
    assert global_variables(dockerfile, {"A": "x", "C": "y", "Z": "z"}, {}) == {
        "A": "x",
        "B": "x2",
        "C": "y",
        "D": "",
    }


def test_platforms_are_known_and_can_be_given() -> None:
    dockerfile = parse("ARG P=$TARGETARCH$TARGETVARIANT-$BUILDARCH\nFROM x AS s\n", "Dockerfile")
    predefined = platform_arguments(ARM, AMD, "s")
    found = global_variables(dockerfile, {}, predefined)

    assert found["P"] == "armv7-amd64"
    assert found["TARGETPLATFORM"] == "linux/arm/v7"
    assert found["BUILDPLATFORM"] == "linux/amd64"
    assert (found["TARGETOS"], found["TARGETSTAGE"]) == ("linux", "s")
    assert global_variables(dockerfile, {"TARGETARCH": "z"}, predefined)["P"] == "zv7-amd64"


@pytest.mark.parametrize(
    ("arg", "given", "expected"),
    [
        ("ARG OUT", {}, {"OUT": "outside"}),
        ("ARG OUT", {"OUT": "given"}, {"OUT": "given"}),
        ("ARG OUT=own", {}, {"OUT": "own"}),
        ("ARG OUT=own", {"OUT": "given"}, {"OUT": "given"}),
        ("ARG OUT=", {}, {"OUT": ""}),
        ("ARG NO", {}, {}),
        ("ARG A=$ENV", {}, {"A": "env"}),
        ("ARG A=1 B=${A}2", {}, {"A": "1", "B": "12"}),
        ("ARG A=$OUT", {}, {"A": ""}),
        ("ARG A=${ENV:?}", {}, {"A": "env"}),
        ("ARG A=${NO:?}", {"A": "given"}, {"A": "given"}),
    ],
)
def test_arguments_within_a_stage(
    arg: str, given: dict[str, str], expected: dict[str, str]
) -> None:
    dockerfile = parse(f"FROM x\n{arg}\n", "Dockerfile")
    (instruction,) = dockerfile.stages[0].instructions
    assert isinstance(instruction, Arg)
    found = declare(
        instruction, dockerfile, given=given, outside={"OUT": "outside"}, variables={"ENV": "env"}
    )
    assert found == expected


def test_an_argument_that_asks_for_a_value() -> None:
    dockerfile = parse('FROM x\nARG A="${NO:?give it}"\n', "Dockerfile")
    (instruction,) = dockerfile.stages[0].instructions
    assert isinstance(instruction, Arg)
    with pytest.raises(SpecError, match=r"^Dockerfile:2: NO: give it$"):
        declare(instruction, dockerfile, given={}, outside={}, variables={})


def test_proxies_need_no_declaration() -> None:
    given = {"http_proxy": "a", "HTTPS_PROXY": "b", "OTHER": "c"}
    assert proxy_variables(given) == {"http_proxy": "a", "HTTPS_PROXY": "b"}
    dockerfile = parse("ARG OUT\nFROM x\nARG IN\n", "Dockerfile")
    given |= {"OUT": "1", "IN": "2", "TARGETARCH": "z"}
    assert unused_arguments(dockerfile, given) == ("OTHER",)
