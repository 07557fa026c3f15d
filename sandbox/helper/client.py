"""`sandbox.run`: what a Python program calls; the helper process does the work."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from sandbox import errors
from sandbox.errors import LaunchError, SandboxError, SpecError
from sandbox.helper.protocol import receive_message, send_message
from sandbox.records.result import RunResult
from sandbox.spec import DEFAULT_INTERVAL_NS, Capture, Limits, RunSpec
from sandbox.units import parse_duration, parse_size_or_unlimited

if TYPE_CHECKING:
    from sandbox.records.enclosure import RootSpec
    from sandbox.records.ports import PublishedPort
    from sandbox.records.security import Harden
    from sandbox.records.venv import Venv

Stream = int | IO[Any] | None
"""A descriptor, an open file, or None for the caller's own."""

# An editable install may be found by an import hook that `-S` leaves out.
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100,PTH120

_BOOTSTRAP = (
    # The fork makes it nobody's child: the caller may wait for its own children in peace.
    "import os, sys; os.fork() and os._exit(0); "
    "os.write(int(sys.argv[1]), os.getpid().to_bytes(4, 'little')); sys.path[:] = sys.argv[2:]; "
    "from sandbox.helper.server import serve; serve(int(sys.argv[1]))"
)
_NS_PER_SEC = 1_000_000_000


class _Helper:
    """The helper of this process: made when first needed, made anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._owner_pid = 0
        self.pid = 0
        """The helper process; not a child of this one."""

    def request(self, descriptors: Sequence[int]) -> None:
        """Pass the descriptors of one run to a helper that is alive."""
        with self._lock:
            if self._control is None or self._owner_pid != os.getpid():
                self._control = self._start()
            try:
                socket.send_fds(self._control, [b"r"], descriptors)
            except OSError:
                # It was killed since the last run; the next one gets a new helper.
                self._control.close()
                self._control = self._start()
                socket.send_fds(self._control, [b"r"], descriptors)

    def close(self) -> None:
        """Let the helper go; its runs end as they would if we were gone."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        command = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, str(theirs.fileno())]
        try:
            # posix_spawn uses vfork: it costs the same however big this process is.
            pid = os.posix_spawn(
                sys.executable,
                [*command, _HERE, *map(str, sys.path)],
                os.environ,
                # Its own streams, so that it keeps no pipe of ours open.
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, place, os.devnull, os.O_RDWR, 0) for place in range(3)
                ],
            )
            os.waitpid(pid, 0)
        except OSError as exc:
            ours.close()
            raise SandboxError(f"cannot start the helper process: {exc.strerror}") from exc
        finally:
            theirs.close()
        self._owner_pid = os.getpid()
        self.pid = _read_pid(ours)
        return ours


def _read_pid(control: socket.socket) -> int:
    """Return the pid that the helper says it has; it says so before it imports anything."""
    data = control.recv(4, socket.MSG_WAITALL)
    if len(data) < 4:  # noqa: PLR2004 - as it is sent
        raise SandboxError(
            f"the helper process ended at once: {sys.executable} does not start",
            hint="run Python without `-S` or a changed sys.executable",
        )
    return int.from_bytes(data, "little")


_helper = _Helper()


def run(  # noqa: PLR0913 - one keyword for each flag of the command line
    command: Sequence[str | os.PathLike[str]],
    *,
    limits: Limits | None = None,
    cpus: float | None = None,
    memory: int | str | None = None,
    timeout: float | str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    user: str | None = None,
    venv: str | os.PathLike[str] | None = None,
    image: str | None = None,
    rootfs: str | os.PathLike[str] | None = None,
    root: RootSpec | None = None,
    harden: bool | Harden = False,
    network: str | None = None,
    publish: Sequence[str] = (),
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    capture: bool | str = False,
    interval: float | str | None = None,
    name: str | None = None,
    strict: bool = False,
    wait_all: bool = False,
    oom_continue: bool = False,
    thread_hints: bool = True,
    check: bool = False,
) -> RunResult:
    """Run a command inside limits and return exactly what it used.

    Args:
        command: The program and its arguments; no shell is involved.
        limits: Every limit there is; `cpus`, `memory` and `timeout` are shorthands for three.
        cpus: CPU bandwidth, 1.5 is one and a half CPUs.
        memory: Bytes, or text such as `"512m"`.
        timeout: Wall-clock seconds, or text such as `"1m30s"`.
        env: Variables to set on top of this process's own.
        cwd: Where to start; this process's directory unless given.
        user: `name`, `uid` or `user:group`.
        venv: The directory of a virtual environment to run in.
        image: The name or id of an image of this machine to run in.
        rootfs: A directory with a root file system to run in.
        root: All that can be asked of one; `image` and `rootfs` are shorthands.
        harden: Hold it back on the host's own root, as `--harden` does; or by what.
        network: `host`, `private` or `none` on the host's own root; `host` unless it is hardened.
        publish: Ports of the host that lead into a private network, as `-p`: `"8080:80"`.
        stdin: What the program reads; likewise `stdout` and `stderr` what it writes to.
        stdout: See `stdin`.
        stderr: See `stdin`.
        capture: True keeps the output in the run directory, `"tee"` shows it as well.
        interval: Seconds between samples, or text such as `"5ms"`; 10 ms unless given.
        name: A name for the run, unique among those that are running.
        strict: Refuse to start when a limit that was asked for cannot be enforced.
        wait_all: Wait for every process of the run, not for the main one alone.
        oom_continue: Let the kernel kill one process for memory and the rest go on.
        thread_hints: Set OMP_NUM_THREADS and the like to the CPU limit.
        check: Raise when the program did not end with status 0.

    Returns:
        The result; a program that failed is a result, not an error, unless `check`.

    Raises:
        SpecError: a value cannot be meant.
        LaunchError: the program was not found or cannot be executed.
        SandboxError: the host, the kernel or the run directory refused.
    """
    spec = RunSpec(
        command=tuple(os.fspath(part) for part in command),
        limits=_merge(limits, cpus, memory, timeout),
        environment=dict(env or {}),
        user=user,
        workdir=None if cwd is None else os.fspath(cwd),
        venv=None if venv is None else _venv_of(venv),
        root=_root_of(image, rootfs, root),
        harden=_harden_of(harden),
        network=network or ("none" if harden else "host"),
        ports=_ports_of(publish),
        name=name,
        capture=_capture_of(capture),
        strict=strict,
        wait_all=wait_all,
        oom_continue=oom_continue,
        thread_hints=thread_hints,
        interval_ns=DEFAULT_INTERVAL_NS if interval is None else _duration_ns(interval),
    )
    result = run_spec(spec, (stdin, stdout, stderr))
    if check and not result.outcome.is_success(result.exit_code):
        raise SandboxError(
            f"{spec.command[0]}: {result.reason}", hint=f"`sandbox runs show {result.run_id}`"
        )
    return result


