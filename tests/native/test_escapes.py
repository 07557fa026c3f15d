"""Ways out of a run: each is refused, and each works once the protection it tests is left out."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.libc import landlock_abi

LOADS = Path(__file__).resolve().parents[1] / "loads"
PYTHON = "/usr/bin/python3"

pytestmark = pytest.mark.slow

Attempt = Callable[..., str]
"""`attempt("mount", "/mnt", flags=["--network", "none"])` returns `done` or `refused ERRNO`."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach, outside /tmp, which hardened runs have anew."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="sandbox-escape-", dir="/var") as directory:
        path = Path(directory)
        path.chmod(0o755)
        shutil.copy(LOADS / "escape.py", path / "escape.py")
        (path / "escape.py").chmod(0o644)
        yield path


def make_root(directory: Path) -> Path:
    """A root file system whose programs are the host's, to be seen through `-v /usr`."""
    for name in ("etc", "tmp", "root", "usr", "job", "mnt", "home"):
        (directory / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            (directory / name).symlink_to(Path("/", name).readlink())
    (directory / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/tmp:\n")
    return directory


@pytest.fixture(params=["root", "plain user"])
def as_whom(request: pytest.FixtureRequest, cli: Attempt, plain_user: Attempt) -> Attempt:
    """Run our command line, as root and as a plain user."""
    if request.param == "root":
        return cli

    def run(*words: str | Path, **options: Any) -> Any:
        done = plain_user("python", "-m", "sandbox", *words, **options)
        if "user namespaces may be closed" in done.stderr:
            pytest.skip("a plain user may make no user namespace here")
        return done

    return run


@pytest.fixture
def is_root(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.callspec.params["as_whom"] == "root")


@pytest.fixture
def attempt(as_whom: Callable[..., Any], place: Path, *, is_root: bool) -> Attempt:
    """Try something in a root file system of its own."""
    root = make_root(place / "root")
    if not is_root:
        for path in (root, *root.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)

    def run(*words: str, flags: tuple[str, ...] = ()) -> str:
        done = as_whom(
            *("run", "-q", "--rootfs", root, "-v", "/usr:/usr:ro", "-v", f"{place}:/job:ro"),
            *(*flags, "--", PYTHON, "/job/escape.py", *words),
        )
        return str(done.stdout.strip() or done.stderr)

    return run


UNCONFINED = ("--security-opt", "seccomp=unconfined")
ADMIN = ("--cap-add", "SYS_ADMIN", *UNCONFINED)
NO_FILTER: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "keys": ((), UNCONFINED),
    "new_user": ((), UNCONFINED),
    "clone_user": ((), UNCONFINED),
    "queue_calls": ((), UNCONFINED),
    "pivot": ((), ADMIN),
    "mount": (("/mnt",), ADMIN),
}


@pytest.mark.parametrize("name", NO_FILTER)
def test_the_filter_refuses(attempt: Attempt, name: str) -> None:
    arguments, without = NO_FILTER[name]

    assert attempt(name, *arguments).startswith("refused E")
    # Some kernels have no such calls, or close them to all.
    assert attempt(name, *arguments, flags=without) in {"done", "refused ENOSYS"}


def test_no_keys_are_put_into_a_terminal(attempt: Attempt) -> None:
    assert attempt("type_keys") == "refused EPERM"
    # With dev.tty.legacy_tiocsti=0 the kernel itself refuses, otherwise.
    assert attempt("type_keys", flags=UNCONFINED) in {"done", "refused EIO"}


def test_a_vsock_of_the_machine_is_out_of_reach(attempt: Attempt) -> None:
    assert attempt("vsock") == "refused EPERM"
    assert attempt("vsock", flags=UNCONFINED) in {"done", "refused EAFNOSUPPORT"}


def test_devices_that_are_made_cannot_be_opened(attempt: Attempt, *, is_root: bool) -> None:
    assert attempt("device", "/root/null").startswith("refused E")
    if is_root:
        assert attempt("device", "/root/null", flags=("--privileged",)) == "done"


def test_the_kernels_settings_cannot_be_written(attempt: Attempt, *, is_root: bool) -> None:
    domain, pages = "/proc/sys/kernel/domainname", "/sys/kernel/mm/ksm/run"

    # A plain user may not even try to write to what is the host's.
    refusals = {"refused EROFS"} if is_root else {"refused EROFS", "refused EACCES"}
    assert attempt("write", domain) in refusals
    assert attempt("overwrite", pages) in refusals
    if is_root:
        # The name is of the run's own UTS namespace; the other file is only opened.
        assert attempt("write", domain, flags=("--privileged",)) == "done"
        assert attempt("overwrite", pages, flags=("--privileged",)) in {"done", "refused ENOENT"}


def test_what_runs_the_program_cannot_be_overwritten(attempt: Attempt) -> None:
    for path in ("/proc/self/exe", "/proc/1/exe"):
        assert attempt("overwrite", path).startswith("refused E")
    # A process of ours is the first one then, and nobody inside can get at it.
    assert attempt("read", "/proc/1/exe", flags=("--init",)) == "refused EACCES"
    assert attempt("read", "/proc/self/exe", flags=("--init",)) == "done"


@pytest.mark.parametrize("workdir", ["/proc/self/fd/3", "/proc/self/cwd", "/proc/1/root"])
def test_no_working_directory_leads_out(attempt: Attempt, workdir: str) -> None:
    said = attempt("read", "escape.py", flags=("-w", workdir))

    assert "done" not in said
    assert said.startswith("sandbox: error: cannot"), said


def test_processes_of_the_host_cannot_be_traced(attempt: Attempt, *, is_root: bool) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        pid = str(sleeper.pid)
        assert attempt("trace", pid) == "refused ESRCH"
        assert attempt("send_signal", pid) == "refused ESRCH"
        seen = ("--pid", "host", "--cap-add", "SYS_PTRACE")
        if is_root:
            assert attempt("send_signal", pid, flags=("--pid", "host")) == "done"
            assert attempt("trace", pid, flags=seen) == "done"
        else:  # it is seen, and another user's
            assert attempt("trace", pid, flags=seen) == "refused EPERM"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_abstract_sockets_belong_to_the_network(attempt: Attempt, place: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        name = f"sandbox-test-{os.getpid()}-{place.name}"
        server.bind("\0" + name)
        server.listen()

        assert attempt("connect", f"@{name}", flags=("--network", "none")) == "refused ECONNREFUSED"
        assert attempt("connect", f"@{name}") == "done"


def test_files_are_not_opened_by_their_numbers(attempt: Attempt, *, is_root: bool) -> None:
    # With it, one reads what is outside of the root on the same disk.
    assert attempt("open_by_handle", "/usr") == "refused EPERM"
    if is_root:
        flags = ("--cap-add", "DAC_READ_SEARCH")
        assert attempt("open_by_handle", "/usr", flags=flags) == "done"


def test_set_user_id_programs_gain_nothing(cli: Attempt, place: Path) -> None:
    root = make_root(place / "suid")
    shutil.copy("/usr/bin/python3", root / "home/sh")
    shell = root / "home/sh"
    shell.chmod(0o4755)
    words = ("run", "-q", "--rootfs", root, "-v", "/usr:/usr:ro", "-u", "alice")
    ask = ("--", "/home/sh", "-c", "import os; print(os.geteuid())")

    assert cli(*words, *ask).stdout == "1000\n"
    freed = ("--security-opt", "no-new-privileges=false")
    assert cli(*words, *freed, *ask).stdout == "0\n"


# --- hardened runs on the host's own root ---------------------------------------------------------


@pytest.fixture
def hardened(as_whom: Callable[..., Any], place: Path, *, is_root: bool) -> Attempt:
    """Try something in a hardened run, which starts in a directory of its own."""
    work = place / "work"
    work.mkdir()
    if not is_root:
        os.chown(work, 65534, 65534)

    def run(*words: str, flags: tuple[str, ...] = ("--harden",)) -> str:
        script = place / "escape.py"
        done = as_whom("run", "-q", *flags, "-w", work, "--", PYTHON, script, *words)
        return str(done.stdout.strip() or done.stderr)

    return run


@pytest.fixture
def target(place: Path, *, is_root: bool) -> Path:
    """A directory that the program's user could write to."""
    directory = place / "mine"
    directory.mkdir()
    (directory / "file").touch()
    if not is_root:
        for path in (directory, directory / "file"):
            os.chown(path, 65534, 65534)
    return directory


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
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.socket(socket.AF_UNIX)) as abstract,
        tempfile.TemporaryDirectory(prefix="sandbox-test-", dir="/run") as directory,
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
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
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


def test_the_result_names_what_holds(as_whom: Callable[..., Any], place: Path) -> None:
    (place / "out").mkdir()
    os.chown(place / "out", 65534, 65534)
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
def plainly(plain_user: Attempt, place: Path) -> Callable[..., Any]:
    """Run a plain user's hardened attempt by way of a script that takes a mechanism away."""
    (place / "work").mkdir()
    os.chown(place / "work", 65534, 65534)

    def run(before: str, *words: str, flags: tuple[str, ...] = ()) -> Any:
        command = (PYTHON, place / "escape.py", *words)
        asked = ("run", *flags, "--harden", "-w", place / "work", "--", *command)
        return plain_user("python", "-c", before, *asked)

    return run


def test_mounts_alone_hold_the_files(plainly: Callable[..., Any], place: Path) -> None:
    (place / "file").touch()
    os.chown(place / "file", 65534, 65534)

    done = plainly(WITHOUT_LANDLOCK, "append", str(place / "file"))

    assert done.stdout == "refused EROFS\n", done.stderr
    assert "landlock is unavailable: this kernel has no Landlock" in " ".join(done.stderr.split())
    refused = plainly(WITHOUT_LANDLOCK, "append", "x", flags=("--strict",))
    assert refused.status == 125
    assert "the run cannot be protected as asked for: landlock is unavailable" in refused.stderr


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_landlock_alone_holds_the_files(plainly: Callable[..., Any], place: Path) -> None:
    (place / "file").touch()
    os.chown(place / "file", 65534, 65534)

    for words, said in (
        (("append", str(place / "file")), "refused EACCES\n"),
        (("create", "here"), "done\n"),
        (("reach", "127.0.0.1:1"), "refused EPERM\n"),
        (("write", "/dev/null"), "done\n"),
    ):
        done = plainly(WITHOUT_NAMESPACES, *words)
        assert done.stdout == said, (words, done.stderr)
        assert "mounts is unavailable" in " ".join(done.stderr.split())
    refused = plainly(WITHOUT_NAMESPACES, "append", "x", flags=("--strict",))
    assert refused.status == 125, refused


def test_a_hardened_run_does_not_start_at_the_top(cli: Attempt) -> None:
    done = cli("run", "--harden", "-w", "/", "--", sys.executable, "-c", "")

    assert done.status == 125
    assert "a hardened run cannot write to all of /" in done.stderr


@pytest.mark.parametrize("where", ["/proc/sys/kernel", "/sys/kernel", "/sys/fs/cgroup", "/dev"])
@pytest.mark.parametrize("way", ["-w", "-v"])
def test_a_hardened_run_does_not_start_among_the_kernels_files(
    cli: Attempt, tmp_path: Path, where: str, way: str
) -> None:
    words = ["-w", where] if way == "-w" else ["-w", str(tmp_path), "-v", f"{where}:{where}"]

    done = cli("run", "--harden", *words, "--", sys.executable, "-c", "")

    assert done.status == 125
    assert "the kernel's own files are there" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_nor_where_they_are_mounted_elsewhere(tmp_path: Path) -> None:
    script = f'mount -t proc proc {tmp_path} && cd {tmp_path}/sys && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "sandbox"]

    done = subprocess.run(
        [*words, "run", "--harden", "--", "true"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 125
    assert "the kernel's own files are there" in done.stderr
