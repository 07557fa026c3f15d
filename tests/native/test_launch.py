"""The real launcher on this kernel: what a program finds, how it ends, and what it cannot do."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.errors import HostError, KernelError, LaunchError
from sandbox.kernel import libc
from sandbox.kernel.backend import Backend, open_backend
from sandbox.kernel.launch import ProcessLauncher
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.kernel.signals import SignalState
from sandbox.records.host import Mode
from sandbox.records.program import ExitStatus, Program
from sandbox.spec import Limits

NOBODY = 65534
LOADS = Path(__file__).parents[1] / "loads"
PYTHON = os.path.realpath(sys.executable)
TIMEOUT_SEC = 20


@pytest.fixture
def backend() -> Iterator[Backend]:
    """A group of this host's own kind, which is made and removed."""
    roots = Roots()
    place = find_place(roots)
    if place.mode is Mode.NONE:
        pytest.skip("no cgroup can be written here")
    backend = open_backend(
        place,
        roots,
        f"test-{os.getpid()}-{time.monotonic_ns()}",
        oom_group=True,
        signals=SignalState.capture(),
        keep_descriptors=False,
    )
    backend.group.create()
    backend.group.apply(Limits().with_defaults())
    try:
        yield backend
    finally:
        backend.group.kill()
        backend.group.remove()
        backend.group.close()


def _program(*argv: str, **settings: object) -> Program:
    environment = settings.pop("environment", dict(os.environb))
    return Program(argv=argv, environment=environment, **settings)  # type: ignore[arg-type]


def _wait(child: object) -> ExitStatus:
    ready, _, _ = select.select([child.fd], [], [], TIMEOUT_SEC)  # type: ignore[attr-defined]
    assert ready, "the program did not end"
    status = child.reap()  # type: ignore[attr-defined]
    assert status is not None
    return status


def _run(backend: Backend, program: Program, launcher: ProcessLauncher | None = None) -> ExitStatus:
    child = (launcher or backend.launcher).start(program, backend.group)
    try:
        child.release()
        return _wait(child)
    finally:
        child.abandon()


def _output(
    backend: Backend,
    *argv: str,
    launcher: ProcessLauncher | None = None,
    stdin: int | None = None,
    **settings: object,
) -> bytes:
    """Run a program to its end; return what it wrote to stdout."""
    read_fd, write_fd = os.pipe()
    child = None
    try:
        program = _program(*argv, stdio=(stdin, write_fd, None), **settings)
        child = (launcher or backend.launcher).start(program, backend.group)
        os.close(write_fd)
        write_fd = -1
        child.release()
        output = b""
        while data := os.read(read_fd, 1 << 16):
            output += data
        assert _wait(child).status == 0
        return output
    finally:
        os.close(read_fd)
        if write_fd >= 0:
            os.close(write_fd)
        if child is not None:
            child.abandon()


# --- from the fork to the end ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_the_exit_status_is_the_programs_own(backend: Backend, status: int) -> None:
    end = _run(backend, _program("sh", "-c", f"exit {status}"))

    assert (end.status, end.signal) == (status, None)
    assert end.cpu_user_usec is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_deadly_signal_is_told_as_such(backend: Backend, number: int) -> None:
    end = _run(backend, _program("sh", "-c", f"kill -{int(number)} $$"))

    assert (end.status, end.signal) == (None, number)


def test_a_child_is_inside_its_group_and_has_not_started_before_it_is_released(
    backend: Backend, tmp_path: Path
) -> None:
    mark = tmp_path / "started"

    child = backend.launcher.start(_program("touch", str(mark)), backend.group)
    inside = child.pid in backend.group.pids()
    groups = Path(f"/proc/{child.pid}/cgroup").read_text()
    time.sleep(0.05)
    started_early = mark.exists()
    child.release()
    end = _wait(child)
    child.abandon()

    assert inside
    expected = {str(path.parent).split("/", 5)[-1] for path in backend.group.entrances()}
    assert all(any(line.endswith(place) for line in groups.splitlines()) for place in expected)
    assert not started_early
    assert end.status == 0
    assert mark.exists()


