"""What every test can ask for, and the check that none leaves anything behind."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# A machine that is busy with something else is no reason to fail: timings never decide a test.
hypothesis.settings.register_profile("any-machine", deadline=None)
hypothesis.settings.load_profile("any-machine")

TESTS = Path(__file__).resolve().parent
PROJECT = TESTS.parent
CGROUP = Path("/sys/fs/cgroup")
NEEDED_CONTROLLERS = {"cpu", "memory", "pids"}
PLAIN_UID = 65534  # nobody
PATIENCE_SECONDS = 120 if "SANDBOX_GUEST" in os.environ else 30  # for a command that may hang
SETTLE_SECONDS = 2.0  # what ends on its own within this time was not left behind

# Every process that a test starts inherits it, however it daemonizes.
MARKER = "SANDBOX_TEST_SESSION"
os.environ[MARKER] = uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Completed:
    """One finished command."""

    status: int
    """As a shell says it: 128 + N for a signal."""
    stdout: str
    stderr: str


Command = Callable[..., Completed]


def run_command(
    command: Sequence[str | Path],
    *,
    timeout: float = PATIENCE_SECONDS,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> Completed:
    """Run `command` with a time-out; `env` is set on top of our own environment."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        env={**os.environ, **(env or {})},
        cwd=cwd or PROJECT,
    )
    with process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            pytest.fail(f"{command} still ran after {timeout} s\n{stdout}\n{stderr}")
    status = process.returncode
    return Completed(status if status >= 0 else 128 - status, stdout, stderr)


# --- what tests ask for ---------------------------------------------------------------------------


@pytest.fixture
def sandbox_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty SANDBOX_HOME of the test's own."""
    home = tmp_path / "sandbox-home"
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    return home


@pytest.fixture
def cli(sandbox_home: Path) -> Command:
    """`cli("run", "--", "true")` runs our command line as a user would: a process of its own."""

    def run(*arguments: str | Path, **options: Any) -> Completed:
        return run_command([sys.executable, "-m", "sandbox", *arguments], **options)

    return run


@pytest.fixture
def load() -> Callable[..., list[str]]:
    """`load("burn", 0.5)` is the command of a known load of tests/loads."""

    def command(name: str, *arguments: object) -> list[str]:
        script = TESTS / "loads" / f"{name}.py"
        # The interpreter itself, not the venv's link: `-I -S` keeps its baseline small.
        return [os.path.realpath(sys.executable), "-I", "-S", str(script), *map(str, arguments)]

    return command


