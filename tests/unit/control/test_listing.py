"""The list of sandboxes: what each row says, and where it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sandbox.control.inspecting import inspect
from sandbox.control.listing import list_sandboxes
from sandbox.control.naming import Names
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import Outcome
from sandbox.records.stats import State
from sandbox.report.inspection import inspection

FIRST_ID, SECOND_ID, THIRD_ID = "aaaa00000001", "aaaa00000002", "bbbb00000003"
MIB = 1 << 20
HYBRID_MOUNTS = (
    "31 24 0:30 / /sys/fs/cgroup/memory rw - cgroup memory rw,memory\n"
    "32 24 0:31 / /sys/fs/cgroup/cpu rw - cgroup cpu rw,cpu\n"
    "33 24 0:32 / /sys/fs/cgroup/pids rw - cgroup pids rw,pids\n"
    "34 24 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def fill(group: Path, **files: str) -> None:
    for name, text in files.items():
        (group / name.replace("__", ".")).write_text(f"{text}\n")


def unified_run(host: Any, make_run: Any) -> Path:
    group: Path = host.group(f"run-{FIRST_ID}", pids="7\n")
    fill(
        group,
        cpu__max="50000 100000",
        memory__max=str(64 * MIB),
        memory__swap__max="0",
        pids__max="77",
        pids__current="3",
    )
    # What was recorded at the start is older than what the kernel says.
    report = LimitReport(
        name="memory", asked="1 GiB", state=LimitState.ENFORCED, value="1073741824"
    )
    make_run(FIRST_ID, "live", (group,), limits=(report,))
    return group


def test_the_limits_of_a_live_run_are_the_kernels(host: Any, home: Path, make_run: Any) -> None:
    group = unified_run(host, make_run)

    (row,) = list_sandboxes(home, host.roots).rows

    assert (row.id, row.name, row.command) == (FIRST_ID, "live", ("sleep", "60"))
    assert (row.cpus_limit, row.memory_limit_bytes, row.pids_limit, row.pids) == (
        0.5,
        64 * MIB,
        77,
        3,
    )
    assert (row.state, row.started_utc_ns, row.cgroup) == (State.RUNNING, 1_000, str(group))


def test_on_a_hybrid_host_they_are_in_three_hierarchies(
    host: Any, home: Path, make_run: Any
) -> None:
    host.mount(HYBRID_MOUNTS, "3:pids:/\n2:memory:/\n1:cpu:/\n0::/\n")
    groups = {name: host.group(f"{name}/run-{FIRST_ID}") for name in ("memory", "cpu", "pids")}
    unified = host.group(f"unified/run-{FIRST_ID}", pids="7\n")
    fill(groups["cpu"], cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    fill(
        groups["memory"],
        memory__stat=f"hierarchical_memory_limit {MIB}\nhierarchical_memsw_limit {2 * MIB}",
    )
    fill(groups["pids"], pids__max="max", pids__current="5")
    make_run(FIRST_ID, "live", (*groups.values(), unified))

    (row,) = list_sandboxes(home, host.roots).rows
    view = inspection(inspect("live", Names(home, host.roots)))

    assert (row.cpus_limit, row.memory_limit_bytes, row.pids_limit, row.pids) == (1.5, MIB, None, 5)
    assert view["HostConfig"]["MemorySwap"] == 2 * MIB
    assert view["Cgroups"] == {
        "v2": str(unified),
        **{name: str(path) for name, path in groups.items()},
    }


def test_ended_and_lost_ones_are_listed_when_asked_for(
    host: Any, home: Path, make_run: Any
) -> None:
    make_run(FIRST_ID, "live")
    make_run(
        SECOND_ID, "over", outcome=Outcome.EXITED, exit_code=3, wall_ns=5, started_utc_ns=1_000
    ).close()
    make_run(THIRD_ID, "lost").close()
    (home / "runs" / "cccc00000004").mkdir()

    for age, run_id in enumerate((THIRD_ID, SECOND_ID, FIRST_ID)):
        os.utime(home / "runs" / run_id / "lock", ns=(0, 1_000_000_000 - age))

    assert [row.name for row in list_sandboxes(home, host.roots).rows] == ["live"]
    listing = list_sandboxes(home, host.roots, ended=True)

    rows = {row.name: row for row in listing.rows}
    assert [row.name for row in listing.rows] == ["lost", "over", "live"]  # newest first
    assert (rows["over"].state, rows["over"].exit_code) == (State.EXITED, 3)
    assert rows["over"].finished_utc_ns == 1_005
    assert (rows["lost"].state, rows["lost"].exit_code) == (State.DEAD, None)
    assert listing.problems == (
        f"cccc00000004: there is no run.json in {home / 'runs' / 'cccc00000004'}",
    )


def test_one_that_is_just_being_made_is_listed_only_with_all(
    host: Any, home: Path, make_run: Any
) -> None:
    make_run(FIRST_ID, "early", written=False)

    assert list_sandboxes(home, host.roots).rows == ()
    (row,) = list_sandboxes(home, host.roots, ended=True).rows
    assert row.state is State.CREATED


def test_without_a_group_the_record_tells_the_limits(host: Any, home: Path, make_run: Any) -> None:
    limits = (
        LimitReport(name="memory", asked="64 MiB", state=LimitState.APPROXIMATED),
        LimitReport(name="cpuset_cpus", asked="1", state=LimitState.APPROXIMATED, value="1"),
    )
    make_run(FIRST_ID, "bare", limits=limits, spec={"limits": {"memory_bytes": 64 * MIB}})

    (row,) = list_sandboxes(home, host.roots).rows
    view = inspection(inspect("bare", Names(home, host.roots)))

    assert (row.memory_limit_bytes, row.cpus_limit, row.pids_limit) == (64 * MIB, 1.0, None)
    assert view["HostConfig"]["CpusetCpus"] == "1"
    assert view["Cgroups"] == {}


def test_a_view_has_dockers_fields_and_the_whole_record(
    host: Any, home: Path, make_run: Any
) -> None:
    unified_run(host, make_run)

    view = inspection(inspect("live", Names(home, host.roots)))

    assert (view["Id"], view["Name"], view["Path"], view["Args"]) == (
        FIRST_ID,
        "live",
        "sleep",
        ["60"],
    )
    assert view["HostConfig"] == {
        "NanoCpus": 500_000_000,
        "CpusetCpus": "",
        "Memory": 64 * MIB,
        "MemorySwap": 64 * MIB,
        "PidsLimit": 77,
    }
    assert view["RunDirectory"] == str(home / "runs" / FIRST_ID)
    assert view["Run"]["run_id"] == FIRST_ID


def test_the_main_process_is_the_supervisors_child_inside(
    host: Any, home: Path, make_run: Any
) -> None:
    group = host.group(f"run-{FIRST_ID}", pids="43\n42\n")
    make_run(FIRST_ID, "live", (group,))
    lock = (home / "runs" / FIRST_ID / "lock").stat()
    (host.roots.proc / "locks").write_text(
        f"1: FLOCK  ADVISORY  WRITE 40 00:fe:{lock.st_ino} 0 EOF\n"
    )
    host.process(42, parent=40)
    host.process(43, parent=42)

    view = inspection(inspect("live", Names(home, host.roots)))

    assert (view["State"]["Pid"], view["State"]["SupervisorPid"]) == (42, 40)
