"""Journals: whole lines only, one writer, nothing lost, nothing of a torn end taken for a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import StoreError
from sandbox.store.journal import Journal, list_journals, read_journal


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_lines_come_back_in_order(home: Path) -> None:
    with Journal.create(home, "sweeps", "a1", {"plan": 1}) as journal:
        journal.append({"trial": 1})
        journal.append({"trial": 2})
        assert read_journal(home, "sweeps", "a1") == [{"plan": 1}, {"trial": 1}, {"trial": 2}]

    again, lines = Journal.resume(home, "sweeps", "a1")
    with again:
        again.append({"trial": 3})

    assert lines == [{"plan": 1}, {"trial": 1}, {"trial": 2}]
    assert read_journal(home, "sweeps", "a1")[-1] == {"trial": 3}
    assert list_journals(home, "sweeps") == ["a1"]
    assert list_journals(home, "nothing") == []
    assert (home / "sweeps" / "a1.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_torn_end_is_cut_off_wherever_it_was_torn(home: Path) -> None:
    with Journal.create(home, "sweeps", "a1", {"plan": 1}) as journal:
        journal.append({"trial": "one"})
    file = home / "sweeps" / "a1.jsonl"
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1

    for length in range(first, len(whole)):
        file.write_bytes(whole[:length])
        assert read_journal(home, "sweeps", "a1") == [{"plan": 1}]
        journal, lines = Journal.resume(home, "sweeps", "a1")
        with journal:
            journal.append({"trial": "two"})
        assert lines == [{"plan": 1}]
        assert read_journal(home, "sweeps", "a1") == [{"plan": 1}, {"trial": "two"}]


def test_there_is_one_writer(home: Path) -> None:
    with Journal.create(home, "sweeps", "a1", {}):
        with pytest.raises(StoreError, match="is being written by another process"):
            Journal.resume(home, "sweeps", "a1")
        with pytest.raises(StoreError, match="cannot be opened: File exists"):
            Journal.create(home, "sweeps", "a1", {})


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".a", "-a", "a\0b"])
def test_a_name_cannot_lead_elsewhere(home: Path, name: str) -> None:
    with pytest.raises(StoreError, match="is not the name of"):
        read_journal(home, "sweeps", name)


def test_what_is_missing_is_named_with_what_there_is(home: Path) -> None:
    Journal.create(home, "sweeps", "a1", {}).close()

    with pytest.raises(StoreError, match=r"there is no .*b2\.jsonl") as caught:
        Journal.resume(home, "sweeps", "b2")

    assert caught.value.hint == "the last ones are a1"


@given(garbage=st.binary(min_size=1).filter(lambda data: not data.strip().startswith(b"{")))
def test_what_is_no_journal_is_an_error_with_its_line(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    home = tmp_path_factory.mktemp("home") / "home"
    Journal.create(home, "sweeps", "a1", {}).close()
    file = home / "sweeps" / "a1.jsonl"
    file.write_bytes(garbage.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")

    with pytest.raises(StoreError, match=r"a1\.jsonl:\d+: not a JSON object"):
        read_journal(home, "sweeps", "a1")
