"""The guard: a small process that ends the run when its supervisor is killed.

It waits on a pipe that only the supervisor holds. At the end of file it kills the run's group,
waits until it is empty and removes the groups of every hierarchy. It is in a session of its own,
outside the run's group, and holds nothing else of the supervisor's: no lock, no terminal.

Where systemd gives the run a scope, the guard is the first inside: the scope lives as long as it.
Then it learns through the pipe what to end: `enter GROUP`, `top GROUP`, `group GROUP`, a line each.
`scratch DIRECTORY` is what a run in a root of its own has written to: it goes with the run.
`lease FILE` lets interfaces forward for it: it is released at the end (`forwarding`).
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from sandbox.errors import KernelError
from sandbox.kernel import lifeline
from sandbox.kernel.signals import keep_exit_statuses

_SHELL = "/bin/sh"
_GUARDIAN = Path(__file__).with_name("guardian.py")
_FORWARDING = Path(__file__).with_name("forwarding.py")
_REMOVER = Path(__file__).with_name("remover.py")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_FIRST_FREE_FD = 3

# Signals that must not end the guard before it can ignore them; never SIGCHLD, which shells need.
_DEAF_TO = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)

# Nothing but `rm`, `rmdir`, `chmod` and `sleep` is not built into a shell; Python is called in rare
# cases only. A pid of 0 is a process outside our PID namespace, and `kill 0` would be suicide.
SCRIPT = r"""# sandbox guard: ends the run whose supervisor was killed
trap '' HUP INT QUIT TERM TSTP TTIN TTOU USR1 USR2 ALRM PIPE
cd /
top=$1
scratch=
lease=
shift
while read -r word path; do
    case $word in
    enter) echo 0 > "$path/cgroup.procs" ;;
    top) top=$path ;;
    group) set -- "$@" "$path" ;;
    scratch) scratch=$path ;;
    lease) lease=$path ;;
    esac
done

end_in() {
    [ -d "$1" ] || return 0
    [ -r "$1" ] && [ -x "$1" ] || chmod u+rwx "$1"
    [ ! -e "$1/freezer.state" ] || echo THAWED > "$1/freezer.state"
    while read -r pid; do
        [ "$pid" -le 0 ] || kill -KILL "$pid"
    done < "$1/cgroup.procs"
    for below in "$1"/*/ "$1"/.[!.]*/; do
        below=${below%/}
        [ ! -d "$below" ] || [ -L "$below" ] || end_in "$below"
    done
}

wipe() {
    [ -d "$1" ] || return 0
    for below in "$1"/*/ "$1"/.[!.]*/; do
        below=${below%/}
        [ ! -d "$below" ] || [ -L "$below" ] || wipe "$below"
    done
    rmdir "$1"
}

is_populated() {
    [ -n "$top" ] && [ -e "$top/cgroup.events" ] || return 1
    while read -r key value; do
        [ "$key $value" != 'populated 1' ] || return 0
    done < "$top/cgroup.events"
    return 1
}

turn=0
while [ "$turn" -lt 1000 ]; do
    turn=$((turn + 1))
    if [ -n "$top" ] && [ -d "$top" ]; then
        if [ -e "$top/cgroup.kill" ]; then
            echo 1 > "$top/cgroup.kill"
        elif [ -e "$top/cgroup.freeze" ]; then
            echo 1 > "$top/cgroup.freeze"
        fi
    fi
    for group in "$@"; do end_in "$group"; done
    left=
    if is_populated; then
        left=1
    else
        for group in "$@"; do wipe "$group"; done
        for group in "$@"; do [ ! -d "$group" ] || left=1; done
    fi
    if [ -z "$left" ]; then
        [ -z "$lease" ] || "$PYTHON" -I -S "$FORWARDING" "$lease"
        [ -n "$scratch" ] || exit 0
        rm -rf -- "$scratch" || { chmod -R u+rwX -- "$scratch"; rm -rf -- "$scratch"; } ||
            "$PYTHON" -I "$REMOVER" "$scratch"
        exit
    fi
    if [ "$turn" -le 500 ]; then sleep 0.01 || sleep 1; else sleep 1; fi
