"""Runs in virtual environments, built from wheels that the test makes itself: no network."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox.cli.environments import open_cache, progress_line
from sandbox.environment.venv_inputs import read_inputs
from sandbox.environment.venv_tools import find_tool
from sandbox.errors import HostError
from sandbox.helper import client

Cli = Callable[..., Any]

SCRIPT = """\
# /// script
# dependencies = ["sandbox-test-greeting"]
# ///
import sys
import time
import greeting
print(greeting.WORDS, sys.prefix)
"""


def make_wheel(directory: Path, version: str, words: str) -> Path:
    """A wheel by hand: an archive with three files."""
    info = f"sandbox_test_greeting-{version}.dist-info"
    wheel = directory / f"sandbox_test_greeting-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("greeting.py", f"WORDS = {words!r}\n")
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: sandbox-test-greeting\nVersion: {version}\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script, its requirements and an index of wheels."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "1.0", "hello")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "requirements.txt").write_text(
        f"--no-index\n--find-links {wheels}\nsandbox-test-greeting\n"
    )
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return tmp_path


@pytest.mark.parametrize(
    "asking",
    [
        ("--requirements", "requirements.txt"),
        ("--requirements", "script.py"),
        ("--pip", "sandbox-test-greeting"),
    ],
    ids=["a file", "a header", "a name"],
)
def test_a_script_runs_with_what_it_requires(
    cli: Cli, project: Path, sandbox_home: Path, asking: tuple[str, str]
) -> None:
    done = cli("run", "-o", "r.json", *asking, "--", "python", "script.py", cwd=project)

    assert done.status == 0, done.stderr
    words, prefix = done.stdout.split()
    assert words == "hello"
    assert Path(prefix).is_relative_to(sandbox_home / "venvs")
    venv = json.loads((project / "r.json").read_text())["spec"]["venv"]
    assert venv["packages"] == ["sandbox-test-greeting==1.0"]
    assert venv["directory"] == prefix


def test_what_was_built_needs_no_index_any_more(cli: Cli, project: Path) -> None:
    asking = ("run", "-q", "--requirements", "requirements.txt", "--", "python", "script.py")
    first = cli(*asking, cwd=project)
    for wheel in (project / "wheels").iterdir():
        wheel.unlink()

    again = cli(*asking, cwd=project)

    assert (first.status, again.status) == (0, 0), first.stderr + again.stderr
    assert first.stdout == again.stdout
    listed = cli("venv", "ls", "--json")
    assert json.loads(listed.stdout)["venv"]["packages"] == ["sandbox-test-greeting==1.0"]
    removed = cli("venv", "rm", "--all")
    assert removed.status == 0, removed.stderr
    assert cli("venv", "ls", "-q").stdout == ""


@pytest.mark.slow
def test_without_uv_venv_and_pip_do_the_same(project: Path, sandbox_home: Path) -> None:
    # Beside its own Python sandbox would find a uv: so it is started by one that has none.
    python = os.path.realpath(sys.executable)
    paths = os.pathsep.join(path for path in sys.path if path)
    code = "from sandbox.__main__ import main; main()"
    command = [
        python,
        "-c",
        code,
        "run",
        "-q",
        "--pip",
        "sandbox-test-greeting",
        "--",
        "python",
        "script.py",
    ]
    if Path(python).with_name("uv").exists():
        pytest.skip("a uv is beside the base Python itself")

    environment = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": paths}
    done = subprocess.run(
        command,
        env=environment,
        cwd=project,
        timeout=50,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("hello ")


def test_the_build_is_not_part_of_the_measured_run(cli: Cli, project: Path) -> None:
    done = cli(
        "run",
        "-q",
        "-o",
        "r.json",
        "--memory",
        "64m",
        "--pip",
        "sandbox-test-greeting",
        "--",
        "true",
        cwd=project,
    )

    assert done.status == 0, done.stderr
    result = json.loads((project / "r.json").read_text())
    assert result["totals"]["cpu_usage_usec"] < 200_000  # a build takes several times as much
    assert result["totals"]["pids_peak"] == 1


def test_a_package_that_is_not_there_is_named_before_anything_runs(cli: Cli, project: Path) -> None:
    done = cli("run", "--pip", "absent-package", "--", "touch", "started", cwd=project)

    assert done.status == 125
    assert "absent-package" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / "started").exists()
    assert cli("runs", "ls", "-q").stdout == ""


def test_an_index_that_cannot_be_reached_says_so_with_a_hint(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name)
    offline = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}

    done = cli("run", "--pip", "sandbox-test-greeting", "--", "true", cwd=project, env=offline)

    assert done.status == 125
    assert "no package index can be reached" in done.stderr
    assert "hint: go online once" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--venv", ".", "--pip", "sandbox-test-greeting"), "nothing is installed into it"),
        (("--user", "nobody", "--pip", "sandbox-test-greeting"), "--user could not read it"),
        (("--venv", "wheels"), "is no virtual environment"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    cli: Cli, project: Path, flags: tuple[str, ...], words: str
) -> None:
    done = cli("run", *flags, "--", "true", cwd=project)

    assert done.status == 125
    assert words in done.stderr


def test_an_environment_of_the_users_own_is_used(cli: Cli, project: Path) -> None:
    own = Path(sys.prefix)
    if own == Path(sys.base_prefix):
        pytest.skip("this Python is in no virtual environment")

    done = cli(
        "run",
        "-q",
        "--venv",
        own,
        "--",
        "python",
        "-c",
        "import sys; print(sys.prefix)",
        env={"PATH": "/usr/bin:/bin"},
    )

    assert (done.status, done.stdout.strip()) == (0, str(own)), done.stderr


@pytest.mark.slow
def test_a_build_that_is_killed_is_done_again(cli: Cli, project: Path, sandbox_home: Path) -> None:
    command = [sys.executable, "-m", "sandbox", "run", "-q", "--pip", "sandbox-test-greeting"]
    for delay_sec in (0.1, 0.2, 0.3, 0.4):
        with subprocess.Popen([*command, "--", "true"], cwd=project) as process:
            time.sleep(delay_sec)  # wherever it is by then: no moment may do harm
            process.kill()

    done = cli(*command[3:], "--", "python", "script.py", cwd=project)

    assert done.status == 0, done.stderr
    assert done.stdout.startswith("hello ")
    assert len(list((sandbox_home / "venvs").glob("*/venv.json"))) == 1


@pytest.mark.slow
def test_four_at_once_build_it_once(project: Path, sandbox_home: Path) -> None:
    command = [sys.executable, "-m", "sandbox", "run", "-q", "--pip", "sandbox-test-greeting"]
    at_once = [
        subprocess.Popen(
            [*command, "--", "python", "script.py"], cwd=project, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    said = set()
    for process in at_once:
        with process:
            said.add(process.communicate(timeout=40)[0])
        assert process.returncode == 0

    assert len(said) == 1
    assert len(list((sandbox_home / "venvs").glob("*/venv.json"))) == 1


def test_what_is_being_built_is_shown_on_a_terminal(
    project: Path, sandbox_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.cli.environments._SHOWN_AFTER_SEC", 0)
    controller, terminal = pty.openpty()
    with open(terminal, "w", encoding="utf-8") as stderr:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress_line() as show:
            inputs = read_inputs([project / "requirements.txt"], [])
            venv, hold = open_cache().provide(inputs, find_tool(), show)
        os.close(hold)
        drawn = ""
        while not drawn.endswith("\r\033[K") or "installing" not in drawn:
            if not select.select([controller], [], [], 5)[0]:
                break
            drawn += os.read(controller, 10_000).decode()  # a terminal hands on piece by piece
    os.close(controller)

    assert venv.packages == ("sandbox-test-greeting==1.0",)
    assert "resolving" in drawn
    assert "installing 1 package" in drawn
    assert drawn.endswith("\r\033[K")


def test_python_names_an_environment_too(sandbox_home: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "bin").mkdir(parents=True)
    (own / "bin/python").symlink_to(sys.executable)
    (own / "bin/greet").write_text("#!/bin/sh\necho $VIRTUAL_ENV\n")
    (own / "bin/greet").chmod(0o755)
    (own / "pyvenv.cfg").write_text("version = 3.12.1\n")
    said = tmp_path / "said"

    with said.open("w") as file:
        result = sandbox.run(["greet"], venv=own, stdout=file)

    assert (result.exit_code, said.read_text()) == (0, f"{own}\n")
    assert result.spec["venv"]["python"] == "3.12.1"
    with pytest.raises(HostError, match="is no virtual environment"):
        sandbox.run(["true"], venv=tmp_path)
    client._helper.close()  # or it would stay for the next run of this process
