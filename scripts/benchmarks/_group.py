"""Groups of this host's mode with something alive inside, made and removed around a measurement."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from _measure import SkippedError, other_cpu

from sandbox.errors import SandboxError
from sandbox.kernel import libc
from sandbox.kernel.group import Group
from sandbox.kernel.hybrid import HybridGroup
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified import UnifiedGroup
from sandbox.records.host import Mode
from sandbox.spec import Limits

Work = Callable[[], None]


def find_group(run_id: str) -> Group:
    """Return the group of a run of this host's mode; whether it exists is another question.

    Raises:
        SkippedError: no group can be made here.
    """
    try:
        roots = Roots()
        place = find_place(roots)
        if place.mode is Mode.HYBRID:
            return HybridGroup(place, run_id, roots)
        if place.mode is Mode.UNIFIED:
            return UnifiedGroup(place, run_id, roots)
    except SandboxError as error:
        raise SkippedError(error) from error
    raise SkippedError(place.reason)


def light_work() -> None:
    """Compute half of the time, in turns of a millisecond, for ever."""
    while True:
        turn_ends = time.perf_counter() + 0.001
        while time.perf_counter() < turn_ends:
            pass
        time.sleep(0.001)


def rare_work() -> None:
    """Wake up ten times a second and do next to nothing, for ever."""
    while True:
        time.sleep(0.1)


@contextmanager
def live_group(run_id: str, work: Work) -> Iterator[Group]:
    """Make a group with one process that does `work`, and remove both afterwards.

    Raises:
        SkippedError: no group can be made here.
    """
    group = find_group(run_id)
    try:
        group.create()
        group.apply(Limits().with_defaults())
    except SandboxError as error:
        group.remove()
        raise SkippedError(error) from error
    pid = 0
    try:
        pid = _start(group.entrances(), work)
        group.start()
        yield group
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        group.remove()
        group.close()


def _start(entrances: tuple[Path, ...], work: Work) -> int:
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.sched_setaffinity(0, {other_cpu()})
            for entrance in entrances:
                fd = os.open(entrance, os.O_WRONLY)
                os.write(fd, b"0")
                os.close(fd)
            os.write(tell, b"x")
            work()
            status = 0
        finally:
            os._exit(status)
    os.close(tell)
    joined = os.read(ready, 1)
    os.close(ready)
    if not joined:
        os.waitpid(pid, 0)
        raise SkippedError(f"a process could not join {entrances[0]}")
    return pid
