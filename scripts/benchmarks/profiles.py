"""`sandbox profile` beside `docker stats`: the same image, script, limits and threads.

What both can see has to agree; what docker cannot see is shown beside it.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import _docker
from _cli import Cli, cli
from _measure import PROJECT, Options, Result, SkippedError, progress, skipped

BAR = 0.03
"""By how much a figure may differ that both see."""
_IMAGE = "infer:1"
_LIMITS = ("0.5", "256m")
# Others on a busy host get what is left; no bytecode is written, which docker counts not at all.
_FLAGS = ("--cpu-shares", "262144", "-e", "PYTHONDONTWRITEBYTECODE=1")
_MIB = 1 << 20
_PATIENCE_SEC = 120
_MODEL = "mobilenet_v1_1.0_224.onnx"

# 40 % of a CPU however busy the host is, 100 MiB, and 16 MiB straight to the disk.
_STEADY = """\
import mmap, os, sys, time
begun = time.monotonic()
held = bytearray(100 << 20)
held[::4096] = b"1" * len(held[::4096])
block = mmap.mmap(-1, 1 << 20)
file = os.open("/data/written", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
for _ in range(16):
    os.write(file, block)
while (passed := time.monotonic() - begun) < float(sys.argv[1]):
    while time.process_time() < 0.4 * passed:
        pass
    time.sleep(0.004)
"""
# Between two samples a second apart there is more than twice the memory, for a moment.
_SPIKE = """\
import time
held = bytearray(50 << 20)
held[::4096] = b"1" * len(held[::4096])
time.sleep(2.5)
more = bytearray(120 << 20)
more[::4096] = b"1" * len(more[::4096])
del more
time.sleep(2)
"""
_SHORT = """\
held = bytearray(50 << 20)
held[::4096] = b"1" * len(held[::4096])
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What samples a second apart have shown of one container, or of one run."""

    cpu_percents: tuple[float, ...]
    memory_bytes: tuple[float, ...]
    written_bytes: tuple[float, ...]


def measure(options: Options) -> Iterator[Result]:
    """Yield the figures that both have, then those that docker misses."""
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-bench-")))
        try:
            docker = stack.enter_context(_docker.daemon())
            bench = _Bench(docker, ours, scratch)
            bench.prepare()
            stack.enter_context(_docker.preferred(docker))
        except SkippedError as reason:
            yield skipped("profiles", "sandbox profile beside docker stats", reason)
            return
        for part in (_steady, _inference, _spike, _short):
            try:
                yield from part(bench, options)
            except SkippedError as reason:
                yield skipped("profiles", part.__name__.strip("_"), reason)


def _steady(bench: _Bench, options: Options) -> Iterator[Result]:
    bench.write("steady.py", _STEADY)
    row, seen = bench.both("steady.py", f"{max(options.seconds * 5, 6):g}")
    ours = bench.samples(row)
    cpu = _whole(seen.cpu_percents)
    figures = {
        "AVG CPU": ("%", row["cpu_mean_percent"], statistics.fmean(cpu)),
        "PEAK CPU, of the same seconds": ("%", max(_whole(ours.cpu_percents)), max(cpu)),
        "MEM, each second": ("MiB", *_means(ours.memory_bytes, seen.memory_bytes)),
        "BLOCK I/O, written": ("MiB", row["write_bytes"] / _MIB, seen.written_bytes[-1] / _MIB),
    }
    for name, (unit, one, other) in figures.items():
        yield _agreement(f"{name}, of a steady script", unit, one, other, bar=BAR)


def _whole(values: Sequence[float]) -> Sequence[float]:
    """Return the samples whose second lies wholly in the run: the first and the last do not."""
    if not values[1:-1]:
        raise SkippedError("it was over within three samples")
    return values[1:-1]


def _means(*sides: Sequence[float]) -> Iterator[float]:
    """Return the mean MiB of each side."""
    return (statistics.fmean(_whole(values)) / _MIB for values in sides)


def _inference(bench: _Bench, options: Options) -> Iterator[Result]:
    models = PROJECT / "examples/models/build_models.py"
    _output([sys.executable, models, "--directory", str(bench.app)])
    shutil.copy(PROJECT / "examples/profiler/bench/test_perf.py", bench.app)
    bench.both("test_perf.py --iterations 1", _MODEL)  # what is read from disk stays in memory
    row, seen = bench.both(
        f"test_perf.py --iterations {round(max(options.seconds, 1) * 200)}", _MODEL
    )
    # No bar: the heap of the runtime differs by some percent from run to run.
    means = _means(bench.samples(row).memory_bytes, seen.memory_bytes)
    yield _agreement(f"MEM, each second, of {_MODEL}", "MiB", *means, bar=None)
    yield _missed(f"PEAK MEM of {_MODEL}", row, seen)


def _spike(bench: _Bench, _options: Options) -> Iterator[Result]:
    bench.write("spike.py", _SPIKE)
    yield _missed("PEAK MEM of a script with a spike of 120 MiB", *bench.both("spike.py", "x"))


def _short(bench: _Bench, _options: Options) -> Iterator[Result]:
    bench.write("short.py", _SHORT)
    yield _missed("PEAK MEM of a script that is over at once", *bench.both("short.py", "x"))


def _missed(what: str, row: dict[str, Any], seen: Seen) -> Result:
    """Return a peak beside the largest sample; docker need not have seen it."""
    largest = max(seen.memory_bytes, default=0.0)
    return Result(
        benchmark="profiles",
        what=what,
        unit="MiB",
        ours=row["memory_peak_bytes"] / _MIB,
        peer=largest / _MIB,
        peer_name=f"docker stats, largest of {len(seen.memory_bytes)} samples,",
        note=f"after {row['wall_ns'] / 1e9:.2f} s",
    )


def _agreement(what: str, unit: str, ours: float, theirs: float, *, bar: float | None) -> Result:
    ratio = ours / theirs
    return Result(
        benchmark="profiles",
        what=what,
        unit=unit,
        ours=ours,
        peer=theirs,
        peer_name="docker stats",
        ratio=ratio,
        bar=None if bar is None else f"within {bar:.0%}",
        ok=None if bar is None else abs(ratio - 1) <= bar,
    )


class _Bench:
    """Both sides, with one image and a directory for a script and for data."""

    def __init__(self, docker: _docker.Docker, ours: Cli, scratch: Path) -> None:
        self._docker, self._ours = docker, ours
        self.app, self._data, self._here = (scratch / name for name in ("app", "data", "here"))

    def prepare(self) -> None:
        """Bring the image to both sides.

        Raises:
            SkippedError: it cannot be made here.
        """
        for directory in (self.app, self._data, self._here):
            directory.mkdir()
        progress("image")
        made = subprocess.run(
            [PROJECT / "scripts/_infer_image"], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise SkippedError(f"no image with Python: {made.stderr.strip()[-200:]}")
        archive = made.stdout.strip()
        self._sandbox("image", "load", "-q", "-t", _IMAGE, archive)
        self._engine("load", "-q", "-i", archive)
        place = ("--network", "none", "--cgroup-parent", self._docker.parent)
        self._engine("run", "--rm", *place, _IMAGE, "true")

    def write(self, name: str, text: str) -> None:
        """Write the script."""
        (self.app / name).write_text(text)

    def both(self, script: str, model: str) -> tuple[dict[str, Any], Seen]:
        """Return the row of our profile of one script, and what docker saw of the same."""
        progress(f"sandbox profile: {script}")
        row = self._profile(script, model)
        record = json.loads(self._sandbox("runs", "show", row["run_id"], "--json"))
        progress(f"docker stats: {script}")
        return row, self._watch(script, model, record["thread_hints"])

    def samples(self, row: dict[str, Any]) -> Seen:
        """Return what the file of a model holds, a second each: rates and memory."""
        text = (self._here / f"{row['name']}_out.txt").read_text()
        found = re.findall(r"^\S+\s+(\S+)%\s+(\S+) (\S+) / .* \d{13}$", text, re.MULTILINE)
        return Seen(
            tuple(float(percent) for percent, _, _ in found),
            tuple(size_of(f"{number}{unit}") for _, number, unit in found),
            (),
        )

    def _profile(self, script: str, model: str) -> dict[str, Any]:
        variables = {
            "IMAGEREPO": _IMAGE,
            "DIR": str(self.app),
            "SCRIPT": f'"{script}"',
            "COMMAND": "python3",
            "SAMPLETIME": "1",
            "OUTPUTFILE": "out.txt",
            "DOCKCPUS": _LIMITS[0],
            "DOCKMEMORY": _LIMITS[1],
            "DOCK_ARGS": f"'{' '.join(_FLAGS)} -v {self._data}:/data'",
        }
        text = "".join(f"{name}={value}\n" for name, value in variables.items())
        (self._here / "env.template").write_text(text)
        said = self._sandbox("profile", "-e", "env.template", "-m", model, "--format", "json")
        (row,) = json.loads(said)["rows"]
        found: dict[str, Any] = row
        return found

    def _watch(self, script: str, model: str, threads: dict[str, str]) -> Seen:
        name, *arguments = script.split()
        flags = ["--cpus", _LIMITS[0], "-m", _LIMITS[1], "--memory-swap", _LIMITS[1], *_FLAGS]
        mounts = ["-v", f"{self.app}:/app", "-v", f"{self._data}:/data", "-w", "/app"]
        hints = [word for item in threads.items() for word in ("-e", "=".join(item))]
        place = ["--network", "none", "--cgroup-parent", self._docker.parent, "--name", "bench"]
        command = ["python3", name, model, *arguments]
        self._engine("run", "-d", *place, *flags, *mounts, *hints, _IMAGE, *command)
        try:
            with (
                (self._here / "stats").open("w") as printed,
                subprocess.Popen(
                    self._docker.command("stats", "--format", "{{json .}}", "bench"), stdout=printed
                ) as stats,
            ):
                self._engine("wait", "bench")
                stats.kill()  # it does not end with its container
            ended = json.loads(self._engine("inspect", "bench"))[0]["State"]
        finally:
            self._engine("rm", "-f", "bench")
        if ended["ExitCode"] != 0:
            raise SkippedError(f"the container ended with {ended['ExitCode']}")
        return seen_in((self._here / "stats").read_text())

    def _engine(self, *words: str) -> str:
        return _output(self._docker.command(*words))

    def _sandbox(self, *words: str) -> str:
        command = [sys.executable, "-m", "sandbox", *words]
        return _output(command, env=self._ours.environment, cwd=self._here)


def _output(command: Sequence[str], **options: Any) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PATIENCE_SEC, check=False, **options
    )
    if done.returncode != 0:
        raise SkippedError(f"{' '.join(command[:4])} …: {done.stderr.strip()[-300:]}")
    return done.stdout


def seen_in(printed: str) -> Seen:
    """Return what a stream of JSON rows holds; rows of a container that is gone are left out."""
    # The client prints what it knows twice a second, and has news once a second.
    rows = [json.loads(row) for row, _ in groupby(re.findall(r"\{[^{}]*\}", printed))]
    there = [row for row in rows if size_of(row["MemUsage"].split(" / ")[0])]
    return Seen(
        tuple(float(row["CPUPerc"].rstrip("%")) for row in there),
        tuple(size_of(row["MemUsage"].split(" / ")[0]) for row in there),
        tuple(size_of(row["BlockIO"].split(" / ")[1]) for row in there),
    )


def size_of(text: str) -> float:
    """Return the bytes of a size in docker's words: KiB is 1024 bytes, kB is 1000; 0 for none."""
    found = re.fullmatch(r"(?a)(\d+(?:\.\d*)?)(?:([kKMGT])(i?))?B", text)
    if found is None:
        return 0.0
    power = "kMGT".index(found[2].replace("K", "k")) + 1 if found[2] else 0
    return float(found[1]) * (1024 if found[3] else 1000) ** power