def test_where_the_kernel_cannot_give_birth_in_a_group_the_child_joins(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> tuple[int, int]:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(libc, "clone_into", refuse)

    child = backend.launcher.start(_program("true"), backend.group)
    inside = child.pid in backend.group.pids()
    child.release()
    end = _wait(child)
    child.abandon()

    assert inside
    assert end.status == 0


def test_a_child_can_be_born_in_a_v2_group(tmp_path: Path) -> None:
    own = _own_v2_group()
    directory = own / f"run-test-born-{os.getpid()}"
    directory.mkdir()

    class Born:
        def entrances(self) -> tuple[Path, ...]:
            return (directory / "cgroup.procs",)

        def birth_directory(self) -> Path:
            return directory

    try:
        child = ProcessLauncher().start(_program("true"), Born())  # type: ignore[arg-type]
        inside = (directory / "cgroup.procs").read_text().split()
        child.release()
        end = _wait(child)
        child.abandon()
    finally:
        directory.rmdir()

    assert inside == [str(child.pid)]
    assert end.status == 0


def _own_v2_group() -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root may write here")
    line = next(
        line for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"
    )
    for mount in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (mount / "cgroup.controllers").exists():
            return mount / line[4:]
    pytest.skip("cgroup v2 is not mounted")


def test_a_group_that_is_gone_is_named(tmp_path: Path) -> None:
    class Gone:
        def entrances(self) -> tuple[Path, ...]:
            return (tmp_path / "no-group" / "cgroup.procs",)

        def birth_directory(self) -> None:
            return None

    with pytest.raises(KernelError, match=r"no-group/cgroup\.procs: ENOENT"):
        ProcessLauncher().start(_program("true"), Gone())  # type: ignore[arg-type]


def test_an_abandoned_child_never_runs(backend: Backend, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    child = backend.launcher.start(_program("touch", str(mark)), backend.group)

    child.abandon()
    child.abandon()

    assert not mark.exists()
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_signal_reaches_the_program_and_is_harmless_afterwards(backend: Backend) -> None:
    child = backend.launcher.start(_program("sleep", "60"), backend.group)
    child.release()
    assert child.reap() is None

    child.signal(signal.SIGTERM)
    end = _wait(child)
    child.signal(signal.SIGTERM)

    assert end.signal == signal.SIGTERM
    assert child.reap() == end
    child.abandon()


def test_a_child_that_is_killed_while_paused_is_told_by_its_signal(backend: Backend) -> None:
    child = backend.launcher.start(_program("true"), backend.group)
    child.signal(signal.SIGKILL)
    time.sleep(0.02)

    child.release()

    assert _wait(child).signal == signal.SIGKILL
    child.abandon()


def test_the_peak_of_a_small_program_is_not_that_of_our_fork(backend: Backend) -> None:
    assert _run(backend, _program("true")).max_rss_bytes is None


def test_the_peak_of_a_large_program_is_its_own(
    backend: Backend, load: Callable[..., list[str]]
) -> None:
    end = _run(backend, _program(PYTHON, "-I", "-S", "-c", "b = bytearray(200 << 20)"))

    assert end.max_rss_bytes is not None
    assert 200 << 20 < end.max_rss_bytes < 230 << 20


# --- what the program finds -----------------------------------------------------------------------


def test_stdin_can_be_nothing_a_file_or_a_pipe(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"from a file")
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(tmp_path / "input", os.O_RDONLY)
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"from a pipe")
    os.close(write_fd)

    outputs = [_output(backend, "cat", stdin=fd) for fd in (null, file, read_fd)]

    for fd in (null, file, read_fd):
        os.close(fd)
    assert outputs == [b"", b"from a file", b"from a pipe"]


def test_stdout_and_stderr_can_be_exchanged(backend: Backend, tmp_path: Path) -> None:
    """Descriptors that are themselves stdio: 2 goes to 1 and 1 to 2, neither over the other."""
    out, err = tmp_path / "out", tmp_path / "err"
    script = textwrap.dedent(f"""
        import os, sys, select
        sys.path[:0] = {sys.path!r}
        from sandbox.kernel.launch import ProcessLauncher
        from sandbox.records.program import Program
        class Nowhere:
            def entrances(self): return ()
            def birth_directory(self): return None
        os.close(0)
        program = Program(
            argv=("sh", "-c", "echo out; echo err >&2"),
            environment=dict(os.environb),
            stdio=(None, 2, 1),
        )
        child = ProcessLauncher().start(program, Nowhere())
        child.release()
        select.select([child.fd], [], [], 10)
        sys.exit(child.reap().status)
        """)

    with out.open("wb") as stdout, err.open("wb") as stderr:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=stdout,
            stderr=stderr,
            check=False,
            timeout=TIMEOUT_SEC,
        )

    assert (done.returncode, out.read_bytes(), err.read_bytes()) == (0, b"err\n", b"out\n")


