"""Ways out of a hardened run on the host's own root, and each mechanism without the other."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.libc import landlock_abi

PYTHON = "/usr/bin/python3"
AS_ROOT = os.geteuid() == 0

Attempt = Callable[..., str]
Give = Callable[..., None]


@pytest.fixture
def hardened(as_whom: Callable[..., Any], place: Path, give: Give) -> Attempt:
    """Try something in a hardened run, which starts in a directory of its own."""
    work = place / "work"
    work.mkdir()
    give(work)

    def run(*words: str, flags: tuple[str, ...] = ("--harden",)) -> str:
        script = place / "escape.py"
        done = as_whom("run", "-q", *flags, "-w", work, "--", PYTHON, script, *words)
        return str(done.stdout.strip() or done.stderr)

    return run


@pytest.fixture
def target(place: Path, give: Give) -> Path:
    """A directory that the program's user could write to."""
    directory = place / "mine"
    directory.mkdir()
    (directory / "file").touch()
    give(directory, directory / "file")
    return directory


@pytest.mark.also_on_server
def test_a_hardened_run_changes_nothing_outside(hardened: Attempt, target: Path) -> None:
    for words in (("create", f"{target}/new"), ("append", f"{target}/file")):
        assert hardened(*words) == "refused EROFS"
        assert hardened(*words, flags=()) == "done"
        assert hardened(*words, flags=("--harden", "-v", f"{target}:{target}")) == "done"
    assert hardened("chmod", f"{target}/file") == "refused EROFS"
    assert hardened("create", "new") == "done"
    assert hardened("read", f"{target}/file") == "done"


def test_a_hardened_run_has_temporary_files_of_its_own(hardened: Attempt) -> None:
    with tempfile.NamedTemporaryFile(prefix="sandbox-test-", dir="/tmp") as file:
        Path(file.name).chmod(0o666)

        assert hardened("read", file.name) == "refused ENOENT"
        assert hardened("read", file.name, flags=()) == "done"
        readable = ("--harden", "-v", f"{file.name}:{file.name}:ro")
        assert hardened("read", file.name, flags=readable) == "done"
        assert hardened("append", file.name, flags=readable) == "refused EROFS"
    for path in ("/tmp/a", "/var/tmp/a", "/dev/shm/a"):
        assert hardened("create", path) == "done"


def test_a_hardened_run_reaches_nobody(hardened: Attempt, place: Path) -> None:
    runtime = Path("/run") if AS_ROOT else Path("/run/user", str(os.getuid()))
    if not runtime.is_dir():
        pytest.skip("nobody has logged in here")
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.socket(socket.AF_UNIX)) as abstract,
        tempfile.TemporaryDirectory(prefix="sandbox-test-", dir=runtime) as directory,
        closing(socket.socket(socket.AF_UNIX)) as named,
    ):
        address = f"127.0.0.1:{server.getsockname()[1]}"
        name = f"sandbox-test-{os.getpid()}-{place.name}"
        abstract.bind("\0" + name)
        abstract.listen()
        Path(directory).chmod(0o755)
        named.bind(f"{directory}/socket")
        named.listen()
        Path(f"{directory}/socket").chmod(0o666)

        for attempt in (
            ("reach", address),
            ("connect", f"@{name}"),
            ("connect", named.getsockname()),
        ):
            assert hardened(*attempt).startswith("refused E"), attempt
            assert hardened(*attempt, flags=()) == "done"
        connected = ("--harden", "--network", "host")
        assert hardened("reach", address, flags=connected) == "done"
        if landlock_abi() >= 6:
            assert hardened("connect", f"@{name}", flags=connected) == "refused EPERM"


def test_a_hardened_run_touches_no_other_process(hardened: Attempt) -> None:
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if AS_ROOT else []
    with subprocess.Popen([*become, "sleep", "60"]) as sleeper:
        try:
            for name in ("trace", "send_signal"):
                assert hardened(name, str(sleeper.pid)) == "refused ESRCH"
            assert hardened("send_signal", str(sleeper.pid), flags=()) == "done"
        finally:
            sleeper.kill()


@pytest.mark.parametrize("name", ["keys", "new_user", "clone_user", "queue_calls", "pivot"])
def test_a_hardened_run_is_filtered(hardened: Attempt, name: str) -> None:
    assert hardened(name).startswith("refused E")
    assert hardened(name, flags=()).startswith(("done", "refused E"))


def test_a_hardened_run_types_no_keys_and_makes_no_devices(
    hardened: Attempt, *, is_root: bool
) -> None:
    assert hardened("type_keys") == "refused EPERM"
    assert hardened("device", "null") == "refused EPERM"
    refusals = {"refused EROFS"} if is_root else {"refused EROFS", "refused EACCES"}
    assert hardened("write", "/proc/sys/kernel/domainname") in refusals
    if is_root:
        assert hardened("device", "null", flags=()) == "done"


