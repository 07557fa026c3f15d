"""Rows of stats: docker's table, our columns, the engine's objects, raw rows for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SpecError
from sandbox.records.result import DeviceIo, Pressure
from sandbox.records.stats import NetworkIo, State, StatsReading, StatsRow
from sandbox.report.stats import StatsView, docker_cpu, docker_memory
from sandbox.report.stats_api import api_object, render_api, rfc3339
from sandbox.report.stats_rows import COLUMNS, cells, render_csv, render_jsonl

API = Path(__file__).resolve().parents[2] / "golden" / "stats_api_v1.json"
SEC, MIB = 10**9, 1 << 20
ID = "0123456789abcdef0123456789abcdef"


def disk(read: int, write: int, ops: int) -> DeviceIo:
    return DeviceIo(
        device="8:0 sda", read_bytes=read, write_bytes=write, read_ops=ops, write_ops=2 * ops
    )


def pressure(some_usec: int) -> Pressure:
    return Pressure(some_usec=some_usec, full_usec=some_usec // 2)


BEFORE = StatsReading(
    time_ns=100 * SEC,
    utc_ns=1_700_000_000 * SEC,
    cpu_usage_ns=5 * SEC,
    cpu_user_ns=4 * SEC,
    cpu_system_ns=1 * SEC,
    cpu_periods=100,
    cpu_throttled_periods=10,
    cpu_throttled_ns=SEC,
    host_cpu_ns=1000 * SEC,
    cpus_online=4,
    memory_usage_bytes=90 * MIB,
    memory_stat={"anon": 50 * MIB, "file": 30 * MIB, "inactive_file": 10 * MIB, "shmem": MIB},
    memory_peak_bytes=95 * MIB,
    memory_failures=0,
    swap_bytes=0,
    pids=7,
    processes=3,
    io=(disk(1_000_000, 0, 10),),
    network=(NetworkIo(name="eth0", rx_bytes=1024, tx_bytes=2048),),
    cpu_pressure=pressure(0),
    memory_pressure=pressure(1_000),
    io_pressure=pressure(0),
)
NOW = replace(
    BEFORE,
    time_ns=102 * SEC,
    utc_ns=1_700_000_002 * SEC + 5_000_000,
    cpu_usage_ns=7 * SEC,
    cpu_periods=120,
    cpu_throttled_periods=15,
    host_cpu_ns=1008 * SEC,
    memory_usage_bytes=110 * MIB,
    memory_peak_bytes=120 * MIB,
    swap_bytes=3 * MIB,
    io=(disk(3_000_000, 500_000, 30),),
    cpu_pressure=pressure(500_000),
    memory_pressure=pressure(1_000),
)
ROW = StatsRow(
    asked="0123456789ab",
    id=ID,
    name="trainer",
    cgroup="/sandbox/run-0123",
    cgroup_version=2,
    now=NOW,
    before=BEFORE,
    host_memory_bytes=8192 * MIB,
    memory_limit_bytes=512 * MIB,
    pids_limit=64,
    cpu_quota_usec=150_000,
    cpu_period_usec=100_000,
    cpus_allowed=2,
)
FIRST = replace(ROW, name="first", before=None)
ENDED = replace(ROW, name="ended", state=State.EXITED, now=None, before=None)
SILENT = replace(ROW, name="silent", now=None, before=None)
BLIND = replace(
    ROW,
    name="blind",
    now=StatsReading(time_ns=2 * SEC, utc_ns=0),
    before=StatsReading(time_ns=SEC, utc_ns=0),
)
ALL = [ROW, FIRST, ENDED, SILENT, BLIND]


def shown(text: str, row: StatsRow = ROW, **options: bool) -> str:
    return StatsView(text, **options).render([row]).removesuffix("\n")


# --- docker's table -------------------------------------------------------------------------------


def test_the_default_table(golden: Callable[[str, str], None]) -> None:
    golden("stats_table", StatsView().render(ALL))


def test_the_wide_table(golden: Callable[[str, str], None]) -> None:
    golden("stats_wide", StatsView(wide=True).render(ALL))


def test_json_is_docker_s_nine_texts_a_line(golden: Callable[[str, str], None]) -> None:
    text = StatsView("json").render(ALL)

    golden("stats_json", text)
    for line in text.splitlines():
        assert list(json.loads(line)) == [
            *("BlockIO", "CPUPerc", "Container", "ID", "MemPerc", "MemUsage", "Name", "NetIO"),
            "PIDs",
        ]


def test_wide_json_has_our_texts_as_well(golden: Callable[[str, str], None]) -> None:
    golden("stats_wide_json", StatsView("json", wide=True).render(ALL))


def test_without_truncation_the_id_is_whole() -> None:
    assert shown("{{.ID}} {{.Container}}", truncate=False) == f"{ID} 0123456789ab"
    assert shown("{{.ID}} {{.Container}}") == "0123456789ab 0123456789ab"


def test_a_template_can_name_our_columns_without_wide() -> None:
    assert shown("{{.MemPeak}} {{.State}} {{.CPUWallPerc}}") == "120MiB running 100.00%"


def test_an_unknown_column_is_an_error_that_lists_the_columns() -> None:
    with pytest.raises(SpecError, match="can't evaluate field CPU in type stats") as caught:
        shown("{{.CPU}}")

    assert caught.value.hint is not None
    assert ".CPUPerc" in caught.value.hint


def test_a_wrong_template_is_an_error_before_anything_is_read() -> None:
    with pytest.raises(SpecError, match='function "InvalidFunction" not defined'):
        StatsView("{{InvalidFunction}}")


def test_both_formulas_stand_side_by_side() -> None:
    """2 s of CPU in 2 s by the clock, in which the host's four CPUs gave 8 s."""
    assert docker_cpu(ROW) == 100.0
    assert shown("{{.CPUPerc}} {{.CPUWallPerc}} {{.CPULimitPerc}}") == "100.00% 100.00% 66.67%"

    late = replace(ROW, now=replace(NOW, host_cpu_ns=1006 * SEC))  # the host's clock ran slow

    assert shown("{{.CPUPerc}} {{.CPUWallPerc}}", late) == "133.33% 100.00%"


