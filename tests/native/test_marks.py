"""Phases of real runs: marked from inside and outside, by friends and by others."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox.helper import client
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode

both = pytest.mark.both
Command = Callable[..., Any]
MIB = 1 << 20
PROJECT = Path(__file__).parents[2]

# A few milliseconds after each mark let the supervisor read before more is used.
PHASED = """
import sys, time
sys.path.insert(0, {project!r})
import sandbox

def touch(mebibytes):
    block = bytearray(mebibytes << 20)
    block[::4096] = b"1" * len(block[::4096])
    return block

def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def begin(name):
    sandbox.mark(name)
    time.sleep({settle})

block = touch(64)
begin("small")
del block
begin("smaller")
burn(0.3)
begin("large")
block = touch(96)
begin("rest")
"""
SETTLE_SEC = 0.15


def phased() -> str:
    return PHASED.format(project=str(PROJECT), settle=SETTLE_SEC)


def result_of(cli: Command, home: Path, name: str) -> dict[str, Any]:
    shown = cli("runs", "show", "--json", name, env={"SANDBOX_HOME": str(home)})
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {phase["name"]: phase for phase in result["phases"]}


def total(result: dict[str, Any], *names: str) -> int:
    value: Any = result["totals"]
    for name in names:
        value = value[name]
    return int(value)


@both
def test_phases_have_totals_and_peaks_of_their_own(cli: Command, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = cli("run", "-q", "-o", out, "--", sys.executable, "-c", phased())
    assert done.status == 0, done.stderr

    result = json.loads(out.read_text())
    phases = by_name(result)

    assert list(phases) == ["start", "small", "smaller", "large", "rest"]
    used = {name: phase["totals"]["cpu_usage_usec"] for name, phase in phases.items()}
    assert sum(used.values()) == total(result, "cpu_usage_usec")
    assert used["smaller"] >= 150_000  # of 300: a busy machine reads a mark late
    peaks = {name: phase["totals"]["memory_peak_bytes"] for name, phase in phases.items()}
    assert peaks["start"] >= 64 * MIB
    assert peaks["large"] >= 96 * MIB
    assert peaks["smaller"] < 64 * MIB  # what was freed before is not its own
    assert max(peaks.values()) == total(result, "memory_peak_bytes")
    walls = [phase["wall_ns"] for phase in result["phases"]]
    assert abs(sum(walls) - result["wall_ns"]) < 5_000_000


@both
def test_peaks_of_phases_are_exact_where_the_kernel_can(cli: Command, tmp_path: Path) -> None:
    (finding,) = json.loads(cli("doctor", "--json", "memory-peak-reset", timeout=120).stdout)[
        "findings"
    ]
    out = tmp_path / "out.json"
    cli("run", "-q", "-o", out, "--", sys.executable, "-c", phased(), timeout=120)

    phases = by_name(json.loads(out.read_text()))

    sources = {name: phase["totals"]["memory_peak_source"] for name, phase in phases.items()}
    if finding["state"] == "ok":
        assert set(sources.values()) == {"kernel"}
    elif finding["state"] == "warn":  # the run's peak rose in two phases, and so was reached there
        assert sources["start"] == sources["large"] == "kernel"
        assert sources["smaller"] == "sampled"
    else:
        assert set(sources.values()) == {"sampled"}


def test_a_run_without_marks_has_no_phases(cli: Command, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    cli("run", "-q", "-o", out, "--", "true")

    assert json.loads(out.read_text())["phases"] == []


def test_a_mark_right_before_the_end_is_not_lost(cli: Command, tmp_path: Path) -> None:
    source = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import sandbox, os\n"
    out = tmp_path / "out.json"
    cli("run", "-q", "-o", out, "--", sys.executable, "-c", source + "sandbox.mark('end')")

    assert [phase["name"] for phase in json.loads(out.read_text())["phases"]] == ["start", "end"]


def test_a_shell_inside_a_run_marks_it_without_naming_it(cli: Command, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    mark = f"{sys.executable} -m sandbox mark 'second half'"
    done = cli("run", "-q", "-o", out, "--", "sh", "-c", mark)

    assert done.status == 0, done.stderr
    assert [phase["name"] for phase in json.loads(out.read_text())["phases"]] == [
        "start",
        "second half",
    ]


def test_marks_come_from_detached_grandchildren_too(cli: Command, tmp_path: Path) -> None:
    source = (
        f"import sys, time; sys.path.insert(0, {str(PROJECT)!r}); import os, sandbox\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        sandbox.mark('deep')\n    os._exit(0)\n"
        "os.wait(); time.sleep(0.3)"
    )
    out = tmp_path / "out.json"
    cli("run", "-q", "-o", out, "--", sys.executable, "-c", source)

    assert "deep" in by_name(json.loads(out.read_text()))


@both
def test_the_python_api_has_phases_too(sandbox_home: Path) -> None:
    try:
        result = sandbox.run([sys.executable, "-c", phased()])
        assert [phase.name for phase in result.phases][-1] == "rest"
        assert sandbox.load(result.run_id).result == result
    finally:
        client._helper.close()


def test_marks_are_events_with_their_time(cli: Command, sandbox_home: Path) -> None:
    cli("run", "-q", "--name", "marked", "--", sys.executable, "-c", phased())

    marks = [event for event in sandbox.load("marked").events() if event.kind == "mark"]

    assert [event.detail["name"] for event in marks] == ["small", "smaller", "large", "rest"]
    times = [event.detail["since_start_ns"] for event in marks]
    assert times == sorted(times)


def test_the_details_show_phases(cli: Command, sandbox_home: Path) -> None:
    done = cli(
        "run", "--summary", "always", "--name", "shown", "--", sys.executable, "-c", phased()
    )
    assert "\nphase " in done.stderr
    assert "\nsmaller " in done.stderr

    assert "\nPhases\n" in cli("runs", "show", "shown").stdout


# --- from outside


@pytest.fixture
def sleeper(cli: Command, sandbox_home: Path) -> Any:
    """A live run called `sleeper`, detached; ended by the test."""
    assert cli("run", "-d", "--name", "sleeper", "--", "sleep", "20").status == 0
    yield "sleeper"
    stored = sandbox.load("sleeper")
    for group in stored.result.groups:
        kill = Path(group) / "cgroup.kill"
        if kill.exists():
            kill.write_text("1")
    deadline = time.monotonic() + 10
    while sandbox.load("sleeper").is_live and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.fixture
def _with_groups(need_kernel: Callable[[object, str], None]) -> None:
    need_kernel(find_place(Roots()).mode is not Mode.NONE, "no group can be made here")


@pytest.mark.usefixtures("_with_groups")
def test_a_live_run_is_marked_from_outside(cli: Command, sleeper: str) -> None:
    assert cli("mark", sleeper, "half way").status == 0

    kinds = [event.detail for event in sandbox.load(sleeper).events() if event.kind == "mark"]
    assert [detail["name"] for detail in kinds] == ["half way"]


@pytest.mark.usefixtures("_with_groups")
def test_strangers_cannot_mark_a_run(cli: Command, sleeper: str, plain_user: Command) -> None:
    run_id = sandbox.load(sleeper).result.run_id

    done = plain_user("python", "-m", "sandbox", "mark", run_id, "intrusion")

    assert done.status == 1
    assert "only the run itself, its user and root" in done.stderr
    assert not [event for event in sandbox.load(sleeper).events() if event.kind == "mark"]


def test_marking_what_is_not_there_is_one_clear_error(cli: Command) -> None:
    for arguments, words in (
        (("nothing", "infer"), "there is no run `nothing`"),
        (("0123456789ab", "infer"), "nobody takes marks"),
        (("infer",), "no run is named"),
        (("a", "b", "c"), "one word too many"),
    ):
        done = cli("mark", *arguments, env={"SANDBOX_RUN_ID": ""} if len(arguments) == 1 else {})
        assert done.status in {1, 2}, arguments
        assert words in done.stderr, arguments
        assert "Traceback" not in done.stderr


# --- nothing can be hurt


def test_a_deadline_is_kept_in_a_flood(cli: Command, tmp_path: Path) -> None:
    source = (
        "import os, socket\n"
        "place = b'\\0' + os.environ['SANDBOX_MARKS'][1:].encode()\n"
        "box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "while True:\n"
        "    try:\n        box.sendto(b'', place)\n"
        "    except OSError:\n        pass\n"
    )
    out = tmp_path / "out.json"
    done = cli("run", "-q", "-o", out, "--timeout", "300ms", "--", sys.executable, "-c", source)

    result = json.loads(out.read_text())
    assert done.status == 124
    assert result["outcome"] == "timed_out"
    assert result["phases"] == []
    assert result["wall_ns"] < 2_000_000_000


def test_a_program_whose_supervisor_was_killed_goes_on_marking_in_peace() -> None:
    """The name is nobody's then; what is left of the program must not fail by it."""
    code = (
        f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import sandbox\n"
        "sandbox.mark('one'); sandbox.mark('two'); print('fine')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SANDBOX_MARKS": "@sandbox-marks-000000000000"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "fine\n")


