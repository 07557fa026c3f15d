"""`sandbox unpause`: let paused sandboxes go on."""

from __future__ import annotations

from sandbox.cli.each import Sandboxes, for_each


def unpause(sandboxes: Sandboxes) -> None:
    """Let every process of paused sandboxes go on."""
    from sandbox.control.naming import Names
    from sandbox.control.request import ask

    names = Names()

    def unpause_one(asked: str) -> None:
        ask(names.running(asked), {"act": "unpause"})

    for_each(sandboxes, unpause_one)
