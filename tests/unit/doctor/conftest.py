"""Hosts made of captured files, and what the doctor finds on them."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.doctor.diagnosis import diagnose
from sandbox.doctor.facts import Facts, gather
from sandbox.kernel.features import Calls
from sandbox.kernel.roots import Roots
from sandbox.records.finding import Finding, State

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernel"
CALLS = Calls(release="6.12.9-amd64", clone3=True, pidfd=True, landlock_abi=6)
ALICE = 1000


class Host:
    """A host whose files a test can change before it looks."""

    def __init__(self, base: Path, kind: str, patch: pytest.MonkeyPatch) -> None:
        self.base = base
        self._patch = patch
        self.become(0)
        self.roots = Roots(
            cgroup=base / "sys/fs/cgroup", proc=base / "proc", sys=base / "sys", top=base
        )
        shutil.copytree(FIXTURES / kind / "proc", self.roots.proc)
        if (FIXTURES / kind / "cgroup").exists():
            shutil.copytree(FIXTURES / kind / "cgroup", self.roots.cgroup)
        self.calls = CALLS
        self.environ: dict[str, str] = {}
        self.home = base / "home"
        self._sockets: list[socket.socket] = []
        self.write("sys/devices/system/cpu/online", "0-1")
        shell = self.write("bin/sh", "")
        shell.chmod(0o755)

    def write(self, path: str, text: str) -> Path:
        file = self.base / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return file

    def remove(self, path: str) -> None:
        target = self.base / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.base / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def boot_systemd(self, version: int = 252) -> None:
        (self.base / "run/systemd/system").mkdir(parents=True)
        self.write(f"usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-{version}.so", "")

    def log_in(self, owner: int, controllers: str = "cpu memory pids") -> Path:
        """Make the runtime directory and the group of alice's manager."""
        directory = self.base / f"run/user/{ALICE}"
        (directory / "systemd").mkdir(parents=True)
        listener = socket.socket(socket.AF_UNIX)
        self._sockets.append(listener)
        here = Path.cwd()
        os.chdir(directory)  # the whole path may be too long for a socket's name
        try:
            listener.bind("systemd/private")
        finally:
            os.chdir(here)
        os.chown(directory, owner, owner)
        group = f"sys/fs/cgroup/user.slice/user-{ALICE}.slice/user@{ALICE}.service"
        self.write(f"{group}/cgroup.controllers", controllers)
        return directory

    def become(self, uid: int) -> None:
        """Make everybody believe that we are that user; root until then."""
        self._patch.setattr(os, "geteuid", lambda: uid)

    def shut(self) -> None:
        """Mount the cgroups read-only; to root the stand-ins would stay writable."""
        self.edit(
            "proc/self/mountinfo", "cgroup rw,relatime - cgroup2", "cgroup ro,relatime - cgroup2"
        )
        self.forbid()

    def forbid(self) -> None:
        """Let nobody write to the cgroups, whoever the tests run as."""
        really = os.access

        def may(path: str | Path, mode: int) -> bool:
            is_shut = mode & os.W_OK and self.roots.cgroup in (Path(path), *Path(path).parents)
            return not is_shut and really(path, mode)

        self._patch.setattr(os, "access", may)

    def facts(self) -> Facts:
        return gather(self.roots, home=self.home, environ=self.environ, calls=self.calls)

    def find(self, name: str, facts: Facts | None = None) -> Finding:
        """Return one finding, of this host as it is or of other facts."""
        findings = diagnose(facts or self.facts(), (name,)).findings
        return next(finding for finding in findings if finding.name == name)

    def close(self) -> None:
        for listener in self._sockets:
            listener.close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """The captured machine with cgroup v2 alone, as root: two CPUs, 4 GiB, no swap."""
    machine = Host(tmp_path / "host", "v2", monkeypatch)
    yield machine
    machine.close()


@pytest.fixture
def hybrid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """The captured machine with cgroup v1 and v2, as root."""
    machine = Host(tmp_path / "hybrid", "hybrid", monkeypatch)
    for controller in ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids"):
        for own in ("", "jobs/job-7") if controller == "memory" else ("",):
            machine.write(f"sys/fs/cgroup/{controller}/{own}/cgroup.procs", "1")
    machine.write("sys/fs/cgroup/unified/cgroup.procs", "1")
    yield machine
    machine.close()


@pytest.fixture
def judge() -> Callable[..., None]:
    """`judge(finding, "warn", "why", "fix")`: its state, words of its reason and of its fix."""

    def check(finding: Finding, state: str, why: str, fix: str | None = None) -> None:
        assert (finding.state, finding.why) == (State(state), finding.why)
        assert why in finding.why
        if fix is None:
            assert finding.fix is None
        else:
            assert finding.fix is not None
            assert fix in finding.fix

    return check