def test_a_mark_costs_a_program_less_than_a_millisecond_of_cpu_time(
    cli: Command, tmp_path: Path
) -> None:
    source = (
        f"import sys, time; sys.path.insert(0, {str(PROJECT)!r}); import sandbox, socket\n"
        "sandbox.mark('first'); time.sleep(0.1)\n"
        "costs = []\n"
        "for index in range(20):\n"
        "    before = time.thread_time_ns(); sandbox.mark(str(index))\n"
        "    costs.append(time.thread_time_ns() - before); time.sleep(0.02)\n"
        "print(min(costs))"
    )
    done = cli("run", "-q", "--", sys.executable, "-c", source)

    assert int(done.stdout) < 1_000_000


# --- other users, no group


def test_a_program_of_another_user_marks_its_run(
    cli: Command, tmp_path: Path, need_kernel: Callable[[object, str], None]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    source = (
        "import os, socket, time\n"
        "box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "box.sendto(b'other', b'\\0' + os.environ['SANDBOX_MARKS'][1:].encode())\n"
        "time.sleep(0.2); print(os.getuid())\n"
    )
    out = tmp_path / "out.json"
    python = "/usr/bin/python3"
    need_kernel(Path(python).exists(), f"there is no {python}")

    done = cli("run", "-q", "-u", "65534:65534", "-o", out, "--", python, "-I", "-c", source)

    assert done.stdout == "65534\n", done.stderr
    assert "other" in by_name(json.loads(out.read_text()))


def test_without_a_group_phases_are_sampled(plain_user: Command, plain_home: Path) -> None:
    out = plain_home / "out.json"
    command = ("python", "-m", "sandbox", "run", "-q", "-o", out)
    program = (
        "import os, socket, time\n"
        "def mark(name):\n"
        "    box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    box.sendto(name, b'\\0' + os.environ['SANDBOX_MARKS'][1:].encode())\n"
        "    time.sleep(0.2)\n"
        "block = b'1' * (64 << 20)\n"
        "time.sleep(0.2)\n"
        "mark(b'less'); del block; mark(b'burn')\n"
        "until = time.process_time() + 0.3\n"
        "while time.process_time() < until: pass\n"
    )
    done = plain_user(*command, "--", "python3", "-I", "-c", program)
    assert done.status == 0, done.stderr
    result = json.loads(out.read_text())
    if result["host"]["mode"] != Mode.NONE.value:
        pytest.skip("this user has a group here")

    phases = by_name(result)

    assert list(phases) == ["start", "less", "burn"]
    assert phases["burn"]["totals"]["cpu_usage_usec"] >= 250_000
    assert phases["start"]["totals"]["memory_peak_bytes"] >= 64 * MIB
    assert phases["burn"]["totals"]["memory_peak_bytes"] < 64 * MIB
    assert {phase["totals"]["memory_peak_source"] for phase in result["phases"]} == {"sampled"}


def test_a_nested_run_takes_its_own_marks(
    cli: Command, tmp_path: Path, need_kernel: Callable[[object, str], None]
) -> None:
    need_kernel(find_place(Roots()).mode is not Mode.NONE, "no group can be made here")
    outer, inner = tmp_path / "outer.json", tmp_path / "inner.json"
    done = cli(
        *("run", "-q", "-o", outer, "--", sys.executable, "-m", "sandbox"),
        *("run", "-q", "-o", inner, "--", sys.executable, "-c", phased()),
    )
    assert done.status == 0, done.stderr

    assert len(json.loads(inner.read_text())["phases"]) == 5
    assert json.loads(outer.read_text())["phases"] == []


def test_a_private_network_leaves_the_program_alone(cli: Command, tmp_path: Path) -> None:
    """Abstract names belong to a network: from another one a mark gets lost, nothing more."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a network")
    source = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import sandbox; sandbox.mark('x')"
    out = tmp_path / "out.json"

    done = cli("run", "-q", "-o", out, "--", "unshare", "-n", sys.executable, "-c", source)

    assert done.status == 0, done.stderr
    assert json.loads(out.read_text())["phases"] == []


def test_no_name_is_left_behind(cli: Command) -> None:
    cli("run", "-q", "--", sys.executable, "-c", phased())

    mine = [
        line for line in Path("/proc/net/unix").read_text().splitlines() if "@sandbox-m" in line
    ]
    for line in mine:  # another run of this machine may be live
        name = line.split("@", 1)[1]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect("\0" + name)