@pytest.fixture
def plain_home() -> Iterator[Path]:
    """A directory of the plain user; pytest's own ones are closed to others."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="sandbox-plain-") as directory:
        os.chown(directory, PLAIN_UID, PLAIN_UID)
        yield Path(directory)


@pytest.fixture
def plain_user(plain_home: Path, plain_python: str) -> Command:
    """Run a command without privileges; a first word `python` becomes one that user may read."""
    become = [f"--reuid={PLAIN_UID}", f"--regid={PLAIN_UID}", "--clear-groups"]
    settings = {
        "HOME": str(plain_home),
        "SANDBOX_HOME": str(plain_home / "sandbox-home"),
        "PYTHONPATH": f"{PROJECT}:{sysconfig.get_path('purelib')}",
    }

    def run(program: str, *arguments: str | Path, **options: Any) -> Completed:
        options["env"] = {**settings, **options.get("env", {})}
        words = [plain_python if program == "python" else program, *arguments]
        return run_command(["setpriv", *become, *words], **options)

    return run


@pytest.fixture
def many_users(
    plain_home: Path, plain_python: str, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`many_users("-m", "sandbox", …)` is Python as a plain user that 65536 ids are lent to."""
    if shutil.which("newuidmap") is None:
        pytest.skip("newuidmap is not installed")
    lent = tmp_path / "lent"
    lent.write_text(f"{PLAIN_UID}:600000:65536\nnobody:600000:65536\n")
    # In a mount namespace of the test's own the files of /etc say what the test wants.
    shell = (
        f"mount --bind {lent} /etc/subuid && mount --bind {lent} /etc/subgid && "
        f'exec setpriv --reuid={PLAIN_UID} --regid={PLAIN_UID} --clear-groups "$@"'
    )
    environment = {
        **os.environ,
        "HOME": str(plain_home),
        "SANDBOX_HOME": str(plain_home / "sandbox-home"),
        "PYTHONPATH": f"{PROJECT}:{sysconfig.get_path('purelib')}",
    }

    def run(
        *words: str | Path, timeout: float = 30, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", shell, "sh", plain_python, *words],
            env={**environment, **settings},
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if "user namespaces may be closed" in done.stderr:
            pytest.skip("a plain user may make no user namespace here")
        return done

    return run


@pytest.fixture
def plain_python() -> str:
    """An interpreter of our own version outside directories that only root may enter."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (os.path.realpath(sys.executable), f"/usr/bin/{version}"):
        path = Path(candidate)
        if path.exists() and all(parent.stat().st_mode & 0o1 for parent in path.parents):
            return candidate
    pytest.skip(f"a plain user may execute no {version} here")


@pytest.fixture
def need_kernel() -> Callable[[object, str], None]:
    """`need_kernel(condition, why)` skips, or fails where the kernel was promised to be able."""
    return _need_kernel


def _need_kernel(condition: object, why: str) -> None:
    if condition:
        return
    if os.environ.get("SANDBOX_REQUIRE_KERNEL") == "1":
        pytest.fail(f"SANDBOX_REQUIRE_KERNEL=1, but {why}")
    pytest.skip(why)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let guest tests run only on unified cgroup v2."""
    if item.get_closest_marker("guest"):
        _need_kernel(*_unified_state())


def _unified_state() -> tuple[bool, str]:
    file = CGROUP / "cgroup.controllers"
    if not file.exists():
        return False, "cgroup v2 is not mounted at /sys/fs/cgroup: use `scripts/guest test`"
    missing = NEEDED_CONTROLLERS - set(file.read_text().split())
    return not missing, f"cgroup v2 lacks the controllers {sorted(missing)} here"


# --- nothing is left behind -----------------------------------------------------------------------


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests on a kernel: groups, processes and descriptors are the same after as before."""
    if not {"native", "guest"} & set(request.path.relative_to(TESTS).parts):
        yield
        return
    before = (run_groups(), marked_processes(), open_descriptors())
    yield
    left = ""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        left = _left_behind(*before)
        if not left:
            return
        gc.collect()  # 40 ms: only where a descriptor may wait for it
        time.sleep(0.01)
    pytest.fail(f"left behind:\n{left}")


def _left_behind(groups: set[Path], processes: dict[int, str], descriptors: dict[int, str]) -> str:
    now = marked_processes()
    lines = [f"process {pid}: {now[pid]}" for pid in now.keys() - processes.keys()]
    for group in sorted(run_groups() - groups):
        inside = _pids_below(group)
        # Another user of this machine may have a run of its own at the same time.
        if inside is not None and (not inside or inside & now.keys()):
            lines.append(f"group {group}: {sorted(inside)}")
    opened = open_descriptors().items() - descriptors.items()
    lines += [f"descriptor {number}: {target}" for number, target in opened]
    return "\n".join(lines)


def own_groups() -> list[Path]:
    """Return this process's own group in every mounted hierarchy."""
    found: list[Path] = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        names = (controllers.split(",")[-1].removeprefix("name="), "unified", "")
        for name in names if not controllers else names[:1]:
            directory = CGROUP / name / path.lstrip("/")
            if (directory / "cgroup.procs").exists():
                found.append(directory)
                break
    return found


def run_groups() -> set[Path]:
    """Return the groups of all runs below our own, a nested one's too."""
    found: set[Path] = set()
    level = own_groups()
    for _ in range(3):
        level = [child for group in level for child in _children(group)]
        found.update(child for child in level if child.name.startswith("run-"))
    return found


def _children(group: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(group) if entry.is_dir()]
    except OSError:
        return []  # removed while we looked


def _pids_below(group: Path) -> set[int] | None:
    try:
        files = [group / "cgroup.procs", *group.rglob("cgroup.procs")]
        return {int(pid) for file in files for pid in file.read_text().split()}
    except OSError:
        return None  # removed while we looked


def marked_processes() -> dict[int, str]:
    """Return our children, zombies too, and whatever descends from this session, by its mark."""
    mark = f"{MARKER}={os.environ[MARKER]}".encode()
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that ended while we looked, as a server's of a test
            children = (task / "children").read_text().split()
            found |= {int(pid): "a child, perhaps a zombie" for pid in children}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a thousand entries at each test
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found[int(entry)] = Path("/proc", entry, "cmdline").read_text("utf-8", "replace")
        except OSError:
            continue  # it ended while we looked
    return found


def open_descriptors() -> dict[int, str]:
    """Return this process's open descriptors and what they are."""
    found: dict[int, str] = {}
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as above
        try:
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - as above
        except OSError:
            continue  # the listing's own descriptor
    return found
