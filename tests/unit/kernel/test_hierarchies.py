"""Where our groups are, from `/proc/self/cgroup` and mountinfo of real and of made-up hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.kernel.hierarchies import find_hierarchies, why_invisible
from sandbox.kernel.roots import Roots

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernel"
V2_MOUNT = "30 24 0:24 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


class FakeHost:
    """A host made of directories: `/proc/self` and a cgroup file system."""

    def __init__(self, base: Path) -> None:
        self.roots = Roots(cgroup=base / "cgroup", proc=base / "proc", sys=base / "sys")
        (self.roots.proc / "self").mkdir(parents=True)
        self.roots.cgroup.mkdir()

    def say(self, groups: str, mounts: str) -> None:
        (self.roots.proc / "self" / "cgroup").write_text(groups)
        (self.roots.proc / "self" / "mountinfo").write_text(mounts)

    def group(self, name: str) -> Path:
        directory = self.roots.cgroup / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").touch()
        return directory


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_a_hybrid_host_has_a_place_in_every_hierarchy(host: FakeHost) -> None:
    proc = FIXTURES / "hybrid" / "proc" / "self"
    host.say((proc / "cgroup").read_text(), (proc / "mountinfo").read_text())
    for name in ("cpu", "memory/jobs/job-7", "pids", "unified"):
        host.group(name)

    found = find_hierarchies(host.roots)

    assert found.v1["cpu"].own == host.roots.cgroup / "cpu"
    assert found.v1["memory"].own == host.roots.cgroup / "memory/jobs/job-7"
    assert found.v1["memory"].mount == host.roots.cgroup / "memory"
    assert found.v2 is not None
    assert found.v2.own == host.roots.cgroup / "unified"
    assert found.v2.writable
    assert found.v1["freezer"].own is None  # its directory is not there
    assert why_invisible(found) is None


def test_a_unified_host_has_one(host: FakeHost) -> None:
    proc = FIXTURES / "v2" / "proc" / "self"
    host.say((proc / "cgroup").read_text(), (proc / "mountinfo").read_text())
    host.group(".")

    found = find_hierarchies(host.roots)

    assert found.v1 == {}
    assert found.v2 is not None
    assert found.v2.own == found.v2.mount == host.roots.cgroup


def test_a_container_that_sees_only_its_own_part_is_at_the_top_of_it(host: FakeHost) -> None:
    # Docker with the host's cgroup namespace: both names are the host's.
    mount = V2_MOUNT.replace(" / /sys", " /docker/4f2a /sys")
    host.say("0::/docker/4f2a/inner\n", mount)
    inner = host.group("inner")

    found = find_hierarchies(host.roots)

    assert found.v2 is not None
    assert found.v2.own == inner


@pytest.mark.parametrize(
    ("group", "root"),
    [
        ("/../../user.slice", "/"),
        ("/", "/docker/4f2a"),
        ("/docker/4f2abc", "/docker/4f2a"),
        ("/", "/.."),
    ],
)
def test_a_group_out_of_the_tree_gets_a_clear_answer(host: FakeHost, group: str, root: str) -> None:
    host.say(f"0::{group}\n", V2_MOUNT.replace(" / /sys", f" {root} /sys"))
    host.group(".")

    found = find_hierarchies(host.roots)

    assert found.v2 is not None
    assert found.v2.own is None
    assert not found.v2.writable
    reason = why_invisible(found)
    assert reason is not None
    assert f"our own group {group} is outside of what is mounted" in reason


def test_a_read_only_mount_is_not_writable_and_says_so(host: FakeHost) -> None:
    host.say("0::/\n", V2_MOUNT.replace("rw,nosuid", "ro,nosuid"))
    host.group(".")

    found = find_hierarchies(host.roots)

    assert found.v2 is not None
    assert found.v2.own == host.roots.cgroup
    assert not found.v2.writable
    assert "read-only" in (found.v2.reason or "")


def test_a_mount_that_is_hidden_by_a_later_one_is_not_used(host: FakeHost) -> None:
    v1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    host.say("1:cpu:/\n0::/own\n", v1 + V2_MOUNT)
    host.group("own")  # what the v2 mount shows: no directory `cpu`

    found = find_hierarchies(host.roots)

    assert found.v2 is not None
    assert found.v2.own == host.roots.cgroup / "own"
    assert found.v1["cpu"].own is None
    assert "another mount may hide it" in (found.v1["cpu"].reason or "")


def test_of_two_mounts_the_one_that_shows_us_is_taken(host: FakeHost, tmp_path: Path) -> None:
    elsewhere = V2_MOUNT.replace(" / /sys/fs/cgroup", f" /other {tmp_path}/elsewhere")
    host.say("0::/own\n", V2_MOUNT + elsewhere)
    own = host.group("own")

    found = find_hierarchies(host.roots)

    assert found.v2 is not None
    assert found.v2.own == own


def test_a_mount_at_another_place_is_found_there(host: FakeHost, tmp_path: Path) -> None:
    host.say("0::/own\n", V2_MOUNT.replace("/sys/fs/cgroup", f"{tmp_path}/else\\040where"))
    own = tmp_path / "else where" / "own"
    own.mkdir(parents=True)
    (own / "cgroup.procs").touch()

    found = find_hierarchies(host.roots)

    assert found.v2 is not None
    assert found.v2.own == own


def test_without_proc_or_mounts_nothing_is_found(host: FakeHost) -> None:
    assert why_invisible(find_hierarchies(host.roots)) == "no cgroup hierarchy is mounted"

    host.say("0::/\n", "22 27 0:21 / /proc rw - proc proc rw\n")

    assert why_invisible(find_hierarchies(host.roots)) == "no cgroup hierarchy is mounted"
