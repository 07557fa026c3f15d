"""A root that is copied because its layers cannot be stacked: the same tree, and nothing left."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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
        if place.parent.is_symlink() or not place.parent.is_dir():
            continue
        make_entry(top, place, kind, mode, content, marks)
        if kind != "whiteout" and os.path.lexists(place):
            os.utime(place, ns=(number, 10**18 + number), follow_symlinks=False)


def make_entry(top: Path, place: Path, kind: str, mode: int, content: Any, marks: str) -> None:
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
@settings(max_examples=100)
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


# --- runs in a copy -------------------------------------------------------------------------------

LAYERS = [
    {"lib": "usr/lib", "usr/lib/a": b"lower\n", "gone": b"x", "full": None, "full/of": b"things"},
    {"lib/x": b"upper\n", ".wh.gone": b"", "full": None, "full/.wh..wh..opq": b""},
]


def record_of(home: Path) -> dict[str, Any]:
    (run,) = (home / "runs").iterdir()
    assert not (run / "root").exists()
    record: dict[str, Any] = json.loads((run / "run.json").read_text())
    return record


@pytest.mark.parametrize("way", WAYS)
def test_a_directory_over_a_link_to_one_hides_it(
    cli: Callable[..., Any], make_image: Callable[..., str], sandbox_home: Path, way: str
) -> None:
    script = "ls -F /lib /usr/lib; ls /gone /full; touch /full/new && ls /full"

    done = cli(
        *("run", "-q", "--image", make_image(LAYERS), "--", "sh", "-c", script),
        env={"SANDBOX_OVERLAY": way},
    )

    assert done.stdout == "/lib:\nx*\n\n/usr/lib:\na*\n/full:\nnew\n", done
    made = record_of(sandbox_home)["root"]
    assert made["how"] == {"auto": "overlay", "off": "copy"}[way]


@pytest.mark.slow
def test_a_copy_says_why_it_was_made_and_what_it_cost(
    cli: Callable[..., Any], make_image: Callable[..., str], sandbox_home: Path
) -> None:
    image = make_image(LAYERS)

    done = cli(
        *("run", "--image", image, "--", "sh", "-c", "echo changed >>/etc/passwd; rm -r /lib"),
        env={"SANDBOX_OVERLAY": "off"},
    )

    assert done.status == 0, done.stderr
    assert "warning: the root file system was copied (" in done.stderr
    assert "SANDBOX_OVERLAY=off" in done.stderr
    made = record_of(sandbox_home)["root"]
    assert made["entries"] > 40
    assert made["size_bytes"] > 1 << 20
    assert made["wall_ns"] > 0
    again = cli("run", "-q", "--image", image, "--", "sh", "-c", "cat /etc/passwd; ls /lib")
    assert "changed" not in again.stdout
    assert again.stdout.endswith("x\n")


@pytest.mark.slow
def test_runs_that_only_read_share_one_copy_until_the_image_goes(
    cli: Callable[..., Any], make_image: Callable[..., str], sandbox_home: Path
) -> None:
    image = make_image(LAYERS)
    words = ("run", "-q", "--read-only", "--image", image, "--", "sh", "-c")
    off = {"SANDBOX_OVERLAY": "off"}
    script = "cat /lib/x; touch /x; touch /dev/shm/x && hostname"

    seen = []
    for _ in range(2):
        done = cli(*words, script, env=off)
        assert done.stdout.startswith("upper\n"), done
        assert "Read-only file system" in done.stderr
        assert len(done.stdout.splitlines()) == 2
        (flat,) = (sandbox_home / "images/flats").iterdir()
        seen.append((flat.name, flat.stat().st_ino))
    runs = [json.loads(path.read_text()) for path in sandbox_home.glob("runs/*/run.json")]

    assert seen[0] == seen[1]
    assert {run["root"]["how"] for run in runs} == {"copy", "bind"}
    kept = cli(
        *("run", "-q", "--read-only", "-v", "/data", "--image", image, "--"),
        *("sh", "-c", "touch /data/x && echo own"),
        env=off,
    )
    assert kept.stdout == "own\n", kept  # a place to write to is none of a shared copy's
    assert cli("image", "prune").status == 0
    assert list((sandbox_home / "images/flats").iterdir())
    assert cli("image", "prune", "--all").status == 0
    assert not list((sandbox_home / "images/flats").iterdir())


@pytest.mark.slow
def test_a_setting_that_means_nothing_is_refused(inside: Inside) -> None:
    done = inside("true", env={"SANDBOX_OVERLAY": "maybe"})

    assert done.status == 125
    assert "SANDBOX_OVERLAY is `maybe`" in done.stderr


NO_OVERLAY = """
import errno, os, sys
from sandbox.kernel import mount_calls
new_mount, by_text = mount_calls.new_mount, mount_calls.mount_by_text
def refuse(kind, *rest):
    if kind == b"overlay":
        raise OSError(errno.ENODEV, "no such file system")
    return new_mount(kind, *rest)
