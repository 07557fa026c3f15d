"""A tree that does not want to die: new sessions, double forks, stopped and deaf processes.

usage: _tree.py FIFO sleep|burn

Every process holds the FIFO open for writing, so that its reader sees a hang-up when the last one
is dead. Once all live, the first one writes `ready PID CLOCK_MONOTONIC`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

COPIES = 3
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def wait_for_ever() -> None:
    """Sleep; the benchmark's own time-out ends what nothing else has ended."""
    time.sleep(120)
    os._exit(0)


def spawn(*, session: bool, twice: bool, stopped: bool) -> None:
    """Start one process that sleeps."""
    pid = os.fork()
    if pid:
        if twice:
            os.waitpid(pid, 0)
        return
    if session:
        os.setsid()
    if twice and os.fork():
        os._exit(0)
    if stopped:
        os.kill(os.getpid(), signal.SIGSTOP)
    wait_for_ever()


def main() -> None:
    """Grow the tree, say so, and stay."""
    started_ns = time.monotonic_ns()
    fifo = os.open(sys.argv[1], os.O_WRONLY)
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    for _ in range(COPIES):
        for session in (False, True):
            for twice in (False, True):
                spawn(session=session, twice=twice, stopped=False)
        spawn(session=True, twice=True, stopped=True)
    os.write(fifo, f"ready {os.getpid()} {started_ns}\n".encode())
    if sys.argv[2] == "burn":
        while True:
            pass
    wait_for_ever()


if __name__ == "__main__":
    main()
