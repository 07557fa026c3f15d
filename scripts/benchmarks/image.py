"""An image from a registry or a file to a tree that can be run, beside all who do the like."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from _cli import Cli, cli
from _image_peers import Act, Engine, Images, do, docker, images, podman
from _measure import Options, Pairs, Result, Side, SkippedError, in_pairs, in_turns, skipped

BAR = 0.5
_MEMORY = Path("/dev/shm")  # so that the disk's moods are not measured
_WHAT = "an image to a tree"
_ROUNDS = 5  # at most: with some engines a round takes long
_UMOCI, _SKOPEO, _BOTH = "umoci unpack", "skopeo copy", "skopeo copy, umoci unpack"
_DRIVERS = ("overlay", "vfs")


def measure(options: Options) -> Iterator[Result]:
    """Yield unpacking, a pull of what is not there, one of what is, and a load."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        made = tempfile.TemporaryDirectory(prefix="sandbox-bench-", dir=where)
        scratch = Path(stack.enter_context(made))
        scratch.chmod(0o755)  # a plain user has a place in it
        try:
            image = stack.enter_context(images(scratch))
        except SkippedError as reason:
            yield skipped("image", _WHAT, reason)
            return
        mine = _Mine(ours, scratch / "home")
        yield _unpacking(mine, image, scratch, options.pairs)
        engines, absent = _engines(stack, scratch, image)
        for name, reason in absent.items():
            yield skipped("image", f"{_WHAT} beside `{name}`", reason)
        rounds = min(options.pairs, _ROUNDS)
        yield from _cold(mine, image, scratch, engines, rounds)
        yield from _warm(mine, image, scratch, engines, rounds)
        if (engine := engines.get("docker")) is not None:
            yield _loading(mine, image, engine, rounds)


class _Mine:
    """Our own command line, with a home that can be emptied."""

    def __init__(self, ours: Cli, home: Path) -> None:
        self._program = str(Path(sys.executable).with_name("sandbox"))
        self._environment = {**ours.environment, "SANDBOX_HOME": str(home)}
        self._home = home

    def act(self, *words: object, empty: bool = True) -> Act:
        removed = (self._home,) if empty else ()
        words = (self._program, "image", *words)
        return Act(words=words, environment=self._environment, removed=removed)

    def pull(self, image: Images, *, empty: bool = True) -> Act:
        return self.act("pull", "-q", "--insecure", image.host, image.name, empty=empty)


Engines = dict[str, Engine]


def _engines(
    stack: ExitStack, scratch: Path, image: Images
) -> tuple[Engines, dict[str, SkippedError]]:
    """Return whoever works here, and why the others do not."""
    starts: dict[str, Callable[[], Engine]] = {
        "docker": lambda: stack.enter_context(docker(scratch)),
        **{
            f"podman, {driver}": lambda driver=driver: stack.enter_context(podman(scratch, driver))
            for driver in _DRIVERS
        },
    }
    found: Engines = {}
    absent: dict[str, SkippedError] = {}
    for name, start in starts.items():
        try:
            engine = start()
            engine.act(*_pull_words(name), image.name)()
            found[name] = engine
        except SkippedError as reason:
            absent[name] = reason
    return found, absent


def _unpacking(mine: _Mine, image: Images, scratch: Path, pairs: int) -> Result:
    bundle = scratch / "bundle"
    unpack = ("umoci", "unpack", "--image", f"{image.layout}:a", bundle)
    found = in_pairs(
        mine.act("load", "-q", image.layout), Act(words=unpack, removed=(bundle,)), pairs
    )
    do("rm", "-rf", bundle)
    what = "an OCI layout to a tree"
    return found.result(benchmark="image", what=what, unit="s", peer_name=_UMOCI, bar=BAR)


def _cold(
    mine: _Mine, image: Images, scratch: Path, engines: Engines, rounds: int
) -> Iterator[Result]:
    bundle, copied = scratch / "bundle", scratch / "copied"
    fetch = ("skopeo", "copy", "--src-tls-verify=false", f"docker://{image.name}")
    both = f'"$@" >/dev/null && umoci unpack --image {copied}:a {bundle} >/dev/null'
    sides: dict[str, Side] = {
        "": mine.pull(image),
        _BOTH: Act(
            words=("sh", "-c", both, "sh", *fetch, f"oci:{copied}:a"), removed=(bundle, copied)
        ),
        **{
            _pull_name(name): engine.act(*_pull_words(name), image.name, forget=(image.name,))
            for name, engine in engines.items()
        },
    }
    what = "a registry to a tree, nothing there yet"
    yield from _beside(what, sides, rounds, bars={_BOTH: BAR})
    do("rm", "-rf", bundle, copied)


def _warm(
    mine: _Mine, image: Images, scratch: Path, engines: Engines, rounds: int
) -> Iterator[Result]:
    copied = scratch / "copied"
    fetch = ("skopeo", "copy", "--src-tls-verify=false", f"docker://{image.name}")
    sides: dict[str, Side] = {
        "": mine.pull(image, empty=False),
        _SKOPEO: Act(words=(*fetch, f"oci:{copied}:a")),
        **{
            _pull_name(name): engine.act(*_pull_words(name), image.name)
            for name, engine in engines.items()
        },
    }
    for side in sides.values():
        side()  # once unmeasured: caches, and something to be there
    yield from _beside("a registry to a tree, all there already", sides, rounds)


def _loading(mine: _Mine, image: Images, engine: Engine, rounds: int) -> Result:
    theirs = engine.act("load", "-q", "-i", image.archive, forget=("a:1", image.name))
    found = in_pairs(mine.act("load", "-q", image.archive), theirs, rounds)
    what = "an archive of docker's to a tree, nothing there yet"
    return found.result(benchmark="image", what=what, unit="s", peer_name="docker load")


def _pull_name(engine: str) -> str:
    program, _, driver = engine.partition(", ")
    return f"{program} pull" + (f" ({driver}, a plain user)" if driver else "")


def _pull_words(engine: str) -> tuple[str, ...]:
    return ("pull", "-q", "--tls-verify=false") if engine.startswith("podman") else ("pull", "-q")


def _beside(
    what: str, sides: dict[str, Side], rounds: int, bars: dict[str, float] | None = None
) -> Iterator[Result]:
    """Yield ours, which has no name, beside each of the others."""
    found = in_turns(sides, rounds)
    ours = found.pop("")
    for name, values in found.items():
        bar = (bars or {}).get(name)
        pairs = Pairs(ours, values)
        yield pairs.result(benchmark="image", what=what, unit="s", peer_name=name, bar=bar)
