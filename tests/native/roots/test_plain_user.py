"""A plain user's runs in an image answer as root's do; what differs has a reason and is pinned."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PLAIN_UID = 65534


def _load_cases() -> Any:
    path = Path(__file__).with_name("cases.py")
    spec = importlib.util.spec_from_file_location("cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cases"] = module
    spec.loader.exec_module(module)
    return module


cases = _load_cases()

Change = tuple[str, str]
"""A pattern in root's answer, and what the plain user's has instead."""

# The host's devices, /proc and /sys belong to somebody who is not inside.
OF_THE_HOST: dict[str, Change] = {
    "devices": ("crw-rw-rw- 0 0", f"crw-rw-rw- {PLAIN_UID} {PLAIN_UID}"),
    "modes": (r"(proc|sys) 0 0", rf"\1 {PLAIN_UID} {PLAIN_UID}"),
    "a tmpfs in a read-only root": (r"\n$", f",uid={PLAIN_UID},gid={PLAIN_UID}\n"),
    "a tmpfs with options": (r"\n$", f",uid={PLAIN_UID},gid={PLAIN_UID}\n"),
}
NO_GROUPS: Change = (" groups=.*", "")
# There is one user, whoever that is asked to be: everything is theirs, and no group is beside it.
OF_ONE_USER: dict[str, Change] = {
    "the image's user": NO_GROUPS,
    "root": NO_GROUPS,
    "a uid": NO_GROUPS,
    "a name": NO_GROUPS,
    "uid:gid": NO_GROUPS,
    "name:group": NO_GROUPS,
    "a uid without a name": NO_GROUPS,
    ":gid": NO_GROUPS,
    "the image's directory, made": ("0 0 755", "1000 44 755"),
    "a directory, made": ("0 0 755", "1000 44 755"),
    "files for names": (" 0 0 ", " 1000 44 "),
}
# A plain user without groups has other means for these (docs/reference/host-modes.md).
OF_THE_MODE = {"ulimits", "out of memory", "processes"}
# Only root can have devices made or filtered: the flags are refused.
REFUSED = {"a device to read", "a device to write", "devices by a rule", "devices by a wide rule"}
OF_ROOT = {"devices that are made"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Answers = Callable[[str], tuple[int, str]]


@pytest.fixture
def images(
    cli: Callable[..., Any], plain_user: Callable[..., Any], plain_home: Path, kit: SimpleNamespace
) -> Path:
    """The same image in root's store and in the plain user's, and files to show in it."""
    files = {**kit.base_files(), "data": None, "data/in": b"in the image\n"}
    kit.write_layout(plain_home / "layout", [kit.make_layer(files)], cases.CONFIG)
    (plain_home / "env").write_text(cases.ENV_FILE)
    for name in ("root", "plain"):
        (plain_home / f"shown-{name}").mkdir()
        (plain_home / f"shown-{name}/file").write_text("shown\n")
    for path in plain_home.rglob("*"):
        os.chown(path, PLAIN_UID, PLAIN_UID)
    load = ("image", "load", "-q", "-t", "box:1", plain_home / "layout")
    for done in (cli(*load), plain_user("python", "-m", "sandbox", *load)):
        assert done.status == 0, done.stderr
    shutil.rmtree(plain_home / "layout")
    return plain_home


def words_of(case: str, home: Path, name: str) -> list[str]:
    flags, command = cases.SAME[case]
    meant = [flag.replace("ENV_FILE", f"{home}/env") for flag in flags]
    meant = [flag.replace("SHOWN", f"{home}/shown-{name}") for flag in meant]
    return ["run", "-q", "--image", "box:1", *meant, "--", *command]


@pytest.fixture
def roots(cli: Callable[..., Any], images: Path) -> Answers:
    """`roots("umask")` is root's status and output."""

    def run(case: str) -> tuple[int, str]:
        done = cli(*words_of(case, images, "root"), env={"PASSED": "on"})
        return done.status, done.stdout

    return run


def differences(roots: Answers, plain: Answers, changes: dict[str, Change]) -> dict[str, Any]:
    """Return root's and the other's answers where they are not as they should be."""
    found = {}
    for case in cases.SAME.keys() - OF_THE_MODE - OF_ROOT:
        answer = plain(case)
        (status, output) = (125, "") if case in REFUSED else roots(case)
        pattern, instead = changes.get(case, ("^", ""))
        if (status, re.sub(pattern, instead, output)) != answer:
            found[case] = ((status, output), answer)
    return found


def test_a_plain_user_alone_finds_what_root_finds(
    roots: Answers, plain_user: Callable[..., Any], images: Path
) -> None:
    def plain(case: str) -> tuple[int, str]:
        words = words_of(case, images, "plain")
        done = plain_user("python", "-m", "sandbox", *words, env={"PASSED": "on"})
        if "user namespaces may be closed" in done.stderr:
            pytest.skip("a plain user may make no user namespace here")
        return done.status, done.stdout

    assert differences(roots, plain, {**OF_THE_HOST, **OF_ONE_USER}) == {}


def test_with_lent_ids_all_users_are_there_too(
    roots: Answers, many_users: Callable[..., Any], images: Path
) -> None:
    def plain(case: str) -> tuple[int, str]:
        done = many_users("-m", "sandbox", *words_of(case, images, "plain"), PASSED="on")
        return done.returncode, done.stdout

    assert differences(roots, plain, OF_THE_HOST) == {}
