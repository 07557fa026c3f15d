"""Docker's flags about privileges, as the program and the result show them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOURTEEN = "00000000a80425fb"
NOTHING = "0000000000000000"

Inside = Callable[..., Any]


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """One made of busybox."""
    busybox = shutil.which("busybox")
    if busybox is None or os.geteuid() != 0:
        pytest.skip("busybox-static is not installed, or this is not root")
    root = tmp_path / "rootfs"
    for name in ("bin", "etc"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "grep", "ls", "cat", "test"):
        (root / "bin" / name).symlink_to("busybox")
    return root


@pytest.fixture
def inside(cli: Inside, rootfs: Path) -> Inside:
    """`inside("ls", flags=["--privileged"])` runs a command in the root file system."""

    def run(*command: str, flags: tuple[str | Path, ...] = ()) -> Any:
        # An emulated machine takes its time for a hundred devices.
        return cli("run", "-q", "--rootfs", rootfs, *flags, "--", *command, timeout=50)

    return run


def status(inside: Inside, *flags: str) -> dict[str, str]:
    done = inside("grep", "-E", "CapEff|NoNewPrivs|Seccomp:", "/proc/self/status", flags=flags)
    assert done.status == 0, done.stderr
    return dict(line.split(":\t") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("flags", "capabilities", "no_new_privileges", "filtered"),
    [
        ((), FOURTEEN, "1", "2"),
        (("--cap-drop", "ALL"), NOTHING, "1", "2"),
        (("--cap-drop", "ALL", "--cap-add", "CHOWN"), "0000000000000001", "1", "2"),
        (("--cap-drop", "mknod"), "00000000a00425fb", "1", "2"),
        (("--security-opt", "seccomp=unconfined"), FOURTEEN, "1", "0"),
        (("--security-opt", "no-new-privileges=false"), FOURTEEN, "0", "2"),
    ],
)
def test_a_program_holds_what_the_flags_say(
    inside: Inside,
    flags: tuple[str, ...],
    capabilities: str,
    no_new_privileges: str,
    filtered: str,
) -> None:
    assert status(inside, *flags) == {
        "CapEff": capabilities,
        "NoNewPrivs": no_new_privileges,
        "Seccomp": filtered,
    }


def test_the_privileged_have_it_all(inside: Inside, tmp_path: Path) -> None:
    held = Path("/proc/self/status").read_text().split("CapPrm:\t")[1].split()[0]
    result = tmp_path / "result.json"

    found = status(inside, "--privileged", "-o", str(result))

    assert found == {"CapEff": held, "NoNewPrivs": "0", "Seccomp": "0"}
    record = json.loads(result.read_text())
    assert {each["name"]: each["state"] for each in record["protections"]} | {
        "seccomp": "off",
        "system": "off",
        "no_new_privileges": "off",
    } == {each["name"]: each["state"] for each in record["protections"]}
    assert "not_apart" in {each["code"] for each in record["warnings"]}


def test_a_profile_of_dockers_is_in_force(inside: Inside, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    refused = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}))
    flags = ("--security-opt", f"seccomp={profile}")

    done = inside("sh", "-c", "busybox mkdir /x", flags=flags)

    assert "No space left on device" in done.stderr
    assert inside("sh", "-c", "busybox mkdir /x").status == 0


def test_devices_and_shared_memory_are_as_asked_for(inside: Inside) -> None:
    shown = ("--device", "/dev/zero:/dev/other", "--device", "/dev/full:rwm")
    done = inside(
        "sh", "-c", "ls -l /dev/other /dev/full; test -d /dev/shm && echo shm", flags=shown
    )
    assert done.stdout.count("1,") == 2
    assert done.stdout.endswith("shm\n")

    assert inside("ls", "/dev/shm", flags=("--ipc", "none")).status != 0
    file = Path(f"/dev/shm/sandbox-test-{os.getpid()}")
    file.touch()
    try:
        assert inside("ls", str(file), flags=("--ipc", "host")).status == 0
        assert inside("ls", str(file)).status != 0
    finally:
        file.unlink()


DEVICE = Path("/dev/fuse")
"""One that may be opened without an effect, and that is not among the usual ones."""
MOUNT = "busybox mkdir /m && busybox mount -t tmpfs none /m && busybox mknod /m/x c 10 229; "
OPEN = "(: < /m/x) && echo read; (: > /m/x) && echo written; true"
MAY_MOUNT = ("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined")


@pytest.mark.skipif(not DEVICE.exists(), reason="this host has no /dev/fuse")
def test_a_device_is_read_or_written_as_it_was_given(inside: Inside) -> None:
    opening = OPEN.replace("/m/x", "/dev/x")
    for letters, done in (("r", "read\n"), ("w", "written\n"), ("rw", "read\nwritten\n")):
        found = inside("sh", "-c", opening, flags=("--device", f"{DEVICE}:/dev/x:{letters}"))
        assert found.stdout == done
        assert found.stderr.count("Operation not permitted") == 2 - len(letters)


@pytest.mark.skipif(not DEVICE.exists(), reason="this host has no /dev/fuse")
@pytest.mark.parametrize(
    ("flags", "done"),
    [
        ((), ""),
        (("--device-cgroup-rule", "c 10:229 r"), "read\n"),
        (("--device-cgroup-rule", "c 10:* rwm"), "read\nwritten\n"),
        (("--device-cgroup-rule", "b *:* rwm"), ""),
        (("--device", str(DEVICE)), "read\nwritten\n"),
        (("--privileged",), "read\nwritten\n"),
    ],
)
def test_a_device_that_root_makes_is_only_used_as_the_rules_allow(
    inside: Inside, flags: tuple[str, ...], done: str
) -> None:
    found = inside("sh", "-c", MOUNT + OPEN, flags=(*MAY_MOUNT, *flags))

    assert (found.status, found.stdout) == (0, done), found.stderr


def test_the_usual_devices_may_be_used(inside: Inside) -> None:
    usual = "null zero full random urandom"
    opening = f"for name in {usual}; do : < /dev/$name; : > /dev/$name; done; echo > /dev/stderr"

    done = inside("sh", "-ec", opening)

    assert (done.status, done.stderr) == (0, "\n")


def test_the_hosts_processes_can_be_seen(inside: Inside) -> None:
    command = ("cat", f"/proc/{os.getpid()}/comm")

    assert inside(*command).status != 0
    assert inside(*command, flags=("--pid", "host")).status == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--device", "/dev/nosuch"), "there is no device /dev/nosuch"),
        (("--device", "/dev/null:x"), "are not permissions"),
        (("--device-cgroup-rule", "c 1:3"), "is not a rule on devices"),
        (("--gpus", "all"), "there is no NVIDIA GPU on this host"),
        (("--cap-add", "FLY"), "there is no capability `FLY`"),
        (("--security-opt", "apparmor=x"), "cannot be promised"),
        (("--pid", "host", "--init"), "--init reaps as the first process"),
        (("--ipc", "container:x"), "cannot join"),
        (("--harden",), "--harden is for the host's own root"),
    ],
)
def test_what_cannot_be_had_is_one_error(inside: Inside, flags: tuple[str, ...], said: str) -> None:
    if flags[0] == "--gpus" and Path("/dev/nvidiactl").exists():
        pytest.skip("there is one")
    done = inside("true", flags=flags)

    assert done.status == 125
    assert said in done.stderr
    assert done.stderr.count("sandbox: error:") == 1


def test_a_plain_user_gets_no_device_that_he_may_not_use(
    plain_user: Inside, plain_home: Path
) -> None:
    words = ("run", "--rootfs", plain_home, "--device", "/dev/full", "--device", "/dev/mem")

    done = plain_user("python", "-m", "sandbox", *words, "--", "true")

    assert done.status == 125
    assert "cannot be given" in done.stderr or "there is no device" in done.stderr


def test_a_plain_users_devices_are_not_filtered(plain_user: Inside, plain_home: Path) -> None:
    for flags in (("--device", "/dev/full:r"), ("--device-cgroup-rule", "c 1:* r")):
        words = ("run", "--rootfs", plain_home, *flags)
        done = plain_user("python", "-m", "sandbox", *words, "--", "true")
        assert done.status == 125
        assert "devices cannot be filtered here" in done.stderr
        assert "it takes root" in done.stderr


def test_flags_of_privileges_need_a_root_or_hardening(cli: Inside) -> None:
    for flags in (("--privileged",), ("--cap-add", "CHOWN"), ("--security-opt", "seccomp=x")):
        done = cli("run", *flags, "--", "true")
        assert done.status == 125
        assert "has no meaning on the host's own root file system" in done.stderr


@pytest.mark.parametrize(
    ("flags", "filtered"),
    [
        (("--ipc", "host"), "2"),
        (("--ipc", "none"), "2"),
        (("--pid", "host"), "2"),
        (("--cap-add", "SYS_ADMIN"), "2"),
        (("--security-opt", "no-new-privileges=false", "--init"), "2"),
        (("--privileged",), "0"),
    ],
)
def test_a_plain_user_has_them_too(
    plain_user: Inside,
    plain_home: Path,
    rootfs: Path,
    flags: tuple[str, ...],
    filtered: str,
) -> None:
    root = plain_home / "rootfs"
    shutil.copytree(rootfs, root, symlinks=True)
    for path in (root, *root.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    command = ("grep", "Seccomp:", "/proc/self/status")

    done = plain_user("python", "-m", "sandbox", "run", "--rootfs", root, *flags, "--", *command)

    if "user namespaces may be closed" in done.stderr:
        pytest.skip("a plain user may make no user namespace here")
    assert done.stdout == f"Seccomp:\t{filtered}\n", done.stderr
    assert ("gives a plain user no more" in " ".join(done.stderr.split())) == (filtered == "0")
