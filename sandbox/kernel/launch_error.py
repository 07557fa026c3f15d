"""What a child says that cannot become its program, in words: the act, the object, why, what next.

125 is ours (groups, limits), 127 a program that was not found, 126 all else about the program.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence

from sandbox.errors import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    HostError,
    KernelError,
    LaunchError,
    OverlayError,
    SandboxError,
)
from sandbox.kernel.birth import Failure, Step
from sandbox.records.enclosure import Enclosure
from sandbox.records.program import Program

_NO_OVERLAY = frozenset(
    {
        errno.ENODEV,
        errno.EINVAL,
        errno.EPERM,
        errno.EACCES,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.E2BIG,
    }
)
"""What a kernel says that has no overlayfs, or none for these directories or for us."""
_SHEBANG_BYTES = 256  # as much as the kernel reads
_RLIMIT_NAMES = {
    getattr(resource, name): name.removeprefix("RLIMIT_").lower()
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}


def to_error(failure: Failure, program: Program, candidates: Sequence[bytes]) -> SandboxError:
    """Return the error to raise for a child's failure."""
    code = errno.errorcode.get(failure.errno, str(failure.errno))
    match failure.step:
        case Step.EXEC:
            return _exec_error(failure, code, program, candidates)
        case Step.DIRECTORY:
            return directory_error(failure.object, failure.errno, program)
        case Step.GROUPS | Step.USER:
            return LaunchError(
                f"cannot run as user {failure.object}: {code}",
                exit_code=EXIT_NOT_EXECUTABLE,
                hint="only root can become another user: leave out --user, or run as root",
            )
        case _:
            return _our_error(failure, code, program)


def _our_error(failure: Failure, code: str, program: Program) -> SandboxError:
    match failure.step:
        case Step.ROOT:
            return _root_error(failure, program.enclosure)
        case Step.NETWORK:
            return KernelError(
                f"cannot set up the loopback of the run's own network: {code}",
                hint="it takes CAP_NET_ADMIN, which root in a container lacks",
            )
        case Step.JOIN:
            return KernelError.from_os(
                OSError(failure.errno, ""), doing="join the group by", path=failure.object
            )
        case Step.AFFINITY:
            return HostError(
                f"cannot bind the program to CPUs {failure.object}: {code}",
                hint="none of them is online and allowed to this process",
            )
        case Step.RLIMIT:
            return _rlimit_error(failure, code)
        case _:
            act = f"{failure.step.name.lower()} {failure.object}".strip()
            return KernelError(f"cannot prepare the program ({act}): {code}", errno=failure.errno)


def _root_error(failure: Failure, enclosure: Enclosure | None) -> KernelError:
    code = errno.errorcode.get(failure.errno, str(failure.errno))
    if enclosure is not None and enclosure.in_place is not None:
        return KernelError(
            f"cannot harden the run ({failure.object}): {code}",
            hint="leave out --harden, or run in an image, which has a root of its own",
            errno=failure.errno,
        )
    is_plain = enclosure is not None and enclosure.ids is not None
    hints = {
        errno.ELOOP: "the root file system has a link where a directory of the system belongs",
        errno.ENOTDIR: "a file is where a directory belongs, or the other way round",
        errno.EROFS: "the place is not there, and what is above it is read-only",
        errno.EOVERFLOW: "what is above it belongs to a user or a group that is not inside",
        errno.ENODEV: "this kernel lacks that file system",
        errno.ENOSPC: "no space is left for it, or this host allows no more of them",
    }
    if is_plain:
        from sandbox.kernel.namespaces import HINT_CLOSED

        hints |= dict.fromkeys((errno.EPERM, errno.EACCES), HINT_CLOSED)
        if failure.object.startswith("/"):
            hints[errno.EACCES] = (
                "it is not there and cannot be made: what is above it belongs to somebody who is "
                "not inside. Make it in the root file system, or own that"
            )
        hints[errno.EINVAL] = (
            "a plain user needs Linux 5.11 for it, and a directory that nothing is mounted in"
        )
    else:
        hints[errno.EPERM] = "it takes CAP_SYS_ADMIN, which root in a container lacks"
        hints[errno.EINVAL] = "set SANDBOX_HOME to another disk: this one may not hold an overlay"
    from sandbox.kernel.mounts import STACKING

    refused = failure.object.startswith(STACKING) and failure.errno in _NO_OVERLAY
    kind = OverlayError if refused else KernelError
    return kind(
        f"cannot make the root file system of the run ({failure.object}): {code}",
        hint=hints.get(failure.errno),
        errno=failure.errno,
    )


