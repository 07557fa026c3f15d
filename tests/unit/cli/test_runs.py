"""What `sandbox runs` and `sandbox clean` say of records that are not whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.cli import _status_of
from sandbox.records.codec import to_plain
from sandbox.records.result import RunResult
from sandbox.report.captured import captured_lines
from sandbox.report.style import Style
from sandbox.store.directory import RunDirectory


def test_what_was_killed_while_starting_is_one_line_until_clean_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    for number in "12":
        RunDirectory.create(home, number * 12).close()
    assert _status_of(["runs", "ls"]) == 0
    assert capsys.readouterr().err == (
        "not shown: 2 that were killed while starting; `sandbox clean` removes what they left\n"
    )
    _status_of(["clean"])  # its status may tell of others on this machine
    said = capsys.readouterr().out
    assert all(f"{number * 12}: removed 1 half-made record\n" in said for number in "12")
    assert not list((home / "runs").iterdir())
    assert not list((home / "names").iterdir())
    assert _status_of(["runs", "ls"]) == 0
    assert capsys.readouterr().err == ""


def test_the_end_of_what_a_run_printed_is_shown_harmless_to_a_terminal(tmp_path: Path) -> None:
    out, err, absent = (tmp_path / name for name in ("stdout", "stderr", "absent"))
    out.write_text("".join(f"line {number}\n" for number in range(20)))
    err.write_bytes(b"\x1b[2Jgone \xff\n")

    lines = list(captured_lines((out, err, absent), Style()))

    assert lines == [
        "",
        f"stdout, its last lines: {out}",
        *(f"  line {number}" for number in range(12, 20)),
        "",
        f"stderr: {err}",
        "  \\x1b[2Jgone \N{REPLACEMENT CHARACTER}",
    ]
    out.write_text("\n")
    assert not list(captured_lines((out,), Style()))


def test_a_limit_leaves_the_newest_and_counts_the_others(
    tmp_path: Path,
    make_result: Callable[..., RunResult],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    for number in (2, 3, 1):
        run = RunDirectory.create(home, f"{number}" * 12)
        run.write_run(to_plain(make_result(run_id=run.run_id, started_utc_ns=number)))
        run.close()
    for limit, shown, more in (("2", "32", "not shown: 1 older\n"), ("3", "321", "")):
        assert _status_of(["runs", "ls", "-q", "--limit", limit]) == 0
        said = capsys.readouterr()
        assert said.out == "".join(f"{number * 12}\n" for number in shown)
        assert said.err == more
    assert _status_of(["runs", "ls", "--limit", "0"]) == 2
