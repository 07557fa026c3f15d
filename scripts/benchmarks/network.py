"""What a network of its own adds to a run of `true`: none, and a private one as root."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

from _cli import cli
from _measure import (
    Options,
    Pairs,
    Result,
    Side,
    SkippedError,
    in_turns,
    measuring_cpu,
    pinned,
    skipped,
)
from launch import timed

BARS = {"none": 1.25, "private": 1.5}
_HOST = "host"
_LIBRARY = "python -c 'import pyroute2'"
_WHAT = "wall time of `sandbox run --network private -- true`"


def measure(options: Options) -> Iterator[Result]:
    """Yield what each kind adds, and the private one beside the library that could make it."""
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        sides: dict[str, Side] = {
            kind: timed(ours.run("--network", kind, "--", "true"), ours.environment)
            for kind in (_HOST, *BARS)
        }
        sides[_LIBRARY] = timed([sys.executable, "-c", "import pyroute2"], ours.environment)
        try:
            for side in sides.values():
                side()  # once unmeasured: caches, and whether it works
            with pinned(measuring_cpu()):
                found = in_turns(sides, options.pairs)
        except SkippedError as reason:
            yield skipped("network", _WHAT, reason)
            return
    for kind, bar in BARS.items():
        yield Pairs(found[kind], found[_HOST]).result(
            benchmark="network",
            what=f"wall time of `sandbox run --network {kind} -- true`",
            unit="ms",
            peer_name="on the host's network",
            bar=bar,
        )
    yield Pairs(found["private"], found[_LIBRARY]).result(
        benchmark="network",
        what=f"{_WHAT} beside `{_LIBRARY}`",
        unit="ms",
        peer_name="the import alone",
        bar=None,
    )
