"""Limits of block I/O: a device's path to its number, and what the kernel makes of each limit.

docker's `--device-*` are files of their own in v1 and keys of `io.max` in v2. Its weight (10 to
1000) is BFQ's, or is spread over v2's 1 to 10000. A weight has an effect only where a disk's
scheduler keeps it, so what no disk keeps is told as unavailable.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.errors import HostError, KernelError
from sandbox.kernel.files import find_text, read_text, write_and_read_back, write_text
from sandbox.kernel.roots import Roots
from sandbox.records.light import replace
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import DeviceRate, Limits, RateKind
from sandbox.units import format_size

_V1_FILES = {
    RateKind.READ_BPS: "blkio.throttle.read_bps_device",
    RateKind.WRITE_BPS: "blkio.throttle.write_bps_device",
    RateKind.READ_IOPS: "blkio.throttle.read_iops_device",
    RateKind.WRITE_IOPS: "blkio.throttle.write_iops_device",
}
_V2_KEYS = {
    RateKind.READ_BPS: "rbps",
    RateKind.WRITE_BPS: "wbps",
    RateKind.READ_IOPS: "riops",
    RateKind.WRITE_IOPS: "wiops",
}
_WRITES = frozenset({RateKind.WRITE_BPS, RateKind.WRITE_IOPS})
_DIRECT_ONLY = (
    "cgroup v1 holds direct and synchronous writes; what goes through the page cache is written "
    "later, outside of the group"
)
_NO_SCHEDULER = "no disk of this host has a scheduler that keeps weights (BFQ)"
_NOT_USED = "the v1 controller is not mounted"


def find_disk(path: str, roots: Roots) -> str:
    """Return the number of a whole disk, `254:0`, by its path.

    Raises:
        HostError: there is none, or it is only a part of one.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - as the rest
    except OSError as exc:
        raise HostError(
            f"there is no device {path}: {exc.strerror}", hint="`lsblk -p` shows the disks"
        ) from None
    if not stat.S_ISBLK(found.st_mode):
        raise HostError(f"{path} is not a disk", hint="`lsblk -p` shows the disks")
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    directory = Path(f"{roots.sys}/dev/block/{number}")
    if (directory / "partition").exists():
        whole = directory.resolve().parent.name
        raise HostError(
            f"{path} is a part of a disk, and the kernel limits whole disks",
            hint=f"use /dev/{whole}",
        )
    return number


def describe_rate(rate: DeviceRate) -> str:
    """Return a rate as people read it: `1 MiB/s on /dev/sda`."""
    is_bytes = rate.kind in {RateKind.READ_BPS, RateKind.WRITE_BPS}
    amount = f"{format_size(rate.rate)}/s" if is_bytes else f"{rate.rate} operations/s"
    return f"{amount} on {rate.path}"


def apply_v1(
    directory: Path | None, missing: Mapping[str, str], limits: Limits, roots: Roots
) -> Iterator[LimitReport]:
    """Write the I/O limits of a v1 group, read them back and say what became of each."""
    for rate in limits.device_rates:
        report = _report_rate(rate, _V1_FILES[rate.kind])
        if directory is None:
            yield _unavailable(report, missing.get("blkio", _NOT_USED))
            continue
        try:
            number = find_disk(rate.path, roots)
            value = _write_line(directory / _V1_FILES[rate.kind], number, str(rate.rate))
        except (HostError, KernelError) as error:
            yield _unavailable(report, str(error))
            continue
        report = _compare(report, value, str(rate.rate))
        if rate.kind in _WRITES and report.state is LimitState.ENFORCED:
            report = replace(report, state=LimitState.APPROXIMATED, reason=_DIRECT_ONLY)
        yield report
    if limits.blkio_weight:
        report = _report_weight(limits.blkio_weight, "blkio.bfq.weight")
        if directory is None:
            yield _unavailable(report, missing.get("blkio", _NOT_USED))
        else:
            yield _write_weight(report, directory, str(limits.blkio_weight), roots)


