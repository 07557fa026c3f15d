"""Interfaces that forward because runs need it, and how the last of these runs puts that back.

The kernel lets packets from an interface pass on only if its own `forwarding` is 1. Where it is
not, it is set for those that lead out of the host, never for all, and each is noted first. A lease
is a locked file of one run; whoever ends the last one undoes what is noted. The guard does so by
`python -I -S forwarding.py LEASE`: so this module knows the standard library alone.

Below `/run/sandbox` a network namespace has a directory of its own, as it has its own settings.
"""

# It starts in a hurry, and pathlib would double the time:
# ruff: noqa: PTH103, PTH106, PTH108, PTH112, PTH116, PTH120, PTH123, PTH208
import fcntl
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

PLACE = "/run/sandbox"
_LOCK = "network.lock"
_LEASE, _NOTE = "run-", "was-"
_SETTING = "/proc/sys/net/ipv4/conf/{}/forwarding"
_ALL = "/proc/sys/net/ipv4/ip_forward"
_SO_NETNS_COOKIE = 71


@contextmanager
def exclusively(place: str = PLACE) -> Iterator[None]:
    """Let nobody else choose addresses or change settings in the block.

    Raises:
        OSError: the place cannot be made or locked.
    """
    os.makedirs(place, mode=0o755, exist_ok=True)
    fd = os.open(f"{place}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def lease_path(run_id: str, place: str = PLACE) -> str:
    """Return where the lease of a run is."""
    return f"{place}/net-{_namespace()}/{_LEASE}{run_id}"


def take(lease: str) -> int:
    """Make and lock a lease; return the descriptor that holds it. Within `exclusively`.

    Raises:
        OSError: it cannot be made.
    """
    os.makedirs(os.path.dirname(lease), mode=0o700, exist_ok=True)
    fd = os.open(lease, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def open_up(lease: str, interfaces: Iterable[str]) -> list[str]:
    """Let interfaces forward, and return all that do so for runs alone. Within `exclusively`.

    Raises:
        OSError: /proc/sys cannot be written, as in many containers.
    """
    directory = os.path.dirname(lease)
    for name in interfaces:
        if _read(_SETTING.format(name)) != "0":
            continue
        # Noted first: killed in between, it is put back to what it still is.
        write_text(f"{directory}/{_NOTE}{name}", f"{_find_index(name)} {_read(_ALL)}")
        write_setting(name, "1")
    return sorted(
        name.removeprefix(_NOTE) for name in os.listdir(directory) if name.startswith(_NOTE)
    )


def write_setting(name: str, value: str) -> None:
    """Set whether an interface forwards.

    Raises:
        OSError: there is no such interface, or /proc/sys cannot be written.
    """
    write_text(_SETTING.format(name), value)


def write_text(path: str, text: str) -> None:
    """Write a file.

    Raises:
        OSError: it is not there, or cannot be written.
    """
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def release(lease: str) -> None:
    """End a lease; the last one puts everything back. Again is harmless.

    Raises:
        OSError: the place cannot be locked.
    """
    directory = os.path.dirname(lease)
    if not os.path.isdir(directory):
        return
    with exclusively(os.path.dirname(directory)):
        with suppress(FileNotFoundError):
            os.unlink(lease)
        _close(directory)


def release_lost(place: str = PLACE) -> list[str]:
    """End the leases whose runs are gone, and return them.

    Raises:
        OSError: the place cannot be locked.
    """
    directory = os.path.dirname(lease_path("", place))
    if not os.path.isdir(directory):
        return []
    with exclusively(place):
        return _close(directory)


def _close(directory: str) -> list[str]:
    """Remove leases that nobody holds, and return them; if none is left, undo all."""
    lost = []
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    leases = [f"{directory}/{name}" for name in names if name.startswith(_LEASE)]
    for lease in leases:
        if not _is_held(lease):
            os.unlink(lease)
            lost.append(lease)
    if len(lost) == len(leases):
        for name in names:
            if name.startswith(_NOTE):
                _put_back(directory, name.removeprefix(_NOTE))
        with suppress(OSError):
            os.rmdir(directory)
    return lost


def _is_held(lease: str) -> bool:
    fd = os.open(lease, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _put_back(directory: str, name: str) -> None:
    """Undo it for one interface, unless it is another by now, or all were told to forward."""
    note = f"{directory}/{_NOTE}{name}"
    index, _, everything = _read(note).partition(" ")
    if _find_index(name) == index and _read(_ALL) == everything:
        with suppress(OSError):
            write_setting(name, "0")
    with suppress(FileNotFoundError):
        os.unlink(note)


def _namespace() -> str:
    """Return what tells this network namespace from all others since the boot."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as any_socket, suppress(OSError):
        return any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)[::-1].hex().lstrip("0")
    return f"i{os.stat('/proc/self/ns/net').st_ino}"  # before Linux 5.14


def _find_index(name: str) -> str:
    """Return the number of an interface, which no other gets; 0 if there is none."""
    try:
        return str(socket.if_nametoindex(name))
    except OSError:
        return "0"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    release(sys.argv[1])
