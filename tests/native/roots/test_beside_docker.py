"""The same image and the same flags beside a real Docker Engine: status and output of both.

What differs is in `DIFFERENT`, with both answers, and in docs/reference/docker.md.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
BENCHMARKS = PROJECT / "scripts" / "benchmarks"
PAGE = PROJECT / "docs/reference/docker.md"
PATIENCE_SEC = 120
IMAGE = "box:docker"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="a Docker Engine needs root"),
]


def load(path: Path) -> ModuleType:
    """Return a module that lies beside tests, or scripts."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


cases = load(Path(__file__).with_name("cases.py"))
sh = cases.sh
MOUNTS = "awk '$2 !~ \"^/sys/fs/cgroup/.\" {print $2, $3, $4}' /proc/mounts"
Answer = tuple[int, str]
DIFFERENT: dict[str, tuple[tuple[str, ...], tuple[str, ...], Answer, Answer]] = {
    "a file that is no program": ((), ("/etc/passwd",), (126, ""), (1, "")),
    "a user that is not known": (("-u", "nosuch"), ("id",), (126, ""), (125, "")),
    "a group that is not known": (("-u", "alice:nosuch"), ("id",), (126, ""), (125, "")),
    "no new privileges": (
        (),
        ("grep", "NoNewPrivs", "/proc/self/status"),
        (0, "NoNewPrivs:\t1\n"),
        (0, "NoNewPrivs:\t0\n"),
    ),
    "standard input": ((), sh("cat; echo end"), (0, "typed\nend\n"), (0, "end\n")),
    "a source that is not there": (("-v", "SHOWN/nosuch:/s"), ("ls", "/s"), (125, ""), (0, "")),
    "size of /dev/shm": (
        ("-m", "99m"),
        sh("df /dev/shm | awk 'END {print $2}'"),
        (0, f"{99 << 10}\n"),
        (0, f"{64 << 10}\n"),
    ),
    "cgroup": ((), sh("cut -d: -f3 /proc/self/cgroup | sort -u | wc -c"), (0, "2\n"), (0, "ANY")),
    "session": ((), sh("awk '{print $6}' /proc/self/stat"), (0, "0\n"), (0, "1\n")),
}
# Where each is mounted: kind and options that restrict, ours and docker's.
PLAIN = "nodev,noexec,nosuid"
MOUNTED: dict[str, tuple[str, str]] = {
    "/": ("overlay nodev,nosuid,rw", "overlay rw"),
    "/data": ("overlay nodev,nosuid,rw", "ext4 rw"),
    "/dev": (f"tmpfs {PLAIN},rw", "tmpfs nosuid,rw"),
    "/dev/mqueue": (f"mqueue {PLAIN},rw",) * 2,
    "/dev/pts": ("devpts noexec,nosuid,rw",) * 2,
    "/dev/shm": (f"tmpfs {PLAIN},rw",) * 2,
    "/etc/hosts": (f"ext4 {PLAIN},rw", "ext4 rw"),
    "/proc": (f"proc {PLAIN},rw",) * 2,
    "/proc/bus": (f"proc {PLAIN},ro",) * 2,
    "/proc/irq": (f"proc {PLAIN},ro",) * 2,
    "/proc/sys": (f"proc {PLAIN},ro",) * 2,
    "/sys": (f"sysfs {PLAIN},ro",) * 2,
    "/sys/firmware": (f"tmpfs {PLAIN},ro", "tmpfs ro"),
    "/sys/fs/cgroup": (f"tmpfs {PLAIN},ro", f"tmpfs {PLAIN},rw"),
}


@dataclass(frozen=True)
class Both:
    """Runs a command in the same image by both."""

    engine: Any
    home: Path
    env_file: Path
    shown: Path

    def _do(self, words: list[str], stdin: str | None) -> Answer:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_SEC,
            check=False,
            env={**os.environ, "SANDBOX_HOME": str(self.home), "PASSED": "on"},
            **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
        )
        return done.returncode, done.stdout

    def ours(
        self, flags: tuple[str, ...], command: tuple[str, ...], stdin: str | None = None
    ) -> Answer:
        words = [sys.executable, "-m", "sandbox", "run", "-q", "--image", IMAGE]
        return self._do([*words, *self._meant(flags), "--", *command], stdin)

    def docker(
        self, flags: tuple[str, ...], command: tuple[str, ...], stdin: str | None = None
    ) -> Answer:
        network = () if "--network" in flags else ("--network", "host")
        words = ("run", "--rm", "--cgroup-parent", self.engine.parent, *network)
        return self._do(self.engine.command(*words, *self._meant(flags), IMAGE, *command), stdin)

    def _meant(self, flags: tuple[str, ...]) -> list[str]:
        return [
            flag.replace("ENV_FILE", str(self.env_file)).replace("SHOWN", str(self.shown))
            for flag in flags
        ]


