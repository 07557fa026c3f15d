"""What `sandbox top` remembers and what its keys do; rows come from a list."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.control.board import KEYS, Board
from sandbox.errors import SandboxError
from sandbox.records.light import replace
from sandbox.records.stats import State, StatsReading, StatsRow

FIRST_ID, SECOND_ID, THIRD_ID = "aaaa00000001", "aaaa00000002", "bbbb00000003"


def reading(time_ns: int, cpu_ns: int, memory: int) -> StatsReading:
    return StatsReading(
        time_ns=time_ns, utc_ns=0, cpu_usage_ns=cpu_ns, memory_usage_bytes=memory, memory_stat={}
    )


def row_of(run_id: str, name: str, *, cpu: int = 0, memory: int = 0, at: int = 2) -> StatsRow:
    """A row that used `cpu` percent of one CPU in the second before `at`."""
    return StatsRow(
        asked=run_id,
        id=run_id,
        name=name,
        cgroup_version=2,
        now=reading(at * 1_000_000_000, cpu * 10_000_000, memory),
        before=reading((at - 1) * 1_000_000_000, 0, memory),
        host_memory_bytes=1 << 30,
    )


class FakeSource:
    def __init__(self, *rows: StatsRow) -> None:
        self.rows = list(rows)

    def read(self) -> list[StatsRow]:
        return list(self.rows)


class Acts:
    """Notes what is done; fails if told to."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.failure: SandboxError | None = None

    def __call__(self, verb: str, run_id: str) -> None:
        self.log.append((verb, run_id))
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def source() -> FakeSource:
    return FakeSource(
        row_of(FIRST_ID, "one", cpu=5, memory=30),
        row_of(SECOND_ID, "two", cpu=80, memory=10),
        row_of(THIRD_ID, "", cpu=40, memory=20),
    )


@pytest.fixture
def acts() -> Acts:
    return Acts()


@pytest.fixture
def board(source: FakeSource, acts: Acts) -> Board:
    one = Board(source, acts, start=lambda do: do())
    one.look()
    return one


def ids(board: Board) -> list[str]:
    return [row.id for row in board.view().rows]


@pytest.mark.parametrize(
    ("key", "order", "word"),
    [
        ("c", [SECOND_ID, THIRD_ID, FIRST_ID], "CPU"),
        ("m", [FIRST_ID, THIRD_ID, SECOND_ID], "memory"),
        ("n", [THIRD_ID, FIRST_ID, SECOND_ID], "name"),
        ("t", [FIRST_ID, SECOND_ID, THIRD_ID], "age, newest first"),
    ],
)
def test_keys_sort(board: Board, key: str, order: list[str], word: str) -> None:
    assert board.press(key)
    board.look()

    assert ids(board) == order
    assert board.view().title == f"sandbox top  by {word}"


def test_the_busiest_is_first_and_selected_and_keys_move_from_there(board: Board) -> None:
    assert board.view().selected == SECOND_ID
    for key, selected in (
        ("down", THIRD_ID),
        ("down", FIRST_ID),
        ("down", FIRST_ID),
        ("up", THIRD_ID),
        ("home", SECOND_ID),
        ("end", FIRST_ID),
        ("pageup", SECOND_ID),
    ):
        board.press(key)
        assert board.view().selected == selected


def test_the_selection_stays_with_its_sandbox_until_that_ends(
    board: Board, source: FakeSource
) -> None:
    board.press("end")
    assert board.view().selected == FIRST_ID
    board.press("m")
    assert board.view().selected == FIRST_ID

    source.rows = source.rows[1:]
    board.look()

    assert board.view().selected == THIRD_ID


def test_each_reading_is_one_point_of_its_curve(board: Board, source: FakeSource) -> None:
    board.look()  # nothing new was read
    source.rows[1] = row_of(SECOND_ID, "two", cpu=60, memory=11, at=3)
    board.look()

    points = board.view().points

    assert [(point.cpu_percent, point.memory_bytes) for point in points] == [(80.0, 10), (60.0, 11)]


def test_what_cannot_be_undone_is_asked_for(board: Board, acts: Acts) -> None:
    board.press("k")
    assert board.view().prompt == "kill two? y/n"
    board.press("x")
    assert (acts.log, board.view().prompt) == ([], "nothing was done")

    board.press("s")
    assert board.view().prompt == "stop two? y/n"
    board.press("y")

    assert acts.log == [("stop", SECOND_ID)]
    assert board.view().prompt == "stop two: done"


def test_q_answers_a_question_before_it_quits(board: Board) -> None:
    board.press("k")

    assert board.press("q")
    assert not board.press("q")


def test_pause_and_unpause_are_one_key(board: Board, source: FakeSource, acts: Acts) -> None:
    board.press("p")
    source.rows[1] = replace(source.rows[1], state=State.PAUSED)
    board.look()
    board.press("p")

    assert acts.log == [("pause", SECOND_ID), ("unpause", SECOND_ID)]


def test_what_fails_is_told_with_its_reason(board: Board, acts: Acts) -> None:
    acts.failure = SandboxError("it has ended")

    board.press("p")

    assert board.view().prompt == "cannot pause two: it has ended"


def test_without_any_row_keys_do_nothing(acts: Acts) -> None:
    board = Board(FakeSource(), acts)
    board.look()

    for key in ("up", "k", "y", "s", "p", "", "?"):
        assert board.press(key)

    assert (acts.log, board.view().selected, board.view().keys) == ([], None, KEYS)


def test_a_source_may_have_keys_of_its_own_and_nothing_to_kill(source: FakeSource) -> None:
    pressed: list[str] = []

    def more(key: str) -> str | None:
        pressed.append(key)
        return "held" if key == " " else None

    board = Board(source, None, keys="space hold", more=more)
    board.look()
    for key in ("k", "c", " "):
        board.press(key)

    assert pressed == ["k", " "]
    view: Any = board.view()
    assert (view.prompt, view.keys) == ("held", "space hold")