def test_arguments_and_environment_keep_every_byte(backend: Backend) -> None:
    odd = b"\xff:\xe9 =value"
    environment = {b"PATH": os.environb[b"PATH"], b"ODD": odd, b"E:M": b"", b"N\xfc": b"x"}
    script = "import os,sys; print(sys.argv[1:]); print(sorted(os.environb.items()))"
    arguments = ["a b", "c:d", "", "\udcff", "*"]

    output = _output(backend, PYTHON, "-I", "-S", "-c", script, *arguments, environment=environment)

    first, second = output.decode("utf-8", "backslashreplace").splitlines()
    assert first == repr(arguments)
    shown = eval(second)
    assert [pair for pair in shown if pair[0] != b"LC_CTYPE"] == sorted(environment.items())


def test_a_directory_with_a_blank_and_a_colon_is_where_the_program_starts(
    backend: Backend, tmp_path: Path
) -> None:
    directory = tmp_path / "a b:c"
    directory.mkdir()

    assert _output(backend, "pwd", directory=str(directory)) == f"{directory}\n".encode()


def test_much_output_that_is_no_text_arrives_whole(backend: Backend) -> None:
    script = "import os,hashlib,sys; d=os.urandom(1<<20)*8; sys.stdout.buffer.write(d); "
    script += "sys.stderr.write(hashlib.sha256(d).hexdigest())"
    read_fd, write_fd = os.pipe()

    output = _output_with_stderr(backend, write_fd, PYTHON, "-I", "-S", "-c", script)
    told = os.read(read_fd, 100).decode()

    os.close(read_fd)
    assert len(output) == 8 << 20
    assert hashlib.sha256(output).hexdigest() == told


def _output_with_stderr(backend: Backend, stderr: int, *argv: str) -> bytes:
    read_fd, write_fd = os.pipe()
    program = _program(*argv, stdio=(None, write_fd, stderr))
    child = backend.launcher.start(program, backend.group)
    os.close(write_fd)
    os.close(stderr)
    child.release()
    output = b""
    while data := os.read(read_fd, 1 << 16):
        output += data
    os.close(read_fd)
    assert _wait(child).status == 0
    child.abandon()
    return output


def test_no_descriptor_of_ours_is_open_in_the_program(backend: Backend) -> None:
    leaked = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leaked, True)  # noqa: FBT003

    listed = _output(backend, "ls", "/proc/self/fd")

    os.close(leaked)
    assert listed.split() == [b"0", b"1", b"2", b"3"]  # 3 is the listing's own


def test_an_old_kernel_leaks_no_descriptor_either(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_first_fd: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(libc, "close_on_exec_from", refuse)
    leaked = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leaked, True)  # noqa: FBT003

    listed = _output(backend, "ls", "/proc/self/fd")

    os.close(leaked)
    assert listed.split() == [b"0", b"1", b"2", b"3"]


