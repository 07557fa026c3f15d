"""Files that belong to ids that are only lent to the user: nothing of them stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

END = """
import os, subprocess, sys
how, *words = sys.argv[1:]
words = [sys.executable, "-m", "sandbox", "run", "-q", "--rootfs", *words]
process = subprocess.Popen(words, stdout=subprocess.PIPE)
assert process.stdout.readline() == b"up\\n", "it did not start"
process.kill() if how == "killed" else process.terminate()
process.wait()
"""
GUARDED = """
import os, sys
from pathlib import Path
from sandbox.kernel import guard
from sandbox.kernel.lent import as_lent
from sandbox.kernel.namespaces import find_ids
from sandbox.kernel.roots import Roots
guard._SHELL, top = sys.argv[1], Path(sys.argv[2])
def fill(tell):
    (top / "d").mkdir()
    (top / "d/x").touch()
    for path in (top / "d/x", top / "d"):
        os.chown(path, 7, 8)
        path.chmod(0o700)
    tell(b"filled")
one = guard.Guard.start()
one.take_away(top)
top.mkdir()
print(as_lent(find_ids(65534, 65534, roots=Roots()), fill, hear=print))
print((top / "d").stat().st_uid, one.act(), top.exists())
"""

As = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def box(plain_home: Path) -> Path:
    """A root file system of the plain user's."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed")
    for name in ("bin", "etc", "tmp"):
        (plain_home / "box" / name).mkdir(parents=True)
    shutil.copy(busybox, plain_home / "box/bin/busybox")
    for name in ("sh", "chown", "cat", "mkdir", "touch", "sleep", "stat", "chmod"):
        (plain_home / "box/bin" / name).symlink_to("busybox")
    for path in (plain_home / "box", *(plain_home / "box").rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    return plain_home / "box"


SCRIPT = (
    "mkdir -p /d/e && touch /d/e/x && chown -R 7:8 /d && chmod 700 /d /d/e && "
    "stat -c %u:%g /d/e/x >/dev/null && echo up && exec sleep 60"
)


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.slow)])
def test_files_of_lent_ids_go_with_the_run(
    many_users: As, box: Path, plain_home: Path, eventually: Callable[..., bool], how: str
) -> None:
    done = many_users("-c", END, how, box, "--", "sh", "-c", SCRIPT)

    assert done.returncode == 0, done.stderr
    runs = plain_home / "sandbox-home/runs"
    assert len(list(runs.iterdir())) == 1
    assert eventually(lambda: not list(runs.glob("*/root")))


@pytest.mark.parametrize("shell", ["/bin/sh", "/nowhere/sh"], ids=["shell", "python"])
def test_a_guard_takes_them_away(many_users: As, plain_home: Path, shell: str) -> None:
    done = many_users("-c", GUARDED, shell, plain_home / "scratch")

    assert done.stdout == "b'filled'\nTrue\n600006 True False\n", done.stderr


def test_a_copy_keeps_owners_that_are_lent(many_users: As, box: Path, plain_home: Path) -> None:
    os.chown(box / "tmp", 600006, 600007)  # 7:8 inside
    (box / "tmp").chmod(0o700)
    words = ("-m", "sandbox", "run", "-q", "--rootfs", box, "--", "stat", "-c", "%u:%g %a", "/tmp")

    seen = [many_users(*words, SANDBOX_OVERLAY=way) for way in ("auto", "off")]

    assert [done.stdout for done in seen] == ["7:8 700\n"] * 2, [done.stderr for done in seen]
    assert not list((plain_home / "sandbox-home/runs").glob("*/root"))
