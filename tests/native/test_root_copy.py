"""A root that is copied because its layers cannot be stacked: the same tree, and nothing left."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.kernel.merge import Copied, copy_merged

WAYS = ("auto", "off")

Inside = Callable[..., Any]

# --- both ways give the same tree -----------------------------------------------------------------

SHOW = """
import hashlib, json, os, stat, subprocess, sys
target, options = sys.argv[1:]
if options and subprocess.call(["mount", "-t", "overlay", "overlay", "-o", options, target]):
    sys.exit(77)
tree = {}
for directory, below, files in os.walk(target):
    for name in ["."] if directory == target else []:
        below = [*below, name]
    for name in (*below, *files):
        path = os.path.normpath(os.path.join(directory, name))
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue  # a whiteout that no other layer has anything for: overlayfs lists it
        entry = [stat.S_IFMT(found.st_mode), found.st_mode & 0o7777, found.st_uid, found.st_gid]
        if path != target:
            entry.append(found.st_mtime_ns)
        if stat.S_ISREG(found.st_mode):
            entry.append(hashlib.sha256(open(path, "rb").read()).hexdigest())
        if stat.S_ISLNK(found.st_mode):
            entry.append(os.readlink(path))
        names = os.listxattr(path, follow_symlinks=False)
        entry += sorted(name for name in names if "overlay" not in name)
        tree[os.path.relpath(path, target)] = entry
