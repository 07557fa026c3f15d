"""`sandbox` with one protection of a run left out: `python _without.py NAME run --harden …`.

The product has no switches for most of them, so each is taken out of the program that is about to
be started. All names load the same modules, so that they differ by the protection alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import sandbox.kernel.device_filter
import sandbox.kernel.in_place
from sandbox.__main__ import main
from sandbox.kernel.capabilities import NAMES
from sandbox.kernel.launch import ProcessLauncher
from sandbox.records.enclosure import Enclosure, InPlace
from sandbox.records.light import replace
from sandbox.records.program import Program

NOTHING, DEVICES = "nothing", "devices"
Change = Callable[[Program], Program]


def _enclosed(change: Callable[[Enclosure], Enclosure]) -> Change:
    def apply(program: Program) -> Program:
        if program.enclosure is None:
            raise SystemExit("this run is not hardened")
        return replace(program, enclosure=change(program.enclosure))

    return apply


def _unconfined(**fields: Any) -> Change:
    return _enclosed(lambda each: replace(each, confinement=replace(each.confinement, **fields)))


def _together(program: Program) -> Program:
    """Leave out every namespace, and so all mounts: also the network's, which a user's needs."""
    in_the_open = _enclosed(lambda each: replace(each, in_place=InPlace(is_apart=False), ids=None))
    return replace(in_the_open(program), own_network=None)


def _change_mounts(**names: Any) -> Change:
    def apply(program: Program) -> Program:
        for name, value in names.items():
            getattr(sandbox.kernel.in_place, name)  # an error if it is called otherwise by now
            setattr(sandbox.kernel.in_place, name, value)
        return program

    return apply


CHANGES: dict[str, Change] = {
    NOTHING: lambda program: program,
    "namespaces": _together,
    "network": lambda program: replace(program, own_network=None),
    "places": _change_mounts(EMPTIED=()),
    "masks": _change_mounts(protect=lambda _root_fd, _say: None),
    "landlock": _unconfined(read_only_tree=False),
    "filter": _unconfined(filter=b""),
    "capabilities": _unconfined(capabilities=(1 << len(NAMES)) - 1),
}


def _leave_out(change: Change) -> None:
    start = ProcessLauncher.start

    def start_changed(self: ProcessLauncher, program: Program, group: Any) -> Any:
        return start(self, change(program), group)

    ProcessLauncher.start = start_changed  # type: ignore[method-assign]


def _leave_devices_out() -> None:
    """Do without what is done to a group, before there is a program to be changed."""
    sandbox.kernel.device_filter.filter_devices = lambda _directory, _rules: None


if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name == DEVICES:
        _leave_devices_out()
    _leave_out(CHANGES[NOTHING if name == DEVICES else name])
    main()
