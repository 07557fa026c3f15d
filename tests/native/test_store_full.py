"""A disk that is really full, and a limit on file sizes: the record suffers, the run does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.records.codec import to_plain
from sandbox.records.host import Host, Mode
from sandbox.records.result import Event, Outcome, RunResult
from sandbox.store.directory import RunDirectory, new_run_id, open_directory
from sandbox.store.memory import MemoryDirectory
from sandbox.store.reading import list_runs, load

ROOM_BYTES = 1 << 20
TICK_NS = 10_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB with 64 inodes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    place = tmp_path / "disk"
    place.mkdir()
    options = f"size={ROOM_BYTES},nr_inodes=64,mode=0700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True, timeout=10)
        assert not place.is_mount()


def fill(disk: Path, *, but_bytes: int = 0) -> Path:
    """Fill the disk with a file; leave about so many bytes."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                if file.write(b"x" * 65_536) < 65_536:
                    break
            except OSError:
                break
        file.truncate(max(path.stat().st_size - but_bytes, 0))
    return path


def result_of(made: RunDirectory, outcome: Outcome) -> RunResult:
    """Return a result of usual size."""
    return RunResult(
        run_id=made.run_id,
        name=made.name,
        command=("python", "infer.py"),
        spec={"padding": ["x" * 100] * 40},
        host=Host(
            mode=Mode.HYBRID,
            mode_reason="a test",
            cpus_online=(0,),
            cpus_allowed=(0,),
            memory_total_bytes=1,
            swap_total_bytes=0,
            kernel="6",
            machine="m",
        ),
        outcome=outcome,
        exit_code=0 if outcome is Outcome.EXITED else None,
        started_utc_ns=1,
        started_ns=1,
        directory=str(made.path),
    )


def row(tick: int) -> list[int]:
    """Return a row that cannot be compressed away."""
    noise = (tick * 2_654_435_761) % (1 << 32)
    return [tick * TICK_NS + noise % 90_000, noise << 20, noise * noise % (1 << 50)]


def test_a_disk_that_gets_full_during_a_run_costs_samples_of_the_file_only(
    small_disk: Path,
) -> None:
    home = small_disk / "home"
    made = open_directory(home, new_run_id(), "mine")
    assert isinstance(made, RunDirectory)
    made.write_groups([Path("/sys/fs/cgroup/x")])
    made.write_run(to_plain(result_of(made, Outcome.RUNNING)))
    made.append_event(Event(time_ns=1, utc_ns=1, kind="started"))
    sink = made.open_sink(("cpu_usage_usec", "memory_current_bytes"), ("processes",))
    for tick in range(2_000):
        sink.fast(row(tick))
    fill(small_disk)
    for tick in range(2_000, 6_000):
        sink.fast(row(tick))
        if tick % 1_000 == 0:
            made.append_event(Event(time_ns=tick, utc_ns=1, kind="mark"))
            made.write_run(to_plain(result_of(made, Outcome.RUNNING)))
    sink.close()
    # All of it is there for the summary, and the end of the run finds room on the full disk.
    assert [list(found) for block in made.blocks() for found in block.rows()] == [
        row(tick) for tick in range(6_000)
    ]
    made.write_run(to_plain(result_of(made, Outcome.EXITED)))
    problems = made.problems()
    made.close()

    assert any("samples could not be written: No space left on device" in text for text in problems)
    assert len(problems) <= 3
    found = load("mine", home)
    assert found.result.outcome is Outcome.EXITED
    kept = [list(one) for block in found.blocks() for one in block.rows()]
    assert kept == [row(tick) for tick in range(len(kept))]
    assert len(kept) >= 1_900
    assert next(found.events()).kind == "started"
    assert all(event.kind in {"started", "mark"} for event in found.events())


