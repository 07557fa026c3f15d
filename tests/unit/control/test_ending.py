"""Waiting for ends and for exit statuses, by locks alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sandbox.control.ending import wait_for_status, wait_until_over
from sandbox.control.naming import Names
from sandbox.errors import KernelError, SandboxError, StoreError
from sandbox.records.codec import fields_of
from sandbox.records.light import replace
from sandbox.records.result import Outcome

FIRST_ID, SECOND_ID, THIRD_ID = "aaaa00000001", "aaaa00000002", "bbbb00000003"


def test_the_status_of_what_has_ended_is_known_at_once(
    host: Any, home: Path, make_run: Any
) -> None:
    make_run(FIRST_ID, "over", outcome=Outcome.SIGNALED, exit_code=137).close()

    assert wait_for_status("over", Names(home, host.roots)) == 137


def test_a_lost_run_has_no_status(host: Any, home: Path, make_run: Any) -> None:
    make_run(FIRST_ID, "lost").close()

    with pytest.raises(SandboxError, match="lost has no exit status: the supervisor was lost"):
        wait_for_status("lost", Names(home, host.roots))


def test_a_run_is_waited_for_until_its_lock_is_free(host: Any, home: Path, make_run: Any) -> None:
    directory = make_run(FIRST_ID, "live")
    names = Names(home, host.roots)
    one = names.running("live")
    assert not wait_until_over(one, 0.06)
    assert one.result is not None
    ended = replace(one.result, outcome=Outcome.EXITED, exit_code=4)

    def end() -> None:
        directory.write_run(fields_of(ended))
        directory.close()

    thread = threading.Timer(0.1, end)
    thread.start()
    try:
        assert wait_for_status("live", names) == 4
    finally:
        thread.join()


def test_another_users_run_is_waited_for_but_has_its_status_to_itself(
    host: Any, home: Path
) -> None:
    group = host.group(f"run-{THIRD_ID}", pids="9\n")
    host.process(9, parent=1)
    names = Names(home, host.roots)
    one = names.running(THIRD_ID)
    assert not wait_until_over(one, 0.06)

    (group / "cgroup.events").write_text("populated 0\nfrozen 0\n")

    with pytest.raises(StoreError, match=f"only {one.owner}, whose it was, has its exit status"):
        wait_for_status(THIRD_ID, names)


def test_a_run_directory_that_was_removed_is_over(host: Any, home: Path, make_run: Any) -> None:
    directory = make_run(FIRST_ID, "live")
    one = Names(home, host.roots).running("live")

    directory.discard()

    assert wait_until_over(one, 1)


def test_what_cannot_be_reached_at_all_cannot_be_killed(
    host: Any, home: Path, make_run: Any
) -> None:
    from sandbox.control.ending import send_signal

    make_run(FIRST_ID, "bare")
    one = Names(home, host.roots).running("bare")

    with pytest.raises(KernelError, match="it has no group, and its supervisor is not seen"):
        send_signal(one, 9)
