"""What `sandbox.run(["true"])` takes beyond starting `true`: the first call, and those after it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

from _cli import cli
from _measure import (
    Options,
    Pairs,
    Result,
    SkippedError,
    bootstrap,
    measuring_cpu,
    pinned,
    progress,
    skipped,
)

FIRST_BAR_MS = 30.0
WARM_BAR_MS = 5.0
_PEER = "fork, exec and wait"

# A process of its own each time: only one of its calls can be the first.
_CALLER = """
import json, os, sys, time
import sandbox

def spawn():
    pid = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitpid(pid, 0)

def call():
    if sandbox.run(["true"]).exit_code != 0:
        sys.exit("`true` did not end with 0")

def timed(act):
    started_ns = time.perf_counter_ns()
    act()
    return (time.perf_counter_ns() - started_ns) / 1e6

spawn()
found = {"first": [timed(call), timed(spawn)], "warm": []}
for _ in range(int(sys.argv[1])):
    found["warm"].append([timed(call), timed(spawn)])
print(json.dumps(found))
"""


def measure(options: Options) -> Iterator[Result]:
    """Yield the first call, which starts the helper process, and the later ones."""
    try:
        with cli() as ours, pinned(measuring_cpu()):
            found = _call(ours.environment, calls=options.pairs)
            firsts = [found["first"]]
            for number in range(options.pairs - 1):
                progress(f"first call {number + 2} of {options.pairs}")
                firsts.append(_call(ours.environment, calls=0)["first"])
            progress("")
    except SkippedError as reason:
        yield skipped("api", "calls of `sandbox.run`", reason)
        return
    yield _beyond(found["warm"], "a call with a warm helper", WARM_BAR_MS)
    yield _beyond(firsts, "the first call", FIRST_BAR_MS)


def _call(environment: dict[str, str], *, calls: int) -> dict[str, list[list[float]]]:
    done = subprocess.run(
        [sys.executable, "-c", _CALLER, str(calls)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode != 0:
        raise SkippedError(done.stderr.strip()[-200:])
    found: dict[str, list[list[float]]] = json.loads(done.stdout)
    return found


def _beyond(pairs: Sequence[Sequence[float]], what: str, bar_ms: float) -> Result:
    """Return how much longer a call takes than its peer, at the median."""

    def difference(sample: Sequence[Sequence[float]]) -> float:
        return statistics.median(o for o, _ in sample) - statistics.median(p for _, p in sample)

    both = Pairs(tuple(o for o, _ in pairs), tuple(p for _, p in pairs))
    beyond = difference(pairs)
    return Result(
        benchmark="api",
        what=f"`sandbox.run(['true'])`, {what}, beyond {_PEER}",
        unit="ms",
        ours=beyond,
        peer_name=_PEER,
        peer=statistics.median(both.peer),
        interval=bootstrap(pairs, difference),
        bar=f"{bar_ms:g} ms",
        ok=beyond <= bar_ms,
        pairs=len(pairs),
        details={"call_ms": both.ours, "peer_ms": both.peer},
    )