def _rlimit_error(failure: Failure, code: str) -> SandboxError:
    which, soft, hard = failure.object.split()
    name = _RLIMIT_NAMES.get(int(which), which)
    return HostError(
        f"cannot set ulimit {name}={soft}:{hard}: {code}",
        hint="raising a hard limit needs CAP_SYS_RESOURCE; nofile also ends at fs.nr_open",
    )


def directory_error(path: str, number: int, program: Program) -> LaunchError:
    """Return what to raise where a program cannot start in a directory, for this errno."""
    hints = {
        errno.ENOENT: "no such directory: make it first, it is not created on the host",
        errno.ENOTDIR: "it is not a directory",
        errno.EACCES: "the program's user may not enter it"
        + (f" (uid {program.user[0]})" if program.user else ""),
    }
    return LaunchError(
        f"cannot start in directory {path}: {errno.errorcode.get(number, str(number))}",
        exit_code=EXIT_NOT_EXECUTABLE,
        hint=hints.get(number),
    )


def _exec_error(
    failure: Failure, code: str, program: Program, candidates: Sequence[bytes]
) -> LaunchError:
    if program.has_own_root:
        return _enclosed_exec_error(failure, code, program)
    name = program.argv[0]
    base = program.directory or ""
    if failure.errno == errno.ELIBACC:  # a hardened child's word for a file that it has seen
        failure = Failure(failure.step, errno.ENOENT, failure.object)
        code, candidates = "ENOENT", (os.fsencode(failure.object),)
    if failure.errno in {errno.ENOENT, errno.ENOTDIR}:
        found = [path for path in map(os.fsdecode, candidates) if _is_file(base, path)]
        if found and (place := find_emptied(program.enclosure, base, found[0])):
            return LaunchError(
                f"cannot execute {found[0]}: a hardened run has a {place} of its own, and empty",
                exit_code=EXIT_NOT_FOUND,
                hint=hint_for_emptied(program.enclosure, base, found[0]),
            )
        if not found:
            return LaunchError(
                f"cannot execute {name}: {_where(name)}",
                exit_code=EXIT_NOT_FOUND,
                hint=_hint_for_missing(name, base),
            )
        return LaunchError(
            f"cannot execute {found[0]}: {code}",
            exit_code=EXIT_NOT_EXECUTABLE,
            hint=_hint_for_interpreter(base, found[0], program),
        )
    path = failure.object
    return LaunchError(
        f"cannot execute {path}: {code}",
        exit_code=EXIT_NOT_EXECUTABLE,
        hint=_hint_for_refusal(failure.errno, os.path.join(base, path), program),  # noqa: PTH118
    )


def _enclosed_exec_error(failure: Failure, code: str, program: Program) -> LaunchError:
    """Say what the child has found: nothing in its root file system can be looked at from here."""
    name = program.argv[0]
    if failure.errno in {errno.ENOENT, errno.ENOTDIR}:
        hint = "it is looked for in the root file system, not on the host"
        if " " in name:
            hint = _hint_for_missing(name, "") or hint
        return LaunchError(
            f"cannot execute {name}: {_where(name)}", exit_code=EXIT_NOT_FOUND, hint=hint
        )
    if failure.errno == errno.ELIBACC:
        code = "ENOENT"
        hint = "the file is there, but its loader, or what its first line names, is not"
    else:
        hint = {
            errno.EACCES: "it may not be executed, or the program's user may not reach it",
            errno.ENOEXEC: "not a program of this machine, or a script without `#!`",
        }.get(failure.errno, "")
    return LaunchError(
        f"cannot execute {failure.object}: {code}",
        exit_code=EXIT_NOT_EXECUTABLE,
        hint=hint or None,
    )


def _where(name: str) -> str:
    return "no such file" if "/" in name else "not found in any directory of PATH"