def test_a_process_with_threads_can_launch_too(backend: Backend) -> None:
    """They may hold the interpreter's locks, so such a process forks in Python's own way."""
    stop = threading.Event()
    threads = [threading.Thread(target=_be_busy, args=(stop,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        ends = [_run(backend, _program("sh", "-c", f"exit {n}")).status for n in range(10)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert ends == list(range(10))


def _be_busy(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def test_a_descriptor_of_our_callers_is_kept_where_that_is_wanted(backend: Backend) -> None:
    """As a shell's `<(…)` gives it: `cat /dev/fd/63`."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"substituted")
    os.close(write_fd)
    os.set_inheritable(read_fd, True)  # noqa: FBT003

    output = _output(
        backend, "cat", f"/dev/fd/{read_fd}", launcher=ProcessLauncher(keep_descriptors=True)
    )

    os.close(read_fd)
    assert output == b"substituted"


def test_signals_that_we_block_catch_or_ignore_are_as_before_in_the_program(
    backend: Backend,
) -> None:
    before = SignalState.capture()
    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    ignored = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT})
    try:
        status = _output(
            backend, "cat", "/proc/self/status", launcher=ProcessLauncher(signals=before)
        )
        here = SignalState.capture()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGTERM, handler)
        signal.signal(signal.SIGUSR1, ignored)

    lines = status.decode().splitlines()
    fields = dict(line.split(":\t") for line in lines if line.startswith("Sig"))
    own_mask = sum(1 << (number - 1) for number in before.ignored)
    assert int(fields["SigBlk"], 16) == 0
    assert int(fields["SigIgn"], 16) == own_mask  # SIGPIPE, which Python ignores, is not in it
    assert int(fields["SigCgt"], 16) == 0
    assert {signal.SIGHUP, signal.SIGINT} <= here.blocked  # and ours are as we had them
    assert signal.SIGUSR1 in here.ignored


def test_what_was_ignored_before_us_stays_ignored(backend: Backend) -> None:
    """As `nohup` does it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        state = SignalState.capture()
    finally:
        signal.signal(signal.SIGHUP, before)

    end = _run(
        backend, _program("sh", "-c", "kill -HUP $$; exit 7"), ProcessLauncher(signals=state)
    )

    assert end.status == 7


def test_a_status_is_kept_although_our_own_parent_ignored_sigchld(backend: Backend) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        end = _run(backend, _program("sh", "-c", "exit 9"))
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert end.status == 9


def test_the_program_stays_in_our_session_and_process_group(backend: Backend) -> None:
    script = "import os; print(os.getsid(0), os.getpgid(0), os.getppid())"

    output = _output(backend, PYTHON, "-I", "-S", "-c", script)

    assert output.split() == [
        str(number).encode() for number in (os.getsid(0), os.getpgid(0), os.getpid())
    ]


def test_the_terminal_is_the_programs_too() -> None:
    script = textwrap.dedent(f"""
        import os, sys, select
        sys.path[:0] = {sys.path!r}
        from sandbox.kernel.launch import ProcessLauncher
        from sandbox.records.program import Program
        class Nowhere:
            def entrances(self): return ()
            def birth_directory(self): return None
        argv = ({PYTHON!r}, "-I", "-S", {str(LOADS / "tty.py")!r})
        program = Program(argv=argv, environment=dict(os.environb))
        child = ProcessLauncher().start(program, Nowhere())
        child.release()
        select.select([child.fd], [], [], 10)
        sys.exit(child.reap().status)
        """)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", script])
    output = b""
    while select.select([terminal], [], [], TIMEOUT_SEC)[0]:
        try:
            output += os.read(terminal, 4096)
        except OSError:  # the last descriptor of the other side is closed
            break
    os.close(terminal)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert output.split() == [b"stdin=True", b"stdout=True", b"stderr=True", b"foreground=True"]


def test_what_we_have_not_flushed_is_not_written_twice() -> None:
    script = textwrap.dedent(f"""
        import atexit, os, sys, select
        sys.path[:0] = {sys.path!r}
        from sandbox.errors import LaunchError
        from sandbox.kernel.launch import ProcessLauncher
        from sandbox.records.program import Program
        class Nowhere:
            def entrances(self): return ()
            def birth_directory(self): return None
        atexit.register(print, "at exit")
        print("buffered")
        for name in ("true", "/no/such/program"):
            program = Program(argv=(name,), environment=dict(os.environb))
            child = ProcessLauncher().start(program, Nowhere())
            try:
                child.release()
            except LaunchError as error:
                print(error.exit_code)
        """)

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=TIMEOUT_SEC
    )

    assert done.stdout == b"buffered\n127\nat exit\n"


def test_rlimits_and_affinity_hold_in_the_program(backend: Backend) -> None:
    script = "import os,resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE), "
    script += "*resource.getrlimit(resource.RLIMIT_CORE), *os.sched_getaffinity(0))"
    cpu = max(os.sched_getaffinity(0))
    rlimits = ((resource.RLIMIT_NOFILE, 5, 64), (resource.RLIMIT_CORE, 0, 0))

    output = _output(
        backend, PYTHON, "-I", "-S", "-c", script, rlimits=rlimits, cpus_allowed=(cpu,)
    )

    assert output.split() == [str(number).encode() for number in (5, 64, 0, 0, cpu)]


def test_an_rlimit_that_cannot_be_raised_is_ours_to_explain(backend: Backend) -> None:
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    program = _program("true", rlimits=((resource.RLIMIT_NOFILE, most + 1, most + 1),))

    with pytest.raises(HostError, match=rf"ulimit nofile={most + 1}:{most + 1}: EPERM") as caught:
        backend.launcher.start(program, backend.group)

    assert caught.value.exit_code == 125


def test_a_cpu_that_is_not_there_is_ours_to_explain(backend: Backend) -> None:
    with pytest.raises(HostError, match="cannot bind the program to CPUs 8000: EINVAL"):
        backend.launcher.start(_program("true", cpus_allowed=(8000,)), backend.group)


# --- another user ---------------------------------------------------------------------------------


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")


@pytest.mark.usefixtures("root")
def test_the_program_runs_as_the_user_that_was_asked_for(backend: Backend) -> None:
    output = _output(backend, "id", user=(NOBODY, 12345, (12345, 23456)))

    words = dict(word.split(b"=", 1) for word in output.split())
    assert words[b"uid"].startswith(b"65534")
    assert words[b"gid"].startswith(b"12345")
    assert words[b"groups"].replace(b"(", b",").split(b",") == [b"12345", b"23456"]


@pytest.mark.usefixtures("root")
def test_the_users_rights_count_for_the_directory_and_the_program(
    backend: Backend, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    user = (NOBODY, NOBODY, ())

    with pytest.raises(LaunchError, match="cannot start in directory") as directory:
        backend.launcher.start(_program("true", user=user, directory=str(tmp_path)), backend.group)
    child = backend.launcher.start(_program(str(program), user=user), backend.group)
    with pytest.raises(LaunchError, match="EACCES") as execution:
        child.release()

    assert directory.value.exit_code == 126
    assert directory.value.hint == "the program's user may not enter it (uid 65534)"
    assert execution.value.exit_code == 126


def test_a_plain_user_cannot_become_another(plain_user: Callable[..., object]) -> None:
    script = textwrap.dedent("""
        import os
        from sandbox.errors import LaunchError
        from sandbox.kernel.launch import ProcessLauncher
        from sandbox.records.program import Program
        class Nowhere:
            def entrances(self): return ()
            def birth_directory(self): return None
        try:
            program = Program(argv=("true",), environment={}, user=(0, 0, ()))
            ProcessLauncher().start(program, Nowhere())
        except LaunchError as error:
            print(error.exit_code, error)
        """)

    done = plain_user("python", "-c", script)

    assert done.stdout == "126 cannot run as user 0:0: EPERM\n", done  # type: ignore[attr-defined]


# --- what cannot be executed ----------------------------------------------------------------------


def _refusal(backend: Backend, program: Program) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        _run(backend, program)
    assert not backend.group.is_populated()
    return caught.value


@pytest.mark.parametrize(
    ("name", "content", "mode", "code", "says", "hints"),
    [
        ("missing", None, 0, 127, "no such file", None),
        ("plain", "#!/bin/sh\n", 0o644, 126, "EACCES", "chmod +x"),
        ("text", "echo no shebang\n", 0o755, 126, "ENOEXEC", "name what runs it first"),
        ("empty", "", 0o755, 126, "ENOEXEC", "without `#!`"),
        ("lost", "#!/no/such/interpreter -x\n", 0o755, 126, "ENOENT", "`/no/such/interpreter`"),
        ("windows", "#!/bin/sh\r\n", 0o755, 126, "ENOENT", "carriage return"),
    ],
)
def test_a_file_that_cannot_be_executed_says_why(
    backend: Backend,
    tmp_path: Path,
    name: str,
    content: str | None,
    mode: int,
    code: int,
    says: str,
    hints: str | None,
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content.encode())
        path.chmod(mode)

    error = _refusal(backend, _program(str(path)))

    assert error.exit_code == code
    assert str(error).startswith(f"cannot execute {path}: ")
    assert says in str(error)
    assert (hints or "") in (error.hint or "")


def test_a_directory_is_no_program(backend: Backend, tmp_path: Path) -> None:
    error = _refusal(backend, _program(str(tmp_path)))

    assert (error.exit_code, error.hint) == (126, "it is a directory")


def test_a_name_that_path_does_not_have_is_not_found(backend: Backend) -> None:
    error = _refusal(backend, _program("no-such-program"))

    assert error.exit_code == 127
    assert str(error) == "cannot execute no-such-program: not found in any directory of PATH"


def test_a_script_beside_us_is_pointed_out(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text("")

    error = _refusal(backend, _program("infer.py", directory=str(tmp_path)))

    assert error.exit_code == 127
    assert "`./infer.py`" in (error.hint or "")


def test_the_search_follows_the_programs_own_path(backend: Backend, tmp_path: Path) -> None:
    """As execvp: what may not be executed is passed over, an empty entry is where we are."""
    refused, here = tmp_path / "refused", tmp_path / "here"
    for directory, mode in ((refused, 0o644), (here, 0o755)):
        directory.mkdir()
        (directory / "tool").write_text("#!/bin/sh\necho found\n")
        (directory / "tool").chmod(mode)

    first = _output(backend, "tool", environment={b"PATH": f"/none:{refused}:{here}".encode()})
    second = _output(backend, "tool", environment={b"PATH": b"/none:"}, directory=str(here))
    error = _refusal(backend, _program("tool", environment={b"PATH": f"{refused}:/none".encode()}))

    assert first == second == b"found\n"
    assert (error.exit_code, str(error)) == (126, f"cannot execute {refused}/tool: EACCES")


@pytest.mark.parametrize(("kind", "code"), [("missing", "ENOENT"), ("file", "ENOTDIR")])
def test_a_bad_working_directory_is_126(
    backend: Backend, tmp_path: Path, kind: str, code: str
) -> None:
    (tmp_path / "file").write_text("")

    error = _refusal(backend, _program("true", directory=str(tmp_path / kind)))

    assert error.exit_code == 126
    assert str(error) == f"cannot start in directory {tmp_path / kind}: {code}"
    assert error.hint is not None


def test_too_many_arguments_are_126(backend: Backend) -> None:
    error = _refusal(backend, _program("true", *(["x" * 100_000] * 80)))

    assert (error.exit_code, str(error).endswith(": E2BIG")) == (126, True)


# --- nothing is left ------------------------------------------------------------------------------


def test_many_launches_leave_no_descriptor_and_no_zombie(backend: Backend) -> None:
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers

    for index in range(30):
        program = _program("true") if index % 3 else _program("/no/such/program")
        child = backend.launcher.start(program, backend.group)
        if index % 3 == 0:
            with pytest.raises(LaunchError):
                child.release()
        elif index % 3 == 1:
            child.release()
            _wait(child)
        child.abandon()

    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - numbers
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)


SUPERVISOR = textwrap.dedent(f"""
    import os, sys, time
    sys.path[:0] = {sys.path!r}
    from sandbox.kernel.launch import ProcessLauncher
    from sandbox.records.program import Program
    class Nowhere:
        def entrances(self): return ()
        def birth_directory(self): return None
    death_signal = int(sys.argv[1]) or None
    program = Program(argv=tuple(sys.argv[3:]), environment=dict(os.environb))
    child = ProcessLauncher(death_signal=death_signal).start(program, Nowhere())
    if sys.argv[2] == "release":
        child.release()
    print(child.pid, flush=True)
    time.sleep(60)
    """)


def _kill_supervisor(*arguments: str) -> int:
    """Start a supervisor, SIGKILL it once its child stands; return the child's pid."""
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        process.wait(TIMEOUT_SEC)
    return pid


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def _ends(pid: int, within_sec: float = 1) -> bool:
    deadline = time.monotonic() + within_sec
    while time.monotonic() < deadline:
        if not _is_alive(pid):
            return True
        time.sleep(0.005)
    return False


def test_a_paused_child_ends_with_its_supervisor_and_never_runs(tmp_path: Path) -> None:
    mark = tmp_path / "started"

    pid = _kill_supervisor("0", "pause", "touch", str(mark))

    assert _ends(pid)
    assert not mark.exists()


def test_a_program_with_a_death_signal_ends_with_its_supervisor() -> None:
    pid = _kill_supervisor(str(int(signal.SIGKILL)), "release", "sleep", "60")

    assert _ends(pid)
