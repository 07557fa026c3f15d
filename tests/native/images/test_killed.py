"""A pull that is killed at any point: what is seen is whole, and the next one has the same tree."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from sandbox.image.collect import prune
from sandbox.image.pull import PullOptions, pull
from sandbox.image.store import ImageStore

KILLS = 50
FILES = 600
PIECE = 1 << 16
PAUSE_SEC = 0.005


@pytest.fixture
def dripping(work: Path, registry: Any, answering: Any, do: Any) -> Iterator[str]:
    """A registry that takes its time, with an image of two layers; whoever goes away may."""
    layout, tree = work / "killed", work / "killed-tree"
    for number in range(FILES):
        path = tree / f"d{number % 20}/f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number) * 100)
        path.chmod(0o400 | number % 0o100)
    os.link(tree / "d0/f0", tree / "d1/twin")
    do("umoci", "init", "--layout", layout)
    do("umoci", "new", "--image", f"{layout}:a")
    do("umoci", "insert", "--image", f"{layout}:a", tree, "/tree")
    (tree / "large").write_bytes(os.urandom(2_000_000))
    do("umoci", "insert", "--image", f"{layout}:a", tree / "large", "/tree/d0/large")
    do("umoci", "insert", "--image", f"{layout}:a", "--whiteout", "/tree/d1/f1")
    with registry("killed") as upstream:
        do("skopeo", "copy", "--dest-tls-verify=false", f"oci:{layout}:a",
           f"docker://{upstream}/killed:1")  # fmt: skip

        def answer(handler: Any) -> None:
            names = ("Range", "If-Range", "Accept")
            headers = {name: handler.headers[name] for name in names if handler.headers[name]}
            request = Request(f"http://{upstream}{handler.path}", headers=headers)
            try:
                with urlopen(request, timeout=20) as response:
                    handler.send_response(response.status)
                    for name in ("Content-Type", "Content-Length", "Content-Range", "ETag"):
                        if response.headers[name]:
                            handler.send_header(name, response.headers[name])
                    handler.end_headers()
                    while data := response.read(PIECE):
                        handler.wfile.write(data)
                        time.sleep(PAUSE_SEC)
            except OSError:
                return

        with answering(answer) as host:
            yield host


@pytest.mark.timeout(900)
def test_a_pull_that_is_killed_anywhere_can_be_done_again(
    dripping: str, tmp_path: Path, tree_of: Any
) -> None:
    name = f"{dripping}/killed:1"
    options = PullOptions(insecure=frozenset({dripping}))

    def trees(store: ImageStore) -> list[Any]:
        return [tree_of(tree) for tree in store.find(name).layers]

    command = [sys.executable, "-m", "sandbox", "image", "pull", "-q", "--insecure", dripping, name]
    whole = ImageStore(tmp_path / "whole/images")
    started = time.monotonic()
    subprocess.run(
        command,
        env={**os.environ, "SANDBOX_HOME": str(tmp_path / "whole")},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )
    takes_sec = time.monotonic() - started
    wanted = trees(whole)
    store = ImageStore(tmp_path / "killed/images")
    resumed = 0

    for _ in range(KILLS):
        environment = {**os.environ, "SANDBOX_HOME": str(tmp_path / "killed")}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            time.sleep(random.uniform(0.1, 1.0) * takes_sec)
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        if store.list_images():  # what is seen, is whole
            assert trees(store) == wanted
        resumed += any((store.root / "work").glob("*")) if store.root.exists() else 0
        pull(store, name, options)
        assert trees(store) == wanted
        prune(store, every=True)
        assert [path for path in (store.root / "work").iterdir() if path.is_file()] == []
        assert list((store.root / "layers").iterdir()) == []

    assert resumed  # or no kill has ever interrupted anything
    prune(whole, every=True)