mount_calls.new_mount = mount_calls.mount_by_text = refuse
from sandbox.__main__ import main
sys.exit(main())
"""


def test_a_kernel_without_overlayfs_is_found_out_by_trying(
    make_image: Callable[..., str], sandbox_home: Path
) -> None:
    words = ("run", "--image", make_image(LAYERS), "--", "sh", "-c", "cat /lib/x; touch /new")

    done = subprocess.run(
        [sys.executable, "-c", NO_OVERLAY, *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert done.stdout == "upper\n", done.stderr
    assert "warning: the root file system was copied" in done.stderr
    made = record_of(sandbox_home)["root"]
    assert (made["how"], made["reason"]) == ("copy", "no overlay can be mounted here (ENODEV)")


@pytest.mark.slow
def test_a_directory_that_no_overlay_can_be_made_of_is_copied(
    cli: Callable[..., Any], make_image: Callable[..., str], sandbox_home: Path, tmp_path: Path
) -> None:
    """One that is itself an overlay on an overlay: the kernel stacks no deeper."""
    make_image()
    tree = next(sandbox_home.glob("images/layers/*/tree"))
    script = (
        'for i in 1 2; do mkdir "$2/u$i" "$2/w$i" "$2/m$i" && mount -t overlay overlay '
        '-o "lowerdir=$1,upperdir=$2/u$i,workdir=$2/w$i" "$2/m$i" || exit 77; set -- "$2/m$i" "$2"'
        " $3; done; exec $3 -m sandbox run --rootfs $1 -- /bin/sh -c 'id -u; touch /x'"
    )
    over = tmp_path / "over"
    over.mkdir()

    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", tree, over, sys.executable],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    if done.returncode == 77:
        pytest.skip(f"no overlay can be mounted on an overlay here: {done.stderr}")
    assert done.stdout == "0\n", done.stderr
    assert record_of(sandbox_home)["root"]["reason"] == "no overlay can be mounted here (EINVAL)"


@pytest.mark.parametrize("when", ["copying", pytest.param("running", marks=pytest.mark.slow)])
def test_nothing_is_left_of_a_copy_whose_supervisor_is_killed(
    make_image: Callable[..., str],
    sandbox_home: Path,
    eventually: Callable[..., bool],
    when: str,
) -> None:
    many = {f"many/{number}": b"x" for number in range(1500 if when == "copying" else 1)}
    image = make_image([{"many": None, **many}])
    words = [sys.executable, "-m", "sandbox", "run", "-q", "--image", image, "--", "sleep", "60"]
    process = subprocess.Popen(words, env={**os.environ, "SANDBOX_OVERLAY": "off"})

    def is_there() -> bool:
        if when == "running":
            return bool(list(sandbox_home.glob("runs/*/root/copy/proc/")))
        return bool(list(sandbox_home.glob("runs/*/root/copy/many/*")))

    assert eventually(is_there)
    process.send_signal(signal.SIGKILL)
    process.wait(10)

    assert eventually(lambda: not list(sandbox_home.glob("runs/*/root")))


@pytest.mark.slow
def test_a_signal_ends_a_copy(make_image: Callable[..., str], sandbox_home: Path) -> None:
    image = make_image([{"many": None, **{f"many/{number}": b"x" for number in range(3000)}}])
    words = [sys.executable, "-m", "sandbox", "run", "--image", image, "--", "true"]
    process = subprocess.Popen(
        words, env={**os.environ, "SANDBOX_OVERLAY": "off"}, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20
    while not list(sandbox_home.glob("runs/*/root/copy/many/*")) and time.monotonic() < deadline:
        time.sleep(0.005)

    process.terminate()
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 128 + signal.SIGTERM, errors
    assert not list(sandbox_home.glob("runs/*"))


def test_a_plain_users_copy_is_its_own(
    plain_user: Callable[..., Any], plain_home: Path, make_image: Callable[..., str], tmp_path: Path
) -> None:
    make_image(LAYERS)
    layout = plain_home / "layout"
    shutil.copytree(tmp_path / "layout-box-1", layout)
    for path in (layout, *layout.rglob("*")):
        os.chown(path, 65534, 65534)
    loaded = plain_user("python", "-m", "sandbox", "image", "load", "-q", "-t", "box", layout)
    assert loaded.status == 0, loaded.stderr
    script = "id -u; ls /lib; rm -r /full; mkdir /full; stat -c %u /etc/passwd; touch /new"

    for flags in ((), ("--read-only",)):
        done = plain_user(
            *("python", "-m", "sandbox", "run", "-q", "--image", "box", *flags, "--"),
            *("sh", "-c", script),
            env={"SANDBOX_OVERLAY": "off"},
        )

        if "user namespaces may be closed" in done.stderr:
            pytest.skip("a plain user may make no user namespace here")
        assert done.stdout == "0\nx\n0\n", done.stderr
    assert not list((plain_home / "sandbox-home/runs").glob("*/root"))


KILLED = """
import os, pathlib, subprocess, sys, time
runs = pathlib.Path(os.environ["SANDBOX_HOME"], "runs")
words = [sys.executable, "-m", "sandbox", "run", "-q", "--image", "box", "--", "sleep", "60"]
process = subprocess.Popen(words)
deadline = time.monotonic() + 20
while not list(runs.glob("*/root/copy/many/*")):
    assert time.monotonic() < deadline, "nothing was copied"
    time.sleep(0.002)
