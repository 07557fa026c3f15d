"""The filter of system calls beside docker's own, on the same kernel with the same programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sandbox.kernel.syscalls import find_architecture

PROBE = Path(__file__).resolve().parents[1] / "loads/syscalls.py"
PYTHON = "/usr/bin/python3"

_LEFT_OUT = (
    # They end, stop or confuse the one who asks, or wait.
    "exit exit_group fork vfork clone clone3 pause rt_sigreturn restart_syscall rt_sigsuspend "
    "sigaltstack poll ppoll select pselect6 wait4 waitid nanosleep clock_nanosleep kill tkill "
    "tgkill rt_sigtimedwait sched_yield set_tid_address rseq arch_prctl munmap mremap brk "
    "seccomp ptrace read pread64 alarm setsid vhangup sync syncfs reboot landlock_restrict_self "
    "uretprobe uprobe map_shadow_stack"
)
NOT_TRIED = frozenset(_LEFT_OUT.split())
CHANGED_SINCE = {
    # What docker's default refuses since version 23 or 25, and 20.10 still allows …
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "socket 40"),
    # … and the other way round.
    *("name_to_handle_at", "process_vm_readv", "process_vm_writev"),
    *("pkey_alloc", "pkey_free", "pkey_mprotect"),
}
WITH_ARGUMENTS = {
    "socket": ("1 1 0", "2 1 0", "16 3 0", "40 1 0"),
    "personality": ("4294967295", "0", "8", "262144"),
    "unshare": ("268435456", "131072"),
    "ioctl": ("0 21505",),
    "clone": ("268435473",),
}
CAPABILITIES = ("SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_NICE", "SYSLOG")


def questions() -> str:
    """All that both know, by number, with arguments that are no good."""
    architecture = find_architecture(os.uname().machine)
    if architecture is None:
        pytest.skip("no filter is made for this machine")
    lines = []
    for name, number in sorted(architecture.numbers.items(), key=lambda each: each[1]):
        if name in NOT_TRIED or number > 448:  # docker 20.10 is older than those
            continue
        lines += [f"{name} {number} {words}" for words in WITH_ARGUMENTS.get(name, ("",))]
    return "\n".join([*lines, f"nothing {5000}", ""])


@pytest.fixture(scope="module")
def thin_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system whose programs are the host's, to be seen through `-v /usr`."""
    directory = tmp_path_factory.mktemp("thin") / "root"
    for name in ("etc", "tmp", "root", "usr", "job"):
        (directory / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            (directory / name).symlink_to(Path("/", name).readlink())
    shutil.copy(PROBE, directory / "job/probe.py")
    return directory


@pytest.fixture(scope="module")
def docker(thin_root: Path) -> Iterator[Callable[..., str]]:
    """`docker(*flags)` runs the probe in a container of a real dockerd."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("dockerd", "docker"))):
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail("docker is not installed")
        pytest.skip("dockerd and root are needed")
    with tempfile.TemporaryDirectory(prefix="sandbox-test-dockerd-") as directory:
        place = Path(directory)
        address = f"unix://{place}/socket"
        words = ["--data-root", place / "data", "--exec-root", place / "run"]
        words += ["--pidfile", place / "pid", "-H", address, "--iptables=false"]
        words += ["--ip6tables=false", "--bridge=none", "--storage-driver", "vfs"]
        with (place / "log").open("wb") as log:
            daemon = subprocess.Popen(["dockerd", *map(str, words)], stdout=log, stderr=log)
        client = ["/usr/bin/docker", "-H", address]
        try:
            _wait(client, daemon)
            archive = place / "root.tar"
            with tarfile.open(archive, "w") as tar:
                tar.add(thin_root, arcname=".")
            subprocess.run([*client, "import", archive, "thin"], check=True, capture_output=True)

            def run(*flags: str) -> str:
                shown = ("-v", "/usr:/usr:ro", "--network", "none", "--rm", "-i")
                words = [*client, "run", *shown, *flags, "thin", PYTHON, "/job/probe.py"]
                return _ask(words)

            yield run
        finally:
            daemon.terminate()
            daemon.wait(30)
            subprocess.run(["umount", "-R", place / "run"], check=False, capture_output=True)


def _wait(client: list[str], daemon: subprocess.Popen[bytes]) -> None:
    for _ in range(150):
        done = subprocess.run([*client, "info"], capture_output=True, check=False)
        if done.returncode == 0:
            return
        if daemon.poll() is not None:
            pytest.skip("dockerd does not start here")
        time.sleep(0.2)
    pytest.fail("dockerd does not answer")


def _ask(command: Sequence[object]) -> str:
    """Put all questions to the probe that a command runs."""
    words = list(map(str, command))
    done = subprocess.run(words, input=questions(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("capability", [None, *CAPABILITIES])
def test_every_call_is_answered_as_in_docker(
    docker: Callable[..., str], thin_root: Path, sandbox_home: Path, capability: str | None
) -> None:
    flags = () if capability is None else ("--cap-add", capability)
    # With CAP_SYS_ADMIN alone docker's AppArmor, where there is one, would refuse mounts.
    theirs = docker(*flags, "--security-opt", "apparmor=unconfined").splitlines()
    words = ("run", "-q", "--network", "none", "--rootfs", thin_root, "-v", "/usr:/usr:ro")
    command = [sys.executable, "-m", "sandbox", *words, *flags, "--", PYTHON, "/job/probe.py"]
    ours = _ask(command).splitlines()

    assert len(ours) == len(theirs) > 300
    different = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
    unexpected = [pair for pair in different if _called(pair[0]) not in CHANGED_SINCE]
    assert not unexpected, unexpected


def _called(line: str) -> str:
    """Return the name of a call, with the family of a socket."""
    name, _, *arguments = line.split()
    return f"{name} {arguments[0]}" if name == "socket" else name


@pytest.mark.slow
def test_the_filter_is_needed_for_the_difference(thin_root: Path, sandbox_home: Path) -> None:
    """Without it the answers are others: the comparison can fail."""
    if os.geteuid() != 0:
        pytest.skip("root's own root file system")
    words = ("run", "-q", "--network", "none", "--rootfs", thin_root, "-v", "/usr:/usr:ro")
    command = [sys.executable, "-m", "sandbox", *words]
    asked = ["--", PYTHON, "/job/probe.py"]
    filtered = _ask([*command, *asked])
    free = ["--security-opt", "seccomp=unconfined"]
    unfiltered = _ask([*command, *free, *asked])

    changed = set(unfiltered.splitlines()) - set(filtered.splitlines())
    assert {line.split()[0] for line in changed} >= {"keyctl", "userfaultfd", "socket", "unshare"}
