"""A run directory while it is live: made, locked, named, written, let go."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SpecError, StoreError
from sandbox.records.codec import to_plain
from sandbox.records.result import Event, Outcome, RunResult
from sandbox.store import directory as directory_module
from sandbox.store import files
from sandbox.store.directory import (
    Directory,
    NameInUseError,
    RunDirectory,
    new_name,
    new_run_id,
    open_directory,
)
from sandbox.store.events import read_events, read_groups
from sandbox.store.memory import MemoryDirectory
from sandbox.store.reading import is_locked, load

Make = Callable[..., RunResult]


def event(kind: str, **detail: Any) -> Event:
    """Return an event at some time."""
    return Event(time_ns=1, utc_ns=2, kind=kind, detail=detail)


def open_fds() -> int:
    """Return how many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start another process that uses the store."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- ids and names --------------------------------------------------------------------------------


def test_ids_look_like_those_of_containers_and_differ() -> None:
    ids = {new_run_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(re.fullmatch("[0-9a-f]{12}", run_id) for run_id in ids)


def test_names_are_two_words_and_differ() -> None:
    made = {new_name() for _ in range(200)}
    assert len(made) > 150
    assert all(re.fullmatch("[a-z]+-[a-z]+", name) for name in made)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 63, "0", "lock"])
def test_names_that_can_be(home: Path, name: str) -> None:
    made = RunDirectory.create(home, new_run_id(), name)
    assert made.name == name
    made.close()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-x", "_x", ".x", "a/b", "a b", "x" * 64, "a\n", "é", "a\0"]
)
def test_names_that_cannot_be_make_nothing(home: Path, name: str) -> None:
    with pytest.raises(SpecError, match="cannot be the name of a run"):
        open_directory(home, new_run_id(), name)
    assert not home.exists()


def test_a_name_that_is_in_use_is_refused_and_nothing_is_left(home: Path) -> None:
    first = RunDirectory.create(home, "aaaaaaaaaaaa", "mine")
    fds = open_fds()
    with pytest.raises(NameInUseError, match="mine is in use by run aaaaaaaaaaaa") as caught:
        open_directory(home, "bbbbbbbbbbbb", "mine")
    assert "sandbox stop mine" in (caught.value.hint or "")
    assert [path.name for path in (home / "runs").iterdir()] == ["aaaaaaaaaaaa"]
    assert open_fds() == fds
    first.close()


def test_the_name_of_a_run_that_has_ended_is_free(home: Path) -> None:
    first = RunDirectory.create(home, "aaaaaaaaaaaa", "mine")
    first.close()
    second = RunDirectory.create(home, "bbbbbbbbbbbb", "mine")
    assert (home / "names" / "mine").read_text() == "bbbbbbbbbbbb\n"
    second.close()


def test_a_claim_that_was_cut_short_does_not_block_the_name(home: Path) -> None:
    RunDirectory.create(home, "aaaaaaaaaaaa", "other").close()
    for content in (b"", b"garbage \xff", b"cccccccccccc\n", b"../../etc\n"):
        (home / "names" / "mine").write_bytes(content)
        made = RunDirectory.create(home, new_run_id(), "mine")
        made.close()


