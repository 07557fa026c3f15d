"""The v1 out-of-memory notice: an eventfd that the kernel counts up."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v1
from sandbox.kernel.files import KeptFile, write_text


class OomAlarm:
    """Becomes ready when a memory limit of the group, or of one around it, cannot be kept.

    The kernel rings right before it kills. It does not ring for limits of groups below, nor when
    the whole machine is short. Removing the group rings as well.
    """

    mask = select.EPOLLIN

    def __init__(self, directory: Path) -> None:
        """Ask the kernel to ring.

        Raises:
            KernelError: it cannot, as with the real-time kernel.
        """
        self._count = 0
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            control = KeptFile(directory / v1.OOM_CONTROL)
            try:
                write_text(directory / v1.EVENT_CONTROL, f"{self.fd} {control.fd}")
            finally:
                control.close()
        except KernelError:
            self.close()
            raise

    def drain(self) -> None:
        """Make the descriptor quiet until the next time."""
        self.count()

    def count(self) -> int:
        """Return how often it has rung, which also makes it quiet."""
        with suppress(BlockingIOError):
            self._count += os.eventfd_read(self.fd)
        return self._count

    def close(self) -> None:
        """Close the descriptor; the kernel then forgets it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
