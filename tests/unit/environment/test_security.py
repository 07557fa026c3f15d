"""What docker's flags about privileges come to on a host, and the plan for GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.environment import security, system_calls
from sandbox.environment.gpus import LIBRARIES, plan_gpus
from sandbox.errors import HostError, SpecError
from sandbox.kernel.capabilities import KEPT, NAMES, mask_of, read_held
from sandbox.kernel.roots import Roots
from sandbox.records.light import replace
from sandbox.records.security import Device, DeviceRule, Gpus, ProtectionState, Security


def capabilities(*, add: tuple[str, ...] = (), drop: tuple[str, ...] = ()) -> set[str]:
    asked = Security(cap_add=add, cap_drop=drop)
    return set(security.find_capabilities(asked, is_plain=True))


def test_capabilities_are_put_together_as_docker_does() -> None:
    usual, every = set(KEPT), set(NAMES)

    assert capabilities() == usual
    assert capabilities(drop=("chown",)) == usual - {"chown"}
    assert capabilities(add=("sys_admin",)) == usual | {"sys_admin"}
    assert capabilities(drop=("all",)) == set()
    assert capabilities(add=("chown",), drop=("all",)) == {"chown"}
    assert capabilities(add=("all",)) == every
    assert capabilities(add=("all",), drop=("sys_admin",)) == every - {"sys_admin"}
    assert mask_of(usual) == 0xA80425FB


def test_what_a_plain_user_cannot_have_is_an_error() -> None:
    for name in ("sys_time", "syslog", "sys_module"):
        with pytest.raises(HostError, match="gives nothing to a plain user"):
            capabilities(add=(name,))


def test_what_we_lack_ourselves_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    held = frozenset(KEPT)
    monkeypatch.setattr(security, "_held", lambda *, is_plain: held)

    with pytest.raises(HostError, match="CAP_SYS_RESOURCE was asked for"):
        capabilities(add=("sys_resource",))
    assert capabilities(add=("all",)) == set(KEPT)


def test_a_status_without_capabilities_holds_none() -> None:
    assert read_held("Name:\tx\n") == 0
    assert read_held("CapInh:\t0\nCapPrm:\t00000000000000ff\n") == 0xFF


def test_a_profile_is_read_and_told(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW"}))

    code, said = system_calls.find_filter(Security(seccomp=str(path)), frozenset())

    assert code
    assert said.state is ProtectionState.ON
    assert str(path) in said.detail
    with pytest.raises(HostError, match="cannot read the seccomp profile"):
        system_calls.find_filter(Security(seccomp=str(tmp_path / "no")), frozenset())


def rules_on_every_value(count: int) -> str:
    checks = [[{"index": 0, "op": "SCMP_CMP_EQ", "value": value}] for value in range(count)]
    rules = [{"names": ["read"], "action": "SCMP_ACT_LOG", "args": each} for each in checks]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "defaultAction: there is no action"),
        (b'{\n"defaultAction"}', "line 2, column 16"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b" " * (1 << 20) + b"{}", "longer than"),
        (rules_on_every_value(2_000).encode(), "instructions, and the kernel takes"),
    ],
)
def test_a_bad_profile_is_an_error_with_its_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)

    with pytest.raises(SpecError, match=said) as error:
        system_calls.find_filter(Security(seccomp=str(path)), frozenset())

    assert str(path) in str(error.value)
    assert error.value.hint


def test_no_filter_is_off_as_asked() -> None:
    for asked in (Security(seccomp="unconfined"), Security(privileged=True)):
        code, said = system_calls.find_filter(asked, frozenset())
        assert (code, said.state) == (b"", ProtectionState.OFF)


def test_a_kernel_without_filters_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "_SECCOMP", "/nosuch")

    code, said = system_calls.find_filter(Security(), frozenset())

    assert (code, said.state) == (b"", ProtectionState.UNAVAILABLE)
    with pytest.raises(HostError, match="no filter of system calls"):
        system_calls.find_filter(Security(seccomp="/profile.json"), frozenset())


def test_devices_are_one_or_a_directory_of_them(tmp_path: Path) -> None:
    asked = Security(devices=(Device(source="/dev/null", target="/dev/nothing"),))
    found = security.resolve_security(asked, Roots(), is_plain=True)
    assert found.devices == (Device(source="/dev/null", target="/dev/nothing"),)

    for source, said in ((tmp_path, "no directory of devices"), (tmp_path / "no", "no device")):
        device = Device(source=str(source), target="/dev/x")
        with pytest.raises(HostError, match=said):
            security.resolve_security(Security(devices=(device,)), Roots(), is_plain=True)


# --- GPUs -----------------------------------------------------------------------------------------

CACHE = """3 libs found in cache `/etc/ld.so.cache'
	libnvidia-ml.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
	libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
	libcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1
	libc.so.6 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libc.so.6
"""


def rules_of(security_asked: Security) -> set[DeviceRule]:
    found = security.resolve_security(security_asked, Roots(), is_plain=False)
    assert found.device_rules is not None
    assert [each.state for each in found.protections if each.name == "devices"] == ["on"]
    return set(found.device_rules)


def test_the_usual_devices_may_be_used_and_those_that_were_given() -> None:
    usual = rules_of(Security())
    assert DeviceRule(kind="a", access="m") in usual
    assert DeviceRule(kind="c", major=1, minor=3) in usual

    rule = DeviceRule(kind="b", major=8, access="r")
    device = Device(source="/dev/zero", target="/dev/x", permissions="r")
    given = rules_of(Security(devices=(device,), device_rules=(rule,)))
    assert given - usual == {rule, DeviceRule(kind="c", major=1, minor=5, access="r")}


def test_devices_are_not_filtered_where_that_was_asked_for_or_cannot_be() -> None:
    asked = Security(device_rules=(DeviceRule(kind="a"),))
    for said, settings in (
        ("it takes root", {"is_plain": True}),
        ("no group", {"is_plain": False, "has_group": False}),
    ):
        assert security.resolve_security(Security(), Roots(), **settings).device_rules is None
        with pytest.raises(HostError, match=f"devices cannot be filtered here.*{said}"):
            security.resolve_security(asked, Roots(), **settings)
    open_to_all = replace(asked, privileged=True)
    assert security.resolve_security(open_to_all, Roots(), is_plain=False).device_rules is None


def host_with(directory: Path, *devices: str) -> Roots:
    (directory / "dev").mkdir()
    for name in devices:
        (directory / "dev" / name).touch()
    return Roots(top=directory)


def test_gpus_are_shown_with_what_is_the_drivers(tmp_path: Path) -> None:
    roots = host_with(tmp_path, "nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "null")

    plan = plan_gpus(Gpus(devices=("1",)), roots, CACHE)

    shown = [device.source for device in plan.devices]
    assert shown == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"]
    targets = [mount.target for mount in plan.mounts]
    assert targets == [f"{LIBRARIES}/libnvidia-ml.so.1", f"{LIBRARIES}/libcuda.so.1"]
    assert all(mount.read_only and (mount.source or "").startswith("/") for mount in plan.mounts)
    assert dict(plan.variables)["LD_LIBRARY_PATH"] == LIBRARIES
    assert len(plan_gpus(Gpus(), roots, CACHE).devices) == 4
    assert len(plan_gpus(Gpus(count=1), roots, CACHE).devices) == 3


def test_gpus_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    roots = host_with(tmp_path, "nvidiactl", "nvidia0")

    for gpus, cache, said in (
        (Gpus(devices=("3",)), CACHE, "there is no GPU 3"),
        (Gpus(count=2), CACHE, "2 GPUs were asked for"),
        (Gpus(), "", "no library of its driver"),
    ):
        with pytest.raises(HostError, match=said):
            plan_gpus(gpus, roots, cache)
    with pytest.raises(SpecError, match="named by number"):
        plan_gpus(Gpus(devices=("GPU-1234",)), roots, CACHE)


def test_other_gpus_are_pointed_to(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no NVIDIA GPU") as caught:
        plan_gpus(Gpus(), host_with(tmp_path, "kfd", "dri"), CACHE)

    assert "--device /dev/dri" in (caught.value.hint or "")
