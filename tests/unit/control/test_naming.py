"""What a name means: a live sandbox, an ended one, none, or more than one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.control.naming import Names
from sandbox.errors import StoreError
from sandbox.records.result import Outcome

FIRST_ID, SECOND_ID, THIRD_ID = "aaaa00000001", "aaaa00000002", "bbbb00000003"


@pytest.fixture
def names(host: Any, home: Path, make_run: Any) -> Names:
    """One that runs, one that has ended, and another user's."""
    make_run(FIRST_ID, "live")
    make_run(SECOND_ID, "over", outcome=Outcome.EXITED, exit_code=3, reason="exited 3").close()
    host.group(f"run-{THIRD_ID}", pids="9\n")
    host.process(9, parent=1)
    return Names(home, host.roots)


@pytest.mark.parametrize("asked", ["live", FIRST_ID, "aaaa0"])
def test_what_runs_is_found_by_what_it_is_called(names: Names, asked: str) -> None:
    # The ended run's id begins alike: it does not run, so it is not meant.
    assert names.running(asked).id == FIRST_ID


@pytest.mark.parametrize("asked", [THIRD_ID, "bb"])
def test_another_users_sandbox_is_found_by_its_id(names: Names, asked: str) -> None:
    assert names.running(asked).id == THIRD_ID


@pytest.mark.parametrize("asked", ["over", SECOND_ID])
def test_of_what_has_ended_the_end_is_told(names: Names, asked: str) -> None:
    assert names.find(asked) is None
    with pytest.raises(StoreError, match=f"^{asked} is not running: exited 3$"):
        names.running(asked)
    assert names.stored(asked).result.exit_code == 3


def test_a_lost_run_is_to_be_cleaned(host: Any, home: Path, make_run: Any) -> None:
    make_run(FIRST_ID, "lost").close()

    with pytest.raises(StoreError, match="the supervisor was lost") as caught:
        Names(home, host.roots).running("lost")

    assert caught.value.hint == "`sandbox clean` removes what it may have left"


@pytest.mark.parametrize("asked", ["nobody", "", ".", "..", "../home", "/tmp", "tests"])
def test_nothing_else_is_a_sandbox_not_even_a_path(names: Names, asked: str) -> None:
    with pytest.raises(StoreError) as caught:
        names.running(asked)

    assert str(caught.value) == f"no such sandbox: {asked}"
    assert caught.value.hint


def test_what_begins_several_is_not_guessed(host: Any, home: Path, make_run: Any) -> None:
    make_run(FIRST_ID, "one")
    make_run(SECOND_ID, "two")

    with pytest.raises(StoreError, match="beginning of 2 sandboxes"):
        Names(home, host.roots).running("aaaa")


def test_what_begins_several_ended_ones_is_not_guessed(
    host: Any, home: Path, make_run: Any
) -> None:
    for run_id, name in ((FIRST_ID, "one"), (SECOND_ID, "two")):
        make_run(run_id, name, outcome=Outcome.EXITED, exit_code=0).close()

    with pytest.raises(StoreError, match="beginning of 2 runs"):
        Names(home, host.roots).running("aaaa")
