"""Limits of block I/O, from docker's words to control files and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import HostError, SpecError
from sandbox.kernel import io_limits
from sandbox.kernel.roots import Roots
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import DeviceRate, Limits, RateKind

READ = DeviceRate(kind=RateKind.READ_BPS, path="/dev/sda", rate=1 << 20)
WRITE = DeviceRate(kind=RateKind.WRITE_IOPS, path="/dev/sda", rate=100)
FILES = tuple(f"blkio.throttle.{kind}_device" for kind in ("read_bps", "write_iops"))


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Roots:
    """A host with a disk; `find_disk` itself is tested on the real one."""
    monkeypatch.setattr(io_limits, "find_disk", lambda path, roots: "8:0")
    return Roots(sys=tmp_path / "sys", cgroup=tmp_path / "cgroup")


def states(reports: list[LimitReport]) -> dict[str, LimitState]:
    return {report.name: report.state for report in reports}


def test_rates_are_read_as_docker_writes_them() -> None:
    parse = DeviceRate.parse

    assert parse(RateKind.READ_BPS, "/dev/sda:1mb") == READ
    assert parse(RateKind.WRITE_IOPS, "/dev/sda:100") == WRITE
    for kind, text in (
        (RateKind.READ_BPS, "sda:1mb"),
        (RateKind.READ_BPS, "/dev/sda"),
        (RateKind.READ_BPS, "/dev/sda:0"),
        (RateKind.READ_IOPS, "/dev/sda:1mb"),
        (RateKind.READ_IOPS, "/dev/sda:-1"),
    ):
        with pytest.raises(SpecError):
            parse(kind, text)


@given(st.sampled_from(RateKind), st.text())
def test_any_text_is_a_rate_or_one_error(kind: RateKind, text: str) -> None:
    try:
        rate = DeviceRate.parse(kind, text)
    except SpecError:
        return
    assert rate.rate >= 1


def test_weights_and_rates_are_checked_once() -> None:
    assert Limits(blkio_weight=0).blkio_weight == 0
    for weight in (9, 1001, -1):
        with pytest.raises(SpecError, match="cannot be set"):
            Limits(blkio_weight=weight)
    with pytest.raises(SpecError, match="given twice"):
        Limits(device_rates=(READ, READ))


def test_v1_holds_reads_and_comes_near_for_writes(tmp_path: Path, roots: Roots) -> None:
    for name in FILES:
        (tmp_path / name).touch()

    reports = [*io_limits.apply_v1(tmp_path, {}, Limits(device_rates=(READ, WRITE)), roots)]

    assert states(reports) == {
        "device_read_bps": LimitState.ENFORCED,
        "device_write_iops": LimitState.APPROXIMATED,
    }
    assert (tmp_path / FILES[0]).read_text() == "8:0 1048576"
    assert reports[0].asked == "1 MiB/s on /dev/sda"
    assert reports[1].asked == "100 operations/s on /dev/sda"
    assert "page cache" in (reports[1].reason or "")


def test_what_the_kernel_changes_is_said(
    tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    def round_down(path: Path, text: str) -> None:
        path.write_text(text.replace("1048576", "1000000") + "\n")

    (tmp_path / FILES[0]).touch()
    monkeypatch.setattr(io_limits, "write_text", round_down)

    (report,) = io_limits.apply_v1(tmp_path, {}, Limits(device_rates=(READ,)), roots)

    assert report.state is LimitState.APPROXIMATED
    assert report.reason == "`1048576` was written, and the kernel made it `1000000`"


def test_v2_takes_keys_of_one_file(
    tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def merge(path: Path, text: str) -> None:
        written.append(text)
        path.write_text("8:0 rbps=1048576 wbps=max riops=max wiops=100\n")

    monkeypatch.setattr(io_limits, "write_text", merge)
    limits = Limits(device_rates=(READ, WRITE))

    reports = [*io_limits.apply_v2(tmp_path, {}, limits, roots)]

    assert written == ["8:0 rbps=1048576", "8:0 wiops=100"]
    assert set(states(reports).values()) == {LimitState.ENFORCED}


@pytest.mark.parametrize("apply", [io_limits.apply_v1, io_limits.apply_v2])
def test_a_missing_controller_is_the_reason(
    apply: Callable[..., object], tmp_path: Path, roots: Roots
) -> None:
    limits = Limits(device_rates=(READ,), blkio_weight=100)
    missing = {"io": "nobody gave it", "blkio": "nobody gave it"}
    directory = None if apply is io_limits.apply_v1 else tmp_path

    reports = list(apply(directory, missing, limits, roots))  # type: ignore[call-overload]

    assert [report.state for report in reports] == [LimitState.UNAVAILABLE] * 2
    assert {report.reason for report in reports} == {"nobody gave it"}


def test_a_weight_needs_somebody_who_keeps_it(tmp_path: Path, roots: Roots) -> None:
    limits = Limits(blkio_weight=100)
    (tmp_path / "io.bfq.weight").touch()
    (tmp_path / "blkio.bfq.weight").touch()

    for reports in (
        [*io_limits.apply_v1(tmp_path, {}, limits, roots)],
        [*io_limits.apply_v2(tmp_path, {}, limits, roots)],
    ):
        assert states(reports) == {"blkio_weight": LimitState.UNAVAILABLE}
    queue = Path(roots.sys) / "block/sda/queue"
    queue.mkdir(parents=True)
    (queue / "scheduler").write_text("mq-deadline [bfq] none\n")
    for reports in (
        [*io_limits.apply_v1(tmp_path, {}, limits, roots)],
        [*io_limits.apply_v2(tmp_path, {}, limits, roots)],
    ):
        assert states(reports) == {"blkio_weight": LimitState.ENFORCED}


@pytest.mark.parametrize(("docker", "kernel"), [(10, 1), (500, 4950), (1000, 10_000)])
def test_weights_are_spread_over_v2s(docker: int, kernel: int) -> None:
    assert io_limits.io_weight(docker) == kernel


def test_a_disk_is_a_whole_one() -> None:
    for path, said in (("/dev/null", "is not a disk"), ("/nosuch", "there is no device")):
        with pytest.raises(HostError, match=said):
            io_limits.find_disk(path, Roots())
