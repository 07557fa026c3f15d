"""A host made of directories, with runs in it that are live because this process locks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.roots import Roots
from sandbox.records.codec import fields_of
from sandbox.records.host import Host, Mode
from sandbox.records.result import Outcome, RunResult
from sandbox.store.directory import RunDirectory

UNIFIED_MOUNTS = "30 24 0:24 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


class FakeHost:
    """A host made of directories: /proc and the cgroup file systems."""

    def __init__(self, base: Path) -> None:
        self.roots = Roots(cgroup=base / "cgroup", proc=base / "proc", sys=base / "sys")
        self.mount(UNIFIED_MOUNTS, "0::/\n")
        self.group(".")

    def mount(self, mounts: str, groups: str) -> None:
        own = self.roots.proc / "self"
        own.mkdir(parents=True, exist_ok=True)
        (own / "mountinfo").write_text(mounts)
        (own / "cgroup").write_text(groups)

    def group(self, name: str, *, frozen: bool = False, pids: str = "") -> Path:
        directory = self.roots.cgroup / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").write_text(pids)
        (directory / "cgroup.freeze").write_text(f"{int(frozen)}\n")
        (directory / "cgroup.events").write_text(
            f"populated {int(bool(pids))}\nfrozen {int(frozen)}\n"
        )
        return directory

    def process(self, pid: int, *, parent: int, state: str = "S", name: str = "sleep") -> None:
        directory = self.roots.proc / str(pid)
        (directory / "task" / str(pid)).mkdir(parents=True)
        (directory / "task" / str(pid) / "children").write_text("")
        rest = " ".join(["0"] * 17 + ["500", "0", "0", "0"])
        (directory / "stat").write_text(f"{pid} ({name}) {state} {parent} {rest}\n")
        children = self.roots.proc / str(parent) / "task" / str(parent) / "children"
        if children.exists():
            children.write_text(f"{children.read_text()}{pid} ")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "host")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def make_result(**fields: Any) -> RunResult:
    """Return a result that is whole but small."""
    host = Host(
        mode=Mode.UNIFIED,
        mode_reason="a test",
        cpus_online=(0, 1),
        cpus_allowed=(0, 1),
        memory_total_bytes=8 << 30,
        swap_total_bytes=0,
        kernel="6",
        machine="m",
    )
    values: dict[str, Any] = {
        "run_id": "aaaa00000001",
        "name": "a-name",
        "command": ("sleep", "60"),
        "spec": {},
        "host": host,
        "outcome": Outcome.RUNNING,
        "exit_code": None,
        "started_utc_ns": 1_000,
        "started_ns": 10,
    }
    return RunResult(**(values | fields))


RunMaker = Callable[..., RunDirectory]


@pytest.fixture
def make_run(home: Path) -> Iterator[RunMaker]:
    """Make a run directory that is locked until the test ends, or until its `close`."""
    made: list[RunDirectory] = []

    def make(
        run_id: str,
        name: str,
        groups: tuple[Path, ...] = (),
        *,
        written: bool = True,
        **fields: Any,
    ) -> RunDirectory:
        directory = RunDirectory.create(home, run_id, name)
        made.append(directory)
        directory.write_groups(groups)
        if written:
            result = make_result(run_id=run_id, name=name, directory=str(directory.path), **fields)
            directory.write_run(fields_of(result))
        return directory

    yield make
    for directory in made:
        directory.close()