process.kill()
process.wait()
deadline = time.monotonic() + 20
while list(runs.glob("*/root")) and time.monotonic() < deadline:
    time.sleep(0.01)
print(len(list(runs.glob("*/root"))))
"""


@pytest.mark.slow
def test_nothing_is_left_of_a_plain_users_copy_either(
    plain_user: Callable[..., Any], plain_home: Path, kit: SimpleNamespace
) -> None:
    """Where there is no group, no guard is there before the program: one is, for the copy."""
    many = {f"many/{number}": b"x" for number in range(2000)}
    layers = [kit.make_layer({**kit.base_files(), "many": None, **many})]
    layout = kit.write_layout(plain_home / "layout", layers, {"Env": ["PATH=/bin"]})
    for path in (layout, *layout.rglob("*")):
        os.chown(path, 65534, 65534)
    loaded = plain_user("python", "-m", "sandbox", "image", "load", "-q", "-t", "box", layout)
    assert loaded.status == 0, loaded.stderr

    done = plain_user("python", "-c", KILLED, env={"SANDBOX_OVERLAY": "off"}, timeout=60)

    assert done.stdout == "0\n", done.stderr


@pytest.mark.slow
def test_runs_at_once_make_one_shared_copy_and_who_waits_for_it_can_be_ended(
    make_image: Callable[..., str], sandbox_home: Path
) -> None:
    image = make_image([{"many": None, **{f"many/{number}": b"x" for number in range(2000)}}])
    run = [sys.executable, "-m", "sandbox", "run", "-q", "--read-only", "--image", image, "--"]
    environment = {**os.environ, "SANDBOX_OVERLAY": "off"}

    started = [
        subprocess.Popen(
            [*run, "sh", "-c", "ls /many | wc -l"], env=environment, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = [process.communicate(timeout=60)[0] for process in started]
    records = [json.loads(path.read_text()) for path in sandbox_home.glob("runs/*/run.json")]
    (flat,) = (sandbox_home / "images/flats").iterdir()
    with (sandbox_home / "images/locks" / f"flat-{flat.name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen([*run, "true"], env=environment)
        deadline = time.monotonic() + 20
        while not list(sandbox_home.glob("runs/*/root")) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)  # were it not waiting yet, it would end as well
        waiting.terminate()
        status = waiting.wait(20)

    assert said == [b"2000\n"] * 3
    assert sorted(record["root"]["how"] for record in records) == ["bind", "bind", "copy"]
    assert status == 128 + signal.SIGTERM
    assert not list(sandbox_home.glob("runs/*/root"))
