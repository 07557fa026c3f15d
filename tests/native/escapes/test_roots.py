"""Ways out of a root file system: each is refused, and works without the protection it tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

PYTHON = "/usr/bin/python3"

Attempt = Callable[..., str]
"""`attempt("mount", "/mnt", flags=["--network", "none"])` returns `done` or `refused ERRNO`."""


def make_root(directory: Path) -> Path:
    """A root file system whose programs are the host's, to be seen through `-v /usr`."""
    for name in ("etc", "tmp", "root", "usr", "job", "mnt", "home"):
        (directory / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            (directory / name).symlink_to(Path("/", name).readlink())
    (directory / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/tmp:\n")
    return directory


@pytest.fixture
def attempt(as_whom: Callable[..., Any], place: Path, give: Callable[..., None]) -> Attempt:
    """Try something in a root file system of its own."""
    root = make_root(place / "root")
    give(root, *root.rglob("*"))

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


@pytest.mark.also_on_server
def test_no_keys_are_put_into_a_terminal(attempt: Attempt) -> None:
    assert attempt("type_keys") == "refused EPERM"
    # With dev.tty.legacy_tiocsti=0 the kernel itself refuses, otherwise.
    assert attempt("type_keys", flags=UNCONFINED) in {"done", "refused EIO"}


def test_a_vsock_of_the_machine_is_out_of_reach(attempt: Attempt) -> None:
    assert attempt("vsock") == "refused EPERM"
    assert attempt("vsock", flags=UNCONFINED) in {"done", "refused EAFNOSUPPORT"}


@pytest.mark.also_on_server
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


@pytest.mark.also_on_server
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


@pytest.mark.also_on_server
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


@pytest.mark.also_on_server
def test_set_user_id_programs_gain_nothing(cli: Callable[..., Any], place: Path) -> None:
    root = make_root(place / "suid")
    shutil.copy("/usr/bin/python3", root / "home/sh")
    shell = root / "home/sh"
    shell.chmod(0o4755)
    words = ("run", "-q", "--rootfs", root, "-v", "/usr:/usr:ro", "-u", "alice")
    ask = ("--", "/home/sh", "-c", "import os; print(os.geteuid())")

    assert cli(*words, *ask).stdout == "1000\n"
    freed = ("--security-opt", "no-new-privileges=false")
    assert cli(*words, *freed, *ask).stdout == "0\n"
