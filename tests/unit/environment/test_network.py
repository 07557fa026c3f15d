"""Which name servers a run finds, and whether its network is its own."""

from __future__ import annotations

import pytest

from sandbox.environment import network
from sandbox.environment.network import find_own_network, find_resolv_conf, warn_of_names
from sandbox.records.enclosure import IdMap, Network

STUB = "# by systemd\nnameserver 127.0.0.53\noptions edns0\nsearch lan\n"
BEHIND = "nameserver 192.0.2.53\nnameserver ::1\nsearch lan\n"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {"/etc/resolv.conf": STUB, "/run/systemd/resolve/resolv.conf": BEHIND}
    monkeypatch.setattr(network, "read_host_file", lambda path: found.get(path, ""))
    return found


@pytest.mark.parametrize("kind", [Network.HOST, Network.NONE])
def test_others_find_what_the_host_has(files: dict[str, str], kind: Network) -> None:
    assert find_resolv_conf(kind) == STUB


def test_a_server_on_the_loopback_gives_way_to_those_behind_it(files: dict[str, str]) -> None:
    text = find_resolv_conf(Network.PRIVATE)

    assert text == "nameserver 192.0.2.53\nsearch lan\n"
    assert list(warn_of_names(Network.PRIVATE, text)) == []


def test_servers_that_can_be_reached_stay_and_others_go(files: dict[str, str]) -> None:
    files["/etc/resolv.conf"] = "nameserver 127.0.0.1\nnameserver 198.51.100.9\noptions rotate\n"

    assert find_resolv_conf(Network.PRIVATE) == "nameserver 198.51.100.9\noptions rotate\n"


def test_without_any_a_warning_says_so(files: dict[str, str]) -> None:
    del files["/run/systemd/resolve/resolv.conf"]
    text = find_resolv_conf(Network.PRIVATE)

    assert text == "# by systemd\noptions edns0\nsearch lan\n"
    (warning,) = warn_of_names(Network.PRIVATE, text)
    assert warning.code == "no_name_server"
    assert warning.hint
    assert list(warn_of_names(Network.NONE, text)) == []


@pytest.mark.parametrize("uid", [0, 1000])
def test_only_root_needs_a_lease_and_only_others_need_ids(
    monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    monkeypatch.setattr(network.os, "geteuid", lambda: uid)
    monkeypatch.setattr(network.os, "getegid", lambda: uid)
    lent = IdMap(uids=((0, uid, 1), (1, 9, 9)), gids=((0, uid, 1),))

    assert find_own_network(Network.HOST, "abc") is None
    none = find_own_network(Network.NONE, "abc")
    private = find_own_network(Network.PRIVATE, "abc")
    assert none is not None
    assert private is not None
    assert none.lease == ""
    if uid == 0:
        assert private.lease.endswith("/run-abc")
        assert (none.ids, private.ids) == (None, None)
    else:
        assert private.lease == ""
        assert private.ids == IdMap(uids=((uid, uid, 1),), gids=((uid, uid, 1),))
        assert getattr(find_own_network(Network.PRIVATE, "abc", lent), "ids", None) == lent
