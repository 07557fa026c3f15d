"""The seam between a run and its process: a real launcher, or in tests one that plays back."""

from __future__ import annotations

from typing import Protocol

from sandbox.kernel.group import Group
from sandbox.records.program import ExitStatus, Program


class Child(Protocol):
    """The main process of a run: first paused inside its group, then let go."""

    pid: int
    fd: int
    """Readable (EPOLLIN) once the main process has ended: a pidfd, or the keeper's pipe."""

    def release(self) -> None:
        """Let the child execute the program.

        Returns once the exec has happened.

        Raises:
            LaunchError: not found (127), not executable or a bad directory (126); it is reaped.
        """

    def signal(self, signal_number: int) -> None:
        """Send a signal to the main process; nothing happens if it has ended."""

    def signal_from_terminal(self, signal_number: int) -> None:
        """Do what is left to do once the terminal has sent a signal to the program as well."""

    def reap(self) -> ExitStatus | None:
        """Return how it ended, or None if it is still alive; does not wait."""

    def abandon(self) -> None:
        """Kill and reap the child if it has not ended, and close every descriptor.

        After its end it only closes; again is harmless.
        """


class Launcher(Protocol):
    """Starts programs inside groups."""

    def start(self, program: Program, group: Group) -> Child:
        """Return a child that is inside `group` and waits to be released.

        Raises:
            LaunchError, KernelError: it could not be started or could not join.
        """
