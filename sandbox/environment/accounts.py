"""Users and groups by the files of a root file system, which this host's databases know nothing of.

The files are read, never asked for through the C library: that would load modules which a root file
system names.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.errors import EXIT_NOT_EXECUTABLE, LaunchError
from sandbox.records.light import dataclass

_LARGEST_ID = (1 << 32) - 2
_LARGEST_GROUPS = 65_536  # as many as the kernel takes


@dataclass(frozen=True, kw_only=True)
class Account:
    """Who a program runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"


def find_account(text: str, passwd: str, group: str) -> Account:
    """Return who `name`, `uid`, `name:group` or `uid:gid` is; nothing is root.

    As docker: a number without an entry is taken as it is, with group 0 and home `/`; an explicit
    group leaves no supplementary ones.

    Args:
        text: What was asked for.
        passwd: The content of /etc/passwd; empty where there is none.
        group: The content of /etc/group.

    Raises:
        LaunchError: there is no such user or group (126).
    """
    name, _, wanted_group = (text or "0").partition(":")
    entry = _find_user(name or "0", passwd)
    if entry is None:
        account = Account(uid=_number(name, "user"), gid=0)
    else:
        account = Account(
            uid=_number(entry[2], "user"),
            gid=_number(entry[3], "group"),
            groups=_supplementary(entry[0], group),
            home=entry[5] or "/",
        )
    if wanted_group:
        gid = _find_gid(wanted_group, group)
        account = Account(uid=account.uid, gid=gid, home=account.home)
    return account


def _lines(content: str, fields: int) -> Iterator[list[str]]:
    for line in content.splitlines():
        parts = line.split(":")
        if len(parts) >= fields and not line.startswith("#"):
            yield parts


def _find_user(name: str, passwd: str) -> list[str] | None:
    by_name = next((parts for parts in _lines(passwd, 6) if parts[0] == name), None)
    if by_name is not None or not _is_number(name):
        return by_name
    return next((p for p in _lines(passwd, 6) if _is_number(p[2]) and int(p[2]) == int(name)), None)


def _find_gid(name: str, group: str) -> int:
    for parts in _lines(group, 3):
        if parts[0] == name:
            return _number(parts[2], "group")
    return _number(name, "group")


def _supplementary(user: str, group: str) -> tuple[int, ...]:
    found = [
        int(parts[2])
        for parts in _lines(group, 4)
        if user in parts[3].split(",") and _is_number(parts[2]) and int(parts[2]) <= _LARGEST_ID
    ]
    return tuple(dict.fromkeys(found))[:_LARGEST_GROUPS]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10  # noqa: PLR2004 - 32 bits


def _number(text: str, what: str) -> int:
    if not _is_number(text) or int(text) > _LARGEST_ID:
        raise LaunchError(
            f"there is no {what} `{text}` in the root file system",
            exit_code=EXIT_NOT_EXECUTABLE,
            hint=f"its own /etc/{'passwd' if what == 'user' else 'group'} is looked into, "
            "not this host's; a number always works",
        )
    return int(text)
