"""Where runs are kept, and when that place is not trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox.errors import StoreError
from sandbox.store.home import find_home, open_home

OTHER = os.geteuid() + 1


@pytest.mark.parametrize(
    ("environ", "uid", "expected"),
    [
        ({"SANDBOX_HOME": "/data/runs", "HOME": "/home/me"}, 1000, "/data/runs"),
        ({"SANDBOX_HOME": "/data/../runs/"}, 0, "/runs"),
        ({"SANDBOX_HOME": "", "HOME": "/home/me"}, 1000, "/home/me/.local/share/sandbox"),
        ({"XDG_DATA_HOME": "/xdg", "HOME": "/home/me"}, 1000, "/xdg/sandbox"),
        ({"XDG_DATA_HOME": "xdg", "HOME": "/home/me"}, 1000, "/home/me/.local/share/sandbox"),
        ({"XDG_DATA_HOME": "/xdg", "HOME": "/root"}, 0, "/var/lib/sandbox"),
        ({}, 1000, "/tmp/sandbox-1000"),
        ({"HOME": ""}, 7, "/tmp/sandbox-7"),
    ],
)
def test_the_home_is_found(environ: dict[str, str], uid: int, expected: str) -> None:
    assert find_home(environ, uid) == Path(expected)


def test_a_relative_home_is_below_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_home({"SANDBOX_HOME": "here"}, 0) == tmp_path / "here"


def mode_of(path: Path) -> int:
    """Return the permissions of a path."""
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_for_the_user_alone_with_what_is_missing_above_it(tmp_path: Path) -> None:
    home = tmp_path / "one" / "two" / "home"
    os.close(open_home(home, make=True))
    assert [mode_of(path) for path in (home, home.parent, home.parent.parent)] == [0o700] * 3


def test_an_existing_home_is_taken_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    os.close(open_home(home, make=True))
    assert mode_of(home) == 0o755


def test_looking_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_home(tmp_path / "home", make=False)
    assert not (tmp_path / "home").exists()


def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(StoreError, match="belongs to another user") as caught:
        open_home(home, make=True, uid=OTHER)
    assert "SANDBOX_HOME" in (caught.value.hint or "")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_home_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(StoreError, match="can be written by other users") as caught:
        open_home(home, make=True)
    assert f"chmod go-w {home}" in (caught.value.hint or "")


def test_a_link_of_the_users_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "home").symlink_to("disk")
    fd = open_home(tmp_path / "home", make=True)
    assert os.fstat(fd).st_ino == (tmp_path / "disk").stat().st_ino
    os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    home = tmp_path / "home"
    home.symlink_to("disk")
    os.chown(home, 1234, 1234, follow_symlinks=False)
    with pytest.raises(StoreError, match="link that another user has made"):
        open_home(home, make=True)


def test_a_link_to_nowhere_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        open_home(tmp_path / "home", make=True)


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(NotADirectoryError):
        open_home(tmp_path / "home", make=True)


def test_nothing_stays_open_when_a_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - as text
    for _ in range(3):
        with pytest.raises(StoreError):
            open_home(home, make=True)
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208
