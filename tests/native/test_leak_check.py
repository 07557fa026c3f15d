"""The check behind every native test finds what was left behind; else its silence means nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def house(request: pytest.FixtureRequest) -> ModuleType:
    """tests/conftest.py as a module."""
    plugin = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    assert isinstance(plugin, ModuleType)
    return plugin


def state(house: ModuleType) -> tuple[object, object, object]:
    return house.run_groups(), house.marked_processes(), house.open_descriptors()


def test_nothing_is_found_when_nothing_was_left(house: ModuleType) -> None:
    assert house._left_behind(*state(house)) == ""


def test_a_daemon_is_found_though_it_left_its_session(
    house: ModuleType, load: Callable[..., list[str]]
) -> None:
    before = state(house)
    done = subprocess.run(load("daemonize", 30), check=True, timeout=20, capture_output=True)
    daemon = int(done.stdout)
    try:
        assert f"process {daemon}" in house._left_behind(*before)
    finally:
        os.kill(daemon, 9)


def test_a_zombie_is_found(house: ModuleType) -> None:
    before = state(house)
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert f"process {child}" in house._left_behind(*before)
    finally:
        os.waitpid(child, 0)


def test_an_open_descriptor_is_found(house: ModuleType) -> None:
    before = state(house)
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        assert house._left_behind(*before) == f"descriptor {descriptor}: /dev/null"
    finally:
        os.close(descriptor)


def test_a_group_is_found_in_every_hierarchy(
    house: ModuleType, need_kernel: Callable[[object, str], None]
) -> None:
    need_kernel(os.geteuid() == 0 and house.own_groups(), "groups cannot be made here")
    before = state(house)
    groups = [own / f"run-leak-check-{os.getpid()}" for own in house.own_groups()]
    try:
        for group in groups:
            group.mkdir()
        found = house._left_behind(*before)
    finally:
        for group in groups:
            group.rmdir()

    assert [line for line in found.splitlines() if "leak-check" in line] == [
        f"group {group}: []" for group in sorted(groups)
    ]
