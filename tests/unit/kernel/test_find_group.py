"""Finding any group by its path: on hosts made of directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.find_group import find_group
from sandbox.kernel.roots import Roots

CONTAINER = "0123456789abcdef" * 4
V2_MOUNTS = "30 24 0:24 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 24 0:30 / /sys/fs/cgroup/memory rw - cgroup memory rw,memory\n"
    "32 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cpu rw,cpu,cpuacct\n"
    "33 24 0:32 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
    "34 24 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


class FakeHost:
    """Mounts and groups as directories."""

    def __init__(self, base: Path, mounts: str) -> None:
        self.roots = Roots(cgroup=base / "cgroup", proc=base / "proc", sys=base / "sys")
        own = self.roots.proc / "self"
        own.mkdir(parents=True)
        (own / "mountinfo").write_text(mounts)
        (own / "cgroup").write_text("0::/\n")

    def group(self, name: str, *pids: int) -> Path:
        directory = self.roots.cgroup / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        (directory / "cgroup.events").write_text(f"populated {int(bool(pids))}\n")
        return directory

    def process(self, pid: int, groups: str) -> None:
        directory = self.roots.proc / str(pid)
        directory.mkdir()
        (directory / "cgroup").write_text(groups)


@pytest.fixture
def unified(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path, V2_MOUNTS)


@pytest.fixture
def hybrid(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path, V1_MOUNTS)


def test_a_service_is_found_below_the_hierarchy_and_as_a_directory(unified: FakeHost) -> None:
    group = unified.group("system.slice/ssh.service", 5)

    for asked in ("system.slice/ssh.service", "/system.slice/ssh.service", f"{group}", f"{group}/"):
        found = find_group(asked, unified.roots)

        assert (found.groups.v2, dict(found.groups.v1)) == (group, {})
        assert found.name == "ssh.service"
        assert found.id == f"{group.stat().st_ino:012x}"


def test_a_container_has_its_own_id(unified: FakeHost) -> None:
    unified.group(f"system.slice/docker-{CONTAINER}.scope", 5)

    found = find_group(f"/system.slice/docker-{CONTAINER}.scope", unified.roots)

    assert (found.id, found.name) == (CONTAINER, "docker-0123456789ab.scope")


def test_on_v1_the_path_is_looked_for_in_every_hierarchy(hybrid: FakeHost) -> None:
    memory = hybrid.group(f"memory/docker/{CONTAINER}", 5)
    cpu = hybrid.group(f"cpu,cpuacct/docker/{CONTAINER}", 5)
    hybrid.group(f"systemd/docker/{CONTAINER}", 5)
    hybrid.process(5, "0::/\n")

    for asked in (f"/docker/{CONTAINER}", str(memory), str(cpu)):
        found = find_group(asked, hybrid.roots)

        assert dict(found.groups.v1) == {"memory": memory, "cpu": cpu, "cpuacct": cpu}
        assert found.groups.v2 is None


def test_elsewhere_in_another_hierarchy_it_is_found_by_a_process(hybrid: FakeHost) -> None:
    memory = hybrid.group("memory/jobs/job-7/box")
    hybrid.group("memory/jobs/job-7/box/inner", 5)
    cpu = hybrid.group("cpu,cpuacct/box/inner", 5).parent
    hybrid.group("cpu,cpuacct/box")
    unified = hybrid.group("unified/box", 5)
    hybrid.process(5, "4:memory:/jobs/job-7/box/inner\n2:cpu,cpuacct:/box/inner\n0::/box\n")

    for asked in (str(memory), "jobs/job-7/box", str(unified)):
        found = find_group(asked, hybrid.roots)

        assert dict(found.groups.v1) == {"memory": memory, "cpu": cpu, "cpuacct": cpu}
        assert found.groups.v2 == unified


def test_a_larger_group_elsewhere_is_not_taken_for_it(hybrid: FakeHost) -> None:
    memory = hybrid.group("memory/ssh.service", 5)
    hybrid.group("cpu,cpuacct", 5)
    hybrid.process(5, "4:memory:/ssh.service\n2:cpu,cpuacct:/\n0::/\n")

    found = find_group("ssh.service", hybrid.roots)

    assert dict(found.groups.v1) == {"memory": memory}


def test_an_empty_v2_side_is_not_taken_for_its_container(hybrid: FakeHost) -> None:
    hybrid.group(f"memory/docker/{CONTAINER}", 5)
    hybrid.group(f"unified/docker/{CONTAINER}")
    hybrid.process(5, "4:memory:/docker\n0::/\n")

    assert find_group(f"docker/{CONTAINER}", hybrid.roots).groups.v2 is None


@pytest.mark.parametrize("asked", ["nix", "/nix", "../..", "system.slice/../nix", "/etc", ""])
def test_what_is_no_group_is_refused(unified: FakeHost, asked: str) -> None:
    unified.group("system.slice/ssh.service", 5)

    with pytest.raises(KernelError, match="there is no cgroup") as caught:
        find_group(asked, unified.roots)

    assert caught.value.hint is not None


def test_the_root_group_is_the_whole_host(unified: FakeHost) -> None:
    unified.group(".", 1)

    assert find_group("/", unified.roots).name == "/"
