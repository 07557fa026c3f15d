"""`sandbox pause`: hold running sandboxes where they are."""

from __future__ import annotations

from sandbox.cli.each import Sandboxes, for_each


def pause(sandboxes: Sandboxes) -> None:
    """Stop every process of running sandboxes where it is, until `sandbox unpause`.

    Their memory stays in use, and their clocks go on: a --timeout still ends them. A paused sandbox
    can be stopped and killed.
    """
    from sandbox.control.naming import Names
    from sandbox.control.request import ask

    names = Names()

    def pause_one(asked: str) -> None:
        ask(names.running(asked), {"act": "pause"})

    for_each(sandboxes, pause_one)
