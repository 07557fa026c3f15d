"""Every error this package raises on purpose, each with its exit codes: of `run`, of the others.

SandboxError            125  1  what went wrong and, if known, what to do next
├── SpecError           125  2  a value that was asked for cannot be meant
│   └── DockerfileError 125  1  what a Dockerfile says cannot be meant
├── HostError           125  1  this host cannot give what was asked for
├── KernelError         125  1  the kernel refused one read or write
│   └── OverlayError    125  1  the layers of a root file system cannot be stacked
├── StoreError          125  1  a run directory cannot be made, read or removed
├── ImageError          125  1  an image cannot be fetched, trusted, unpacked or found
└── LaunchError     126/127  1  the program cannot be executed, or was not found
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

_HINTS = {
    errno.EACCES: "the file belongs to another user: run as root, or see `sandbox doctor cgroup`",
    errno.EPERM: "the kernel wants more privilege: run as root, or see `sandbox doctor cgroup`",
    errno.EBUSY: "the group still has processes, and only an empty one can delegate or be removed",
    errno.ENOENT: "this kernel lacks that file, or the parent has not enabled its controller",
    errno.EROFS: "it is mounted read-only, as in most containers: see `sandbox doctor container`",
    errno.ENOSPC: "no space is left for it: free some, or set SANDBOX_HOME to another disk",
    errno.EINVAL: "the kernel does not accept this value",
    errno.EEXIST: "a group of that name is there already: `sandbox clean` removes abandoned ones",
    errno.ENODEV: "the group was removed meanwhile, by somebody else",
    errno.EAGAIN: "a limit of the enclosing group on processes or groups is reached",
}

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_GATE = 123
EXIT_SANDBOX = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


class SandboxError(Exception):
    """What went wrong, and if known, what to do next."""

    exit_code: int = EXIT_SANDBOX
    """Of `run`, which leaves the low ones to the program."""
    command_exit_code: int = EXIT_FAILURE
    """Of every other command."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class SpecError(SandboxError):
    """A value that was asked for cannot be meant."""

    command_exit_code = EXIT_USAGE


class DockerfileError(SpecError):
    """What a Dockerfile says cannot be meant; the file and the line come first."""

    command_exit_code = EXIT_FAILURE


class HostError(SandboxError):
    """This host cannot give what was asked for."""


class StoreError(SandboxError):
    """A run directory cannot be made, read or removed."""


class ImageError(SandboxError):
    """An image cannot be fetched, trusted, unpacked or found."""


class KernelError(SandboxError):
    """The kernel refused one read or write; `errno` says why."""

    def __init__(self, message: str, *, hint: str | None = None, errno: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno

    @classmethod
    def from_os(cls, exc: OSError, *, doing: str, path: Path | str) -> Self:
        """Name the act, the file and the errno, and attach its usual remedy."""
        code = errno.errorcode.get(exc.errno or 0, "EUNKNOWN")
        return cls(
            f"cannot {doing} {path}: {code}", hint=_HINTS.get(exc.errno or 0), errno=exc.errno
        )


class OverlayError(KernelError):
    """The layers of a root file system cannot be stacked; `why` is the kernel's word for it."""

    @property
    def why(self) -> str:
        """Return the name of the errno."""
        return errno.errorcode.get(self.errno or 0, "EUNKNOWN")


class LaunchError(SandboxError):
    """The program cannot be executed (126) or was not found (127)."""

    def __init__(self, message: str, *, exit_code: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
