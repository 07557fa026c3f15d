"""The same Dockerfiles by us and by a real Docker Engine: trees, configurations, what they do.

Docker 20.10's own builder needs no network, and has what Dockerfiles had before BuildKit. What it
made is kept in tests/golden/builds.json (SANDBOX_UPDATE_GOLDEN=1 writes it anew) for whom a real
engine would keep too long: alice on the emulated server, who has what useradd and a login give.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ON_SERVER = os.environ.get("SANDBOX_GUEST") == "server"
PROJECT = Path(__file__).resolve().parents[3]
DOCKERFILES = sorted((PROJECT / "tests/fixtures/builds").glob("*.Dockerfile"))
COMPARED = ("Cmd", "Entrypoint", "Env", "ExposedPorts", "Healthcheck", "Labels", "OnBuild")
COMPARED += ("Shell", "StopSignal", "User", "Volumes", "WorkingDir")
GOLDEN = PROJECT / "tests/golden/builds.json"
UPDATE = os.environ.get("SANDBOX_UPDATE_GOLDEN") == "1"
AS_ROOT = os.geteuid() == 0
# An emulated server takes ten minutes for all; these copy, change, own, fail and run.
ALSO_ON_SERVER = {"changes", "copy-owners", "failing-run", "kinds-of-files", "stages"}
ALSO_ON_SERVER |= {"user-writes"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def names(path: Path) -> str:
    return path.name.partition(".")[0]


def marked(path: Path) -> Any:
    is_chosen = names(path) in ALSO_ON_SERVER
    return pytest.param(path, marks=pytest.mark.also_on_server if is_chosen else ())


def give(path: Path, user: str) -> None:
    account = pwd.getpwnam(user)
    os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


class Ours:
    """Our builder as a user, with a home for all tests of this file."""

    def __init__(self, user: str, directory: Path) -> None:
        self.user = user
        self.is_another = pwd.getpwnam(user).pw_uid != os.geteuid()
        self.directory = directory

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        home = f"SANDBOX_HOME={self.directory / 'home'}"
        command = ["env", "-C", str(PROJECT), home, sys.executable, "-m", "sandbox"]
        command += map(str, words)
        if self.is_another:
            command = ["su", "--login", self.user, "--command", shlex.join(command)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def hand_over(self, context: Path) -> Path:
        """Return where the user has the files of a context."""
        if not self.is_another:
            return context
        theirs = self.directory / "context"
        shutil.rmtree(theirs, ignore_errors=True)
        shutil.copytree(context, theirs, symlinks=True)
        for path in (theirs, *theirs.rglob("*")):
            give(path, self.user)
        return theirs

    def save(self, name: str) -> Path:
        path = self.directory / f"{name.replace('/', '-').replace(':', '-')}.tar"
        path.unlink(missing_ok=True)
        done = self.run("image", "save", name, "-o", path)
        assert done.returncode == 0, done.stderr
        return path


class Theirs:
    """A real engine."""

    def __init__(self, docker: Any, directory: Path) -> None:
        self.docker = docker
        self.directory = directory

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = self.docker.command(*map(str, words))
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "DOCKER_BUILDKIT": "0"},
        )

    def save(self, name: str) -> Path:
        path = self.directory / "theirs.tar"
        done = self.run("save", "-o", path, name)
        assert done.returncode == 0, done.stderr
        return path


@pytest.fixture(scope="module")
def ours(box: Path) -> Iterator[Ours]:
    user = "alice" if ON_SERVER else pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(prefix="sandbox-builds-", dir="/var/tmp") as directory:
        found = Ours(user, Path(directory))
        archive = found.directory / "box.tar"
        shutil.copy(box, archive)
        for path in (found.directory, archive):
            give(path, found.user)
        loaded = found.run("image", "load", "-q", archive)
        assert loaded.returncode == 0, loaded.stderr
        yield found
        pruned = found.run("image", "prune", "--all")  # files of lent ids are not ours to remove
        assert pruned.returncode == 0, pruned.stderr


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, box: Path) -> Iterator[Theirs]:
    sys.path.insert(0, str(PROJECT / "scripts/benchmarks"))
    try:
        import _docker
        from _measure import SkippedError

        try:
            with _docker.daemon() as docker:
                found = Theirs(docker, tmp_path_factory.mktemp("theirs"))
                loaded = found.run("load", "-i", box)
                assert loaded.returncode == 0, loaded.stderr
                yield found
        except SkippedError as exc:
            pytest.skip(str(exc))
    finally:
        sys.path.remove(str(PROJECT / "scripts/benchmarks"))


def tree_of(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the files that an image's layers come to, and its configuration."""
    found: dict[str, Any] = {}
    with tarfile.open(path) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config = json.load(archive.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as inner:
                apply(inner, found)
    return found, config


def apply(layer: tarfile.TarFile, found: dict[str, Any]) -> None:
    members = layer.getmembers()
    for member in members:
        parent, _, name = os.path.normpath(member.name).rpartition("/")
        if name == ".wh..wh..opq":
            remove(found, parent, below=True)
        elif name.startswith(".wh."):
            remove(found, f"{parent}/{name[4:]}".lstrip("/"))
    for member in members:
        path = os.path.normpath(member.name)
        if path.rpartition("/")[2].startswith(".wh."):
            continue
        if not member.isdir():
            remove(found, path)
        if member.islnk():
            found[path] = found[os.path.normpath(member.linkname)]
            continue
        data = layer.extractfile(member).read() if member.isreg() else b""  # type: ignore[union-attr]
        found[path] = (
            member.type,
            oct(member.mode & 0o7777),
            (member.uid, member.gid),
            member.linkname,
            hashlib.sha256(data).hexdigest() if member.isreg() else "",
        )


def remove(found: dict[str, Any], path: str, *, below: bool = False) -> None:
    for name in [each for each in found if each.startswith(f"{path}/")]:
        del found[name]
    if not below:
        found.pop(path, None)


def flags_of(dockerfile: Path) -> list[str]:
    first = dockerfile.read_text().partition("\n")[0]
    return shlex.split(first.removeprefix("# build:")) if first.startswith("# build:") else []


def said(config: dict[str, Any]) -> dict[str, Any]:
    """Return what matters of a configuration; empty is the same as absent."""
    inner = config["config"]
    return {name: inner.get(name) for name in COMPARED if inner.get(name)}


def history_of(config: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the keyword of each step, and whether it made no layer; Docker names no RUN."""
    found = []
    for entry in config["history"]:
        dt.datetime.fromisoformat(entry["created"][:19])
        first = entry["created_by"].rpartition("#(nop)")[2].split()[0]
        found.append((first if first.isupper() else "RUN", bool(entry.get("empty_layer"))))
    return found


def failing_line(dockerfile: Path) -> int:
    """Return the line of the first step that can fail; for the Dockerfiles which do, it does."""
    return 1 + next(
        number
        for number, text in enumerate(dockerfile.read_text().splitlines())
        if text.startswith(("RUN", "COPY"))
    )


def kept(tree: dict[str, Any], config: dict[str, Any], ran: Any, box: Path) -> dict[str, Any]:
    """Return what is to be kept of an image: what its base has not, and no machine's own bytes."""
    base = tree_of(box)[0]
    busybox = base["bin/busybox"][-1]
    found = {}
    for path, (kind, mode, (uid, gid), link, digest) in tree.items():
        if base.get(path) != tree[path]:
            is_own = digest == busybox or path.endswith((".gz", ".xz", ".bz2"))
            content = "differs" if is_own else digest[:12]
            found[path] = f"{kind.decode()} {mode} {uid}:{gid} {link} {content}"
    return {
        "without": sorted(base.keys() - tree.keys() - {"."}),
        "tree": dict(sorted(found.items())),
        "config": said(config),
        "ran": [ran.returncode, ran.stdout],
    }


def compare_with_golden(name: str, found: dict[str, Any]) -> None:
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if UPDATE:
        golden[name] = found
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    assert found == golden[name]


# Alice's part on the server.
@pytest.mark.parametrize(
    "dockerfile",
    [marked(each) for each in DOCKERFILES] if ON_SERVER and not AS_ROOT else [],
    ids=names,
)
def test_they_come_to_what_docker_made(
    ours: Ours, dockerfile: Path, context: Path, box: Path
) -> None:
    (context / "Dockerfile").write_text(dockerfile.read_text())
    words = ("image", "build", "--network", "none", "-t", "built", *flags_of(dockerfile), context)
    built = ours.run(*words)

    should_fail = names(dockerfile).startswith("failing-")
    assert (built.returncode != 0) is should_fail, built.stderr
    if should_fail:
        assert f"error: Dockerfile:{failing_line(dockerfile)}: " in built.stderr
        return
    tree, config = tree_of(ours.save("built"))
    tree.pop(".", None)
    ran = ours.run("run", "-q", "--network", "none", "--image", "built")
    compare_with_golden(names(dockerfile), kept(tree, config, ran, box))


@pytest.mark.skipif(not AS_ROOT, reason="a Docker Engine needs root")
@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=names)
def test_they_come_to_the_same(
    ours: Ours, theirs: Theirs, dockerfile: Path, context: Path, box: Path
) -> None:
    name = f"test/{names(dockerfile)}"
    (context / "Dockerfile").write_text(dockerfile.read_text())
    words = ("build", "--network", "none", "-t", name, *flags_of(dockerfile))
    by_them = theirs.run(*words, context)
    by_us = ours.run("image", *words, ours.hand_over(context))

    should_fail = names(dockerfile).startswith("failing-")
    assert (by_them.returncode != 0) is should_fail, by_them.stdout + by_them.stderr
    assert (by_us.returncode != 0) is should_fail, by_us.stderr
    if should_fail:
        assert f"error: Dockerfile:{failing_line(dockerfile)}: " in by_us.stderr
        return
    tree, config = tree_of(ours.save(name))
    their_tree, their_config = tree_of(theirs.save(name))
    tree.pop(".", None), their_tree.pop(".", None)
    assert tree == their_tree
    assert said(config) == said(their_config)
    assert (config["os"], config["architecture"]) == (
        their_config["os"],
        their_config["architecture"],
    )
    assert history_of(config) == history_of(their_config)
    assert len(config["rootfs"]["diff_ids"]) == len(their_config["rootfs"]["diff_ids"])
    run_by_them = theirs.run("run", "--rm", "--network", "none", name)
    run_by_us = ours.run("run", "-q", "--network", "none", "--image", name)
    assert (run_by_us.returncode, run_by_us.stdout) == (run_by_them.returncode, run_by_them.stdout)
    kept_of_theirs = kept(their_tree, their_config, run_by_them, box)
    compare_with_golden(names(dockerfile), kept_of_theirs)


SAVED = {
    "whiteouts": "RUN rm /bin/true && echo made > /made\nCOPY dir /dir\n"
    "CMD cat /made; ls /bin/true /dir\n",
    "stages": "RUN mkdir /o && echo built > /o/x\nFROM box\nCOPY --from=0 /o /o\nCMD cat /o/x\n",
    "heredocs": "RUN <<EOF\necho one > /said\necho two >> /said\nEOF\n"
    "COPY <<A <<B /d/\na\nA\nb\nB\nCMD cat /said /d/A /d/B\n",
    "empty-layers": "ENV A=b\nRUN true\nRUN touch /x && rm /x\nWORKDIR /\nCMD echo $A\n",
    "only-words": "LABEL a=b\nCMD echo words\n",
}


@pytest.mark.skipif(not AS_ROOT, reason="a Docker Engine needs root")
@pytest.mark.parametrize("kind", SAVED)
def test_others_take_what_we_save(ours: Ours, theirs: Theirs, context: Path, kind: str) -> None:
    name = f"test/saved-{kind}:1"
    (context / "Dockerfile").write_text(f"FROM box\n{SAVED[kind]}")
    built = ours.run("image", "build", "-t", name, ours.hand_over(context))
    assert built.returncode == 0, built.stderr
    archive = ours.save(name)
    config = check_layers(archive)

    for form in ("oci-archive", "docker-archive") if shutil.which("skopeo") else ():
        seen = json.loads(skopeo("inspect", "--config", f"{form}:{archive}"))
        assert (seen["rootfs"], seen["history"]) == (config["rootfs"], config["history"])
        skopeo("copy", f"{form}:{archive}", f"oci:{context.parent / form}:x")
        skopeo("copy", f"{form}:{archive}", f"docker-archive:{context.parent / form}.tar:x:1")
        check_layers(context.parent / f"{form}.tar")
    loaded = theirs.run("load", "-i", archive)

    assert loaded.returncode == 0, loaded.stderr
    inspected = json.loads(theirs.run("image", "inspect", name).stdout)[0]
    assert inspected["RootFS"]["Layers"] == config["rootfs"]["diff_ids"]
    assert inspected["Created"] == config["created"]
    by_them = theirs.run("run", "--rm", "--network", "none", name)
    by_us = ours.run("run", "-q", "--network", "none", "--image", name)
    assert (by_them.returncode, by_them.stdout) == (by_us.returncode, by_us.stdout), by_us.stderr
    if kind == "empty-layers":
        assert [entry.get("empty_layer", False) for entry in config["history"]] == [True] * 5


def skopeo(*words: str) -> str:
    done = subprocess.run(["skopeo", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_layers(archive: Path) -> dict[str, Any]:
    """Return an image's configuration, which says of each layer what it is and what made it."""
    with tarfile.open(archive) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config: dict[str, Any] = json.load(outer.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        found = [
            hashlib.sha256(outer.extractfile(layer).read()).hexdigest()  # type: ignore[union-attr]
            for layer in manifest["Layers"]
        ]
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{each}" for each in found]}
    # What the base is made of it does not say.
    made = sum(not entry.get("empty_layer") for entry in config["history"])
    assert len(found) == 1 + made
    return config
