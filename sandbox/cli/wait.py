"""`sandbox wait`: until sandboxes have ended; then their exit statuses."""

from __future__ import annotations

from sandbox.cli.each import Sandboxes, for_each


def wait(sandboxes: Sandboxes) -> None:
    """Wait until sandboxes have ended and print what `sandbox run` exits with, a line each.

    For those that are over already it is printed at once.
    """
    from sandbox.control.ending import wait_for_status
    from sandbox.control.naming import Names

    names = Names()
    for_each(sandboxes, lambda asked: wait_for_status(asked, names))