def apply_v2(
    directory: Path, missing: Mapping[str, str], limits: Limits, roots: Roots
) -> Iterator[LimitReport]:
    """Write the I/O limits of a v2 group, read them back and say what became of each."""
    for rate in limits.device_rates:
        report = _report_rate(rate, "io.max")
        if "io" in missing:
            yield _unavailable(report, missing["io"])
            continue
        key = _V2_KEYS[rate.kind]
        try:
            number = find_disk(rate.path, roots)
            write_text(directory / "io.max", f"{number} {key}={rate.rate}")
            value = _line_of(read_text(directory / "io.max"), number)
        except (HostError, KernelError) as error:
            yield _unavailable(report, str(error))
            continue
        found = dict(word.partition("=")[::2] for word in value.split()[1:])
        yield _compare(replace(report, value=value), found.get(key, "nothing"), str(rate.rate))
    if limits.blkio_weight:
        yield _weigh_v2(limits.blkio_weight, directory, missing, roots)


def io_weight(weight: int) -> int:
    """Return v2's weight (1 to 10000) of docker's (10 to 1000), on a straight line as runc does."""
    return 1 + (weight - 10) * 9999 // 990


def _weigh_v2(
    weight: int, directory: Path, missing: Mapping[str, str], roots: Roots
) -> LimitReport:
    if "io" in missing:
        return _unavailable(_report_weight(weight, "io.weight"), missing["io"])
    if (directory / "io.bfq.weight").exists() and _has_bfq(roots):
        report = _report_weight(weight, "io.bfq.weight")
        return _write_weight(report, directory, str(weight), roots)
    report = _report_weight(weight, "io.weight")
    costs = find_text(f"{roots.cgroup}/io.cost.qos") or ""
    if "enable=1" not in costs:
        return _unavailable(report, f"{_NO_SCHEDULER}, and none has io.cost")
    try:
        value = write_and_read_back(directory / "io.weight", f"default {io_weight(weight)}")
    except KernelError as error:
        return _unavailable(report, str(error))
    return _compare(replace(report, value=value), value.split()[-1], str(io_weight(weight)))


def _write_weight(report: LimitReport, directory: Path, text: str, roots: Roots) -> LimitReport:
    if not _has_bfq(roots):
        return _unavailable(report, _NO_SCHEDULER)
    try:
        value = write_and_read_back(directory / (report.file or ""), text)
    except KernelError as error:
        return _unavailable(report, str(error))
    return _compare(replace(report, value=value), value.split()[-1], text)


def _has_bfq(roots: Roots) -> bool:
    schedulers = Path(f"{roots.sys}/block").glob("*/queue/scheduler")
    return any("[bfq]" in (find_text(path) or "") for path in schedulers)


def _report_rate(rate: DeviceRate, file: str) -> LimitReport:
    return LimitReport(
        name=f"device_{rate.kind.value}",
        asked=describe_rate(rate),
        state=LimitState.ENFORCED,
        file=file,
    )


def _report_weight(weight: int, file: str) -> LimitReport:
    return LimitReport(name="blkio_weight", asked=str(weight), state=LimitState.ENFORCED, file=file)


def _write_line(path: Path, number: str, text: str) -> str:
    write_text(path, f"{number} {text}")
    return _line_of(read_text(path), number).partition(" ")[2]


def _line_of(text: str, number: str) -> str:
    return next((line for line in text.splitlines() if line.split()[:1] == [number]), "")


def _compare(report: LimitReport, found: str, wanted: str) -> LimitReport:
    report = replace(report, value=report.value or found)
    if found == wanted:
        return report
    reason = f"`{wanted}` was written, and the kernel made it `{found or 'nothing'}`"
    return replace(report, state=LimitState.APPROXIMATED, reason=reason)


def _unavailable(report: LimitReport, reason: str) -> LimitReport:
    return replace(report, state=LimitState.UNAVAILABLE, reason=reason)
