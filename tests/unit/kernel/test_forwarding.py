"""Leases: whoever ends the last one puts settings back, and nobody else's is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kernel import forwarding


class Settings:
    """A host's settings, as files."""

    def __init__(self, top: Path) -> None:
        self.place = str(top / "run")
        self.conf = top / "conf"
        self.all = top / "ip_forward"
        for name in ("lo", "other"):
            self.make(name)
        self.all.write_text("0\n")

    def make(self, name: str, value: str = "0") -> None:
        (self.conf / name).mkdir(parents=True)
        (self.conf / name / "forwarding").write_text(f"{value}\n")

    def of(self, name: str) -> str:
        return (self.conf / name / "forwarding").read_text().strip()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    found = Settings(tmp_path)
    monkeypatch.setattr(forwarding, "_SETTING", f"{found.conf}/{{}}/forwarding")
    monkeypatch.setattr(forwarding, "_ALL", str(found.all))
    return found


@pytest.fixture
def held() -> Iterator[list[int]]:
    fds: list[int] = []
    yield fds
    for fd in fds:
        os.close(fd)


def begin(settings: Settings, held: list[int], run_id: str, *names: str) -> tuple[str, list[str]]:
    lease = forwarding.lease_path(run_id, settings.place)
    with forwarding.exclusively(settings.place):
        held.append(forwarding.take(lease))
        return lease, forwarding.open_up(lease, names)


def end(held: list[int], lease: str, place: int = 0) -> None:
    os.close(held.pop(place))
    forwarding.release(lease)


def test_the_last_run_puts_back_what_the_first_has_changed(
    settings: Settings, held: list[int]
) -> None:
    first, opened = begin(settings, held, "a", "lo")
    second, others = begin(settings, held, "b", "lo", "other")
    assert (opened, others) == (["lo"], ["lo", "other"])
    assert (settings.of("lo"), settings.of("other")) == ("1", "1")

    end(held, first)
    assert (settings.of("lo"), settings.of("other")) == ("1", "1")

    end(held, second)
    assert (settings.of("lo"), settings.of("other")) == ("0", "0")
    assert [path.name for path in Path(settings.place).iterdir()] == ["network.lock"]


def test_what_forwards_already_is_not_ours(settings: Settings, held: list[int]) -> None:
    settings.make("eth", "1")

    lease, opened = begin(settings, held, "a", "eth")

    assert opened == []
    end(held, lease)
    assert settings.of("eth") == "1"


def test_a_lease_that_nobody_holds_is_lost(settings: Settings, held: list[int]) -> None:
    lease, _ = begin(settings, held, "a", "lo")
    assert forwarding.release_lost(settings.place) == []
    os.close(held.pop())

    assert forwarding.release_lost(settings.place) == [lease]
    assert settings.of("lo") == "0"
    assert forwarding.release_lost(settings.place) == []


def test_a_lost_lease_does_not_keep_what_the_last_living_run_leaves(
    settings: Settings, held: list[int]
) -> None:
    begin(settings, held, "lost", "lo")
    lease, _ = begin(settings, held, "b", "lo")
    os.close(held.pop(0))

    end(held, lease)

    assert settings.of("lo") == "0"


def test_when_all_were_told_to_forward_meanwhile_none_is_put_back(
    settings: Settings, held: list[int]
) -> None:
    lease, _ = begin(settings, held, "a", "lo")
    settings.all.write_text("1\n")

    end(held, lease)

    assert settings.of("lo") == "1"


def test_an_interface_that_has_gone_is_no_trouble(settings: Settings, held: list[int]) -> None:
    lease, _ = begin(settings, held, "a", "other")
    (settings.conf / "other" / "forwarding").unlink()
    (settings.conf / "other").rmdir()

    end(held, lease)

    assert not list(Path(settings.place).glob("net-*"))


def test_to_release_again_is_harmless(settings: Settings, held: list[int]) -> None:
    lease, _ = begin(settings, held, "a", "lo")
    end(held, lease)

    forwarding.release(lease)
    assert settings.of("lo") == "0"


def test_it_runs_alone_as_the_guard_has_it() -> None:
    source = Path(forwarding.__file__).read_text()

    assert "import sandbox" not in source
    assert "from sandbox" not in source
