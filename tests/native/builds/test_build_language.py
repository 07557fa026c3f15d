"""What Dockerfiles say that only a build shows: triggers, caches of stages, files on stdin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Build = Callable[..., Any]


@pytest.mark.slow
def test_a_trigger_takes_files_from_a_stage_that_nothing_else_needs(build: Build) -> None:
    text = (
        "FROM box AS tools\nRUN echo of the tools >/tool\n"
        "FROM box AS parent\nONBUILD COPY --from=tools /tool /copied\n"
        "ONBUILD RUN --mount=from=tools,target=/m cat /m/tool\n"
        "ONBUILD RUN <<EOF\necho first >/here\necho second >>/here\nEOF\n"
        "FROM parent\nRUN cat /copied /here\n"
    )
    built = build(text)

    assert built.status == 0, built.stderr
    assert built.stderr.count(" of the tools\n") == 2
    assert " second\n" in built.stderr
    assert build(text).stdout == built.stdout
    refused = build(text.replace("FROM parent", "FROM parent AS last").replace("=tools ", "=last "))
    assert "error: Dockerfile:10: `from=last` is this stage itself" in refused.stderr


@pytest.mark.slow
def test_a_cache_begins_with_the_files_of_a_stage(build: Build) -> None:
    mount = "RUN --mount=type=cache,from=first,source=/seed,target=/cache"
    text = (
        "FROM box AS first\nRUN mkdir /seed && echo {} >/seed/file\n"
        f"FROM box\n{mount} cat /cache/file; echo more >>/cache/file\n{mount} wc -l </cache/file\n"
    )
    built = build(text.format("one"))
    again = build(text.format("two"))

    assert built.status == 0, built.stderr
    assert " one\n" in built.stderr
    assert " 2\n" in built.stderr
    assert " two\n" in again.stderr, "other files are another cache"
    missing = build(text.format("x").replace("source=/seed", "source=/nosuch"))
    assert "Dockerfile:4: RUN --mount" in missing.stderr
    assert "`/nosuch` is not in the stage `first`" in missing.stderr


@pytest.mark.slow
def test_a_file_on_stdin(build: Build, cli: Build, context: Path, tmp_path: Path) -> None:
    assert build("FROM box\n").status == 0
    words = ("image", "build", "-t", "built")
    with_context = cli(*words, "-f", "-", context, stdin="FROM box\nCOPY a.txt /\nRUN cat /a.txt\n")
    alone = cli(*words, "-", stdin="FROM box\nCOPY a.txt /\n")
    archive = cli(*words, "-", stdin="\x00" * 257 + "ustar")
    both = cli(*words, "-f", tmp_path / "other", "-", stdin="")

    assert with_context.status == 0, with_context.stderr
    assert " a\n" in with_context.stderr
    assert "error: stdin:2: COPY a.txt /: `a.txt` is not in the build context" in alone.stderr
    assert "what comes on stdin is no Dockerfile" in archive.stderr
    assert "`-f` has no meaning" in both.stderr
    assert [run.status for run in (alone, archive)] == [1, 2]
