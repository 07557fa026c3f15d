"""What must hold when a program is started, and beside other runs: streams, names, disks, leaks."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode

both = pytest.mark.both

MIB = 1 << 20
PYTHON = sys.executable
NOT_V2 = not Path("/sys/fs/cgroup/cgroup.controllers").exists()
V2 = Path("/sys/fs/cgroup/unified" if NOT_V2 else "/sys/fs/cgroup")


def python(source: str, *arguments: object) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", source, *map(str, arguments)]


def the_run(home: Path) -> dict[str, Any]:
    (file,) = home.glob("runs/*/run.json")
    run: dict[str, Any] = json.loads(file.read_text())
    return run


NESTED_OOM = """
import os, pathlib, sys, time
lines = [l.split(":", 2) for l in open("/proc/self/cgroup").read().split()]
if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
    own = pathlib.Path("/sys/fs/cgroup" + next(p for n, c, p in lines if n == "0"))
    limit = "memory.max"
    leaf = own / "leaf"
    leaf.mkdir()
    (leaf / "cgroup.procs").write_text("0")
    for group in (own.parent, own):
        (group / "cgroup.subtree_control").write_text("+memory")
else:
    own = pathlib.Path("/sys/fs/cgroup/memory" + next(p for n, c, p in lines if c == "memory"))
    limit = "memory.limit_in_bytes"
inner = own / "inner"
inner.mkdir()
(inner / limit).write_text(str(24 << 20))
if os.fork() == 0:
    (inner / "cgroup.procs").write_text("0")
    block = bytearray(100 << 20)
    os._exit(0)
