"""Built environments are made once, kept whole or not at all, and not removed under a run."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.environment.venv import open_venv, venv_variables
from sandbox.environment.venv_cache import VenvCache
from sandbox.environment.venv_inputs import Inputs
from sandbox.environment.venv_tools import (
    Uv,
    Workplace,
    count_packages,
    find_tool,
    index_flags,
    lock_of_report,
    packages_of,
    run_tool,
)
from sandbox.errors import HostError, SpecError, StoreError

LOCK = (
    "numpy==2.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    "rich==13.0 ; python_version > '3'\n"
)


def quiet(_doing: str) -> None:
    """No terminal."""


@dataclass
class FakeTool:
    """Resolves to a given lock, and installs a file; counts how often."""

    lock: str = LOCK
    name: str = "fake"
    resolved: int = 0
    installed: list[Path] = field(default_factory=list)
    fails: Callable[[], None] = lambda: None

    def resolve(self, inputs: Inputs, place: Workplace, progress: object) -> str:
        (place.scratch / "asked").touch()
        self.resolved += 1
        return self.lock

    def install(
        self, lock: str, inputs: Inputs, directory: Path, place: Workplace, progress: object
    ) -> None:
        (place.scratch / "pinned").touch()
        directory.mkdir()
        (directory / "half").write_text(lock)
        self.fails()
        self.installed.append(directory)


def test_the_same_inputs_are_resolved_and_built_once(tmp_path: Path) -> None:
    cache, tool = VenvCache(tmp_path), FakeTool()

    first, hold = cache.provide(Inputs(digest="a"), tool, quiet)
    again, hold_again = cache.provide(Inputs(digest="a"), tool, quiet)
    os.close(hold)
    os.close(hold_again)

    assert first == again
    assert (tool.resolved, len(tool.installed)) == (1, 1)
    assert first.packages == ("numpy==2.1", "rich==13.0")
    assert Path(first.directory, "half").read_text() == LOCK


def test_other_inputs_that_resolve_to_the_same_share_one_environment(tmp_path: Path) -> None:
    cache, tool = VenvCache(tmp_path), FakeTool()

    keys = set()
    for digest in ("a", "b"):
        venv, hold = cache.provide(Inputs(digest=digest), tool, quiet)
        os.close(hold)
        keys.add(venv.key)

    assert len(keys) == 1
    assert (tool.resolved, len(tool.installed)) == (2, 1)


def test_an_index_setting_asks_for_a_new_resolution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, tool = VenvCache(tmp_path), FakeTool()
    os.close(cache.provide(Inputs(digest="a"), tool, quiet)[1])

    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://example.invalid/simple")
    os.close(cache.provide(Inputs(digest="a"), tool, quiet)[1])

    assert tool.resolved == 2


def test_many_at_once_build_it_once(tmp_path: Path) -> None:
    cache, tool, holds = VenvCache(tmp_path), FakeTool(), []

    def provide() -> None:
        holds.append(cache.provide(Inputs(digest="a"), tool, quiet)[1])

    threads = [threading.Thread(target=provide) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for hold in holds:
        os.close(hold)

    assert len(holds) == 6
    assert (tool.resolved, len(tool.installed)) == (1, 1)


def test_a_build_that_fails_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    def fail() -> None:
        raise HostError("no network")

    cache = VenvCache(tmp_path)
    with pytest.raises(HostError, match="no network"):
        cache.provide(Inputs(digest="a"), FakeTool(fails=fail), quiet)
    assert cache.kept() == []

    venv, hold = cache.provide(Inputs(digest="a"), FakeTool(), quiet)
    os.close(hold)

    assert Path(venv.directory, "half").exists()


def test_what_resolving_took_is_gone_with_it_or_by_clean(tmp_path: Path) -> None:
    cache = VenvCache(tmp_path)
    _, hold = cache.provide(Inputs(digest="a"), FakeTool(), quiet)
    os.close(hold)
    (asked,) = (tmp_path / "venvs/inputs").iterdir()
    assert not list(tmp_path.rglob("*scratch*"))

    left = asked.with_suffix(".scratch")
    left.mkdir()
    (left / "named.txt").touch()
    with asked.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cache.remove_unfinished() == []
    assert left.exists()
    assert cache.remove_unfinished() == [asked.name]
    assert not left.exists()


def test_what_a_crash_has_left_is_built_anew(tmp_path: Path) -> None:
    cache = VenvCache(tmp_path)
    venv, hold = cache.provide(Inputs(digest="a"), FakeTool(), quiet)
    os.close(hold)
    (Path(venv.directory).parent / "venv.json").unlink()
    (Path(venv.directory) / "half").write_text("broken")
    assert [one.venv for one in cache.kept()] == [None]

    venv, hold = cache.provide(Inputs(digest="a"), FakeTool(), quiet)
    os.close(hold)

    assert Path(venv.directory, "half").read_text() == LOCK


def test_what_a_crash_has_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    cache = VenvCache(tmp_path)
    whole, hold = cache.provide(Inputs(digest="a"), FakeTool(), quiet)
    os.close(hold)
    broken, hold = cache.provide(Inputs(digest="b"), FakeTool(lock="rich==1\n"), quiet)
    os.close(hold)
    (Path(broken.directory).parent / "venv.json").unlink()

    assert cache.remove_unfinished() == [broken.key]

    assert [one.key for one in cache.kept()] == [whole.key]


def test_an_environment_in_use_cannot_be_removed(tmp_path: Path) -> None:
    cache = VenvCache(tmp_path)
    venv, hold = cache.provide(Inputs(digest="a"), FakeTool(), quiet)
    assert venv.key is not None
    with pytest.raises(StoreError, match="in use"):
        cache.remove(venv.key)
    assert [one.in_use for one in cache.kept()] == [True]

    os.close(hold)
    cache.remove(venv.key)

    assert cache.kept() == []
    assert not list(tmp_path.rglob("*.lock"))


def test_one_that_was_removed_is_built_anew(tmp_path: Path) -> None:
    cache, tool = VenvCache(tmp_path), FakeTool()
    venv, hold = cache.provide(Inputs(digest="a"), tool, quiet)
    os.close(hold)
    cache.remove(str(venv.key))

    again, hold = cache.provide(Inputs(digest="a"), tool, quiet)
    os.close(hold)

    assert again == venv
    assert len(tool.installed) == 2


@pytest.mark.parametrize("key", ["", "..", "x", "0" * 16])
def test_only_what_is_there_is_removed(tmp_path: Path, key: str) -> None:
    with pytest.raises(StoreError, match="there is no environment"):
        VenvCache(tmp_path).remove(key)


# --- the tools ------------------------------------------------------------------------------------


def test_packages_are_read_without_hashes_markers_and_comments() -> None:
    assert packages_of("# by uv\n" + LOCK) == ("numpy==2.1", "rich==13.0")
    assert count_packages("rich==1\n") == "1 package"


def test_no_password_of_a_url_is_recorded_or_shown() -> None:
    code = "import sys; sys.exit('error: 403 for https://me:secret@h/simple')"

    assert packages_of("x @ https://me:secret@h/x.whl --hash=sha256:aa") == ("x @ https://h/x.whl",)
    with pytest.raises(HostError, match="403 for https://h/simple") as caught:
        run_tool([sys.executable, "-c", code], "resolving x", quiet, {})
    assert "secret" not in str(caught.value)
    assert "secret" not in Inputs(requirements=("x @ https://me:secret@h/x.whl",)).describe()


def test_pips_report_becomes_pinned_lines_with_hashes() -> None:
    def item(name: str, source: dict[str, object], **more: object) -> dict[str, object]:
        return {"metadata": {"name": name, "version": "1"}, "download_info": source, **more}

    hashed = {"url": "https://i/a.whl", "archive_info": {"hashes": {"sha256": "aa"}}}
    vcs = {"url": "https://g/r", "vcs_info": {"vcs": "git", "commit_id": "c0"}}

    assert lock_of_report({"install": [item("b", hashed), item("a", hashed, is_direct=True)]}) == (
        "a @ https://i/a.whl --hash=sha256:aa\nb==1 --hash=sha256:aa\n"
    )
    # One without a hash: pip would refuse the others' hashes beside it.
    assert lock_of_report({"install": [item("b", hashed), item("g", vcs)]}) == (
        "b==1\ng @ git+https://g/r@c0\n"
    )
    with pytest.raises(SpecError, match="comes from the directory"):
        lock_of_report({"install": [item("d", {"url": "file:///d", "dir_info": {}})]})


def test_uv_is_taken_where_there_is_one(tmp_path: Path) -> None:
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    assert isinstance(find_tool({"PATH": str(tmp_path)}), Uv)


def test_uv_is_told_what_pips_variables_say() -> None:
    pip = {"PIP_INDEX_URL": "https://a/", "PIP_FIND_LINKS": "/one /two", "PIP_NO_INDEX": "true"}

    assert index_flags(pip) == [
        "--no-index",
        *("--default-index", "https://a/"),
        *("--find-links", "/one"),
        *("--find-links", "/two"),
    ]
    assert index_flags({"PIP_NO_INDEX": "0"}) == []
    # uv's own settings win; that nothing may be asked for over the network holds all the same.
    assert index_flags({**pip, "UV_INDEX": "https://b/"}) == ["--no-index"]


def test_a_tool_that_cannot_reach_an_index_says_what_helps() -> None:
    code = "import sys; sys.exit('error: dns error: failed to lookup address')"

    with pytest.raises(HostError, match="no package index can be reached") as caught:
        run_tool([sys.executable, "-c", code], "resolving x", quiet, {})

    assert "--find-links" in str(caught.value.hint)


def test_a_tool_that_fails_is_quoted() -> None:
    code = "import sys; sys.exit('error: no version of x')"

    with pytest.raises(HostError, match="resolving x failed:\n  no version of x"):
        run_tool([sys.executable, "-c", code], "resolving x", quiet, {})


def test_a_tool_that_is_not_there_is_named() -> None:
    with pytest.raises(HostError, match="cannot start /nowhere/uv"):
        run_tool(["/nowhere/uv"], "resolving x", quiet, {})


# --- the user's own -------------------------------------------------------------------------------


def test_an_environment_of_the_users_own_is_opened(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")

    venv = open_venv(tmp_path)

    assert (venv.python, venv.key) == ("3.12.1", None)
    assert venv_variables(venv, {b"PATH": b"/bin"}) == {
        b"VIRTUAL_ENV": os.fsencode(tmp_path),
        b"PATH": os.fsencode(tmp_path) + b"/bin:/bin",
    }


def test_a_directory_that_is_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is no virtual environment"):
        open_venv(tmp_path)


def test_an_environment_whose_python_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("version = 3.12.1\n")

    with pytest.raises(HostError, match="has no Python"):
        open_venv(tmp_path)