def test_a_made_up_name_that_is_in_use_gives_way_to_another(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RunDirectory.create(home, "aaaaaaaaaaaa", "calm-oak")
    offered = iter(["calm-oak", "calm-oak", "wild-fern"])
    monkeypatch.setattr(directory_module, "new_name", lambda: next(offered))
    second = RunDirectory.create(home, "bbbbbbbbbbbb")
    assert second.name == "wild-fern"
    monkeypatch.setattr(directory_module, "new_name", lambda: "calm-oak")
    third = RunDirectory.create(home, "cccccccccccc")
    assert third.name == "calm-oak-cccccccccccc"
    for made in (first, second, third):
        made.close()


RACE = """
import sys, time
from pathlib import Path
from sandbox.store.directory import NameInUseError, RunDirectory, new_run_id
home = Path(sys.argv[1])
sys.stdin.readline()
wins = 0
for round in range(int(sys.argv[2])):
    try:
        made = RunDirectory.create(home, new_run_id(), f"name-{round}")
    except NameInUseError:
        continue
    print(round, made.run_id, flush=True)
    held = globals().setdefault("held", [])
    held.append(made)  # stays live until the end of this process
print("done", flush=True)
sys.stdin.readline()
"""


def test_of_two_processes_that_want_a_name_exactly_one_gets_it(home: Path) -> None:
    rounds = 60
    RunDirectory.create(home, "aaaaaaaaaaaa", "name-3").close()  # a stale one, to be taken over
    racers = [run_python(RACE, home, rounds) for _ in range(2)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    owners: dict[int, list[str]] = {}
    for racer in racers:
        assert racer.stdout is not None
        for line in racer.stdout:
            if line == "done\n":
                break
            number, run_id = line.split()
            owners.setdefault(int(number), []).append(run_id)
    try:
        assert sorted(owners) == list(range(rounds))
        assert all(len(ids) == 1 for ids in owners.values())
        for number, (run_id,) in owners.items():
            assert (home / "names" / f"name-{number}").read_text().strip() == run_id
            assert is_locked(home / "runs" / run_id)
    finally:
        for racer in racers:
            _, errors = racer.communicate("end\n", timeout=30)
            assert errors == ""


# --- the lock -------------------------------------------------------------------------------------


def test_it_is_locked_until_it_is_closed(home: Path) -> None:
    made = RunDirectory.create(home, new_run_id())
    assert is_locked(made.path)
    made.close()
    assert not is_locked(made.path)
    made.close()


def test_a_forked_child_does_not_keep_it_locked(home: Path) -> None:
    made = RunDirectory.create(home, new_run_id())
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        made.close()
        assert not is_locked(made.path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_neither_the_program_nor_the_guard_inherits_a_descriptor(home: Path) -> None:
    made = RunDirectory.create(home, new_run_id())
    sink = made.open_sink(("a",), ("b",))
    sink.fast([1, 2])
    made.append_event(event("started"))
    listing = subprocess.run(
        ["ls", "-l", "/proc/self/fd"],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
        close_fds=False,
    )
    assert str(home) not in listing.stdout
    made.close()


KILLED = """
import sys, time
from pathlib import Path
from sandbox.store.directory import RunDirectory
made = RunDirectory.create(Path(sys.argv[1]), sys.argv[2], "doomed")
sink = made.open_sink(("a",), ("b",))
for tick in range(250):
    sink.fast([tick * 10_000_000, tick])
print("ready", flush=True)
time.sleep(60)
"""


def test_sigkill_frees_the_lock_and_the_name_and_leaves_the_samples(home: Path) -> None:
    victim = run_python(KILLED, home, "aaaaaaaaaaaa")
    assert victim.stdout is not None
    assert victim.stdout.readline() == "ready\n"
    path = home / "runs" / "aaaaaaaaaaaa"
    assert is_locked(path)
    victim.kill()
    victim.communicate(timeout=10)
    assert not is_locked(path)
    RunDirectory.create(home, "bbbbbbbbbbbb", "doomed").close()
    from sandbox.store.scan import read_blocks

    rows = [row for block in read_blocks(path / "samples") for row in block.rows()]
    assert rows == [(tick * 10_000_000, tick) for tick in range(len(rows))]
    assert len(rows) >= 150


# --- files ----------------------------------------------------------------------------------------


def test_everything_is_the_users_alone(home: Path, result_of: Make) -> None:
    before = os.umask(0)
    try:
        made = RunDirectory.create(home, new_run_id())
        made.write_run(to_plain(result_of()))
        made.append_event(event("started"))
        made.write_groups([Path("/a")])
        made.open_sink(("a",), ("b",)).close()
    finally:
        os.umask(before)
    made.close()
    for path in (home, *home.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert sorted(path.name for path in made.path.iterdir()) == [
        "events.jsonl",
        "groups.json",
        "lock",
        "run.json",
        "samples",
    ]


def test_it_is_a_directory_as_the_engine_wants_it(home: Path) -> None:
    both: list[Directory] = [open_directory(home, new_run_id(), None)]
    both.append(MemoryDirectory(new_run_id(), "a", problem="because"))
    for made in both:
        made.close()


def test_what_is_written_is_read(home: Path, result_of: Make) -> None:
    made = RunDirectory.create(home, "0123456789ab", "a-name")
    running = result_of(outcome=Outcome.RUNNING, exit_code=None)
    made.write_groups([Path("/sys/fs/cgroup/x"), Path("/sys/fs/cgroup/x/main")])
    made.write_run(to_plain(running))
    made.append_event(event("started", pid=5, odd=b"\xff"))
    made.append_event(event("oom"))
    assert load("a-name", home).result == running
    made.write_run(to_plain(result_of(exit_code=3)))
    made.close()
    run = load("a-name", home)
    assert run.result.exit_code == 3
    assert [found.kind for found in run.events()] == ["started", "oom"]
    assert next(iter(run.events())).detail["pid"] == 5
    assert read_groups(made.path) == (Path("/sys/fs/cgroup/x"), Path("/sys/fs/cgroup/x/main"))
    assert made.problems() == ()
    assert made.output_paths() == (made.path / "stdout", made.path / "stderr")


def test_run_json_is_never_seen_half_written(home: Path, result_of: Make) -> None:
    made = RunDirectory.create(home, "0123456789ab", "a-name")
    made.write_run(to_plain(result_of()))
    reader = os.open(made.path / "run.json", os.O_RDONLY)
    old = (made.path / "run.json").read_bytes()
    made.write_run(to_plain(result_of(reason="x" * 10_000)))
    assert os.read(reader, 1 << 20) == old
    os.close(reader)
    made.close()


def test_discarding_leaves_nothing_but_the_home(home: Path, result_of: Make) -> None:
    fds = open_fds()
    made = RunDirectory.create(home, new_run_id(), "never")
    made.open_sink(("a",), ("b",)).fast([1, 2])
    made.write_run(to_plain(result_of()))
    made.discard()
    made.close()
    assert list((home / "runs").iterdir()) == []
    assert list((home / "names").iterdir()) == []
    assert open_fds() == fds


def test_late_writes_after_the_end_touch_no_other_file(
    home: Path, result_of: Make, tmp_path: Path
) -> None:
    made = RunDirectory.create(home, new_run_id())
    made.append_event(event("started"))
    sink = made.open_sink(("a",), ("b",))
    made.close()
    innocent = [(tmp_path / str(number)).open("w") for number in range(8)]
    made.write_run(to_plain(result_of()))
    made.append_event(event("late"))
    sink.fast([1, 2])
    made.close()
    for file in innocent:
        file.close()
        assert Path(file.name).read_bytes() == b""
    assert len(made.problems()) == 2
    assert [found.kind for found in read_events(made.path)] == ["started"]


# --- when it cannot be written --------------------------------------------------------------------


class FullDisk:
    """Lets so many writes through, then none that grows a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
        self.left = writes
        self.reserve_used = False
        monkeypatch.setattr(files, "write_all", self.write_all)
        monkeypatch.setattr(directory_module, "write_all", self.write_all)
        self._write = os.write

    def write_all(self, fd: int, data: bytes) -> None:
        """Write half and fail when there is no room."""
        if self.left <= 0:
            self._write(fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= 1
        self._write(fd, data)


def test_a_full_disk_is_one_problem_for_each_file(
    home: Path, result_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RunDirectory.create(home, "0123456789ab", "a-name")
    made.write_run(to_plain(result_of(outcome=Outcome.RUNNING, reason="first")))
    made.append_event(event("first"))
    disk = FullDisk(monkeypatch, 0)
    for _ in range(3):
        made.write_run(to_plain(result_of(outcome=Outcome.RUNNING, reason="second")))
        made.append_event(event("second"))
        made.write_groups([Path("/a")])
    problems = made.problems()
    assert [re.sub(r".*/", "", text) for text in problems] == [
        "run.json could not be written: No space left on device",
        "events.jsonl could not be written: No space left on device",
        "groups.json could not be written: No space left on device",
    ]
    assert load("a-name", home).result.reason == "first"
    disk.left = 9
    made.append_event(event("third"))
    made.write_run(to_plain(result_of(reason="third")))
    made.close()
    assert [found.kind for found in read_events(made.path)] == ["first", "third"]
    assert load("a-name", home).result.reason == "third"


def test_the_last_word_on_a_run_finds_room_on_a_full_disk(
    home: Path, result_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RunDirectory.create(home, "0123456789ab", "a-name")
    made.write_run(to_plain(result_of(outcome=Outcome.RUNNING)))
    assert (made.path / ".reserve").stat().st_blocks * 512 >= 32 << 10
    disk = FullDisk(monkeypatch, 0)
    unlink = os.unlink

    def free(path: str, **options: Any) -> None:
        unlink(path, **options)
        if path == ".reserve":
            disk.left = 1

    monkeypatch.setattr(os, "unlink", free)
    made.write_run(to_plain(result_of(exit_code=7)))
    assert made.problems() == ()
    made.close()
    assert load("a-name", home).result.exit_code == 7


def test_a_directory_that_was_removed_during_the_run_is_a_problem_and_no_crash(
    home: Path, result_of: Make
) -> None:
    made = RunDirectory.create(home, new_run_id())
    sink = made.open_sink(("a",), ("b",))
    sink.fast([1, 2])
    for path in made.path.iterdir():
        path.unlink()
    made.path.rmdir()
    made.write_run(to_plain(result_of()))
    made.append_event(event("x"))
    sink.fast([2, 3])
    sink.close()
    assert [row for block in made.blocks() for row in block.rows()] == [(1, 2), (2, 3)]
    assert len(made.problems()) == 2
    made.discard()
    made.close()


@pytest.mark.parametrize("kind", ["file", "writable"])
def test_without_a_directory_the_run_is_kept_in_memory(
    home: Path, kind: str, result_of: Make
) -> None:
    if kind == "file":
        home.write_text("in the way")
    else:
        home.mkdir()
        home.chmod(0o777)
    fds = open_fds()
    made = open_directory(home, "0123456789ab", "mine")
    assert isinstance(made, MemoryDirectory)
    assert (made.run_id, made.name, made.path) == ("0123456789ab", "mine", None)
    assert len(made.problems()) == 1
    assert made.problems()[0].startswith("nothing is kept: ")
    assert str(home) in made.problems()[0]
    assert made.output_paths() is None
    sink = made.open_sink(("a",), ("b",))
    sink.fast([1, 2])
    sink.slow([1, 3])
    sink.close()
    made.write_run(to_plain(result_of()))
    made.write_groups([Path("/a")])
    made.append_event(event("started"))
    assert [list(block.rows()) for block in made.blocks()] == [[(1, 2)], [(1, 3)]]
    assert [found.kind for found in made.events()] == ["started"]
    made.close()
    assert open_fds() == fds


def test_a_run_without_a_directory_gets_a_name(home: Path) -> None:
    home.write_text("in the way")
    assert open_directory(home, new_run_id(), None).name


def test_what_cannot_be_made_is_said_with_a_remedy(home: Path) -> None:
    home.write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot make a run directory in .*home: ") as caught:
        RunDirectory.create(home, new_run_id())
    assert "SANDBOX_HOME" in (caught.value.hint or "")


@pytest.mark.parametrize("step", ["open_child", "hold", "set_room_aside"])
def test_whatever_fails_while_it_is_made_nothing_is_left(
    home: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunDirectory.create(home, "aaaaaaaaaaaa", "first").close()
    fds = open_fds()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(directory_module, step, fail)
    made = open_directory(home, "bbbbbbbbbbbb", "second")
    if step == "set_room_aside":
        assert isinstance(made, RunDirectory)  # it is only a precaution
    else:
        assert made.problems()[0].endswith("No space left on device")
        assert [path.name for path in (home / "runs").iterdir()] == ["aaaaaaaaaaaa"]
    made.close()
    assert open_fds() == fds


def test_a_full_disk_at_the_claim_of_the_name_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox.store import names

    fds = open_fds()

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(names, "write_all", fail)
    made = open_directory(home, "bbbbbbbbbbbb", "second")
    assert isinstance(made, MemoryDirectory)
    assert list((home / "runs").iterdir()) == []
    assert list((home / "names").iterdir()) == []
    assert open_fds() == fds


def test_samples_that_filled_their_room_are_a_problem_and_an_event(home: Path) -> None:
    made = RunDirectory.create(home, new_run_id())
    sink = made.open_sink(("cpu_usage_usec",), ("processes",), cap_bytes=4_000)
    for tick in range(5_000):
        sink.fast([tick * 10_000_000, tick * tick])
    sink.close()
    assert "one of" in made.problems()[0]
    assert {found.kind for found in made.events()} == {"thinned"}
    assert next(iter(made.events())).detail == {"stride": 2}
    made.close()