def test_the_base_of_the_limit_is_what_is_least() -> None:
    unlimited = replace(ROW, cpu_quota_usec=None)
    anywhere = replace(unlimited, cpus_allowed=None)
    unknown = replace(anywhere, now=replace(NOW, cpus_online=None))

    texts = [shown("{{.CPULimitPerc}}", row) for row in (ROW, unlimited, anywhere, unknown)]

    assert texts == ["66.67%", "50.00%", "25.00%", "--"]


def test_memory_is_docker_s_and_its_limit_never_above_the_host_s() -> None:
    assert docker_memory(ROW) == (100 * MIB, 512 * MIB)
    assert docker_memory(replace(ROW, memory_limit_bytes=None)) == (100 * MIB, 8192 * MIB)
    assert docker_memory(replace(ROW, memory_limit_bytes=1 << 60)) == (100 * MIB, 8192 * MIB)
    assert docker_memory(BLIND) is None


def test_a_counter_that_went_down_gives_no_rate() -> None:
    anew = replace(ROW, now=replace(NOW, cpu_usage_ns=1, io=(disk(1, 1, 1),), cpu_periods=1))

    text = shown("{{.CPUPerc}} {{.CPUWallPerc}} {{.BlockRate}} {{.Throttled}} {{.BlockIO}}", anew)

    assert text == "-- -- -- / -- -- 1B / 1B"


def test_a_device_that_came_later_counts_from_zero() -> None:
    new = DeviceIo(device="8:16", read_bytes=200, write_bytes=0, read_ops=4, write_ops=0)
    row = replace(ROW, now=replace(NOW, io=(*BEFORE.io, new)))  # type: ignore[misc]

    assert shown("{{.BlockRate}} {{.IOPS}}", row) == "100B/s / 0B/s 2 / 0"