def _is_file(base: str, path: str) -> bool:
    return os.path.exists(os.path.join(base, path))  # noqa: PTH110, PTH118 - any bytes may be in it


def _hint_for_missing(name: str, base: str) -> str | None:
    if "/" not in name and _is_file(base, name):
        return f"`{name}` is in the working directory: write `./{name}` or `python3 {name}`"
    if " " in name:
        return "the command seems to be one quoted word: write its parts apart, or `sh -c '…'`"
    if _is_like_an_image(name):
        return f"an image is named by a flag: `sandbox run --image {name} …`"
    if "/" in name:
        return f"it is looked for from {base or 'the working directory'} on"
    if (other := find_versioned(name)) is not None:
        return f"there is `{other}` here: name that"
    return f"is it installed? `command -v {name}` says where the shell finds it"


def _is_like_an_image(name: str) -> bool:
    """Return whether docker would take it for an image: few programs are called `debian:12`."""
    import re

    return re.fullmatch(r"(?a)[a-z0-9][a-z0-9._/:-]*:[\w][\w.-]*", name) is not None


def find_versioned(name: str) -> str | None:
    """Return what a program is called here that others call without its version: `python3`."""
    from shutil import which

    return f"{name}3" if name in {"python", "pip"} and which(f"{name}3") else None


def find_emptied(enclosure: Enclosure | None, base: str, path: str) -> str | None:
    """Return the place of a hardened run's own that hides a file of the host, if one does."""
    place = None if enclosure is None else enclosure.in_place
    if place is None:
        return None
    whole = os.path.join(base, path)  # noqa: PTH118 - any bytes may be in it
    above, name = os.path.split(whole)
    itself = os.path.join(os.path.realpath(above), name)  # noqa: PTH118 - it may be a link
    return place.emptied_above(itself) or place.emptied_above(os.path.realpath(whole))


def hint_for_emptied(enclosure: Enclosure | None, base: str, path: str) -> str:
    """Return how a file of the host is shown to a hardened run."""
    whole = os.path.realpath(os.path.join(base, path))  # noqa: PTH118 - as above
    if not find_emptied(enclosure, "/", whole):
        return f"the link is not there, but what it leads to is: {whole}"
    shown = f"sandbox run --harden -v {whole}:{whole}:ro …"
    return f"copy it to another place, or show it there: `{shown}`"


def _hint_for_interpreter(base: str, name: str, program: Program) -> str:
    line = _first_line(os.path.join(base, name))  # noqa: PTH118 - "" stays ""
    if not line.startswith(b"#!"):
        return "the file is there, but the loader (ELF interpreter) that it needs is not"
    if line.endswith(b"\r"):
        return "its first line ends in a carriage return, as Windows writes it: use `dos2unix`"
    words = line[2:].split()
    interpreter = os.fsdecode(words[0]) if words else "nothing"
    place = find_emptied(program.enclosure, base, interpreter)
    if place is not None and _is_file(base, interpreter):
        return (
            f"its first line asks for `{interpreter}`, and a hardened run has a {place} of its "
            "own: show what is needed of yours: `sandbox run --harden -v DIR:DIR:ro …`"
        )
    return f"its first line asks for `{interpreter}`, which is not there"


def _hint_for_refusal(code: int, path: str, program: Program) -> str | None:
    if code == errno.EACCES:
        if os.path.isdir(path):  # noqa: PTH112 - any bytes may be in it
            return "it is a directory"
        if not os.access(path, os.X_OK):
            shown = program.argv[0]
            if _first_line(path).startswith(b"#!"):
                return f"it may not be executed: `chmod +x {shown}`"
            return f"it may not be executed: `chmod +x {shown}`, or name what runs it first"
        return "the program's user may not reach it, or its file system is mounted noexec"
    return {
        errno.ENOEXEC: "not a program of this machine, or a script without `#!` in its first line: "
        "name what runs it first, like `sh FILE`",
        errno.E2BIG: "its arguments and environment are larger than the kernel takes",
        errno.ETXTBSY: "it is still open for writing",
        errno.EAGAIN: "its user has more processes than its limit (ulimit nproc)",
        errno.ENOMEM: "its memory limit or ulimit is too small to execute anything",
    }.get(code)


def _first_line(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, _SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return b""
    finally:
        os.close(fd)
