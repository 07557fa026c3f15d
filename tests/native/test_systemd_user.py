"""A real `systemd --user` without a virtual machine: scopes, moves, and what is left.

In a mount and a cgroup namespace of its own a fresh cgroup2 mount makes a hybrid machine look like
a unified one. Controllers are lacking there, so nothing is limited; all else is as on a server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SYSTEMD = Path("/lib/systemd/systemd")
TIMEOUT_SEC = 40
UID = 65534
PROJECT = Path(__file__).parents[2]

# Everything is below a group of the test's own, which becomes the root of the namespace: the
# manager in `manager.service`, we in `session.scope`, and nobody may leave for where root is.
STAGE = f"""
set -e
mount --make-rprivate /
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/systemd/system /run/user/{UID}
mkdir /sys/fs/cgroup/manager.service /sys/fs/cgroup/session.scope
chown -R {UID}:{UID} /run/user/{UID} /sys/fs/cgroup
export XDG_RUNTIME_DIR=/run/user/{UID} HOME=/run/user/{UID}
become="setpriv --reuid={UID} --regid={UID} --clear-groups"
echo 0 >/sys/fs/cgroup/manager.service/cgroup.procs
$become {SYSTEMD} --user --unit=basic.target >/run/log 2>&1 &
manager=$!
echo 0 >/sys/fs/cgroup/session.scope/cgroup.procs
trap 'kill $manager; wait $manager || :' EXIT
for _ in $(seq 400); do
    [ ! -S /run/user/{UID}/systemd/private ] || break
    sleep 0.05
done
$become "$@" || {{ status=$?; cat /run/log >&2; exit $status; }}
"""

PRELUDE = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(PROJECT)!r})
from sandbox.kernel.guard import Guard
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.scope import Scope
from sandbox.kernel.systemd import ByMessage, find_manager, own_group, scope_properties
from sandbox.kernel.v2 import is_populated
from sandbox.kernel.bus import BusError
from sandbox.records.host import Mode

top = Path("/sys/fs/cgroup")
asked = Place(
    mode=Mode.UNIFIED, reason="", v2_top=top, own=top / "session.scope", needs_scope=True
)
manager = find_manager(Roots(), dict(os.environ))
assert manager is not None and manager.sockets[0][0].name == "private", manager

def speak():
    return ByMessage(manager.sockets[0][0], is_bus=False)

def open_scope(unit):
    guard = Guard.start()
    speaker = speak()
    properties = scope_properties("a test", slice_name=None, around=OuterLimits())
    speaker.start_scope(unit, guard.pid, properties, lambda: None)
    scope = Scope(unit, guard, speaker)
    directory, place = scope.settle(asked, manager)
    return scope, directory, place

def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)

def paused():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid
"""

Act = Callable[[str], str]


@pytest.fixture
def stage(need_kernel: Callable[[object, str], None]) -> Iterator[Act]:
    """Run a script as a plain user beside a user manager, in namespaces of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make namespaces")
    need_kernel(SYSTEMD.exists() and shutil.which("setpriv"), "systemd is not installed")
    unified = Path("/sys/fs/cgroup/unified")
    need_kernel(unified.exists(), "cgroup v2 is not mounted beside v1")
    own = next(
        line[4:].rstrip("\n")
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if line.startswith("0::")
    )
    group = unified / own / f"sandbox-test-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    python = Path(os.path.realpath(sys.executable))
    if not all(parent.stat().st_mode & 1 for parent in python.parents):
        python = Path("/usr/bin/python3")

    def act(script: str) -> str:
        join = f'echo 0 >{group}/cgroup.procs && exec unshare --mount --cgroup sh -c "$0" sh "$@"'
        done = subprocess.run(
            ["sh", "-c", join, STAGE, str(python), "-c", PRELUDE + textwrap.dedent(script)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SEC,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")},
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    yield act
    (group / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + 10
    while "populated 1" in (group / "cgroup.events").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for directory, _, _ in os.walk(group, topdown=False):
        Path(directory).rmdir()


def test_a_scope_is_made_around_the_guard_which_leaves_its_topmost_group(stage: Act) -> None:
    out = stage("""
        scope, directory, place = open_scope("sandbox-0123456789ab.scope")
        print(directory.relative_to(top))
        print(own_group(scope.guard.pid))
        print(repr((directory / "cgroup.procs").read_text()), place.v2 == directory)
        (directory / "cgroup.subtree_control").write_text("")  # the kernel would refuse a crowd
        scope.close()
        wait_until(lambda: not directory.exists())
        """)

    directory, guard, procs = out.splitlines()
    assert directory.endswith("app.slice/sandbox-0123456789ab.scope")
    assert guard == f"/{directory}/guard"
    assert procs == "'' True"


def test_systemd_moves_a_process_to_where_it_may_not_go_itself(stage: Act) -> None:
    out = stage("""
        scope, directory, place = open_scope("sandbox-0123456789ab.scope")
        run = directory / "run-0123456789ab"
        (run / "main").mkdir(parents=True)
        scope._may_enter = False  # as between a login session and the user's units
        bring_in = scope.doorman(run)
        pid = paused()
        bring_in(pid)
        print(own_group(pid))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        print((run / "cpu.stat").read_text().split()[0])  # the guard keeps it readable
        scope.close()
        wait_until(lambda: not directory.exists())
        """)

    group, counter = out.splitlines()
    assert group.endswith("/sandbox-0123456789ab.scope/run-0123456789ab/main")
    assert counter == "usage_usec"


def test_where_both_groups_have_an_ancestor_of_ours_nobody_is_asked(stage: Act) -> None:
    out = stage("""
        scope, directory, place = open_scope("sandbox-0123456789ab.scope")
        print(scope.doorman(directory / "run-0123456789ab"))
        scope.close()
        """)

    assert out.strip() == "None"


def test_the_guard_ends_a_run_in_a_scope_and_systemd_the_scope(stage: Act) -> None:
    stage("""
        read_fd, write_fd = os.pipe()
        supervisor = os.fork()
        if supervisor == 0:
            scope, directory, place = open_scope("sandbox-0123456789ab.scope")
            run = directory / "run-0123456789ab"
            main = run / "main"
            main.mkdir(parents=True)
            scope.guard.take_charge(run, (run, main))
            pid = os.fork()
            if pid == 0:
                (main / "cgroup.procs").write_text("0")
                os.setsid()
                if os.fork() == 0:
                    os.write(write_fd, str(directory).encode())
                time.sleep(60)
            time.sleep(60)
        directory = Path(os.read(read_fd, 4096).decode())
        assert is_populated(directory / "run-0123456789ab")
        os.kill(supervisor, signal.SIGKILL)
        os.waitpid(supervisor, 0)
        wait_until(lambda: not directory.exists())
        """)


def test_a_name_that_is_taken_is_refused_with_systemds_words(stage: Act) -> None:
    out = stage("""
        scope, directory, place = open_scope("sandbox-0123456789ab.scope")
        guard = Guard.start()
        speaker = speak()
        try:
            speaker.start_scope("sandbox-0123456789ab.scope", guard.pid, [], lambda: None)
        except BusError as error:
            print(error)
        speaker.close()
        guard.dismiss()
        scope.close()
        """)

    assert out.startswith("StartTransientUnit was refused: ")
    assert "already" in out


def test_a_process_that_is_gone_fails_the_scope(stage: Act) -> None:
    out = stage("""
        speaker = speak()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        try:
            speaker.start_scope("sandbox-0123456789ab.scope", pid, [], lambda: None)
        except BusError as error:
            print(error)
        speaker.close()
        """)

    assert out.strip()