print(json.dumps(tree, sort_keys=True))
"""

PATHS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3).map("/".join)
MODES = st.sampled_from([0o755, 0o700, 0o644, 0o4755, 0o1777, 0o600])
DIRECTORIES = st.tuples(st.just("directory"), MODES, st.booleans())
ENTRIES = st.one_of(
    DIRECTORIES,
    DIRECTORIES,  # without them there is nothing for anything else to be in
    st.tuples(st.just("file"), MODES, st.binary(max_size=8)),
    st.tuples(st.just("hole"), MODES, st.just(1 << 20)),
    st.tuples(st.just("link"), MODES, st.sampled_from(["a", "/b", "../c"])),
    st.tuples(st.just("fifo"), MODES, st.just(b"")),
    st.tuples(st.just("whiteout"), MODES, st.just(b"")),
    st.tuples(st.just("hard link"), MODES, PATHS),
)
STACKS = st.lists(st.dictionaries(PATHS, ENTRIES, min_size=2, max_size=10), min_size=1, max_size=4)

BASE = {
    "a": ("directory", 0o755, False),
    "a/a": ("file", 0o600, b"below"),
    "a/b": ("directory", 0o700, False),
    "a/b/a": ("file", 0o4755, b"deep"),
    "b": ("link", 0, "a"),
}
OPAQUE = {"a": ("directory", 0o750, True), "a/b": ("directory", 0o711, False)}
CASES = {
    "opaque": [BASE, OPAQUE],
    "opaque in the middle": [BASE, OPAQUE, {"a": ("directory", 0o700, False)}],
    "a whiteout": [BASE, {"a": ("directory", 0o755, False), "a/b": ("whiteout", 0, b"")}],
    "a file over a directory and back": [
        BASE,
        {"a": ("file", 0o644, b"now a file")},
        {"a": ("directory", 0o755, False), "a/c": ("file", 0o644, b"")},
    ],
    "a directory over a link to one": [
        BASE,
        {"b": ("directory", 0o755, False), "b/x": ("file", 0o644, b"")},
    ],
}


def make_layer(top: Path, layer: dict[str, tuple[str, int, Any]], marks: str) -> None:
    """Write a layer as overlayfs wants it; what has no directory to be in is left out."""
    top.mkdir()
    for number, (path, (kind, mode, content)) in enumerate(sorted(layer.items())):
        place = top / path
        if not place.parent.is_dir() or place.parent.is_symlink():
            continue
        match kind:
            case "directory":
                place.mkdir()
                place.chmod(mode | 0o700)
                if content:
                    os.setxattr(place, f"{marks}.overlay.opaque", b"y")
            case "file":
                place.write_bytes(content)
                place.chmod(mode)
                os.setxattr(place, "user.kept", content)
            case "hole":
                with place.open("wb") as file:
                    file.seek(content)
                    file.write(b"end")
            case "link":
                place.symlink_to(content)
            case "fifo":
                os.mkfifo(place, mode)
            case "whiteout":
                os.mknod(place, 0o020000, 0)
            case "hard link" if (top / content).is_file() and not (top / content).is_symlink():
                place.hardlink_to(top / content)
            case _:
                continue
        if kind != "whiteout":
            os.utime(place, ns=(number, 10**18 + number), follow_symlinks=False)


def show(target: Path, options: str = "", prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    words = [*prefix, sys.executable, "-I", "-S", "-c", SHOW, str(target), options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode == 77:
        pytest.skip(f"no overlay can be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    tree: dict[str, Any] = json.loads(done.stdout)
    return tree


def compare(stack: list[dict[str, Any]], marks: str, namespaces: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="sandbox-merge-") as directory:
        top = Path(directory)
        layers = [top / f"layer{number}" for number in range(len(stack))]
        for path, layer in zip(layers, stack, strict=True):
            make_layer(path, layer, marks)
        for name in ("upper", "work", "stacked", "copied"):
            (top / name).mkdir()
        lower = ":".join(map(str, reversed(layers)))
        options = f"lowerdir={lower},upperdir={top}/upper,workdir={top}/work"
        if marks == "user":
            options += ",userxattr"
        seen: list[Copied] = []

        copied = copy_merged(layers, top / "copied", userxattr=marks == "user", step=seen.append)

        assert show(top / "copied", prefix=namespaces) == show(
            top / "stacked", options, prefix=namespaces
        )
        assert (copied.unreadable, copied.foreign) == (0, 0)
        assert [one.entries for one in seen] == sorted(one.entries for one in seen)


@pytest.mark.skipif(os.geteuid() != 0, reason="to mount natively takes root")
@pytest.mark.parametrize("case", CASES)
def test_what_hides_what_is_the_same(case: str) -> None:
    compare(CASES[case], "trusted", ("unshare", "-m"))


@pytest.mark.skipif(os.geteuid() != 0, reason="to mount natively takes root")
@settings(max_examples=6)
@given(stack=STACKS)
def test_a_copy_shows_what_an_overlay_shows(stack: list[dict[str, Any]]) -> None:
    compare(stack, "trusted", ("unshare", "-m"))


@settings(max_examples=6)
@given(stack=STACKS)
def test_so_it_does_in_a_user_namespace(stack: list[dict[str, Any]]) -> None:
    compare(stack, "user", ("unshare", "-r", "-m"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="to mount natively takes root")
@settings(max_examples=200)
@given(stack=STACKS, marks=st.sampled_from(["trusted", "user"]))
def test_many_stacks_are_shown_alike(stack: list[dict[str, Any]], marks: str) -> None:
    compare(stack, marks, ("unshare", "-m") if marks == "trusted" else ("unshare", "-r", "-m"))


def test_what_is_mounted_in_a_layer_is_left_out_and_files_are_never_shared(tmp_path: Path) -> None:
    layer, target = tmp_path / "layer", tmp_path / "target"
    for path in (layer / "proc", target):
        path.mkdir(parents=True)
    (layer / "one").write_text("one")
    (layer / "two").hardlink_to(layer / "one")
    script = 'mount --bind /proc "$1"/proc && exec "$2" -c "$3" "$1" "$4"'
    code = (
        "import sys; from pathlib import Path; from sandbox.kernel.merge import copy_merged\n"
        "one, two = map(Path, sys.argv[1:])\n"
        "print(copy_merged([one], two, userxattr=True, step=lambda copied: None).entries)"
    )

    done = subprocess.run(
        ["unshare", "-r", "-m", "sh", "-c", script, "sh", layer, sys.executable, code, target],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert done.stdout == "3\n", done.stderr
    assert list((target / "proc").iterdir()) == []
    assert (target / "one").samefile(target / "two")
    assert not (target / "one").samefile(layer / "one")
