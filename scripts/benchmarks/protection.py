"""What each protection costs at the start of a run of `true`, by leaving it out; for `launch`."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from _cli import Cli, cli
from _measure import (
    HERE,
    Options,
    Result,
    Side,
    SkippedError,
    bootstrap,
    in_turns,
    measuring_cpu,
    pinned,
    skipped,
)
from _without import DEVICES, NOTHING
from launch import timed
from rootfs import make_root

BAR_MS = 5.0
_HOST = "a run on the host's root"
_ALL = "--harden"
_WHOLE = "a root with the filter of devices"
_UNHELD = (
    *("--cap-add", "ALL", "--security-opt", "no-new-privileges=false"),
    *("--security-opt", "seccomp=unconfined"),
)
_LEFT_OUT = (
    ("namespaces", "namespaces, and mounts in them"),
    ("network", "… of these the network namespace"),
    ("places", "… of these its own /run, /tmp, /var/tmp and /dev/shm"),
    ("masks", "… of these what is hidden of /proc and /sys"),
    ("landlock", "Landlock"),
    ("filter", "the filter of system calls"),
    ("capabilities", "no capabilities"),
)


def measure(options: Options) -> Iterator[Result]:
    """Yield one result for all protections together, and one for each."""
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-bench-")))
        try:
            sides = _sides(ours, scratch)
            for side in sides.values():
                side()
        except SkippedError as reason:
            yield skipped("protection", "what protections cost at the start", reason)
            return
        with pinned(measuring_cpu()):
            found = in_turns(sides, options.pairs)
    yield _beyond(
        "in a root of its own: docker's filter, capabilities and no_new_privs",
        found["root"],
        found["open root"],
    )
    yield _beyond("in a root of its own: the filter of devices", found[_WHOLE], found[DEVICES])
    yield _beyond("--harden, all together", found[_ALL], found[_HOST])
    for name, what in _LEFT_OUT:
        yield _beyond(f"--harden: {what}", found[NOTHING], found[name], bar_ms=None)


def _sides(ours: Cli, scratch: Path) -> dict[str, Side]:
    root = str(make_root(scratch))
    true = shutil.which("true") or "true"
    work = ("-w", str(scratch))
    commands = {
        _HOST: ours.run(*work, "--", true),
        _ALL: ours.run("--harden", *work, "--", true),
        "root": ours.run("--rootfs", root, "--", "true"),
        "open root": ours.run("--rootfs", root, *_UNHELD, "--", "true"),
    }
    without = (sys.executable, str(HERE / "_without.py"))
    for name in (NOTHING, *(name for name, _ in _LEFT_OUT)):
        commands[name] = [*without, name, *ours.run("--harden", *work, "--", true)[1:]]
    for name, left_out in ((_WHOLE, NOTHING), (DEVICES, DEVICES)):
        commands[name] = [*without, left_out, *ours.run("--rootfs", root, "--", "true")[1:]]
    return {name: timed(command, ours.environment) for name, command in commands.items()}


def _beyond(
    what: str,
    inside: tuple[float, ...],
    without: tuple[float, ...],
    *,
    bar_ms: float | None = BAR_MS,
) -> Result:
    more = [one - other for one, other in zip(inside, without, strict=True)]
    cost = statistics.median(more)
    return Result(
        benchmark="protection",
        what=what,
        unit="ms",
        ours=cost,
        peer=statistics.median(without),
        peer_name="the same run without it",
        interval=bootstrap(more, statistics.median),
        bar=None if bar_ms is None else f"{bar_ms:g} ms",
        ok=None if bar_ms is None else cost <= bar_ms,
        pairs=len(more),
    )