def load_engines() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return load(BENCHMARKS / "_docker.py")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def both(kit: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """An engine of our own, and the same image in both stores."""
    top = tmp_path_factory.mktemp("docker")
    (top / "shown").mkdir()
    (top / "shown/file").write_text("shown\n")
    (top / "env").write_text(cases.ENV_FILE)
    files = {**kit.base_files(), "data": None, "data/in": b"in the image\n"}
    upper = {"merged": None, "merged/x": b"", "bin2/x": b"upper"}
    lower = {"merged": "usr/merged", "usr/merged/a": b"", "bin2": "usr/bin2", "usr/bin2/a": b""}
    layers = [kit.make_layer(part) for part in (files, lower, upper)]
    kit.write_layout(top / "layout", layers, cases.CONFIG)
    environment = {**os.environ, "SANDBOX_HOME": str(top / "home")}
    for words in (
        ("load", "-q", "-t", IMAGE, str(top / "layout")),
        ("save", IMAGE, "-o", str(top / "box.tar")),
    ):
        command = [sys.executable, "-m", "sandbox", "image", *words]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    engines = load_engines()
    try:
        with engines.daemon() as engine:
            loaded = engine.command("load", "-i", str(top / "box.tar"))
            subprocess.run(loaded, check=True, capture_output=True, timeout=PATIENCE_SEC)
            yield Both(engine, top / "home", top / "env", top / "shown")
    except sys.modules["_measure"].SkippedError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("case", cases.SAME)
def test_both_answer_the_same(both: Both, case: str) -> None:
    flags, command = cases.SAME[case]

    assert both.ours(flags, command) == both.docker(flags, command)


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_is_known(both: Both, case: str) -> None:
    flags, command, ours, docker = DIFFERENT[case]
    stdin = "typed\n" if case == "standard input" else None

    assert both.ours(flags, command, stdin) == ours
    theirs = both.docker(flags, command, stdin)
    assert (theirs[0], "ANY" if docker[1] == "ANY" else theirs[1]) == docker
    assert theirs != ours
    assert re.search(rf"^\| {re.escape(case)} \|", PAGE.read_text(), re.MULTILINE)


def mounts_of(answer: Answer) -> dict[str, str]:
    """Return kind and restricting options by place."""
    status, text = answer
    assert status == 0
    found = {}
    for line in text.splitlines():
        place, kind, options = line.split()
        known = sorted({"ro", "rw", "nosuid", "nodev", "noexec"} & set(options.split(",")))
        found[place] = f"{kind} {','.join(known)}"
    return found


def test_mounts_are_those_of_docker_or_stricter(both: Both) -> None:
    ours, docker = mounts_of(both.ours((), sh(MOUNTS))), mounts_of(both.docker((), sh(MOUNTS)))
    disk = ours["/etc/hosts"].split()[0]
    wanted = {
        place: tuple(answer.replace("ext4", disk) for answer in pair)
        for place, pair in MOUNTED.items()
    }

    assert {place: (ours.get(place), docker.get(place)) for place in wanted} == wanted
    assert docker.keys() - ours.keys() == set()
    beyond = {place for place in ours.keys() - docker.keys() if not place.startswith("/dev/")}
    # Docker 20.10 masks less; its devices are made, ours are the host's.
    assert beyond <= {"/proc/interrupts", "/sys/devices/virtual/powercap", "/proc/scsi"}


def test_a_directory_over_a_link_to_one_is_a_directory_for_both(both: Both) -> None:
    script = "ls -F / | grep -e merged -e bin2; ls -F /merged /usr/merged /bin2 /usr/bin2"
    expected = "bin2/\nmerged/\n/bin2:\nx*\n\n/merged:\nx*\n\n/usr/bin2:\na*\n\n/usr/merged:\na*\n"

    assert both.ours((), sh(script)) == (0, expected)
    assert both.docker((), sh(script)) == (0, expected)
