"""A run of `true` in an image or a root of its own: beyond host mode, beside other launchers."""

from __future__ import annotations

import io
import json
import shutil
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import _docker
import _podman
from _cli import Cli, cli
from _measure import (
    Options,
    Pairs,
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

BAR_MS = 30.0
_ENGINES = {"podman run", "docker run"}
_OURS = "sandbox run --image"
_ROOTFS = "sandbox run --rootfs"
_HOST = "sandbox run"
_WHAT = "wall time of `sandbox run --image NAME -- true`"
_IMAGE = "sandbox-bench"


def measure(options: Options) -> Iterator[Result]:
    """Yield one result a peer; those that are not here are named with the reason."""
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-bench-")))
        try:
            root = make_root(scratch)
            sides: dict[str, Side] = {
                _OURS: timed(_run_image(ours, root), ours.environment),
                _ROOTFS: timed(ours.run("--rootfs", str(root), "--", "true"), ours.environment),
                _HOST: timed(ours.run("--", "true"), ours.environment),
            }
            for side in sides.values():
                side()
        except SkippedError as reason:
            yield skipped("rootfs", _WHAT, reason)
            return
        peers = {
            "bwrap": lambda: _bwrap_side(root),
            "crun": lambda: _runtime_side("crun", root, scratch),
            "runc": lambda: _runtime_side("runc", root, scratch),
            "podman run": lambda: timed(stack.enter_context(_podman.engine()).run_command("true")),
            "docker run": lambda: timed(stack.enter_context(_docker.daemon()).run_command("true")),
        }
        for name, find in peers.items():
            try:
                sides[name] = find()
                sides[name]()  # once unmeasured: caches, and whether it works
            except SkippedError as reason:
                sides.pop(name, None)
                yield skipped("rootfs", f"{_WHAT} beside `{name}`", reason)
        with pinned(measuring_cpu()):
            found = in_turns(sides, options.pairs)
    host = found.pop(_HOST)
    yield _beyond_host("an image", found[_OURS], host)
    yield _beyond_host("a root file system of its own", found.pop(_ROOTFS), host)
    for name, values in found.items():
        if name != _OURS:
            yield Pairs(found[_OURS], values).result(
                benchmark="rootfs",
                what=f"{_WHAT} beside `{name}`",
                unit="ms",
                peer_name="theirs",
                bar=1.0 if name in _ENGINES else None,
            )


def _run_image(ours: Cli, root: Path) -> list[str]:
    """Make an image of the tree and return the command line of a run in it."""
    run = ours.run("--image", _IMAGE, "--", "true")
    load = [run[0], "image", "load", "-q", "-t", _IMAGE, str(root)]
    subprocess.run(load, env=ours.environment, check=True, capture_output=True, timeout=60)
    return run


def _beyond_host(where: str, inside: tuple[float, ...], host: tuple[float, ...]) -> Result:
    more = [one - other for one, other in zip(inside, host, strict=True)]
    return Result(
        benchmark="rootfs",
        what=f"a run in {where}, beyond one in the host's root",
        unit="ms",
        ours=statistics.median(more),
        peer=statistics.median(host),
        peer_name="a run on the host's root",
        interval=bootstrap(more, statistics.median),
        bar=f"{BAR_MS:g} ms",
        ok=statistics.median(more) <= BAR_MS,
        pairs=len(more),
    )


def make_root(scratch: Path) -> Path:
    """Return a directory with a root file system of one static program."""
    root = scratch / "rootfs"
    root.mkdir()
    for name in ("proc", "dev", "sys", "etc"):
        (root / name).mkdir()
    with tarfile.open(fileobj=io.BytesIO(_docker.image())) as archive:
        archive.extractall(root, filter="fully_trusted")  # we have just made it
    return root


def _bwrap_side(root: Path) -> Side:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SkippedError("`bwrap` (bubblewrap) is not installed")
    words = [
        "--unshare-all",
        "--share-net",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--die-with-parent",
    ]
    return timed([bwrap, "--ro-bind", str(root), "/", *words, "/bin/true"])


def _runtime_side(name: str, root: Path, scratch: Path) -> Side:
    """Return an OCI runtime with its own default configuration, on the host's network."""
    runtime = shutil.which(name)
    if runtime is None:
        raise SkippedError(f"`{name}` is not installed")
    bundle = scratch / name
    bundle.mkdir()
    subprocess.run([runtime, "spec"], cwd=bundle, check=True, capture_output=True, timeout=20)
    file = bundle / "config.json"
    config = json.loads(file.read_text())
    config["process"] |= {"args": ["/bin/true"], "terminal": False, "rlimits": []}
    config["root"] = {"path": str(root), "readonly": True}
    namespaces = config["linux"]["namespaces"]
    config["linux"]["namespaces"] = [kind for kind in namespaces if kind["type"] != "network"]
    file.write_text(json.dumps(config))
    flags = ["--cgroup-manager=disabled"] if name == "crun" else []
    state = ["--root", str(scratch / f"{name}-state")]
    return timed(
        [runtime, *state, *flags, "run", "-b", str(bundle), f"bench-{scratch.name}-{name}"]
    )