done
exit 1
"""


class Guard:
    """A guard that is at its post."""

    def __init__(self, pid: int, lifeline_fd: int) -> None:
        """Take over what `start` has made."""
        self.pid = pid
        self._lifeline_fd = lifeline_fd
        self._is_dismissed = False

    @classmethod
    def start(
        cls,
        *,
        kill_directory: Path | None = None,
        directories: tuple[Path, ...] = (),
    ) -> Self:
        """Start the guard of one run, before its groups are made.

        Args:
            kill_directory: the v2 group whose `cgroup.kill` ends all of the run.
            directories: every group of the run, in whatever hierarchy; those made below them by
                the program are removed as well.

        Raises:
            KernelError: no process can be started.
        """
        groups = [str(kill_directory or ""), *map(str, directories)]
        keep_exit_statuses()
        read_fd, write_fd = lifeline.open_lifeline()
        try:
            pid = _spawn(groups, read_fd)
        except OSError as exc:
            lifeline.cut(write_fd)
            raise KernelError.from_os(exc, doing="start", path="the guard of the run") from exc
        finally:
            os.close(read_fd)
        return cls(pid, write_fd)

    def enter(self, group: Path) -> None:
        """Have the guard join a group; it may do what we may not, if it is inside the scope."""
        self._tell("enter", group)

    def take_charge(self, kill_directory: Path | None, directories: Iterable[Path]) -> None:
        """Tell a guard that was started first what it shall end."""
        if kill_directory is not None:
            self._tell("top", kill_directory)
        for directory in directories:
            self._tell("group", directory)

    def take_away(self, scratch: Path) -> None:
        """Have the guard remove a directory with all that is in it, once the run has ended."""
        self._tell("scratch", scratch)

    def release(self, lease: str) -> None:
        """Have the guard release a lease, once the run has ended."""
        self._tell("lease", Path(lease))

    def _tell(self, word: str, path: Path) -> None:
        try:
            os.write(self._lifeline_fd, os.fsencode(f"{word} {path}\n"))
        except OSError as exc:
            raise KernelError.from_os(exc, doing="speak to", path="the guard of the run") from exc

    def is_at_post(self) -> bool:
        """Return whether the guard is alive; something may have killed it."""
        if self._is_dismissed:
            return False
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return False

    def act(self, patience_sec: float = 10.0) -> bool:
        """Set the guard to work, as the end of its supervisor would; return whether all is gone."""
        if self._is_dismissed:
            return False
        self._is_dismissed = True
        pidfd = os.pidfd_open(self.pid)
        lifeline.cut(self._lifeline_fd)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(patience_sec * 1_000):
                os.kill(self.pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0
        finally:
            os.close(pidfd)

    def dismiss(self) -> None:
        """Send the guard home at the normal end; it touches nothing. Again is harmless."""
        if self._is_dismissed:
            return
        self._is_dismissed = True
        # Killed, not asked: that works on a guard that somebody has stopped, too. Only then may
        # the pipe be closed, which would set it to work.
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        lifeline.cut(self._lifeline_fd)


def _spawn(groups: list[str], read_fd: int) -> int:
    try:
        return _spawn_as([_SHELL, "-c", SCRIPT, "sandbox-guard", *groups], read_fd)
    except FileNotFoundError:
        # A system without a shell; -I and -S keep the user's settings and packages out.
        return _spawn_as([sys.executable, "-I", "-S", str(_GUARDIAN), *groups], read_fd)


def _spawn_as(arguments: list[str], read_fd: int) -> int:
    actions = [
        (os.POSIX_SPAWN_DUP2, read_fd, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in inheritable_fds()),
    ]
    return os.posix_spawn(
        arguments[0],
        arguments,
        {
            "PATH": f"{_PATH}:{os.environ.get('PATH', '')}",
            "LC_ALL": "C",
            "PYTHON": sys.executable,
            "FORWARDING": str(_FORWARDING),
            "REMOVER": str(_REMOVER),
        },
        file_actions=actions,
        setsid=True,
        setsigmask=_DEAF_TO,
        setsigdef=(signal.SIGCHLD,),
    )


def inheritable_fds() -> list[int]:
    """Return what an exec would leave open: the guard may hold no pipe or lock of our caller's."""
    fds = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - on the way of every start
        fd = int(name)
        with suppress(OSError):  # the listing's own
            if fd >= _FIRST_FREE_FD and os.get_inheritable(fd):
                fds.append(fd)
    return fds
