"""What becomes of a run whose devices cannot be filtered."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox.engine.starting import _filter_devices
from sandbox.environment.host import Prepared
from sandbox.errors import HostError
from sandbox.kernel import device_filter
from sandbox.kernel.backend import Backend
from sandbox.records.enclosure import Enclosure, RootSpec
from sandbox.records.program import Program
from sandbox.records.security import Device, DeviceRule, Protection, ProtectionState, Security
from sandbox.spec import RunSpec

RULES = (DeviceRule(kind="a", access="m"),)
ON = Protection(name="devices", state=ProtectionState.ON, detail="docker's default")
OTHER = Protection(name="seccomp", state=ProtectionState.ON, detail="docker's default")


def backend(directory: Path | None) -> Backend:
    return Backend(group=cast("Any", None), launcher=cast("Any", None), kill_directory=directory)


def prepared(*, strict: bool = False, permissions: str = "rwm") -> Prepared:
    device = Device(source="/dev/null", target="/dev/x", permissions=permissions)
    security = Security(devices=(device,))
    enclosure = Enclosure(hostname="x", device_rules=RULES)
    return Prepared(
        program=Program(argv=("true",), environment={}, enclosure=enclosure),
        thread_hints={},
        protections=(OTHER, ON),
        spec=RunSpec(
            command=("true",), strict=strict, root=RootSpec(rootfs="/x", security=security)
        ),
    )


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: Path, rules: object) -> None:
        assert (directory, rules) == (Path("/group"), RULES)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(device_filter, "filter_devices", refuse)


@pytest.mark.usefixtures("refused")
def test_by_default_the_result_says_so() -> None:
    found = _filter_devices(backend(Path("/group")), prepared())

    other, devices = found.protections
    assert other == OTHER
    assert devices.state is ProtectionState.UNAVAILABLE
    assert "Operation not permitted" in devices.detail


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("asked", [{"strict": True}, {"permissions": "r"}])
def test_what_was_asked_for_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(HostError, match="Operation not permitted"):
        _filter_devices(backend(Path("/group")), prepared(**asked))


@pytest.mark.usefixtures("refused")
def test_without_a_group_nothing_is_tried() -> None:
    assert _filter_devices(backend(None), prepared()).protections == (OTHER, ON)
