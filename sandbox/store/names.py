"""Names of runs: how they look, new ones, and whose they are."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from sandbox.errors import SpecError, StoreError
from sandbox.store.home import open_child
from sandbox.store.locks import held, is_held
from sandbox.store.targets import MODE, NEW_FILE, write_all

_NAME = r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}"
_ID = r"[0-9a-f]{12}"
_ID_BYTES = 6

_QUALITIES = (
    "amber azure brisk calm candid clear cobalt copper coral crisp dawn deft dry dusky "
    "eager early even fair fleet fresh frosty gentle glad golden green hardy hazel idle ivory "
    "jade keen lively lunar mellow mild misty mossy nimble noble oaken olive pale pearl plain "
    "polar proud quick quiet rapid ruddy sandy sharp silent silver sleek snowy solar steady "
    "stony sunny swift tidal tidy vivid warm wild windy young"
)
_THINGS = (
    "acorn anchor anvil badger basin beacon birch brook canoe canyon cedar cliff clover comet "
    "condor cove crane delta dune ember falcon fern fjord flint forge gannet glacier grove gull "
    "harbor heron hill ibis inlet island kestrel lagoon lantern lark linden loom maple marsh "
    "meadow mesa mill moor oak orbit osprey otter pebble pine plover pond prairie quarry raven "
    "reef ridge river robin rudder sail shoal sparrow spruce stork summit swan thicket tundra "
    "valley walnut willow wren"
)


class NameInUseError(StoreError):
    """Another run that is live has this name."""


def new_run_id() -> str:
    """Return twelve hexadecimal digits, as short container ids look."""
    return os.urandom(_ID_BYTES).hex()


def is_run_id(text: str) -> bool:
    """Return whether `text` can be a run's id."""
    return re.fullmatch(_ID, text) is not None


def is_name(text: str) -> bool:
    """Return whether `text` can be a run's name."""
    return re.fullmatch(_NAME, text) is not None


def new_name() -> str:
    """Return two words that people can say and remember."""
    return "-".join(_any_of(words.split()) for words in (_QUALITIES, _THINGS))


def _any_of(words: list[str]) -> str:
    return words[int.from_bytes(os.urandom(4), "little") % len(words)]


def check_name(name: str) -> None:
    """Refuse what cannot be a run's name.

    Raises:
        SpecError: it holds something else than letters, digits, `_`, `.`, `-`, or is too long.
    """
    if not is_name(name):
        raise SpecError(
            f"`{name}` cannot be the name of a run",
            hint="use up to 63 letters, digits, `_`, `.` and `-`, a letter or digit first",
        )


def claim(home_fd: int, name: str, run_id: str) -> None:
    """Make `name` that of `run_id`, whose lock is held already, until this lock is free.

    The name of a run that has ended goes over to the new one. Two who want the same name at the
    same time come one after the other.

    Raises:
        NameInUseError: a live run has it.
        OSError: it cannot be written.
    """
    names_fd = open_child(home_fd, "names", make=True)
    try:
        with held(home_fd):
            owner = _owner(names_fd, name)
            if owner is not None and owner != run_id and _is_live(home_fd, owner):
                raise NameInUseError(
                    f"the name {name} is in use by run {owner}",
                    hint=f"choose another --name, or end that run: `sandbox stop {name}`",
                )
            _write(names_fd, name, run_id)
    finally:
        os.close(names_fd)


def owner_of(home_fd: int, name: str) -> str | None:
    """Return the id of the run that has or last had this name, or None."""
    try:
        names_fd = open_child(home_fd, "names")
    except OSError:
        return None
    try:
        return _owner(names_fd, name)
    finally:
        os.close(names_fd)


def forget(home_fd: int, name: str, run_id: str) -> None:
    """Give a name free, if it is still this run's; raises OSError."""
    names_fd = open_child(home_fd, "names", make=True)
    try:
        with held(home_fd):
            if _owner(names_fd, name) == run_id:
                os.unlink(name, dir_fd=names_fd)
    finally:
        os.close(names_fd)


def forget_run(home_fd: int, run_id: str) -> None:
    """Give all names free that are still this run's; raises OSError."""
    names_fd = open_child(home_fd, "names", make=True)
    try:
        with held(home_fd), os.scandir(names_fd) as entries:
            for name in [entry.name for entry in entries]:
                if _owner(names_fd, name) == run_id:
                    os.unlink(name, dir_fd=names_fd)
    finally:
        os.close(names_fd)


def _owner(names_fd: int, name: str) -> str | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=names_fd)
    except OSError:
        return None
    try:
        text = os.read(fd, 64).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    return text if is_run_id(text) else None


def _write(names_fd: int, name: str, run_id: str) -> None:
    temporary = f".{run_id}"
    try:
        fd = os.open(temporary, NEW_FILE | os.O_EXCL, MODE, dir_fd=names_fd)
        try:
            write_all(fd, f"{run_id}\n".encode())
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=names_fd, dst_dir_fd=names_fd)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=names_fd)
        raise


def _is_live(home_fd: int, run_id: str) -> bool:
    try:
        fd = open_child(home_fd, f"runs/{run_id}")
    except FileNotFoundError:
        return False
    try:
        return is_held(fd)
    finally:
        os.close(fd)
