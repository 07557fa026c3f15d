"""Which files of the host a hardened run on its root does not see."""

from __future__ import annotations

import pytest

from sandbox.records.enclosure import InPlace


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/tmp/x", "/tmp"),
        ("/tmp", "/tmp"),
        ("/run/user/0/bus", "/run"),
        ("/var/tmp/x", "/var/tmp"),
        ("/tmp/mineral", "/tmp"),
        ("/tmp/mine", None),
        ("/tmp/mine/x/y", None),
        ("/tmp/data", None),
        ("/tmpfs", None),
        ("/home/tmp/x", None),
    ],
)
def test_what_is_emptied_hides_all_but_what_is_put_back(path: str, place: str | None) -> None:
    apart = InPlace(is_apart=True, writable=("/tmp/mine",), kept=("/tmp/data",))

    assert apart.emptied_above(path) == place
    assert InPlace(is_apart=False).emptied_above(path) is None
