"""Which block devices count, in a directory that stands in for /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.kernel.disks import find_disk_name, find_disks, is_stacked, label_disk
from sandbox.kernel.roots import Roots


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host with a disk, a volume on it, a loop device, a RAM disk and an empty card reader."""
    devices = {
        "vda": ("254:0", 100, []),
        "nvme0n1": ("259:0", 100, []),
        "dm-0": ("253:0", 100, ["vda"]),
        "loop3": ("7:3", 100, []),
        "zram0": ("252:0", 100, []),
        "sdb": ("8:16", 0, []),
    }
    (tmp_path / "dev" / "block").mkdir(parents=True)
    for name, (number, size, slaves) in devices.items():
        directory = tmp_path / "block" / name
        (directory / "slaves").mkdir(parents=True)
        (directory / "dev").write_text(f"{number}\n")
        (directory / "size").write_text(f"{size}\n")
        for slave in slaves:
            (directory / "slaves" / slave).symlink_to(tmp_path / "block" / slave)
        (tmp_path / "dev" / "block" / number).symlink_to(directory)
    return Roots(sys=tmp_path)


def test_only_disks_that_have_a_size_and_stand_on_nothing_are_counted(roots: Roots) -> None:
    assert find_disks(roots) == ("259:0", "254:0")


@pytest.mark.parametrize(
    ("number", "stacked"),
    [("254:0", False), ("253:0", True), ("7:3", True), ("252:0", True), ("8:99", False)],
)
def test_what_stands_on_other_devices_is_known(roots: Roots, number: str, stacked: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert is_stacked(roots, number) is stacked


def test_a_device_is_shown_with_its_name_if_it_has_one(roots: Roots) -> None:
    assert label_disk(roots, "254:0") == "254:0 vda"
    assert label_disk(roots, "8:99") == "8:99"
    assert find_disk_name(roots, "8:99") is None


def test_a_host_without_sys_has_no_disks(tmp_path: Path) -> None:
    assert find_disks(Roots(sys=tmp_path / "none")) == ()
