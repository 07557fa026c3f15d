"""The whole record of one run, and the list of runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from sandbox.analysis.curve import Curve
from sandbox.records.result import RunResult
from sandbox.report.details import render_details, utc_text
from sandbox.report.listing import age_text, render_list
from sandbox.report.style import cell_width

Golden = Callable[[str, str], None]
Runs = dict[str, RunResult]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SEC = 10**9
NOW = 1_795_249_238 * SEC + 500 * SEC

CURVE = Curve(
    step_ns=205_666_666,
    cpus=tuple(0.1 if i < 3 else 0.5 for i in range(60)),
    memory_bytes=tuple(
        None if i == 30 else int((100 + 220 * (1 - math.exp(-i / 10))) * (1 << 20))
        for i in range(60)
    ),
)


def details(
    result: RunResult, *, curve: Curve | None = None, color: bool = False, unicode: bool = True
) -> str:
    return render_details(result, width=80, color=color, unicode=unicode, curve=curve)


def test_the_details_read_as_their_golden_file(
    named_run: tuple[str, RunResult], golden: Golden
) -> None:
    name, result = named_run
    golden(f"details_{name}", details(result, curve=CURVE if name == "inference" else None))


def test_charts_in_ascii_have_their_own_golden_file(runs: Runs, golden: Golden) -> None:
    text = details(runs["inference"], curve=CURVE, unicode=False)
    assert text.isascii()
    golden("details_inference_ascii", text)


def test_colour_adds_only_colour(named_run: tuple[str, RunResult]) -> None:
    _, result = named_run
    colored = details(result, curve=CURVE, color=True)
    assert ANSI.sub("", colored) == details(result, curve=CURVE)


def test_no_line_is_wider_than_the_terminal_nor_ends_in_blanks(
    named_run: tuple[str, RunResult],
) -> None:
    for line in details(named_run[1], curve=CURVE).splitlines():
        assert cell_width(line) <= 80
        assert line == line.rstrip()


def test_every_reason_and_every_limit_is_there(runs: Runs) -> None:
    result = runs["degraded"]
    text = " ".join(details(result).split())
    for reason in result.unavailable.values():
        assert reason in text
    for limit in result.limits:
        assert limit.asked in text
        assert limit.state.value in text
        assert limit.reason is not None
        assert limit.reason in text


def test_every_total_is_there(runs: Runs) -> None:
    result = runs["out_of_memory"]
    text = details(result)
    for number in ("30 of 32 periods", "1.58 s", "620", "64 MiB (exact", "at 3.21 s: the limit"):
        assert number in text


def test_a_host_that_was_short_of_memory_is_told_apart(runs: Runs) -> None:
    result = runs["out_of_memory"]
    kills = tuple(replace(kill, cause="host") for kill in result.oom_kills)
    assert "at 3.21 s: the host was short of memory" in details(replace(result, oom_kills=kills))


def test_the_list_reads_as_its_golden_file(runs: Runs, golden: Golden) -> None:
    for width in (80, 120):
        text = render_list(runs.values(), now_utc_ns=NOW, width=width, color=False, unicode=True)
        assert max(map(cell_width, text.splitlines())) <= width
        golden(f"list_{width}", text)


def test_an_empty_list_says_how_to_fill_it() -> None:
    text = render_list([], now_utc_ns=NOW, width=80, color=False, unicode=True)
    assert "sandbox run -- COMMAND" in text


@pytest.mark.parametrize(
    ("age_ns", "text"),
    [
        (-5, "now"),
        (SEC - 1, "now"),
        (59 * SEC, "59 s ago"),
        (60 * SEC, "1 min ago"),
        (7_199 * SEC, "1 h ago"),
        (86_400 * SEC * 400, "400 d ago"),
    ],
)
def test_ages_are_in_their_largest_unit(age_ns: int, text: str) -> None:
    assert age_text(age_ns) == text


def test_time_stamps_are_utc_whatever_the_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert utc_text(1_795_249_238 * SEC) == "2026-11-21 08:20:38 UTC"
