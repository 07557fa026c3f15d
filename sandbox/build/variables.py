"""The Dockerfile that variables stand for."""

from __future__ import annotations

import json
import re
import shlex

from sandbox.build.options import Variables
from sandbox.errors import SpecError


def write_dockerfile(variables: Variables) -> str:
    """Return the steps of an image from variables, in Auptimizer's order.

    Raises:
        SpecError: a value cannot stand in one line.
    """
    for name, value in (("base image", variables.base), ("working directory", variables.workdir)):
        if not value.strip() or any(character.isspace() for character in value):
            raise SpecError(
                f"the {name} `{value}` cannot be used",
                hint="write it without blanks, line ends and `$`",
            )
    lines = [f"FROM {_plain(variables.base)}"]
    if variables.apt:
        packages = " ".join(map(_quote, variables.apt))
        lines.append(f"RUN apt-get update && apt-get install -y {packages}")
    lines.append(f"WORKDIR {_plain(variables.workdir)}")
    if variables.directory is not None:
        lines.append("COPY . .")
    if variables.pre_run is not None and variables.pre_run.strip():
        lines += _script(variables.pre_run)
    if variables.pip:
        lines.append(f"RUN pip install {' '.join(map(_quote, variables.pip))}")
    if variables.command:
        lines.append(f"CMD {json.dumps(variables.command)}")
    return "\n".join([*lines, ""])


def _plain(text: str) -> str:
    """Return a text in which no variable and no quote counts."""
    return re.sub(r"([\\$'\"])", r"\\\1", text)


def _quote(text: str) -> str:
    if "\n" in text:
        raise SpecError(
            f"`{text}` has more than one line",
            hint="write it on one line, commands with `&&` between them",
        )
    return shlex.quote(text)


def _script(text: str) -> list[str]:
    """Return a RUN of any text, as it is: in a heredoc whose end is no line of it."""
    end = "END"
    while any(line.rstrip("\r") == end for line in text.split("\n")):
        end += "_"
    return [f"RUN <<'{end}'", text.rstrip("\n"), end]
