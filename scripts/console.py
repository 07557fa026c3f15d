"""The terminal sessions in the documentation: run them, compare them, renew their output.

A page's blocks marked `console` are one session: a shell of its own in an empty directory beside
which `examples` and `scripts` lie. Lines that start with `$ ` are typed, the others were printed.
A command must succeed, unless the next one is `echo $?`. Comments right above a block say more:

    <!-- file: NAME -->     the block (of any language) is written to NAME at this point
    <!-- varies -->         what is printed differs each time, so only success is compared
    <!-- varies: WHY -->    and so does success
    <!-- not run: WHY -->   the block is an illustration

What is compared is each line's first column up to a figure: labels and words, not measurements.
Warnings are not: they tell of the machine at that moment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SEPARATOR = "\x1e"  # stands between the outputs of two commands

_BLOCK = re.compile(
    r"(?:^<!-- (?P<word>file|varies|not run)(?:: (?P<value>[^>]+?))? -->\n)?"
    r"^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(slots=True)
class Command:
    """One typed command and the lines that the page shows below it."""

    text: str
    shown: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    status: int | None = None
    may_fail: bool = False
    varies: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One block of a page, in order: a file to write, or commands to type."""

    span: tuple[int, int]
    """Where its body stands in the page."""
    commands: tuple[Command, ...] = ()
    file: tuple[str, str] | None = None


def parse_commands(body: str, *, varies: bool) -> tuple[Command, ...]:
    """Split a block into commands; `> ` continues the line above."""
    commands: list[Command] = []
    typing = False
    for line in body.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], varies=varies))
            typing = True
        elif line.startswith("> ") and typing:
            commands[-1].text += "\n" + line[2:]
        elif not commands:
            raise ValueError(f"a console block starts with `$ `, not with {line!r}")
        else:
            typing = False
            commands[-1].shown.append(line)
    for command, following in pairwise(commands):
        command.may_fail = following.text == "echo $?"
    return tuple(commands)


def parse_page(text: str) -> list[Step]:
    """Return what a page's session does, block by block."""
    steps: list[Step] = []
    for match in _BLOCK.finditer(text):
        word, value, body = match["word"], match["value"], match["body"]
        if word == "not run":
            continue
        if word == "file":
            steps.append(Step(match.span("body"), file=(value, body)))
        elif match["language"] == "console":
            commands = parse_commands(body, varies=word == "varies")
            for command in commands:
                command.may_fail = command.may_fail or (word == "varies" and value is not None)
            steps.append(Step(match.span("body"), commands=commands))
    return steps


def script_of(steps: list[Step]) -> str:
    """Return the session as one shell script that marks where each command ends."""
    lines: list[str] = []
    for step in steps:
        if step.file is not None:
            name, body = step.file
            lines.append(f"cat >{name} <<'END OF FILE'\n{body}END OF FILE")
        for command in step.commands:
            lines.append(f"{{ {command.text}\n}} </dev/null")
            lines.append(f"s=$?; printf '{SEPARATOR}%s{SEPARATOR}' $s; (exit $s)")
    return "\n".join(lines) + "\n"


def run_session(steps: list[Step], timeout_seconds: float) -> None:
    """Run all steps and fill in what each command printed and its status."""
    commands = [command for step in steps for command in step.commands]
    with tempfile.TemporaryDirectory(prefix="docs-") as directory:
        place = Path(directory)
        for name in ("examples", "scripts"):
            (place / name).symlink_to(PROJECT / name)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": directory,
            "SANDBOX_HOME": f"{directory}/.sandbox",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            ["bash", "-c", script_of(steps)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_seconds,
            check=False,
        )
        parts = done.stdout.decode().replace(directory, "/home/you").split(SEPARATOR)
    if len(parts) != 2 * len(commands) + 1:
        raise ValueError(f"the session broke off:\n{done.stdout.decode()}")
    for command, printed, status in zip(commands, parts[::2], parts[1::2], strict=False):
        command.printed = printed.rstrip().splitlines()
        command.status = int(status)


def label_of(line: str) -> str:
    """Return the part of a line that is the same every time: its first column, up to a figure."""
    return " ".join(re.split(r"  |[\d/-]", line.strip(), maxsplit=1)[0].split())


def without_warnings(lines: list[str]) -> Iterator[str]:
    """Yield the lines but for warnings, each of which goes on to the next empty line."""
    in_warning = False
    for line in lines:
        in_warning = bool(line) and (in_warning or line.startswith("warning:"))
        if not in_warning:
            yield line


def differences(steps: list[Step]) -> list[str]:
    """Return what the page says and the session did not, one line each."""
    found: list[str] = []
    for command in (command for step in steps for command in step.commands):
        if command.status and not command.may_fail:
            found.append(f"$ {command.text}: status {command.status}: {command.printed}")
        if command.text == "echo $?" and command.printed != command.shown:
            found.append(f"status {command.printed}, the page says {command.shown}")
        printed = [" ".join(line.split()) for line in command.printed]
        if command.varies:
            continue
        found.extend(
            f"$ {command.text}: `{label}` is not in {command.printed}"
            for label in map(label_of, without_warnings(command.shown))
            if label not in {"", "..."} and not any(text.startswith(label) for text in printed)
        )
        if command.printed and not command.shown:
            found.append(f"$ {command.text} prints something, and the page shows nothing")
    return found


def is_disturbed(lines: list[str]) -> bool:
    """Return whether an output warns of something, such as other load on the machine."""
    return any(line.startswith("warning:") for line in lines)


def renewed(text: str, steps: list[Step]) -> str:
    """Return the page with the output that was really printed.

    A block that ran undisturbed before is left alone when it was disturbed this time.
    """
    for step in reversed(steps):
        was = [line for command in step.commands for line in command.shown]
        now = [line for command in step.commands for line in command.printed]
        if step.commands and not (was and is_disturbed(now) and not is_disturbed(was)):
            lines: list[str] = []
            for command in step.commands:
                lines.append("$ " + command.text.replace("\n", "\n> "))
                lines.extend(command.printed)
            start, end = step.span
            text = text[:start] + "\n".join(lines) + "\n" + text[end:]
    return text
