"""What each protection costs at the start of a run of `true`, by leaving it out."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from _cli import cli
from _measure import (
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
from launch import timed
from rootfs import make_root

BAR_MS = 5.0
_HOST = "a run on the host's root"
_ALL = "--harden"
_NO_FILTER = ("--security-opt", "seccomp=unconfined")
_UNHELD = ("--cap-add", "ALL", "--security-opt", "no-new-privileges=false", *_NO_FILTER)
_HARDENED = (
    (_ALL, "--harden: mounts, namespaces, Landlock, filter, no network", ()),
    ("network", "… of it the network namespace", ("--network", "host")),
    ("filter", "… of it the filter of system calls", _NO_FILTER),
)


def measure(options: Options) -> Iterator[Result]:
    """Yield one result a protection, and one for all together."""
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-bench-")))
        try:
            root = str(make_root(scratch))
            true = shutil.which("true") or "true"
            work = ("-w", str(scratch))
            sides: dict[str, Side] = {
                _HOST: timed(ours.run(*work, "--", true), ours.environment),
                "root": timed(ours.run("--rootfs", root, "--", "true"), ours.environment),
                "open root": timed(
                    ours.run("--rootfs", root, *_UNHELD, "--", "true"), ours.environment
                ),
            }
            for name, _, flags in _HARDENED:
                command = ours.run("--harden", *work, *flags, "--", true)
                sides[name] = timed(command, ours.environment)
            for side in sides.values():
                side()
        except SkippedError as reason:
            yield skipped("protection", "what protections cost at the start", reason)
            return
        with pinned(measuring_cpu()):
            found = in_turns(sides, options.pairs)
    yield _beyond(
        "docker's filter, capabilities and no_new_privs in a root of its own",
        found["root"],
        found["open root"],
    )
    for name, what, _ in _HARDENED:
        if name == _ALL:
            yield _beyond(what, found[_ALL], found[_HOST])
        else:
            yield _beyond(what, found[_ALL], found[name], bar_ms=None)


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