def test_a_disk_that_gets_room_again_gets_all_samples(small_disk: Path) -> None:
    made = RunDirectory.create(small_disk / "home", new_run_id(), "mine")
    sink = made.open_sink(("cpu_usage_usec", "memory_current_bytes"), ("processes",))
    for tick in range(1_000):
        sink.fast(row(tick))
    filler = fill(small_disk)
    for tick in range(1_000, 3_000):
        sink.fast(row(tick))
    filler.unlink()
    for tick in range(3_000, 4_000):
        sink.fast(row(tick))
    sink.close()
    made.write_run(to_plain(result_of(made, Outcome.EXITED)))
    assert [text.split("/")[-1] for text in made.problems()] == [
        "samples could not be written for a while: No space left on device"
    ]
    made.close()
    found = load("mine", small_disk / "home")
    assert [list(one) for block in found.blocks() for one in block.rows()] == [
        row(tick) for tick in range(4_000)
    ]


@pytest.mark.parametrize("but_bytes", [0, 4_096, 12_288, 65_536])
def test_on_a_disk_that_is_full_already_the_run_is_kept_as_far_as_there_is_room(
    small_disk: Path, but_bytes: int
) -> None:
    home = small_disk / "home"
    home.mkdir(mode=0o700)
    fill(small_disk, but_bytes=but_bytes)
    made = open_directory(home, new_run_id(), "mine")
    sink = made.open_sink(("cpu_usage_usec", "memory_current_bytes"), ("processes",))
    for tick in range(1_000):
        sink.fast(row(tick))
    sink.close()
    assert [list(found) for block in made.blocks() for found in block.rows()] == [
        row(tick) for tick in range(1_000)
    ]
    assert (made.problems() != ()) == (but_bytes < 65_536)
    made.close()
    list_runs(home)


def test_without_a_free_inode_the_run_is_kept_in_memory(small_disk: Path) -> None:
    home = small_disk / "home"
    RunDirectory.create(home, "aaaaaaaaaaaa", "first").close()
    for number in range(64):
        try:
            (small_disk / f"filler-{number}").touch()
        except OSError:
            break
    made = open_directory(home, "bbbbbbbbbbbb", "second")
    assert isinstance(made, MemoryDirectory)
    assert "No space left on device" in made.problems()[0]
    assert [entry.run_id for entry in list_runs(home)] == ["aaaaaaaaaaaa"]
    made.close()


def test_a_read_only_home_is_a_run_in_memory_that_says_why(small_disk: Path) -> None:
    home = small_disk / "home"
    RunDirectory.create(home, "aaaaaaaaaaaa", "first").close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True, timeout=10)
    made = open_directory(home, "bbbbbbbbbbbb", "second")
    assert isinstance(made, MemoryDirectory)
    assert "Read-only file system" in made.problems()[0]
    assert [entry.run_id for entry in list_runs(home)] == ["aaaaaaaaaaaa"]
    made.close()


SMALL_FILES = """
import json, random, resource, sys
from pathlib import Path
from sandbox.records.result import Event
from sandbox.store.directory import RunDirectory
made = RunDirectory.create(Path(sys.argv[1]), "0123456789ab", "small")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sink = made.open_sink(("cpu_usage_usec",), ("processes",))
dice = random.Random(1)
expected = [[tick * 10_000_000, dice.getrandbits(40)] for tick in range(5_000)]
for row in expected:
    sink.fast(row)
sink.close()
for number in range(200):
    made.append_event(Event(time_ns=number, utc_ns=1, kind="mark"))
made.write_run({"outcome": "exited", "padding": "x" * 9_000})
rows = [list(row) for block in made.blocks() for row in block.rows()]
print(json.dumps({"whole": rows == expected, "problems": made.problems()}))
made.close()
"""


def test_a_limit_on_file_sizes_neither_kills_the_supervisor_nor_loses_a_sample(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, tmp_path / "home"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert said["whole"]
    assert [text.split("/")[-1] for text in said["problems"]] == [
        "events.jsonl could not be written: File too large",
        "run.json could not be written: File too large",
        "samples could not be written: File too large",
    ]
