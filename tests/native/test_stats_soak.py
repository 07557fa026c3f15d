"""Watching for long while sandboxes come and go; `scripts/soak stats`: ten million samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

SAMPLES = int(os.environ.get("SANDBOX_TEST_SAMPLES", "40000"))
SAMPLES_A_SECOND = 2_000  # at least, on a busy machine
STEADY = 6
COMING = 3  # at least so many are seen that come and go
LOOPS = 4 if SAMPLES > 1_000_000 else 1  # that start one after the other
GROWTH_BYTES = 3 << 20

# Looks without a pause; says what it holds after each eighth of the samples.
WATCHER = """
import gc, json, os, sys
from sandbox.control.stats import Watch, WatchSpec
from sandbox.report.stats import StatsView

def held():
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

def descriptors():
    return len(os.listdir("/proc/self/fd"))

wanted, least = int(sys.argv[1]), int(sys.argv[2])
before = descriptors()
watch = Watch(WatchSpec())
view, samples, seen, most, sizes, next_text = StatsView(), 0, set(), 0, [], 0
while samples < wanted or len(seen) < least:
    rows = watch.read()
    samples += len(rows)
    if samples >= next_text:  # text now and then: what is tested is the reading
        view.render(rows)
        next_text += 1000
    seen.update(row.id for row in rows)
    most = max(most, descriptors() if samples % 500 < len(rows) else 0)
    if samples >= wanted // 8 * (len(sizes) + 1):
        sizes.append(held())
watch.close()
print(json.dumps({"held_bytes": sizes, "seen": len(seen), "samples": samples,
    "most": most, "left": descriptors() - before}))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make groups on this host"),
    pytest.mark.timeout(120 + SAMPLES // SAMPLES_A_SECOND),
]


@pytest.fixture
def _sandboxes(cli: Any, sandbox_home: Path) -> Iterator[None]:
    """A few that stay, and others that come and go as fast as they can."""
    sandbox = f"{sys.executable} -m sandbox"
    for _ in range(STEADY):
        assert cli("run", "-d", "--", "sleep", "86400").status == 0
    go = sandbox_home / "go"
    go.touch()
    script = f"while [ -e '{go}' ]; do {sandbox} run --summary never -- sleep 0.05; done"
    with ExitStack() as loops:
        for _ in range(LOOPS):
            loops.enter_context(subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL))
        loops.callback(go.unlink)
        yield
    names = cli("ps", "-q").stdout.split()
    own = [name for name in names if (sandbox_home / "runs" / name).exists()]
    assert cli("kill", *own).status == 0
    cli("wait", *own)


@pytest.mark.usefixtures("_sandboxes")
def test_neither_memory_nor_descriptors_grow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHER, str(SAMPLES), str(STEADY + COMING)],
        stdout=subprocess.PIPE,
        timeout=100 + SAMPLES // SAMPLES_A_SECOND,
        check=True,
    )

    found = json.loads(done.stdout)
    print(found)
    assert found["samples"] >= SAMPLES
    assert found["seen"] >= STEADY + COMING
    sizes = found["held_bytes"]
    assert sizes[-1] - sizes[len(sizes) // 4] < GROWTH_BYTES
    assert found["left"] == 0
