"""`sandbox top` on a real terminal, as a user sees it: one of tmux's, of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox.control.naming import Names
from sandbox.records.stats import State

Command = Callable[..., Any]
PATIENCE_SEC = 20.0


class Terminal:
    """A terminal in which one command runs."""

    def __init__(self, *command: str) -> None:
        self._socket = f"sandbox-test-{uuid.uuid4().hex}"
        words = " ".join(f"'{word}'" for word in command)
        shell = f"{words}; echo status $?; sleep 60"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", shell)

    def _tmux(self, *arguments: str) -> str:
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "screen"}
        done = subprocess.run(
            ["tmux", "-u", "-L", self._socket, *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            env=environment,
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def until(self, condition: Callable[[str], object]) -> str:
        deadline = time.monotonic() + PATIENCE_SEC
        while not condition(screen := self.screen()):
            assert time.monotonic() < deadline, f"it did not come to be:\n{screen}"
            time.sleep(0.03)
        return screen

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal(need_kernel: Callable[[object, str], None]) -> Iterator[Callable[..., Terminal]]:
    need_kernel(shutil.which("tmux"), "there is no tmux")
    opened: list[Terminal] = []

    def begin(*arguments: str) -> Terminal:
        opened.append(Terminal(sys.executable, "-m", "sandbox", "top", *arguments))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def test_a_sandbox_is_watched_paused_and_killed_by_keys(
    cli: Command, terminal: Callable[..., Terminal], load: Command
) -> None:
    cli("run", "-d", "--name", "busy", "--cpus", "0.2", "-m", "64m", "--", *load("burn", 60))
    try:
        shown = terminal("--interval", "100ms", "busy")
        shown.until(lambda screen: "busy: CPU" in screen and "% of 20%" in screen)
        assert "of 64MiB" in shown.screen()
        assert "1 running, 0 paused" in shown.screen()

        shown.press("p")
        shown.until(lambda screen: "0 running, 1 paused" in screen)
        assert Names().running("busy").state is State.PAUSED

        shown.resize(60, 8)
        shown.until(lambda screen: len(screen.rstrip("\n").split("\n")) == 8)
        shown.press("k")
        shown.until(lambda screen: "kill busy? y/n" in screen)
        shown.press("y")
        shown.until(lambda screen: "kill busy: done" in screen)
        assert sandbox.load("busy").result.exit_code == 137

        shown.press("q")
        assert "status 0" in shown.until(lambda screen: "status " in screen)
    finally:
        cli("kill", "busy")


@pytest.mark.slow
def test_a_recorded_run_is_played_again(
    cli: Command, terminal: Callable[..., Terminal], load: Command
) -> None:
    cli("run", "-q", "--name", "past", "--interval", "20ms", "--", *load("burn", 1))

    shown = terminal("--replay", "past", "--interval", "50ms")
    shown.until(lambda screen: "past: CPU" in screen and "replay" in screen)
    shown.press("Right")
    shown.until(lambda screen: " s, speed 1" in screen)
    shown.press("C-c")

    assert "status 0" in shown.until(lambda screen: "status " in screen)


def test_without_a_terminal_there_is_one_clear_error(cli: Command, tmp_path: Path) -> None:
    done = cli("top")

    assert (done.status, done.stdout) == (1, "")
    assert "needs a terminal" in done.stderr
    assert "sandbox stats" in done.stderr
