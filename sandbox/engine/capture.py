"""The program's output, kept in files, or kept and shown: what `--capture[=tee]` does."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.records.light import replace
from sandbox.records.program import Program
from sandbox.sampling.loop import Loop
from sandbox.spec import Capture, RunSpec

if TYPE_CHECKING:
    import threading

    from sandbox.engine.terminal import Terminal
    from sandbox.kernel.libc import SignalInfo
    from sandbox.store.directory import Directory

Stdio = tuple[int | None, int | None, int | None]
"""Descriptors for stdin, stdout and stderr; None leaves the supervisor's own."""

_CHUNK_BYTES = 1 << 16
_JOIN_SEC = 2.0


def open_capture(
    spec: RunSpec,
    directory: Directory,
    loop: Loop,
    hear: Callable[[SignalInfo], None],
    stdio: Stdio | None = None,
) -> Capturing | Terminal:
    """Return what connects the program's output, and in a root of its own its terminal, with us.

    With `stdio` these descriptors, which stay the caller's, are the program's.

    Raises:
        OSError: a file cannot be made.
    """
    if stdio is not None:
        return Given(stdio)
    is_shown = spec.capture is Capture.NONE and not spec.detach
    if spec.root is not None and is_shown and has_terminal():
        from sandbox.engine.terminal import Terminal

        return Terminal(loop, hear)
    return Capturing(spec.capture, directory.output_paths())


def has_terminal() -> bool:
    """Return whether we read from a terminal that is ours to use: we are in its foreground."""
    with suppress(OSError):
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    return False


class Capturing:
    """Descriptors for the program's stdout and stderr, and who empties them."""

    def __init__(self, kind: Capture, paths: tuple[Path, Path] | None) -> None:
        """Open the files; without `paths` (no run directory) a tee still shows the output.

        Raises:
            OSError: a file cannot be made.
        """
        self._kind = kind
        self._threads: list[threading.Thread] = []
        self._files: list[int | None] = [None, None]
        self._pipes: list[tuple[int, int]] = []
        self.problems: list[str] = []
        if kind is Capture.NONE:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        if paths is not None:
            self._files = [os.open(path, flags, 0o600) for path in paths]
        if kind is Capture.TEE:
            self._pipes = [os.pipe(), os.pipe()]

    def adapt(self, program: Program) -> Program:
        """Return `program` with the descriptors that it is to have."""
        return replace(program, stdio=self.stdio())

    def heed(self, number: int) -> None:
        """Do nothing: a signal changes nothing for files."""

    def stdio(self) -> Stdio:
        """Return the descriptors for the program; None leaves the supervisor's own."""
        if self._kind is Capture.TEE:
            return (None, self._pipes[0][1], self._pipes[1][1])
        return (None, self._files[0], self._files[1])

    def start(self) -> None:
        """Begin to copy, once the program has been started: threads must not exist at the fork."""
        if self._kind is not Capture.TEE:
            self.close_files()
            return
        import threading

        for (source, sink), shown, kept in zip(self._pipes, (1, 2), self._files, strict=True):
            os.close(sink)
            thread = threading.Thread(target=self._copy, args=(source, shown, kept), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _copy(self, source: int, shown: int | None, kept: int | None) -> None:
        while data := _read(source):
            if kept is not None and not _write_all(kept, data):
                self.problems.append("the program's output could not all be kept: disk full?")
                kept = None
            if shown is not None and not _write_all(shown, data):
                # Nobody reads any more: without a copy to keep, let the program know (SIGPIPE).
                shown = None
                if kept is None:
                    break
        os.close(source)

    def finish(self) -> None:
        """Wait until everything is copied; only a reader that has stopped reading cuts it short."""
        for thread in self._threads:
            thread.join(_JOIN_SEC)
        if any(thread.is_alive() for thread in self._threads):
            self.problems.append("the end of the program's output was not read by anyone")
        else:
            self.close_files()

    def close_files(self) -> None:
        """Close the files; the program has its own descriptors of them."""
        for index, fd in enumerate(self._files):
            if fd is not None:
                os.close(fd)
                self._files[index] = None


class Given(Capturing):
    """Descriptors that somebody else has opened, and empties."""

    def __init__(self, stdio: Stdio) -> None:
        """Hand these on."""
        super().__init__(Capture.NONE, None)
        self._stdio = stdio

    def stdio(self) -> Stdio:
        """Return the descriptors for the program."""
        return self._stdio


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK_BYTES)
    except OSError:
        return b""


def _write_all(fd: int, data: bytes) -> bool:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        return False
    return True
