"""An image from a registry or a layout to a tree that can be run, beside skopeo and umoci."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _cli import cli
from _measure import Options, Result, Side, SkippedError, in_pairs, progress, skipped

BAR = 0.5
_MEMORY = Path("/dev/shm")  # so that the disk's moods are not measured
_PROGRAMS = ("mmdebstrap", "umoci", "skopeo", "docker-registry")
_WHAT = "an image to a tree"
_PATIENCE_SEC = 600


def measure(options: Options) -> Iterator[Result]:
    """Yield unpacking, then a pull with unpacking, then a pull of what is there."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with cli() as ours, tempfile.TemporaryDirectory(prefix="sandbox-bench-", dir=where) as path:
        scratch = Path(path)
        try:
            layout = _make_image(scratch)
        except SkippedError as reason:
            yield skipped("image", _WHAT, reason)
            return
        home = scratch / "home"
        command = [str(Path(sys.executable).with_name("sandbox")), "image"]
        environment = {**ours.environment, "SANDBOX_HOME": str(home)}

        def mine(*words: str) -> Side:
            return _timed([*command, *words], environment, home)

        with _registry(scratch) as host:
            _do(
                "skopeo",
                "copy",
                "--dest-tls-verify=false",
                f"oci:{layout}:a",
                f"docker://{host}/a:1",
            )
            bundle, copied = scratch / "bundle", scratch / "copied"
            unpack = ["umoci", "unpack", "--image"]
            fetch = ["skopeo", "copy", "--src-tls-verify=false", f"docker://{host}/a:1"]
            both = f'"$@" >/dev/null && umoci unpack --image {copied}:a {bundle} >/dev/null'
            name = f"{host}/a:1"
            yield in_pairs(
                mine("load", "-q", str(layout)),
                _timed([*unpack, f"{layout}:a", str(bundle)], None, bundle),
                options.pairs,
            ).result(
                benchmark="image",
                what="wall time from an OCI layout to a tree",
                unit="s",
                peer_name="umoci unpack",
                bar=BAR,
            )
            yield in_pairs(
                mine("pull", "-q", "--insecure", host, name),
                _timed(["sh", "-c", both, "sh", *fetch, f"oci:{copied}:a"], None, bundle, copied),
                options.pairs,
            ).result(
                benchmark="image",
                what="wall time from a registry to a tree",
                unit="s",
                peer_name="skopeo copy, umoci unpack",
                bar=BAR,
            )
            _do(*fetch, f"oci:{copied}:a")
            mine("pull", "-q", "--insecure", host, name)()
            yield in_pairs(
                _timed([*command, "pull", "-q", "--insecure", host, name], environment),
                _timed([*fetch, f"oci:{copied}:a"], None),
                options.pairs,
            ).result(
                benchmark="image",
                what="wall time of a pull of what is there",
                unit="s",
                peer_name="skopeo copy",
            )


def _make_image(scratch: Path) -> Path:
    """Return an OCI layout of a small Debian with one layer."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        raise SkippedError(f"not installed: {', '.join(missing)}" if missing else "not root")
    progress("making a Debian image")
    layout, tree, archive = scratch / "oci", scratch / "tree", scratch / "debian.tar"
    _do("mmdebstrap", "--variant=minbase", "bookworm", archive)
    tree.mkdir()
    _do("tar", "-C", tree, "-xpf", archive)
    archive.unlink()
    _do("umoci", "init", "--layout", layout)
    _do("umoci", "new", "--image", f"{layout}:a")
    _do("umoci", "insert", "--image", f"{layout}:a", tree, "/")
    _do("rm", "-rf", tree)
    return layout


def _do(*command: object) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, timeout=_PATIENCE_SEC, check=False)
    if done.returncode:
        raise SkippedError(f"{words[0]} fails: {done.stderr.decode('utf-8', 'replace')[-200:]}")


def _timed(words: list[str], environment: dict[str, str] | None, *made: Path) -> Side:
    """Return what runs a command and returns its seconds; what it made is removed before."""

    def side() -> float:
        for path in made:
            _do("rm", "-rf", path)
        start = time.monotonic()
        done = subprocess.run(
            words, env=environment, capture_output=True, timeout=_PATIENCE_SEC, check=False
        )
        elapsed = time.monotonic() - start
        if done.returncode:
            raise SkippedError(f"{words} fails: {done.stderr.decode('utf-8', 'replace')[-300:]}")
        return elapsed

    return side


@contextmanager
def _registry(scratch: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    settings = scratch / "registry.yml"
    settings.write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: {host}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {scratch / 'registry'}}}}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(host.split(":")[1])), 1).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise SkippedError("the registry does not answer") from None
                time.sleep(0.02)
        yield host
    finally:
        process.terminate()
        process.wait(20)
