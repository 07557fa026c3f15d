"""The list of sandboxes: columns, states in docker's words, filters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.records.ports import PublishedPort
from sandbox.records.ps import PsRow
from sandbox.records.stats import State
from sandbox.report.ps import limits_text, parse_filters, render_ps, status_text

SEC = 10**9
NOW = 1_700_000_000 * SEC
MINUTE, HOUR = 60 * SEC, 3600 * SEC

TRAINER = PsRow(
    id="0123456789abcdef",
    name="trainer",
    command=("python", "train.py", "--rate", "<1e-3>"),
    state=State.RUNNING,
    created_utc_ns=NOW - 2 * HOUR,
    started_utc_ns=NOW - 2 * HOUR + SEC,
    cpus_limit=1.5,
    memory_limit_bytes=512 << 20,
    pids_limit=64,
    pids=9,
    owner="alice",
    labels={"team": "vision", "stage": "dev"},
)
PAUSED = replace(
    TRAINER,
    id="aa" * 8,
    name="web-1",
    command=("sh", "-c", "evil \x1b[31m\n"),
    state=State.PAUSED,
    started_utc_ns=NOW - 70 * SEC,
    created_utc_ns=NOW - 75 * SEC,
    cpus_limit=1.0,
    memory_limit_bytes=None,
    pids_limit=1,
    labels={},
)
ENDED = PsRow(
    id="bb" * 8,
    name="日本",
    command=("true",),
    state=State.EXITED,
    created_utc_ns=NOW - 72 * HOUR,
    finished_utc_ns=NOW - 71 * HOUR,
    exit_code=137,
    owner="bob",
)
LOST = replace(ENDED, id="cc" * 8, name="lost", state=State.DEAD, exit_code=None, command=())
NEW = replace(ENDED, id="dd" * 8, name="new", state=State.CREATED, created_utc_ns=NOW)
ALL = [TRAINER, PAUSED, ENDED, LOST, NEW]


def listed(format_text: str = "", **options: bool) -> str:
    return render_ps(ALL, now_utc_ns=NOW, format_text=format_text, **options)


def test_the_default_table(golden: Callable[[str, str], None]) -> None:
    golden("stats_ps", listed())


def test_the_table_without_truncation(golden: Callable[[str, str], None]) -> None:
    golden("stats_ps_no_trunc", listed(truncate=False))


def test_json_is_one_object_a_line_with_sorted_keys(golden: Callable[[str, str], None]) -> None:
    text = listed("json")

    golden("stats_ps_json", text)
    for line in text.splitlines():
        assert list(json.loads(line)) == sorted(json.loads(line))


def test_ports_have_a_column_where_there_are_some() -> None:
    ports = (
        PublishedPort(container_port=80, host_port=8080),
        PublishedPort(container_port=53, host_port=53, protocol="udp", host_address="127.0.0.1"),
    )
    with_ports = replace(TRAINER, ports=ports)

    text = render_ps([with_ports], now_utc_ns=NOW)

    assert text.split("\n")[0].split()[-2:] == ["PORTS", "NAMES"]
    assert "0.0.0.0:8080->80/tcp, 127.0.0.1:53->53/udp" in text
    assert "PORTS" not in render_ps([TRAINER], now_utc_ns=NOW)
    one = render_ps([TRAINER], now_utc_ns=NOW, format_text="[{{.Ports}}]")
    assert one == "[]\n"


def test_quiet_is_the_ids_alone() -> None:
    assert listed(quiet=True).split() == [row.id[:12] for row in ALL]
    assert listed(quiet=True, truncate=False).split() == [row.id for row in ALL]


def test_a_template_can_ask_for_a_label() -> None:
    text = render_ps([TRAINER], now_utc_ns=NOW, format_text='{{.Label "team"}}|{{.Labels}}')

    assert text == "vision|stage=dev,team=vision\n"


def test_a_table_heading_of_a_label_is_its_last_part() -> None:
    text = render_ps([], now_utc_ns=NOW, format_text='table {{.Names}}\\t{{.Label "a.b_c-d"}}')

    assert text == "NAMES     b c d\n"


def test_a_command_cannot_command_the_terminal() -> None:
    assert "\x1b" not in listed(truncate=False)
    assert r"\x1b[31m\n" in listed(truncate=False)
    odd = replace(TRAINER, name="\x1b[31m", labels={"\x07": "\udcff"})
    text = render_ps([odd], now_utc_ns=NOW, format_text="{{.Names}} {{.Labels}}")
    assert text == r"\x1b[31m \x07=\udcff" + "\n"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (TRAINER, "Up 2 hours"),
        (PAUSED, "Up About a minute (Paused)"),
        (ENDED, "Exited (137) 2 days ago"),
        (replace(ENDED, finished_utc_ns=None), "Exited (137)"),
        (LOST, "Dead 2 days ago"),
        (NEW, "Created"),
        (replace(TRAINER, started_utc_ns=NOW + SEC), "Up Less than a second"),
        (replace(TRAINER, started_utc_ns=None), "Up 2 hours"),
    ],
)
def test_the_status_is_in_docker_s_words(row: PsRow, text: str) -> None:
    assert status_text(row, NOW) == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (TRAINER, "1.5 CPUs, 512 MiB, 64 tasks"),
        (PAUSED, "1 CPU, 1 task"),
        (ENDED, "none"),
    ],
)
def test_the_limits_are_one_line(row: PsRow, text: str) -> None:
    assert limits_text(row) == text


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ([], ["trainer", "web-1", "日本", "lost", "new"]),
        (["name=r"], ["trainer"]),
        (["name=^web-[0-9]$"], ["web-1"]),
        (["name=web", "name=new"], ["web-1", "new"]),
        (["id=0123"], ["trainer"]),
        (["id=123"], []),
        (["status=running", "status=PAUSED"], ["trainer", "web-1"]),
        (["status=running", "name=web"], []),
        (["exited=137"], ["日本"]),
        (["owner=alice"], ["trainer", "web-1"]),
        (["label=team"], ["trainer"]),
        (["label=team=vision", "label=stage=dev"], ["trainer"]),
        (["label=team=vision", "label=stage=prod"], []),
        (["label="], []),
    ],
)
def test_values_of_one_filter_widen_and_filters_narrow(
    filters: list[str], names: list[str]
) -> None:
    holds = parse_filters(filters)

    assert [row.name for row in ALL if holds(row)] == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name", "expected format: name=value"),
        ("=x", "expected format: name=value"),
        ("colour=red", "invalid filter `colour`"),
        ("status=asleep", "invalid filter `status=asleep`"),
        ("exited=x", "invalid filter `exited=x`"),
        ("name=(", "invalid filter `name=(`"),
    ],
)
def test_a_wrong_filter_says_what_would_be_right(text: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_filters([text])

    assert problem in str(caught.value)
    assert caught.value.hint


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=12), st.sampled_from(["name=", "id="])), max_size=3))
def test_any_text_is_a_filter_or_a_spec_error(texts: list[str]) -> None:
    try:
        holds = parse_filters(texts)
    except SpecError as error:
        assert error.hint  # noqa: PT017 - whether it raises is what is random
    else:
        assert holds(TRAINER) in {True, False}
