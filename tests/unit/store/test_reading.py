"""Finding and reading runs, whatever state they were left in."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sandbox
from sandbox.errors import StoreError
from sandbox.records.codec import to_json, to_plain
from sandbox.records.result import SCHEMA, Event, Outcome, RunResult
from sandbox.records.sample import Block
from sandbox.store.directory import RunDirectory, open_directory
from sandbox.store.events import read_events, read_groups
from sandbox.store.reading import (
    blocks_of,
    list_runs,
    load,
    parse_run,
    remove_half_made,
    remove_run,
)

Make = Callable[..., RunResult]
Run = Callable[..., RunDirectory]


@pytest.fixture
def run(home: Path, result_of: Make) -> Run:
    """Make a live run that has written its result and one sample."""

    def make(run_id: str, name: str = "a-name", **fields: object) -> RunDirectory:
        made = RunDirectory.create(home, run_id, name)
        sink = made.open_sink(("pids",), ("processes",))
        sink.fast([5, 1])
        sink.close()
        made.append_event(Event(time_ns=1, utc_ns=2, kind="started"))
        result = result_of(run_id=run_id, name=name, directory=str(made.path), **fields)
        made.write_run(to_plain(result))
        return made

    return make


def rows(blocks: Iterable[Block]) -> list[tuple[int, ...]]:
    """Return all rows of some blocks."""
    return [row for block in blocks for row in block.rows()]


# --- finding --------------------------------------------------------------------------------------


def test_a_run_is_found_by_id_prefix_name_and_paths(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("0123456789ab", "my-run")
    made.close()
    run("9999999999ab", "other").close()
    for asked in (
        "0123456789ab",
        "0123",
        "0",
        "my-run",
        made.path,
        str(made.path),
        made.path / "run.json",
        str(made.path / "run.json"),
    ):
        found = load(asked, home)
        assert found.result.run_id == "0123456789ab", asked
        assert found.directory == made.path
        assert not found.is_live
        assert rows(found.blocks()) == [(5, 1)]
        assert [event.kind for event in found.events()] == ["started"]
        assert found.output_paths() is None
    monkeypatch.chdir(made.path)
    assert load("run.json", home).directory == Path()
    assert load(".", home).result.run_id == "0123456789ab"


def test_the_public_load_looks_where_the_command_line_does(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("0123456789ab", "my-run").close()
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    assert sandbox.load("my-run").result.run_id == "0123456789ab"


def test_a_prefix_of_two_runs_means_neither(home: Path, run: Run) -> None:
    run("aaaa00000000", "one").close()
    run("aaaa11111111", "two").close()
    with pytest.raises(StoreError, match="beginning of 2 runs: aaaa00000000, aaaa11111111"):
        load("aaaa", home)
    assert load("aaaa1", home).result.name == "two"


def test_a_name_goes_before_the_beginning_of_an_id(home: Path, run: Run) -> None:
    run("abcdef000000", "one").close()
    run("123456000000", "abc").close()
    assert load("abc", home).result.run_id == "123456000000"


def test_a_name_means_its_last_run_or_the_one_before_if_that_was_removed(
    home: Path, run: Run
) -> None:
    for number in (1, 2, 3):
        run(f"{number}" * 12, "same", started_utc_ns=number).close()
    assert load("same", home).result.run_id == "333333333333"
    remove_run(home, "same")
    assert load("same", home).result.run_id == "222222222222"


@pytest.mark.parametrize("asked", ["nothing", "", "0123", "nothing.json", "../x", "/nowhere/run"])
def test_what_is_not_there_is_said_with_a_remedy(home: Path, asked: str) -> None:
    with pytest.raises(StoreError, match="there is no run") as caught:
        load(asked, home)
    assert "sandbox runs ls" in (caught.value.hint or "")


def test_a_home_that_cannot_be_trusted_is_not_read(home: Path, run: Run) -> None:
    run("0123456789ab").close()
    home.chmod(0o777)
    for act in (lambda: load("0123456789ab", home), lambda: list_runs(home)):
        with pytest.raises(StoreError, match="can be written by other users"):
            act()


# --- reading --------------------------------------------------------------------------------------


def test_a_live_run_is_read_as_far_as_it_is_written(home: Path, run: Run) -> None:
    made = run("0123456789ab", outcome=Outcome.RUNNING, exit_code=None)
    found = load("0123456789ab", home)
    assert found.is_live
    assert found.result.outcome is Outcome.RUNNING
    assert rows(found.blocks()) == [(5, 1)]
    made.close()


def test_a_run_whose_supervisor_is_gone_is_lost_and_keeps_what_is_known(
    home: Path, run: Run
) -> None:
    run("0123456789ab", outcome=Outcome.RUNNING, exit_code=None, started_ns=77).close()
    found = load("0123456789ab", home)
    assert not found.is_live
    assert found.result.outcome is Outcome.SUPERVISOR_LOST
    assert "lost" in found.result.reason
    assert found.result.started_ns == 77
    assert found.result.exit_code is None
    assert rows(found.blocks()) == [(5, 1)]
    assert list_runs(home)[0].result == found.result


def test_a_run_json_alone_has_no_samples(tmp_path: Path, home: Path, result_of: Make) -> None:
    path = tmp_path / "x.json"
    path.write_text(to_json(result_of(exit_code=4)))
    found = load(path, home)
    assert found.result.exit_code == 4
    assert found.directory is None
    assert rows(found.blocks()) == []
    assert list(found.events()) == []
    assert found.output_paths() is None


def test_a_copied_run_directory_is_read_anywhere(tmp_path: Path, home: Path, run: Run) -> None:
    made = run("0123456789ab")
    shutil.copytree(made.path, tmp_path / "copy")
    made.close()
    (tmp_path / "copy" / "lock").unlink()
    found = load(tmp_path / "copy")
    assert not found.is_live
    assert rows(found.blocks()) == [(5, 1)]


def test_output_that_was_kept_is_found(home: Path, run: Run) -> None:
    made = run("0123456789ab")
    for path in made.output_paths() or ():
        path.write_text("x")
    made.close()
    assert load("0123", home).output_paths() == (made.path / "stdout", made.path / "stderr")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"5", b"\xff\xfe", b"{}", b'{"schema": 1}', b"[" * 100_000, b'{"a": 1e999}'],
)
def test_a_damaged_run_json_is_an_error_that_names_it(home: Path, run: Run, content: bytes) -> None:
    made = run("0123456789ab")
    made.close()
    (made.path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"run\.json: this is not the record of a run"):
        load("0123456789ab", home)


def test_a_newer_schema_is_refused_with_a_remedy(result_of: Make) -> None:
    plain = to_plain(result_of()) | {"schema": SCHEMA + 1, "outcome": "transcended"}
    with pytest.raises(StoreError, match="a newer version wrote this") as caught:
        parse_run(json.dumps(plain))
    assert "upgrade" in (caught.value.hint or "")


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_result_or_an_error(data: bytes) -> None:
    with pytest.raises(StoreError):
        parse_run(data)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_events_are_read_past_any_garbage(
    tmp_path_factory: pytest.TempPathFactory, garbage: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    line = b'{"time_ns":1,"utc_ns":2,"kind":"mark","detail":{"a":1}}'
    (folder / "events.jsonl").write_bytes(b"\n".join([*garbage, line, b'{"time_ns":1,"ut']))
    assert list(read_events(folder))[-1] == Event(time_ns=1, utc_ns=2, kind="mark", detail={"a": 1})


def test_groups_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    assert read_groups(tmp_path) == ()
    for content in ("", "{", "{}", "[1]", '"x"'):
        (tmp_path / "groups.json").write_text(content)
        assert read_groups(tmp_path) == ()


# --- samples of a result --------------------------------------------------------------------------


def test_the_samples_of_a_result_are_those_of_its_directory(
    home: Path, run: Run, result_of: Make
) -> None:
    made = run("0123456789ab")
    made.close()
    result = load("0123456789ab", home).result
    assert rows(blocks_of(result)) == [(5, 1)]
    moved = result_of(run_id="ffffffffffff", directory=str(made.path))
    assert rows(blocks_of(moved)) == []
    remove_run(home, "0123456789ab")
    assert rows(blocks_of(result)) == []


def test_the_samples_of_a_run_without_a_directory_last_until_the_next(
    home: Path, result_of: Make
) -> None:
    home.write_text("in the way")
    results = [result_of(run_id=run_id) for run_id in ("a" * 12, "b" * 12)]
    for number, result in enumerate(results):
        made = open_directory(home, result.run_id, None)
        sink = made.open_sink(("pids",), ())
        sink.fast([number, number])
        sink.close()
        made.close()
        assert rows(blocks_of(result)) == [(number, number)]
    assert rows(blocks_of(results[0])) == []


# --- lists ----------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first(home: Path, run: Run) -> None:
    for number in (2, 3, 1):
        run(f"{number}" * 12, f"run-{number}", started_utc_ns=number).close()
    live = run("4" * 12, "run-4", started_utc_ns=4, outcome=Outcome.RUNNING)
    entries = list_runs(home)
    assert [entry.run_id[0] for entry in entries] == ["4", "3", "2", "1"]
    assert [entry.is_live for entry in entries] == [True, False, False, False]
    assert all(entry.broken is None for entry in entries)
    live.close()


def test_without_a_home_there_are_no_runs(home: Path) -> None:
    assert list_runs(home) == []
    assert not home.exists()


def test_broken_runs_are_listed_with_what_is_wrong(home: Path, run: Run) -> None:
    run("000000000000", "good").close()
    runs = home / "runs"
    (runs / "111111111111").mkdir()
    (runs / "222222222222").mkdir()
    (runs / "222222222222" / "run.json").write_text("{")
    (runs / "333333333333").write_text("a file")
    (runs / "444444444444").symlink_to("nowhere")
    (runs / "555555555555").mkdir()
    (runs / "555555555555" / "run.json").mkdir()
    (runs / ".new-666666666666").mkdir()
    starting = RunDirectory.create(home, "777777777777")
    entries = {entry.run_id[0]: entry for entry in list_runs(home)}
    assert sorted(entries) == ["0", "1", "2", "3", "5", "7"]
    assert entries["0"].result is not None
    assert "there is no run.json" in (entries["1"].broken or "")
    assert "not the record of a run" in (entries["2"].broken or "")
    assert "Not a directory" in (entries["3"].broken or "")
    assert "Is a directory" in (entries["5"].broken or "")
    assert entries["7"].broken == "it has not started yet"
    assert entries["7"].is_live
    starting.close()


# --- removing -------------------------------------------------------------------------------------


def test_a_removed_run_is_gone_with_its_name(home: Path, run: Run) -> None:
    made = run("0123456789ab", "my-run")
    made.close()
    assert remove_run(home, "my-run") == made.path
    assert list((home / "runs").iterdir()) == []
    assert list((home / "names").iterdir()) == []
    with pytest.raises(StoreError, match="there is no run"):
        remove_run(home, "my-run")


def test_a_live_run_is_not_removed(home: Path, run: Run) -> None:
    made = run("0123456789ab", "my-run")
    with pytest.raises(StoreError, match="the run my-run is live") as caught:
        remove_run(home, "0123")
    assert "sandbox stop my-run" in (caught.value.hint or "")
    assert rows(load("my-run", home).blocks()) == [(5, 1)]
    made.close()


def test_a_name_that_is_another_runs_by_now_is_kept(home: Path, run: Run) -> None:
    run("000000000000", "same").close()
    second = run("111111111111", "same")
    remove_run(home, "000000000000")
    assert load("same", home).result.run_id == "111111111111"
    second.close()


def test_nothing_outside_the_home_is_removed(tmp_path: Path, home: Path, run: Run) -> None:
    made = run("0123456789ab")
    made.close()
    shutil.copytree(made.path, tmp_path / "copy")
    (home / "runs" / "link").symlink_to(tmp_path / "copy")
    for asked in (tmp_path / "copy", tmp_path / "copy" / "run.json", home / "runs" / "link"):
        with pytest.raises(StoreError, match="is not a run of"):
            remove_run(home, asked)
    assert (tmp_path / "copy" / "run.json").exists()


def test_a_link_inside_a_run_is_removed_and_not_followed(
    tmp_path: Path, home: Path, run: Run
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    made = run("0123456789ab")
    (made.path / "link").symlink_to(precious)
    made.close()
    remove_run(home, "0123456789ab")
    assert (precious / "file").exists()


def test_a_broken_run_can_be_removed(home: Path) -> None:
    RunDirectory.create(home, "000000000000").close()
    remove_run(home, "0")
    assert list_runs(home) == []


def test_only_what_was_cut_short_while_it_started_is_half_made(home: Path, run: Run) -> None:
    run("000000000000", "good").close()
    cut = RunDirectory.create(home, "111111111111", "cut")
    cut.close()
    (cut.path / ".reserve").write_bytes(b"")
    damaged = run("222222222222", "damaged")
    damaged.close()
    (damaged.path / "run.json").write_text("{")
    (home / "runs" / "333333333333").mkdir()  # no lock: nobody of ours has made it
    starting = RunDirectory.create(home, "444444444444", "starting")
    half_made = [entry for entry in list_runs(home) if entry.is_half_made]
    assert [entry.run_id for entry in half_made] == ["111111111111"]
    remove_half_made(home, half_made[0])
    assert sorted(path.name[0] for path in (home / "runs").iterdir()) == ["0", "2", "3", "4"]
    assert sorted(path.name for path in (home / "names").iterdir()) == [
        "damaged",
        "good",
        "starting",
    ]
    starting.close()


def test_a_half_made_run_is_kept_while_its_groups_are_there(tmp_path: Path, home: Path) -> None:
    group = tmp_path / "run-111111111111"
    group.mkdir()
    cut = RunDirectory.create(home, "111111111111")
    cut.write_groups([group])
    cut.close()
    (entry,) = list_runs(home)
    with pytest.raises(StoreError, match="has left processes or groups"):
        remove_half_made(home, entry)
    group.rmdir()
    remove_half_made(home, entry)
    assert list_runs(home) == []


def test_a_run_whose_groups_are_still_there_is_not_removed(
    tmp_path: Path, home: Path, run: Run
) -> None:
    group = tmp_path / "run-0123456789ab"
    group.mkdir()
    made = run("0123456789ab", "lost")
    made.write_groups([group, tmp_path / "gone"])
    made.close()
    with pytest.raises(StoreError, match="the run lost has left processes or groups") as caught:
        remove_run(home, "lost")
    assert "sandbox clean" in (caught.value.hint or "")
    group.rmdir()
    remove_run(home, "lost")


def test_removing_also_sweeps_what_was_cut_short_long_ago(home: Path, run: Run) -> None:
    run("000000000000", "one").close()
    runs = home / "runs"
    (runs / ".gone-111111111111").mkdir()
    (runs / ".new-222222222222").mkdir()
    (runs / ".new-333333333333").mkdir()
    os.utime(runs / ".new-222222222222", (1, 1))
    remove_run(home, "one")
    assert [path.name for path in runs.iterdir()] == [".new-333333333333"]
