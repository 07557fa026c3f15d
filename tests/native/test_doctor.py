"""`sandbox doctor` on this kernel: what it says is what runs find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.kernel.features import probe_calls
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode

both = pytest.mark.both
Command = Callable[..., Any]


def doctor(cli: Command, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = cli("doctor", "--json", *arguments, timeout=120)
    return done.status, json.loads(done.stdout)


@both
def test_it_agrees_with_where_runs_are_made(cli: Command) -> None:
    status, found = doctor(cli)

    place = find_place(Roots())
    assert found["mode"] == place.mode.value
    assert found["usable"] is (status == 0)
    enforced = {
        finding["name"]
        for finding in found["findings"]
        if finding["name"] in {"cpu", "memory", "pids", "io", "cpuset"} and finding["state"] == "ok"
    }
    assert enforced == set(place.controllers)


def test_root_with_all_controllers_is_usable(
    cli: Command, need_kernel: Callable[[object, str], None]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may make groups everywhere")
    need_kernel({"cpu", "memory", "pids"} <= set(find_place(Roots()).controllers), "a limit lacks")

    assert cli("doctor", "cgroup", "store").status == 0


def test_a_plain_user_without_a_group_is_told_so(plain_user: Command) -> None:
    done = plain_user("python", "-m", "sandbox", "doctor", "--json", "cgroup")

    found = json.loads(done.stdout)
    states = {finding["name"]: finding["state"] for finding in found["findings"]}
    if found["mode"] == Mode.NONE.value:
        assert done.status == 1
        assert states["mode"] == states["cpu"] == states["memory"] == "fail"
    else:
        assert done.status == 0


def test_a_home_that_cannot_be_made_fails(cli: Command) -> None:
    done = cli("doctor", "records", env={"SANDBOX_HOME": "/proc/version/home"})

    assert done.status == 1
    assert "is not a directory" in done.stdout


def test_an_unknown_check_is_a_usage_error(cli: Command) -> None:
    done = cli("doctor", "no-such-check")

    assert done.status == 2
    assert "--list-checks" in done.stderr


def test_what_it_lists_can_be_asked_for(cli: Command) -> None:
    listed = cli("doctor", "--list-checks").stdout.splitlines()
    assert len(listed) > 30

    group, name, *_ = listed[-1].split()
    _, found = doctor(cli, name)

    assert [(one["group"], one["name"]) for one in found["findings"]] == [(group, name)]


def test_nothing_is_written_by_looking(cli: Command, sandbox_home: Any) -> None:
    cli("doctor")

    assert not sandbox_home.exists()


def test_inside_a_sandbox_it_names_the_outer_one(
    cli: Command, need_kernel: Callable[[object, str], None]
) -> None:
    need_kernel(find_place(Roots()).mode is not Mode.NONE, "no group can be made here")
    inner = [sys.executable, "-m", "sandbox", "doctor", "--json", "nested", "outer-limits"]

    done = cli("run", "-q", "--memory", "256m", "--pids-limit", "99", "--", *inner)

    nested, outer = json.loads(done.stdout)["findings"]
    assert "inside run-" in nested["why"]
    assert "256 MiB of memory" in outer["why"]
    assert "99 processes" in outer["why"]


def cpu_time_of(*command: str) -> float:
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=60)
    after = os.times()
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system


def test_it_takes_little_more_than_its_start() -> None:
    """Beside the interpreter's own start, which a slow machine makes dear as well.

    Without the network, whose library alone takes longer to be imported than all the rest.
    """
    groups = ("cgroup", "delegation", "kernel", "tools", "store", "packages", "noise")
    bare = min(cpu_time_of(sys.executable, "-c", "import typer") for _ in range(3))
    whole = min(cpu_time_of(sys.executable, "-m", "sandbox", "doctor", *groups) for _ in range(3))

    assert whole < 6 * max(bare, 0.02)


def test_probing_leaves_no_descriptor_open() -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is needed

    calls = probe_calls()

    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - likewise
    assert calls.release == os.uname().release
