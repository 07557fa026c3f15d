"""The guard where there is no /bin/sh: `python -I -S guardian.py KILL_DIRECTORY GROUP...`.

It runs alone, loaded by its path, and starts in a hurry, with the smallest parts of the standard
library only.
"""

# pathlib would double the time to start:
# ruff: noqa: PTH101, PTH106, PTH112, PTH114, PTH118, PTH123
import os
import signal
import sys
import time
from collections.abc import Callable

_QUICK_TURNS = 500
_TURNS = 1000
_DEAF_TO = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
)


def main(arguments: list[str]) -> int:
    """Wait for the end of stdin, then end the run; return the exit status."""
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    top, groups, told = listen(arguments[0], arguments[1:])
    for turn in range(_TURNS):
        end(top, groups)
        if not is_populated(top):
            for group in groups:
                wipe(group)
            if not any(map(os.path.isdir, groups)):
                return finish(told)
        time.sleep(0.005 if turn < _QUICK_TURNS else 1)
    return 1


def finish(told: dict[str, str]) -> int:
    """Take away what the run had besides its groups; return the exit status."""
    if "lease" in told:
        python, script = os.environ["PYTHON"], os.environ["FORWARDING"]
        _call([python, "-I", "-S", script, told["lease"]])
    if "scratch" not in told or take_away(told["scratch"]):
        return 0
    return _call([os.environ["PYTHON"], "-I", os.environ["REMOVER"], told["scratch"]])


def _call(words: list[str]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(words[0], words, os.environ), 0)[1])


def listen(top: str, groups: list[str]) -> tuple[str, list[str], dict[str, str]]:
    """Read the pipe to its end and return what to end: what is known, and what was told."""
    told: dict[str, str] = {}
    with open(0, encoding="utf-8", errors="surrogateescape", closefd=False) as pipe:
        while line := pipe.readline():
            word, _, path = line.rstrip("\n").partition(" ")
            if word == "enter":
                _write(f"{path}/cgroup.procs", "0")
            elif word == "top":
                top = path
            elif word == "group":
                groups.append(path)
            elif word in {"scratch", "lease"}:
                told[word] = path
    return top, groups, told


def end(top: str, groups: list[str]) -> None:
    """Kill everything in the groups, as this kernel can."""
    if top and not _write(f"{top}/cgroup.kill", "1"):
        _write(f"{top}/cgroup.freeze", "1")  # what is frozen does not fork; SIGKILL reaches it
    for group in groups:
        for directory in _tree(group):
            _write(f"{directory}/freezer.state", "THAWED")  # v1: frozen processes cannot die
            for word in _read(f"{directory}/cgroup.procs").split():
                _kill(int(word))


def is_populated(top: str) -> bool:
    """Return whether the kernel still counts a process in the group."""
    return bool(top) and "populated 1" in _read(f"{top}/cgroup.events")


def wipe(group: str) -> None:
    """Remove a group and all below it, as far as they are empty."""
    for directory in reversed(_tree(group)):
        try:
            os.rmdir(directory)
        except OSError:
            continue


def take_away(scratch: str) -> bool:
    """Remove a directory with all that is in it; return whether it is gone."""
    for directory, _, files in os.walk(scratch, topdown=True):
        _open_up(directory)
        for name in files:
            _remove(os.unlink, os.path.join(directory, name))
    for directory, below, _ in os.walk(scratch, topdown=False):
        for name in below:
            path = os.path.join(directory, name)
            _remove(os.unlink if os.path.islink(path) else os.rmdir, path)
    _remove(os.rmdir, scratch)
    return not os.path.isdir(scratch)


def _remove(how: Callable[[str], None], path: str) -> None:
    try:
        how(path)
    except OSError:
        return


def _tree(group: str) -> list[str]:
    """Return the group and all below it, parents first."""
    if not os.path.isdir(group):
        return []
    if not os.access(group, os.R_OK | os.X_OK):
        _open_up(group)
    found = [group]
    try:
        with os.scandir(group) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return found
    for directory in below:
        found += _tree(directory)
    return found


def _open_up(directory: str) -> None:
    try:
        os.chmod(directory, 0o700)
    except OSError:
        return


def _kill(pid: int) -> None:
    if pid <= 0:  # a process outside our PID namespace; 0 would be ourselves
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def _write(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
