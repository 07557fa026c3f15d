"""Profiles as tables, samples, JSON, CSV and markdown."""

from __future__ import annotations

import csv
import json

from sandbox.records.profile import ModelProfile, ProfileSample
from sandbox.records.result import Outcome
from sandbox.report.profile import (
    render_csv,
    render_json,
    render_profiles,
    render_samples,
    status_of,
)

MIB = 1 << 20
GOOD = ModelProfile(
    name="mobilenet_v1_0.75_224",
    model="m.tflite",
    run_id="5f0c9a1be27d",
    outcome=Outcome.EXITED,
    exit_code=0,
    reason="exited 0",
    cpu_mean_percent=225.0901,
    cpu_peak_percent=226.68,
    memory_mean_bytes=int(117.9 * MIB),
    memory_limit_bytes=2 << 30,
    memory_peak_bytes=int(119.2 * MIB),
    read_bytes=742,
    write_bytes=0,
    wall_ns=6_164_400_000,
)
OOM = ModelProfile(
    name="big",
    model="big",
    run_id=None,
    outcome=Outcome.OOM_KILLED,
    exit_code=137,
    reason="killed: out of memory",
)
TABLE = """\
NAME                   AVG CPU %      PEAK CPU  AVG MEM USAGE / LIMIT    PEAK MEM    NET I/O    \
BLOCK I/O          TOTAL TIME (ms)
---------------------  -----------  ----------  -----------------------  ----------  ---------  \
---------------  -----------------
mobilenet_v1_0.75_224  225.09%          226.68  117.9 MiB / 2.0 GiB      119.2 MiB   -- / --    \
742.0 B / 0.0 B               6164"""


def test_the_table_has_eight_columns() -> None:
    assert render_profiles([GOOD]) == TABLE


def test_a_failure_is_a_row_with_its_status() -> None:
    lines = render_profiles([GOOD, OOM]).splitlines()

    assert lines[0].endswith("STATUS")
    assert lines[2].endswith("exit 0")
    assert lines[3].endswith("OOM, exit 137")
    assert lines[3].split()[:3] == ["big", "--", "--"]


def test_every_end_has_its_words() -> None:
    timed_out = ModelProfile(
        name="x", model=None, run_id=None, outcome=Outcome.TIMED_OUT, exit_code=124, reason=""
    )

    assert status_of(timed_out) == "timed out, exit 124"
    assert status_of(GOOD) == "exit 0"


def test_markdown_is_a_table_of_markdown() -> None:
    assert render_profiles([GOOD], "github").splitlines()[1].startswith("|-----")


def test_json_and_csv_have_whole_numbers_with_units() -> None:
    (row,) = json.loads(render_json([GOOD]))["rows"]
    (line,) = csv.DictReader(render_csv([GOOD]).splitlines())

    assert row["memory_limit_bytes"] == 2 << 30
    assert row["net_received_bytes"] is None
    assert (line["memory_limit_bytes"], line["net_received_bytes"]) == (str(2 << 30), "")
    assert (line["outcome"], line["exit_code"]) == ("exited", "0")


def test_the_samples_of_a_run_stand_above_its_row() -> None:
    sample = ProfileSample(
        utc_ms=1795175430957,
        cpu_percent=201.25,
        memory_bytes=100 * MIB,
        read_bytes=0,
        write_bytes=None,
    )

    text = render_samples(("python", "test_perf.py", "m x.tflite"), GOOD, [sample])

    lines = text.splitlines()
    assert lines[0] == "Profiling script: python test_perf.py 'm x.tflite'"
    assert lines[3].split("  ")[-1].strip() == "1795175430957"
    assert "201.25%" in lines[3]
    assert "0.0 B / --" in lines[3]
    assert "Usage Stats:" in lines
    assert TABLE in text


def test_no_rows_are_a_table_without_rows() -> None:
    assert render_profiles([]).startswith("NAME")
    assert render_csv([]) == ""