os.wait()
print("outer goes on", flush=True)
"""


@both
def test_t3_an_oom_kill_in_a_group_that_the_program_made_is_told(
    cli: Callable[..., Any], sandbox_home: Path, need_kernel: Callable[..., None]
) -> None:
    need_kernel(find_place(Roots()).mode is not Mode.NONE, "no group can be made here")
    done = cli("run", "--oom-continue", "--memory", "256m", "--", *python(NESTED_OOM))

    run = the_run(sandbox_home)
    assert "outer goes on" in done.stdout, done.stderr
    assert done.status == 0
    assert run["totals"]["oom_kills"] >= 1
    assert run["oom_kills"][0]["cause"] == "limit"
    assert not run["totals"]["oom_events"], "the run's own limit was not hit"


@both
def test_t5_lowering_the_limit_of_a_live_run_below_its_use_kills_it(
    sandbox_home: Path, load: Callable[..., list[str]], need_kernel: Callable[..., None]
) -> None:
    need_kernel(find_place(Roots()).mode is not Mode.NONE, "no group can be made here")
    if NOT_V2:
        pytest.skip("v1 refuses such a limit with EBUSY instead")
    command = [PYTHON, "-m", "sandbox", "run", "--memory", "512m", "--", *load("touch", 128, 60)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "touched\n"
        group = Path(the_run(sandbox_home)["groups"][0])
        (group / "memory.max").write_text(str(32 * MIB))
        assert process.wait(timeout=60) == 137

    assert the_run(sandbox_home)["outcome"] == "oom_killed"


@pytest.fixture
def tight_outer_group() -> Iterator[Path]:
    """A group below our own that allows 64 MiB, made for the supervisor to live in."""
    if os.geteuid() != 0:
        pytest.skip("only root may make groups beside those of sessions")
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().split()]
    if NOT_V2:
        own = next(path for _, names, path in lines if names == "memory")
        outer = Path(f"/sys/fs/cgroup/memory{own}") / "outer-of-a-test"
        file = "memory.limit_in_bytes"
    else:
        outer = V2 / "outer-of-a-test"
        file = "memory.max"
        (V2 / "cgroup.subtree_control").write_text("+cpu +memory +pids")
    outer.mkdir()
    (outer / file).write_text(str(64 * MIB))
    if not NOT_V2:
        (outer / "cgroup.subtree_control").write_text("+cpu +memory +pids")
        (outer / "leaf").mkdir()
    try:
        yield outer
    finally:
        for group in sorted(outer.rglob("*"), reverse=True):
            if group.is_dir():
                group.rmdir()
        outer.rmdir()


@both
def test_t6_a_tighter_group_around_ours_is_reported(
    sandbox_home: Path, tight_outer_group: Path
) -> None:
    leaf = tight_outer_group / "leaf"
    entrance = (leaf if leaf.exists() else tight_outer_group) / "cgroup.procs"
    command = [PYTHON, "-m", "sandbox", "run", "--memory", "256m", "--", "true"]
    done = subprocess.run(
        ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(entrance), *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    limits = {limit["name"]: limit for limit in the_run(sandbox_home)["limits"]}
    assert limits["memory"]["effective"] == "64 MiB"
    assert str(tight_outer_group) in the_run(sandbox_home)["groups"][0] or NOT_V2


# --- starting


@both
@pytest.mark.parametrize(
    ("words", "status", "word"),
    [
        (["no-such-program-here"], 127, "not found"),
        (["/etc/passwd"], 126, "/etc/passwd"),
        (["/tmp"], 126, "/tmp"),
        (["/no/such/program"], 127, "/no/such/program"),
    ],
)
def test_t22_what_cannot_be_executed_has_its_own_status_and_leaves_nothing(
    cli: Callable[..., Any], sandbox_home: Path, words: list[str], status: int, word: str
) -> None:
    done = cli("run", "--", *words)

    assert done.status == status
    assert word in done.stderr
    assert the_run(sandbox_home)["outcome"] == "not_started"


def test_t22_a_bad_working_directory_is_named(cli: Callable[..., Any]) -> None:
    done = cli("run", "-w", "/no/such/directory", "--", "true")

    assert done.status == 126
    assert "/no/such/directory" in done.stderr


def test_t23_streams_are_the_programs_own(cli: Callable[..., Any]) -> None:
    source = "import sys; sys.stderr.write('err'); print(sys.stdin.read().upper(), end='')"
    done = cli("run", "-q", "--", *python(source), stdin="text in")

    assert (done.status, done.stdout, done.stderr) == (0, "TEXT IN", "err")


def test_t23_t24_odd_bytes_and_much_output_pass_unharmed(tmp_path: Path) -> None:
    odd = tmp_path / "a b:c\udcff"
    odd.mkdir()
    script = odd / "print.sh"
    script.write_text('#!/bin/sh\nprintf %s "$1$ODD"\nhead -c 8000000 /dev/zero\n')
    script.chmod(0o755)
    done = subprocess.run(
        [PYTHON, "-m", "sandbox", "run", "-q", "-e", b"ODD=\xfe\xff", "--", script, b"\xff arg"],
        check=False,
        capture_output=True,
        timeout=60,
        env={**os.environ, "SANDBOX_HOME": str(tmp_path / "home")},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"\xff arg\xfe\xff")
    assert len(done.stdout) == 8_000_000 + len(b"\xff arg\xfe\xff")


def test_an_open_descriptor_of_the_shell_is_the_programs_too(sandbox_home: Path) -> None:
    script = f"{PYTHON} -m sandbox run -q -- cat <(echo through)"
    done = subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (0, "through\n")


@both
@pytest.mark.parametrize("capture", ["--capture", "--capture=tee"])
def test_captured_output_is_kept_and_with_tee_shown(
    cli: Callable[..., Any], sandbox_home: Path, capture: str
) -> None:
    done = cli("run", "-q", capture, "--", "sh", "-c", "echo out; echo err >&2; exit 3")

    (run,) = sandbox_home.glob("runs/*")
    assert done.status == 3
    assert (run / "stdout").read_text() == "out\n"
    assert (run / "stderr").read_text() == "err\n"
    assert done.stdout == ("out\n" if capture.endswith("tee") else "")
    assert ("err\n" in done.stderr) == capture.endswith("tee")
    assert (run / "stdout").stat().st_mode & 0o777 == 0o600


@both
def test_a_detached_run_goes_on_and_is_found_by_its_name(
    cli: Callable[..., Any], sandbox_home: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    script = 'echo out; while [ ! -e "$0" ]; do sleep 0.05; done'
    started = cli("run", "-d", "--name", "background", "--", "sh", "-c", script, flag)
    assert started.status == 0
    run_id = started.stdout.strip()
    taken = cli("run", "--name", "background", "--", "true")
    assert taken.status == 125
    assert "background" in taken.stderr
    assert "running" in cli("runs", "ls").stdout
    flag.touch()

    for _ in range(200):
        shown = json.loads(cli("runs", "show", "--json", "background").stdout)
        if shown["outcome"] != "running":
            break
    assert shown["run_id"] == run_id
    assert (shown["outcome"], shown["exit_code"]) == ("exited", 0)
    assert (sandbox_home / "runs" / run_id / "stdout").read_text() == "out\n"


def test_a_detached_run_that_cannot_start_says_so_at_once(cli: Callable[..., Any]) -> None:
    done = cli("run", "-d", "--", "no-such-program")

    assert done.status == 127
    assert "no-such-program" in done.stderr


# --- the record


@pytest.fixture
def small_disk(tmp_path: Path, need_kernel: Callable[..., None]) -> Iterator[Path]:
    """A file system with next to no room."""
    need_kernel(os.geteuid() == 0, "mounting takes root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_costs_the_record_but_not_the_run(
    cli: Callable[..., Any], small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(bytes(60 << 10))
    done = cli("run", "--", "sh", "-c", "echo done; exit 4", env={"SANDBOX_HOME": str(small_disk)})

    assert done.status == 4
    assert done.stdout == "done\n"
    assert "exited 4" in done.stderr
    assert "memory" in done.stderr
    assert "ENOSPC" in done.stderr or "full" in done.stderr or "space" in done.stderr


def test_an_unwritable_home_costs_the_record_but_not_the_run(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    home = tmp_path / "file"
    home.write_text("not a directory")
    done = cli("run", "--", "sh", "-c", "exit 4", env={"SANDBOX_HOME": str(home)})

    assert done.status == 4
    assert "exited 4" in done.stderr
    assert str(home) in done.stderr


# --- beside others, again and again


@both
def test_t33_runs_at_once_share_no_name_and_do_not_disturb_each_other(
    cli: Callable[..., Any], sandbox_home: Path
) -> None:
    def one(status: int) -> Any:
        program = ("sh", "-c", f"sleep 0.3; exit {status}")
        return cli("run", "--memory", "64m", "--", *program, timeout=180)

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(one, range(8)))

    assert [end.status for end in ends] == list(range(8))
    runs = [json.loads(file.read_text()) for file in sandbox_home.glob("runs/*/run.json")]
    assert len({run["name"] for run in runs}) == 8
    groups = [group for run in runs for group in run["groups"]]
    assert len(set(groups)) == len(groups)


LEAK_CHECK = """
import os, sys
from pathlib import Path
from sandbox.engine.order import Surroundings, run
from sandbox.spec import Limits, RunSpec

