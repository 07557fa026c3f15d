"""The child between its fork and its exec, and what it says when it cannot get there.

It is charged to the run's group, so everything is prepared before the fork, and all but the exec
itself is done before the baseline is taken.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

from sandbox.errors import EXIT_NOT_FOUND
from sandbox.kernel import libc, lifeline
from sandbox.records.light import dataclass
from sandbox.records.program import Program

if TYPE_CHECKING:
    from sandbox.kernel.enclosure import Entering

GO = b"g"
_FIRST_FREE_FD = 3
_FAILED = struct.Struct("=cBi")
_FAILED_MARK = b"f"
REPORT_BYTES = 4096
_PATH_DEFAULT = b"/bin:/usr/bin"  # as execvp has it
_SEARCH_GOES_ON = {errno.ENOENT, errno.ENOTDIR}


class Step(IntEnum):
    """What the child was doing; the order is the order of the steps."""

    PAUSE = 0
    JOIN = 1
    NETWORK = 2
    ROOT = 3
    AFFINITY = 4
    STDIO = 5
    DESCRIPTORS = 6
    RLIMIT = 7
    GROUPS = 8
    USER = 9
    PRIVILEGES = 10
    DIRECTORY = 11
    EXEC = 12


@dataclass(frozen=True)
class Failure:
    """What went wrong in the child, as it tells it."""

    step: Step
    errno: int
    object: str
    """The file, directory, group or limit that it was about."""


READY = b"r"
"""The whole report of a child that is inside its group and paused."""


@dataclass(frozen=True, kw_only=True)
class Birth:
    """All that a child needs to become its program."""

    program: Program
    image: libc.Image
    candidates: tuple[bytes, ...]
    """Where the program may be, in the order of the search."""
    blocked: libc.SignalSet
    keep_descriptors: bool
    death_signal: int | None
    entering: Entering | None = None
    """How the child gets into a root file system of its own."""
    raise_loopback: Callable[[], None] | None = None
    """Sets `lo` up, in a network of its own."""

    @classmethod
    def prepare(
        cls,
        program: Program,
        *,
        blocked: Iterable[int] = (),
        keep_descriptors: bool = False,
        death_signal: int | None = None,
    ) -> Birth:
        """Encode and look up everything that can be known before the fork."""
        arguments = [os.fsencode(part) for part in program.argv]
        entering = None
        if program.enclosure is not None:
            from sandbox.kernel.enclosure import Entering

            entering = Entering(program.enclosure, program.user[0] if program.user else 0)
        raise_loopback: Callable[[], None] | None = None
        if program.own_network is not None:
            from sandbox.kernel import mount_calls

            raise_loopback = mount_calls.raise_loopback
        return cls(
            program=program,
            image=libc.Image(arguments, program.environment),
            candidates=find_candidates(arguments[0], program.environment),
            blocked=libc.SignalSet(blocked),
            # An open directory would be a way out of a root file system.
            keep_descriptors=keep_descriptors and entering is None,
            death_signal=death_signal,
            entering=entering,
            raise_loopback=raise_loopback,
        )


def find_candidates(name: bytes, environment: dict[bytes, bytes]) -> tuple[bytes, ...]:
    """Return the paths that execvp would try, by the PATH that the program will see."""
    if b"/" in name:
        return (name,)
    path = environment.get(b"PATH", _PATH_DEFAULT)
    return tuple(os.path.join(directory, name) for directory in path.split(b":"))  # noqa: PTH118 - bytes


def become(
    birth: Birth, entrances: Sequence[bytes], go_fd: int, report_fd: int, parent_pid: int
) -> NoReturn:
    """Be the child: join, prepare, say so, wait, execute. Never returns, runs no exit handler."""
    try:
        _Child(birth, go_fd, report_fd).live(entrances, parent_pid)
    finally:
        os._exit(EXIT_NOT_FOUND)


class _Child:
    def __init__(self, birth: Birth, go_fd: int, report_fd: int) -> None:
        self._birth = birth
        self._go_fd = go_fd
        self._report_fd = report_fd
        self._step = Step.PAUSE
        self._object = b""

    def live(self, entrances: Sequence[bytes], parent_pid: int) -> None:
        try:
            lifeline.drop_all()
            self._join(entrances)
            self._change_root()
            self._prepare()
            self._pause(parent_pid)
            self._execute()
        except OSError as exc:
            self._fail(exc.errno or 0)
        except MemoryError:
            self._fail(errno.ENOMEM)
        except (ValueError, OverflowError):
            # setrlimit says EPERM so; sched_setaffinity, that there cannot be such a CPU.
            self._fail(errno.EPERM if self._step is Step.RLIMIT else errno.EINVAL)

    def _at(self, step: Step, what: bytes | str = b"") -> None:
        self._step, self._object = step, what if isinstance(what, bytes) else os.fsencode(what)

    def _join(self, entrances: Sequence[bytes]) -> None:
        for entrance in entrances:
            self._at(Step.JOIN, entrance)
            fd = os.open(entrance, os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, b"0")
            os.close(fd)

    def _change_root(self) -> None:
        """Wait until the supervisor has given us ids, group and network, then change the root."""
        if not self._birth.program.is_apart:
            return
        self._at(Step.PAUSE)
        self._wait()
        if self._birth.raise_loopback is not None:
            self._at(Step.NETWORK)
            self._birth.raise_loopback()
        if self._birth.entering is not None:
            self._birth.entering.change_root(lambda what: self._at(Step.ROOT, what))

    def _prepare(self) -> None:
        program = self._birth.program
        if program.cpus_allowed is not None:
            self._at(Step.AFFINITY, ",".join(map(str, program.cpus_allowed)))
            os.sched_setaffinity(0, program.cpus_allowed)
        self._take_stdio(program.stdio)
        if not self._birth.keep_descriptors:
            self._at(Step.DESCRIPTORS)
            _mark_descriptors()
        # After what needs descriptors, and before the privilege to raise a limit is given up.
        for which, soft, hard in program.rlimits:
            self._at(Step.RLIMIT, f"{which} {soft} {hard}")
            resource.setrlimit(which, (soft, hard))
        entering = self._birth.entering
        if entering is not None:
            self._at(Step.PRIVILEGES)
            entering.bound_capabilities()
        self._switch_user(program)
        if entering is not None:
            self._at(Step.DIRECTORY, program.directory or "/")
            entering.settle()
            self._at(Step.PRIVILEGES)
            entering.confine()
        elif program.directory is not None:
            # As the user, who may see less than root (0700 homes) or more (network homes).
            self._at(Step.DIRECTORY, program.directory)
            os.chdir(program.directory)
        self._birth.blocked.block_exactly()

    def _switch_user(self, program: Program) -> None:
        if program.user is None:
            return
        uid, gid, groups = program.user
        self._at(Step.GROUPS, f"{uid}:{gid}")
        os.setgroups(groups)
        self._at(Step.USER, f"{uid}:{gid}")
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)

    def _take_stdio(self, stdio: tuple[int | None, int | None, int | None]) -> None:
        sources = list(stdio)
        for target, source in enumerate(stdio):
            # One that another will be put in place of must be out of the way first.
            if source is not None and source < _FIRST_FREE_FD and source != target:
                self._at(Step.STDIO, str(source))
                sources[target] = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
        for target, source in enumerate(sources):
            if source is None:
                continue
            self._at(Step.STDIO, str(source))
            if source == target:
                os.set_inheritable(target, True)  # noqa: FBT003 - the standard library's way
            else:
                os.dup2(source, target)

    def _pause(self, parent_pid: int) -> None:
        """Wait to be let go; without a supervisor there is nothing to wait for."""
        self._at(Step.PAUSE)
        if self._birth.death_signal is not None:
            # After the change of user, which clears it. The parent may have gone before it.
            libc.prctl(libc.PR_SET_PDEATHSIG, self._birth.death_signal)
            # In a PID namespace of its own it sees no parent.
            if os.getppid() != parent_pid and self._birth.entering is None:
                os._exit(EXIT_NOT_FOUND)
        self._wait()

    def _wait(self) -> None:
        os.write(self._report_fd, READY)
        if os.read(self._go_fd, 1) != GO:
            os._exit(EXIT_NOT_FOUND)

    def _execute(self) -> None:
        """Try every place; of several failures the one that says most is told, as execvp does."""
        worst, place = errno.ENOENT, self._birth.candidates[0]
        is_search = len(self._birth.candidates) > 1
        if self._birth.entering is not None:
            self._birth.entering.stand_in()
        for candidate in self._birth.candidates:
            code = self._birth.image.execute(candidate)
            if code in _SEARCH_GOES_ON:
                if self._birth.entering is not None and os.access(candidate, os.F_OK):
                    # The supervisor cannot look: that there is a file has to be said here.
                    worst, place = errno.ELIBACC, candidate
                continue
            if code == errno.EACCES and is_search and not os.access(candidate, os.F_OK):
                continue  # the directory is closed to the user: nothing is known to be there
            worst, place = code, candidate
            if code != errno.EACCES:  # perhaps a later directory has one that may be executed
                break
        self._at(Step.EXEC, place)
        self._fail(worst)

    def _fail(self, code: int) -> None:
        head = _FAILED.pack(_FAILED_MARK, self._step, code)
        os.write(self._report_fd, (head + self._object)[:REPORT_BYTES])


def _mark_descriptors() -> None:
    """Let the exec close everything but stdio."""
    try:
        libc.close_on_exec_from(_FIRST_FREE_FD)
    except OSError:
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - between fork and exec
            if int(name) >= _FIRST_FREE_FD:
                with suppress(OSError):  # the listing's own
                    os.set_inheritable(int(name), False)  # noqa: FBT003 - as above


def read_failure(data: bytes) -> Failure | None:
    """Return what a child has said of its failure; None if it said nothing."""
    if data[:1] != _FAILED_MARK:
        return None
    _, step, code = _FAILED.unpack_from(data)
    return Failure(Step(step), code, os.fsdecode(data[_FAILED.size :]))
