"""What the doctor says of the installation itself."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.doctor import facts as facts_module
from sandbox.doctor.facts import Packages, gather, read_packages, requirement_name
from sandbox.doctor.installation import fits
from sandbox.records.light import replace

Judge = Callable[..., None]
PROJECT = Path(__file__).parents[3]


def test_the_shell_that_guards(host: Any, judge: Judge) -> None:
    judge(host.find("shell"), "ok", "/bin/sh")

    host.remove("bin/sh")

    judge(host.find("shell"), "warn", "Python process guards")


# --- records


def test_records_are_kept_in_a_home_that_is_there_or_can_be_made(host: Any, judge: Judge) -> None:
    judge(host.find("records"), "ok", str(host.home))

    host.home.mkdir(0o700)
    judge(host.find("records"), "ok", str(host.home))
    assert list(host.home.iterdir()) == []


def test_a_home_that_others_may_write_is_refused(host: Any, judge: Judge) -> None:
    host.home.mkdir()
    host.home.chmod(0o777)

    judge(host.find("records"), "fail", "can be written by other users", "SANDBOX_HOME")


def test_a_file_in_the_way_is_named(host: Any, judge: Judge) -> None:
    host.home.write_text("")
    judge(host.find("records"), "fail", "cannot be opened: Not a directory", "SANDBOX_HOME")

    host.home = host.home / "deeper" / "still"
    judge(host.find("records"), "fail", "is not a directory", "SANDBOX_HOME")


def test_a_read_only_file_system_is_named(host: Any, judge: Judge, monkeypatch: Any) -> None:
    real = os.statvfs

    class State:
        f_flag = os.ST_RDONLY
        f_bavail, f_frsize = 1 << 30, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: State if real(path) else None)

    judge(host.find("records"), "fail", "mounted read-only", "SANDBOX_HOME")


def test_a_directory_that_we_may_not_write_is_named(
    host: Any, judge: Judge, monkeypatch: Any
) -> None:
    really = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != host.base and really(path, mode))

    judge(host.find("records"), "fail", "cannot be written by us", "SANDBOX_HOME")


def test_room_for_records(host: Any, judge: Judge) -> None:
    judge(host.find("space"), "ok", "free, 0 runs")

    facts = host.facts()
    little = replace(facts, store=replace(facts.store, free_bytes=100 << 20, runs=40))
    judge(host.find("space", little), "warn", "100 MiB free, 40 runs", "xargs -r sandbox runs rm")

    unknown = replace(facts, store=replace(facts.store, free_bytes=None))
    judge(host.find("space", unknown), "warn", "cannot be told")


def test_lost_runs_that_left_groups_are_found(host: Any, judge: Judge) -> None:
    group = host.base / "groups/run-0123456789ab"
    group.mkdir(parents=True)
    run = host.home / "runs" / "0123456789ab"
    run.mkdir(parents=True)
    (run / "groups.json").write_text(json.dumps([str(group)]))
    lock = os.open(run / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    judge(host.find("leftovers"), "ok", "no lost run")  # its supervisor is there

    os.close(lock)
    judge(host.find("leftovers"), "warn", "such as 0123456789ab", "sandbox clean")

    group.rmdir()
    judge(host.find("leftovers"), "ok", "no lost run")


# --- packages


def packages(host: Any, *required: str, **versions: str) -> Any:
    return replace(host.facts(), packages=Packages(required=required, versions=versions))


def test_packages_in_the_right_versions(host: Any, judge: Judge) -> None:
    facts = packages(host, "psutil>=5.9", "typer<0.29,>=0.21", psutil="7.2.2", typer="0.28.0")

    judge(host.find("packages", facts), "ok", "psutil 7.2.2, typer 0.28.0")


def test_packages_that_lack_or_do_not_fit(host: Any, judge: Judge) -> None:
    facts = packages(host, "psutil>=5.9", "typer<0.29,>=0.21", typer="0.29.1")

    why = "psutil>=5.9 is missing; typer 0.29.1 is not typer<0.29"
    judge(host.find("packages", facts), "warn", why, "-m pip install --upgrade cgroup-sandbox")


def test_extras_and_other_pythons_are_not_asked_for(host: Any, judge: Judge) -> None:
    newer = f"{sys.version_info.major}.{sys.version_info.minor + 1}"
    facts = packages(
        host,
        'uv; extra == "venv"',
        'backport>=1.0; python_version < "3.4"',
        f'future>=1; python_version >= "{newer}"',
        f'now>=1; python_version < "{newer}"',
        'odd; sys_platform == "linux"',
        now="1.0",
        odd="2",
    )

    judge(host.find("packages", facts), "ok", "now 1.0, odd 2")


def test_a_checkout_states_nothing(host: Any, judge: Judge, monkeypatch: Any) -> None:
    monkeypatch.setattr(facts_module, "DISTRIBUTION", "there-is-no-such-distribution")
    assert read_packages() == Packages(required=(), versions={})

    judge(host.find("packages"), "ok", "checkout")


def test_packages_are_looked_for_only_if_they_are_asked_about(host: Any) -> None:
    asked = [
        gather(host.roots, home=host.home, environ={}, calls=host.calls, groups=groups)
        for groups in ({"store"}, {"packages"}, None)
    ]

    assert [bool(facts.packages.required) for facts in asked] == [False, True, True]


def test_what_is_required_is_what_the_project_states() -> None:
    stated = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]

    required = read_packages().required

    assert {requirement_name(text) for text in stated} <= set(map(requirement_name, required))


@pytest.mark.parametrize(
    ("version", "requirement", "does"),
    [
        ("0.9.7", "pyroute2<0.10,>=0.9.6", True),
        ("0.10", "pyroute2<0.10,>=0.9.6", False),
        ("0.9", "tabulate>=0.9.0", True),
        ("1.0rc1", "x>=1.0", True),
        ("2.0", "x!=2", False),
        ("2.0.1", "x==2.0.1", True),
        ("3", "x>3", False),
        ("3", "x<=3.0", True),
        ("1", "x", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, requirement: str, *, does: bool) -> None:
    assert fits(version, requirement) is does


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.text(max_size=8))
def test_a_version_fits_its_own_bounds_whatever_follows(parts: list[int], tail: str) -> None:
    version = ".".join(map(str, parts))
    rest = "" if tail[:1].isdigit() or tail[:1] == "." else tail

    assert fits(version + rest, f"x>={version},<={version}")


@given(st.text())
def test_any_text_is_compared_without_a_traceback(text: str) -> None:
    fits(text, text)
    requirement_name(text)
