"""Try one way out: says `done`, or `refused` and why; harmless where it works."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pty
import signal
import socket
import stat
import sys
import termios
from collections.abc import Callable
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
SYS = {
    "x86_64": {"keyctl": 250, "pivot_root": 155, "io_uring_setup": 425, "bpf": 321},
    "aarch64": {"keyctl": 219, "pivot_root": 41, "io_uring_setup": 425, "bpf": 280},
}[os.uname().machine]
NEW_USER = 0x1000_0000
TIOCSTI = 0x5412
PTRACE_SEIZE = 0x4206


def check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def call(name: str, *arguments: object) -> int:
    return check(libc.syscall(ctypes.c_long(SYS[name]), *arguments))


def overwrite(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


def write(path: str, text: str = "x") -> None:
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, text.encode())


def create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    Path(path).unlink()


def append(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def read(path: str) -> None:
    with Path(path).open("rb") as file:
        file.read(1)


def chmod(path: str) -> None:
    Path(path).chmod(stat.S_IMODE(Path(path).stat().st_mode))


def device(path: str) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.close(os.open(path, os.O_RDWR))


def keys() -> None:
    call("keyctl", 0, ctypes.c_long(-3), 0)  # KEYCTL_GET_KEYRING_ID of the session


def type_keys() -> None:
    """Put a key into the input of a terminal of our own."""
    if os.fork() == 0:
        os.setsid()
        _, inner = pty.openpty()
        with contextlib.suppress(OSError):
            fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
        try:
            fcntl.ioctl(inner, TIOCSTI, b"x")
        except OSError as exc:
            os._exit(exc.errno or 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    if code:
        raise OSError(code, os.strerror(code))


def connect(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect("\0" + name[1:] if name.startswith("@") else name)


def reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        pass


def trace(pid: str) -> None:
    check(libc.ptrace(PTRACE_SEIZE, int(pid), None, None))


def send_signal(pid: str) -> None:
    os.kill(int(pid), signal.SIGCONT)


def new_user() -> None:
    check(libc.unshare(NEW_USER))


def clone_user() -> None:
    """The same by clone3, which a filter cannot look into."""
    arguments = (ctypes.c_uint64 * 11)(NEW_USER, 0, 0, 0, signal.SIGCHLD)
    pid = check(libc.syscall(ctypes.c_long(435), ctypes.byref(arguments), ctypes.c_size_t(88)))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def mount(path: str) -> None:
    check(libc.mount(b"none", path.encode(), b"tmpfs", 0, None))


def pivot() -> None:
    try:
        call("pivot_root", b"/nosuch", b"/nosuch")
    except OSError as exc:
        if exc.errno != errno.ENOENT:  # it was looked for: nothing forbids the call
            raise


def open_by_handle(path: str) -> None:
    handle = (ctypes.c_char * 136)()
    ctypes.c_uint.from_buffer(handle).value = 128
    number = ctypes.c_int()
    name = path.encode()
    check(libc.name_to_handle_at(-100, name, ctypes.byref(handle), ctypes.byref(number), 0))
    here = os.open(path, os.O_RDONLY)
    os.close(check(libc.open_by_handle_at(here, ctypes.byref(handle), os.O_RDONLY)))


def queue_calls() -> None:
    parameters = (ctypes.c_char * 120)()
    os.close(call("io_uring_setup", 1, ctypes.byref(parameters)))


def vsock() -> None:
    socket.socket(40, socket.SOCK_STREAM).close()


def set_user_id(path: str) -> None:
    """Execute a program with a set-user-ID bit of root's."""
    done = os.spawnv(os.P_WAIT, path, ["sh", "-c", 'test "$(id -u)" = 0'])
    if done:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


ATTEMPTS: dict[str, Callable[..., None]] = {
    name: each
    for name, each in globals().items()
    if callable(each) and getattr(each, "__module__", "") == __name__
}


def main() -> None:
    try:
        ATTEMPTS[sys.argv[1]](*sys.argv[2:])
    except OSError as exc:
        print("refused", errno.errorcode.get(exc.errno or 0, exc))
    else:
        print("done")


main()