def test_without_a_quota_nothing_is_throttled() -> None:
    row = replace(ROW, now=replace(NOW, cpu_periods=100, cpu_throttled_periods=10))

    assert shown("{{.Throttled}}", row) == "0.00%"


def test_a_sandbox_in_the_host_s_network_shows_docker_s_zeros() -> None:
    assert shown("{{.NetIO}}", replace(ROW, now=replace(NOW, network=()))) == "0B / 0B"
    assert shown("{{.NetIO}}", replace(ROW, now=replace(NOW, network=None))) == "--"


def test_a_name_cannot_command_the_terminal() -> None:
    assert shown("{{.Name}}", replace(ROW, name="\x1b[31mred\udcff")) == r"\x1b[31mred\udcff"


def test_no_rows_leave_the_headings() -> None:
    assert StatsView().render([]).startswith("CONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT")
    assert StatsView("json").render([]) == ""


# --- the engine's objects -------------------------------------------------------------------------


def utc_ns(text: str) -> int | None:
    if text.startswith("0001"):
        return None
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    return int(moment.timestamp()) * SEC + int(fraction.ljust(9, "0") or 0)


def reading_of(answer: dict[str, Any], cpu_key: str, time_key: str) -> StatsReading | None:
    """A reading with all that the engine told; of the sample before only the CPU."""
    when = utc_ns(answer[time_key])
    if when is None:
        return None
    cpu = answer[cpu_key]
    now = cpu_key == "cpu_stats"
    memory = answer["memory_stats"]
    return StatsReading(
        time_ns=when,
        utc_ns=when,
        cpu_usage_ns=cpu["cpu_usage"]["total_usage"],
        cpu_user_ns=cpu["cpu_usage"]["usage_in_usermode"],
        cpu_system_ns=cpu["cpu_usage"]["usage_in_kernelmode"],
        cpu_percpu_ns=tuple(cpu["cpu_usage"]["percpu_usage"]),
        cpu_periods=cpu["throttling_data"]["periods"],
        cpu_throttled_periods=cpu["throttling_data"]["throttled_periods"],
        cpu_throttled_ns=cpu["throttling_data"]["throttled_time"],
        host_cpu_ns=cpu["system_cpu_usage"],
        cpus_online=cpu["online_cpus"],
        memory_usage_bytes=memory["usage"] if now else None,
        memory_peak_bytes=memory["max_usage"] if now else None,
        memory_stat={**memory["stats"], "total_shmem": 5} if now else None,
        memory_failures=0 if now else None,
        pids=answer["pids_stats"]["current"] if now else None,
        io=() if now else None,
    )


def test_the_objects_of_a_v1_host_are_what_its_engine_answered() -> None:
    answers = json.loads(API.read_text())["answers"]

    assert [answer["name"] for answer in answers] == ["/burner", "/idle", "/never"]
    for answer in answers:
        row = StatsRow(
            asked=answer["id"][:12],
            id=answer["id"],
            name=answer["name"],
            state=State.RUNNING if answer["pids_stats"] else State.CREATED,
            cgroup_version=1,
            now=reading_of(answer, "cpu_stats", "read"),
            before=reading_of(answer, "precpu_stats", "preread"),
            host_memory_bytes=25_276_514_304,
            memory_limit_bytes=answer["memory_stats"].get("limit"),
            pids_limit=answer["pids_stats"].get("limit"),
        )
        assert api_object(row) == {**answer, "os_type": "linux"}  # newer engines tell the type