def _merge(
    limits: Limits | None,
    cpus: float | None,
    memory: int | str | None,
    timeout: float | str | None,
) -> Limits:
    from sandbox.records.light import replace

    shorthands: dict[str, Any] = {}
    if cpus is not None:
        shorthands["cpus"] = float(cpus)
    if memory is not None:
        shorthands["memory_bytes"] = (
            parse_size_or_unlimited(memory) if isinstance(memory, str) else memory
        )
    if timeout is not None:
        shorthands["timeout_ns"] = _duration_ns(timeout)
    base = limits or Limits()
    for field in shorthands:
        if getattr(base, field) is not None:
            raise SpecError(
                f"{field} is given twice: in `limits` and as an argument",
                hint="leave out one of them",
            )
    return replace(base, **shorthands)


def _venv_of(path: str | os.PathLike[str]) -> Venv:
    from pathlib import Path

    from sandbox.environment.venv import open_venv

    return open_venv(Path(path))


def _root_of(
    image: str | None, rootfs: str | os.PathLike[str] | None, root: RootSpec | None
) -> RootSpec | None:
    given = [part for part in (image, rootfs, root) if part is not None]
    if len(given) > 1:
        raise SpecError(
            "of `image`, `rootfs` and `root` one can be given", hint="leave out the others"
        )
    if not given or root is not None:
        return root
    from sandbox.records.enclosure import RootSpec

    return RootSpec(image=image, rootfs=None if rootfs is None else os.fspath(rootfs))


def _ports_of(publish: Sequence[str]) -> tuple[PublishedPort, ...]:
    if not publish:
        return ()
    from sandbox.environment.port_flags import parse_all

    return parse_all((publish,) if isinstance(publish, str) else publish)


def _harden_of(harden: bool | Harden) -> Harden | None:  # noqa: FBT001 - the public argument's
    from sandbox.records.security import Harden

    return Harden() if harden is True else harden or None


def _duration_ns(duration: float | str) -> int:
    if isinstance(duration, str):
        return parse_duration(duration)
    return round(duration * _NS_PER_SEC)


def _capture_of(capture: bool | str) -> Capture:  # noqa: FBT001 - the public argument's own type
    if isinstance(capture, str):
        if capture not in set(Capture):
            raise SpecError(f"capture cannot be {capture!r}", hint="use True, False or 'tee'")
        return Capture(capture)
    return Capture.FILE if capture else Capture.NONE


def run_spec(
    spec: RunSpec, streams: tuple[Stream, Stream, Stream] = (None, None, None)
) -> RunResult:
    """Run what `spec` says, as `run` does; `streams` are the program's stdin, stdout and stderr.

    Raises:
        SandboxError: nothing was started, and nothing is left behind.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ours, theirs = socket.socketpair()
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with ours:
        try:
            _helper.request([theirs.fileno(), *_descriptors(streams), here])
        finally:
            theirs.close()
            os.close(here)
        umask = os.umask(0o022)
        os.umask(umask)
        from sandbox.kernel.signals import SignalState

        request = {
            "spec": spec,
            "environ": dict(os.environb),
            "umask": umask,
            "signals": SignalState.capture(),
        }
        send_message(ours, request)
        try:
            answer = receive_message(ours)
        except BaseException:
            # ^C here: the supervisor ends the run as soon as we hang up, so wait until it has.
            ours.shutdown(socket.SHUT_WR)
            receive_message(ours)
            raise
    return _read_answer(answer)


def _descriptors(streams: tuple[Stream, Stream, Stream]) -> list[int]:
    return [
        place if stream is None else stream if isinstance(stream, int) else stream.fileno()
        for place, stream in enumerate(streams)
    ]


def _read_answer(answer: dict[str, Any] | None) -> RunResult:
    if answer is None:
        raise SandboxError(
            "the supervisor of the run was lost",
            hint="its guard has ended the program; `sandbox runs ls` shows what was recorded",
        )
    if "result" in answer:
        result: RunResult = answer["result"]
        return result
    kind = getattr(errors, answer["kind"], SandboxError)
    if issubclass(kind, LaunchError):
        raise LaunchError(answer["error"], exit_code=answer["exit_code"], hint=answer["hint"])
    raise kind(answer["error"], hint=answer["hint"])
