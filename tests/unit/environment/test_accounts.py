"""Users by the files of a root file system."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.environment.accounts import Account, find_account
from sandbox.errors import LaunchError

PASSWD = (
    "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken\n"
    "alice:x:1000:100:A:/home/alice:/bin/sh\nbob:x:1001:9999999999999::\n"
)
GROUP = "root:x:0:\nusers:x:100:\nvideo:x:44:bob,alice\naudio:x:29:alice\n"


@pytest.mark.parametrize(
    ("text", "account"),
    [
        ("", Account(uid=0, gid=0, home="/root")),
        ("alice", Account(uid=1000, gid=100, groups=(44, 29), home="/home/alice")),
        ("1000", Account(uid=1000, gid=100, groups=(44, 29), home="/home/alice")),
        ("alice:video", Account(uid=1000, gid=44, home="/home/alice")),
        ("7:8", Account(uid=7, gid=8)),
        ("7", Account(uid=7, gid=0)),
    ],
)
def test_a_user_is_found_as_docker_finds_it(text: str, account: Account) -> None:
    assert find_account(text, PASSWD, GROUP) == account


@pytest.mark.parametrize("text", ["nobody", "alice:nobody", "-1", "4294967295", "bob"])
def test_a_user_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        find_account(text, PASSWD, GROUP)

    assert caught.value.exit_code == 126


def test_without_files_there_are_numbers_only() -> None:
    assert find_account("0", "", "") == Account(uid=0, gid=0)
    with pytest.raises(LaunchError, match="root file system"):
        find_account("root", "", "")


@given(st.text(max_size=20), st.text(max_size=60), st.text(max_size=60))
def test_any_files_give_an_account_or_one_error(text: str, passwd: str, group: str) -> None:
    try:
        account = find_account(text, passwd, group)
    except LaunchError:
        return
    assert 0 <= account.uid < 1 << 32