def test_the_object_of_a_v2_host(golden: Callable[[str, str], None]) -> None:
    stat = {"anon": 1, "inactive_file": 2, "workingset_refault_anon": 3, "zswap": 4, "pgfault": 5}
    row = replace(ROW, pids_limit=None, now=replace(NOW, memory_stat=stat, memory_failures=2))
    answer = api_object(row)

    golden("stats_api_v2", json.dumps(answer, indent=1))
    assert answer["pids_stats"]["limit"] == (1 << 64) - 1
    assert answer["memory_stats"]["stats"] == {"anon": 1, "inactive_file": 2, "pgfault": 5}
    assert "max_usage" not in answer["memory_stats"]


def test_a_reader_of_the_objects_finds_docker_s_percentage_again() -> None:
    answer = json.loads(render_api([ROW]))
    cpu, before = answer["cpu_stats"], answer["precpu_stats"]
    grown = cpu["cpu_usage"]["total_usage"] - before["cpu_usage"]["total_usage"]
    system = cpu["system_cpu_usage"] - before["system_cpu_usage"]

    assert grown / system * cpu["online_cpus"] * 100 == docker_cpu(ROW)


def test_what_is_unknown_is_left_out_of_the_object() -> None:
    answer = api_object(replace(BLIND, cgroup_version=1, pids_limit=None))

    assert answer["cpu_stats"] == {"cpu_usage": {}, "throttling_data": {}}
    assert answer["pids_stats"] == {}
    assert answer["memory_stats"] == {"limit": 512 * MIB, "stats": {}}
    assert "networks" not in answer


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000 * SEC + 5_000_000, "2023-11-14T22:13:20.005Z"),
        (1_700_000_000 * SEC + 1, "2023-11-14T22:13:20.000000001Z"),
    ],
)
def test_times_are_written_as_go_does(time_ns: int, text: str) -> None:
    assert rfc3339(time_ns) == text
    assert utc_ns(text) == time_ns


# --- rows for programs ----------------------------------------------------------------------------


def test_csv_has_both_clocks_and_raw_integers(golden: Callable[[str, str], None]) -> None:
    text = render_csv(ALL, header=True)

    golden("stats_csv", text)
    first, *_ = csv.DictReader(io.StringIO(text))
    assert first["time_ns"] == str(NOW.time_ns)
    assert first["utc_ns"] == str(NOW.utc_ns)
    assert first["id"] == ID
    assert first["memory_usage_bytes"] == str(110 * MIB)
    assert first["io_read_ops"] == "30"
    assert render_csv([ROW], header=False) == text.splitlines(keepends=True)[1]


def test_json_lines_are_the_same_cells(golden: Callable[[str, str], None]) -> None:
    text = render_jsonl(ALL)

    golden("stats_jsonl", text)
    for line, row in zip(text.splitlines(), ALL, strict=True):
        assert json.loads(line) == cells(row)
        assert list(json.loads(line)) == list(COLUMNS)


def test_a_cell_that_cannot_be_told_is_empty_and_never_zero() -> None:
    blind = cells(BLIND)

    known = {name for name, value in blind.items() if value is not None}
    assert {"cpu_usage_ns", "memory_anon_bytes", "io_read_bytes", "pids"}.isdisjoint(known)
    assert render_csv([BLIND], header=False).count(",,") > 10


def test_the_totals_of_v1_are_taken_where_there_are_any() -> None:
    stat = {"total_rss": 1, "total_cache": 2, "total_inactive_file": 3, "inactive_file": 9}
    row = replace(ROW, cgroup_version=1, now=replace(NOW, memory_stat=stat))
    row_cells = cells(row)

    assert row_cells["memory_anon_bytes"] == 1
    assert row_cells["memory_file_bytes"] == 2
    assert row_cells["memory_inactive_file_bytes"] == 3
    assert row_cells["memory_shmem_bytes"] is None


def test_a_name_with_a_comma_or_a_newline_stays_one_cell() -> None:
    text = render_csv([replace(ROW, name='a,"b"\nc')], header=True)

    assert next(csv.DictReader(io.StringIO(text)))["name"] == 'a,"b"\nc'