def test_the_result_names_what_holds(as_whom: Callable[..., Any], place: Path, give: Give) -> None:
    (place / "out").mkdir()
    give(place / "out")
    output = place / "out/result.json"

    done = as_whom("run", "-q", "--harden", "-o", output, "-w", place / "out", "--", "true")

    assert done.status == 0, done.stderr
    record = json.loads(output.read_text())
    states = {each["name"]: each["state"] for each in record["protections"]}
    assert states["mounts"] == states["processes"] == states["network"] == "on"
    assert states["seccomp"] == states["capabilities"] == states["no_new_privileges"] == "on"
    assert states["landlock"] == ("on" if landlock_abi() else "unavailable")
    shown = as_whom("runs", "show", record["run_id"]).stdout
    assert "Protection" in shown
    assert "on: none but a loopback" in shown


# --- each mechanism without the other -------------------------------------------------------------

WITHOUT_LANDLOCK = """
import os, sys
from sandbox.kernel import call_filter as bpf, capabilities, syscalls
from sandbox.kernel.seccomp import Filter
from sandbox.kernel.seccomp_policy import MISSING
arch = syscalls.find_architecture(os.uname().machine)
rules = {arch.numbers["landlock_create_ruleset"]: (bpf.Rule(MISSING),)}
policy = bpf.Policy(
    architecture=arch, rules=rules, default=bpf.ALLOW, unknown=bpf.ALLOW, foreign=bpf.ALLOW
)
capabilities.forbid_new_privileges()
Filter(bpf.assemble(bpf.compile_policy(policy))).enforce()
os.execv(sys.executable, [sys.executable, "-m", "sandbox", *sys.argv[1:]])
"""
WITHOUT_NAMESPACES = """
import os, sys
pid = os.fork()
if pid == 0:
    from sandbox.kernel import mount_calls
    uid, gid = os.getuid(), os.getgid()
    mount_calls.unshare(0x1000_0000)
    lines = (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"))
    for name, text in lines:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    os.execv(sys.executable, [sys.executable, "-m", "sandbox", *sys.argv[1:]])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture
def lacking(plainly: Callable[..., Any], place: Path, give: Give) -> Callable[..., Any]:
    """Run a plain user's hardened attempt by way of a script that takes a mechanism away."""
    (place / "work").mkdir()
    give(place / "work")

    def run(before: str, *words: str, flags: tuple[str, ...] = ()) -> Any:
        command = (PYTHON, place / "escape.py", *words)
        asked = ("run", *flags, "--harden", "-w", place / "work", "--", *command)
        return plainly("-c", before, *asked)

    return run


def test_mounts_alone_hold_the_files(lacking: Callable[..., Any], place: Path, give: Give) -> None:
    (place / "file").touch()
    give(place / "file")

    done = lacking(WITHOUT_LANDLOCK, "append", str(place / "file"))

    assert done.stdout == "refused EROFS\n", done.stderr
    assert "landlock is unavailable: this kernel has no Landlock" in " ".join(done.stderr.split())
    refused = lacking(WITHOUT_LANDLOCK, "append", "x", flags=("--strict",))
    assert refused.status == 125
    assert "the run cannot be protected as asked for: landlock is unavailable" in refused.stderr


def test_landlock_alone_holds_the_files(
    lacking: Callable[..., Any], place: Path, give: Give, need_kernel: Callable[[object, str], None]
) -> None:
    need_kernel(landlock_abi(), "this kernel has no Landlock")
    (place / "file").touch()
    give(place / "file")

    for words, said in (
        (("append", str(place / "file")), "refused EACCES\n"),
        (("create", "here"), "done\n"),
        (("reach", "127.0.0.1:1"), "refused EPERM\n"),
        (("write", "/dev/null"), "done\n"),
    ):
        done = lacking(WITHOUT_NAMESPACES, *words)
        assert done.stdout == said, (words, done.stderr)
        assert "mounts is unavailable" in " ".join(done.stderr.split())
    refused = lacking(WITHOUT_NAMESPACES, "append", "x", flags=("--strict",))
    assert refused.status == 125, refused


def test_a_hardened_run_does_not_start_at_the_top(cli: Callable[..., Any]) -> None:
    done = cli("run", "--harden", "-w", "/", "--", sys.executable, "-c", "")

    assert done.status == 125
    assert "a hardened run cannot write to all of /" in done.stderr


@pytest.mark.parametrize("where", ["/proc/sys/kernel", "/sys/kernel", "/sys/fs/cgroup", "/dev"])
@pytest.mark.parametrize("way", ["-w", "-v"])
def test_a_hardened_run_does_not_start_among_the_kernels_files(
    cli: Callable[..., Any], tmp_path: Path, where: str, way: str
) -> None:
    words = ["-w", where] if way == "-w" else ["-w", str(tmp_path), "-v", f"{where}:{where}"]

    done = cli("run", "--harden", *words, "--", sys.executable, "-c", "")

    assert done.status == 125
    assert "the kernel's own files are there" in done.stderr


@pytest.mark.skipif(not AS_ROOT, reason="only root may mount")
def test_nor_where_they_are_mounted_elsewhere(tmp_path: Path) -> None:
    script = f'mount -t proc proc {tmp_path} && cd {tmp_path}/sys && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "sandbox"]

    done = subprocess.run(
        [*words, "run", "--harden", "--", "true"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 125
    assert "the kernel's own files are there" in done.stderr
