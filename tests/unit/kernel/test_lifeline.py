"""Pipes that tell of the supervisor's end, and the page that a keeper shares with it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import textwrap

from sandbox.kernel import lifeline
from sandbox.kernel.ledger import Ledger, Reaped, count_reaped


def test_a_lifeline_is_cut_although_a_fork_lives_on() -> None:
    read_fd, write_fd = lifeline.open_lifeline()
    stop_read, stop_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(stop_write)
        os.read(stop_read, 1)
        os._exit(0)
    try:
        early = select.select([read_fd], [], [], 0)[0]
        lifeline.cut(write_fd)
        late = select.select([read_fd], [], [], 5)[0]
        data = os.read(read_fd, 1) if late else None
    finally:
        for fd in (stop_read, stop_write, read_fd):
            os.close(fd)
        os.waitpid(pid, 0)

    assert (early, late, data) == ([], [read_fd], b"")


def test_pipes_are_closed_on_exec_and_never_in_the_place_of_stdio() -> None:
    script = textwrap.dedent(f"""
        import os, sys
        sys.path[:0] = {sys.path!r}
        from sandbox.kernel import lifeline
        out = os.dup(1)
        for fd in (0, 1, 2):
            os.close(fd)
        fds = lifeline.open_pipe() + lifeline.open_lifeline()
        told = [min(fds) > 2, any(map(os.get_inheritable, fds)), len(set(fds))]
        os.write(out, repr(told).encode())
        os._exit(0)
        """)

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=20
    )

    assert done.stdout == b"[True, False, 4]"


def test_a_ledger_is_shared_with_a_fork() -> None:
    ledger = Ledger()
    entries = Reaped(
        user_usec=1 << 40,
        system_usec=2,
        largest_rss_bytes=3 << 40,
        read_bytes=4,
        write_bytes=5,
        processes=6,
    )
    before = (ledger.read(), ledger.is_empty())
    pid = os.fork()
    if pid == 0:
        ledger.record(entries)
        ledger.record_empty()
        os._exit(0)
    os.waitpid(pid, 0)

    assert before == (Reaped(), False)
    assert (ledger.read(), ledger.is_empty()) == (entries, True)
    ledger.close()
    assert ledger.read() == entries


def test_what_was_reaped_is_counted_with_its_io(tmp_path: object) -> None:
    before = count_reaped(0)
    script = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True, timeout=20)

    after = count_reaped(1)

    used = after.user_usec + after.system_usec - before.user_usec - before.system_usec
    assert 50_000 <= used < 1_000_000
    assert after.largest_rss_bytes > 1 << 20
    assert after.processes == 1
