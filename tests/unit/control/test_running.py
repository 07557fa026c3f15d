"""What runs now, by locks and groups: on a host made of directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.control.running import find_running, running_sandboxes
from sandbox.errors import StoreError
from sandbox.records.host import Mode
from sandbox.records.result import Outcome
from sandbox.records.stats import State
from sandbox.store.locks import LOCK

FIRST_ID, SECOND_ID, THIRD_ID = "aaaa00000001", "aaaa00000002", "bbbb00000003"
HYBRID_MOUNTS = (
    "31 24 0:30 / /sys/fs/cgroup/memory rw - cgroup memory rw,memory\n"
    "32 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cpu rw,cpu,cpuacct\n"
    "33 24 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def test_only_runs_whose_supervisor_lives_are_running(host: Any, home: Path, make_run: Any) -> None:
    make_run(FIRST_ID, "alive")
    make_run(SECOND_ID, "lost").close()
    make_run(THIRD_ID, "over", outcome=Outcome.EXITED, exit_code=0)

    (found,) = running_sandboxes(home, host.roots)

    assert (found.id, found.name, found.state) == (FIRST_ID, "alive", State.RUNNING)
    assert found.directory == home / "runs" / FIRST_ID
    assert found.started_ns == 10
    assert found.started_utc_ns == 1_000
    assert found.result is not None


def test_a_run_that_has_not_written_its_record_is_created(
    host: Any, home: Path, make_run: Any
) -> None:
    make_run(FIRST_ID, "early", written=False)

    (found,) = running_sandboxes(home, host.roots)

    assert (found.state, found.name, found.called) == (State.CREATED, "", FIRST_ID)
    assert found.created_utc_ns == (home / "runs" / FIRST_ID / LOCK).stat().st_mtime_ns


def test_a_frozen_group_is_a_paused_sandbox(host: Any, home: Path, make_run: Any) -> None:
    group = host.group(f"run-{FIRST_ID}", frozen=True, pids="7\n")
    inner = host.group(f"run-{FIRST_ID}/main", pids="7\n")
    make_run(FIRST_ID, "ice", (group, inner))

    (found,) = running_sandboxes(home, host.roots)

    assert found.state is State.PAUSED
    assert (found.v2, dict(found.v1)) == (group, {})


def test_hybrid_groups_are_told_by_controller(host: Any, home: Path, make_run: Any) -> None:
    host.mount(HYBRID_MOUNTS, "2:memory:/job\n1:cpu,cpuacct:/\n0::/\n")
    tops = [
        host.group(name)
        for name in (
            f"memory/job/run-{FIRST_ID}",
            f"cpu,cpuacct/run-{FIRST_ID}",
            f"unified/run-{FIRST_ID}",
        )
    ]
    make_run(FIRST_ID, "both", tuple(path for top in tops for path in (top, top / "main")))

    (found,) = running_sandboxes(home, host.roots)

    assert found.v2 == tops[2]
    assert found.v1 == {"memory": tops[0], "cpu": tops[1], "cpuacct": tops[1]}


def test_the_supervisor_is_who_holds_the_lock(host: Any, home: Path, make_run: Any) -> None:
    make_run(FIRST_ID, "kept")
    lock = (home / "runs" / FIRST_ID / LOCK).stat()
    device = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}"
    (host.roots.proc / "locks").write_text(
        f"1: FLOCK  ADVISORY  WRITE 11 00:01:{lock.st_ino} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 4711 {device}:{lock.st_ino} 0 EOF\n"
        f"3: POSIX  ADVISORY  WRITE 13 {device}:{lock.st_ino} 0 EOF\n"
    )

    assert running_sandboxes(home, host.roots)[0].supervisor_pid == 4711


def test_a_layered_file_system_hides_the_device_but_not_the_file(
    host: Any, home: Path, make_run: Any
) -> None:
    make_run(FIRST_ID, "kept")
    lock = (home / "runs" / FIRST_ID / LOCK).stat()
    (host.roots.proc / "locks").write_text(
        f"1: FLOCK  ADVISORY  WRITE 4711 00:fe:{lock.st_ino} 0 EOF\n"
    )

    assert running_sandboxes(home, host.roots)[0].supervisor_pid == 4711


def test_without_a_group_it_is_paused_when_every_process_is_stopped(
    host: Any, home: Path, make_run: Any
) -> None:
    make_run(FIRST_ID, "bare")
    lock = (home / "runs" / FIRST_ID / LOCK).stat()
    (host.roots.proc / "locks").write_text(
        f"1: FLOCK  ADVISORY  WRITE 40 00:fe:{lock.st_ino} 0 EOF\n"
    )
    host.process(40, parent=1, name="sandbox")
    host.process(41, parent=40, name="sandbox-keeper")
    host.process(42, parent=41, state="T")
    host.process(43, parent=41, state="Z")
    assert running_sandboxes(home, host.roots)[0].state is State.PAUSED

    host.process(44, parent=42, state="R")

    assert running_sandboxes(home, host.roots)[0].state is State.RUNNING


def test_groups_that_no_run_directory_knows_are_shown_with_their_owner(
    host: Any, home: Path
) -> None:
    host.group(f"user.slice/run-{THIRD_ID}", pids="9\n")
    host.group(f"run-{FIRST_ID}")  # nobody is inside: what a crash has left
    host.group("run-not-an-id", pids="3\n")
    host.process(9, parent=1)

    (found,) = running_sandboxes(home, host.roots)

    assert (found.id, found.name, found.called) == (THIRD_ID, "", THIRD_ID)
    assert found.owner == "root" if os.geteuid() == 0 else found.owner
    assert (found.mode, found.directory, found.result) == (Mode.UNIFIED, None, None)
    assert running_sandboxes(home, host.roots, others=False) == []


def test_a_lost_run_of_ours_is_not_taken_for_another_users(
    host: Any, home: Path, make_run: Any
) -> None:
    group = host.group(f"run-{FIRST_ID}", pids="9\n")
    make_run(FIRST_ID, "lost", (group,)).close()

    assert running_sandboxes(home, host.roots) == []


def test_another_users_v1_groups_are_those_of_its_processes(host: Any, home: Path) -> None:
    host.mount(HYBRID_MOUNTS, "2:memory:/\n1:cpu,cpuacct:/\n0::/\n")
    memory = host.group(f"memory/deep/run-{THIRD_ID}")
    host.group(f"unified/run-{THIRD_ID}", pids="9\n")
    host.process(9, parent=1)
    (host.roots.proc / "9" / "cgroup").write_text(
        f"2:memory:/deep/run-{THIRD_ID}/main\n1:cpu,cpuacct:/\n0::/run-{THIRD_ID}/main\n"
    )

    (found,) = running_sandboxes(home, host.roots)

    assert found.v1 == {"memory": memory}
    assert found.mode is Mode.HYBRID


def test_no_home_at_all_is_no_sandbox(host: Any, home: Path) -> None:
    assert running_sandboxes(home, host.roots) == []


# --- finding one


@pytest.fixture
def three(host: Any, home: Path, make_run: Any) -> Any:
    make_run(FIRST_ID, "one")
    make_run(SECOND_ID, "two")
    make_run(THIRD_ID, "aaaa")  # a name may look like the beginning of an id
    return running_sandboxes(home, host.roots)


@pytest.mark.parametrize(
    ("asked", "run_id"),
    [
        (FIRST_ID, FIRST_ID),
        ("two", SECOND_ID),
        ("aaaa", THIRD_ID),
        ("bb", THIRD_ID),
        ("aaaa00000001", FIRST_ID),
    ],
)
def test_a_sandbox_is_found_by_id_name_and_beginning(three: Any, asked: str, run_id: str) -> None:
    assert find_running(asked, three).id == run_id


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("aaaa0", "`aaaa0` is the beginning of 2 sandboxes: aaaa00000001, aaaa00000002"),
        ("zz", "no such running sandbox: zz"),
        ("", "no such running sandbox: "),
        ("on", "no such running sandbox: on"),
    ],
)
def test_what_is_not_found_or_not_clear_is_one_error(three: Any, asked: str, words: str) -> None:
    with pytest.raises(StoreError) as caught:
        find_running(asked, three)

    assert str(caught.value) == words
    assert caught.value.hint