def state():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

spec = RunSpec(command=("true",), limits=Limits(memory_bytes=64 << 20))
for _ in range(10):
    run(spec)
before = state()
for _ in range(int(sys.argv[1])):
    assert run(spec).exit_code == 0
after = state()
assert before == after, (before, after)
children = Path("/proc/self/task", str(os.getpid()), "children").read_text()
assert not children, children
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_t34_many_short_runs_leak_no_descriptor_thread_process_or_group(
    sandbox_home: Path,
) -> None:
    runs = os.environ.get("SANDBOX_TEST_RUNS", "300")  # `scripts/soak` asks for more
    done = subprocess.run(
        [PYTHON, "-c", LEAK_CHECK, runs], check=False, capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("status", [0, 1, 2, 3, 42, 124, 125, 126, 127, 255])
def test_t35_every_exit_status_passes_through(cli: Callable[..., Any], status: int) -> None:
    assert cli("run", "-q", "--", "sh", "-c", f"exit {status}").status == status


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "ABRT", "KILL", "SEGV", "PIPE", "TERM"])
def test_t35_a_deadly_signal_passes_through(cli: Callable[..., Any], name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    done = cli("run", "--ulimit", "core=0", "--", "sh", "-c", f"kill -{name} $$")

    assert done.status == 128 + number
    assert f"SIG{name}" in done.stderr


def test_the_program_inherits_neither_our_limits_nor_our_signals(cli: Callable[..., Any]) -> None:
    source = """
import resource, signal
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
lines = open("/proc/self/status").read().split("\\n")
print([line for line in lines if line.startswith(("SigBlk", "SigIgn", "NoNewPrivs"))])
"""
    inside = cli("run", "-q", "--", "sh", "-c", 'exec "$@"', "-", *python(source)).stdout
    outside = subprocess.run(
        ["sh", "-c", 'exec "$@"', "-", *python(source)], check=True, capture_output=True, text=True
    ).stdout

    assert inside == outside
    assert str(resource.getrlimit(resource.RLIMIT_NOFILE)) in inside
