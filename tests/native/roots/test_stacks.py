"""Stacks that are hard on overlayfs: one layer twice, hundreds of them, long names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MANY = 120


@pytest.fixture
def ways(old_kernel: str) -> dict[str, tuple[str, str]]:
    """How the command line is started: as it is, and as if the kernel were an old one."""
    return {"new": ("-m", "sandbox"), "old": ("-c", old_kernel)}


@pytest.mark.parametrize("way", ["auto", "off"])
def test_a_layer_that_is_there_twice_counts_where_it_is_on_top(
    cli: Callable[..., Any], make_image: Callable[..., str], way: str
) -> None:
    one = {"who": b"one\n", "a": None, "a/one": b"", ".wh.two": b""}
    other = {"who": b"two\n", "a": None, "a/.wh.one": b"", "a/two": b"", "two": b""}
    image = make_image([one, other, one])

    done = cli(
        *("run", "-q", "--image", image, "--", "sh", "-c", "cat /who; ls /a; ls /two"),
        env={"SANDBOX_OVERLAY": way},
    )

    assert done.stdout == "one\none\ntwo\n", done
    assert "/two: No such file" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_hundreds_of_layers_below_a_long_path_are_one_tree(
    make_image: Callable[..., str],
    cli: Callable[..., Any],
    tmp_path: Path,
    ways: dict[str, tuple[str, str]],
) -> None:
    home = tmp_path / ("long, with:signs\\ and more" * 8)
    layers = [{f"f{number}": b"%d" % number, "last": b"%d" % number} for number in range(MANY)]
    os.environ["SANDBOX_HOME"] = str(home)  # the fixture of the home gives it back
    image = make_image(layers)
    script = f"ls / | grep -c '^f[0-9]'; cat /last; touch /new && rm /f0 && ls /f{MANY - 1}"
    seen = {}

    for name, words in ways.items():
        done = subprocess.run(
            [sys.executable, *words, "run", "-q", "--image", image, "--", "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        seen[name] = done.stdout, done.stderr
    records = [json.loads(path.read_text()) for path in home.glob("runs/*/run.json")]

    assert seen == dict.fromkeys(ways, (f"{MANY}\n{MANY - 1}/f{MANY - 1}\n", ""))
    assert [record["root"]["how"] for record in records] == ["overlay"] * len(ways)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_more_layers_than_an_old_kernel_takes_are_copied(
    make_image: Callable[..., str],
    cli: Callable[..., Any],
    sandbox_home: Path,
    ways: dict[str, tuple[str, str]],
) -> None:
    """One page of text holds about 230 of them."""
    image = make_image([{f"f{number}": b"x"} for number in range(300)])
    command = ("run", "-q", "--image", image, "--", "sh", "-c", "ls / | grep -c '^f[0-9]'")
    seen = {}

    for name, words in ways.items():
        done = subprocess.run(
            [sys.executable, *words, *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "300\n", done.stderr
        (path,) = sandbox_home.glob("runs/*/run.json")
        seen[name] = json.loads(path.read_text())["root"]["how"]
        assert cli("runs", "rm", path.parent.name).status == 0

    assert seen == {"new": "overlay", "old": "copy"}
