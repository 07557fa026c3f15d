"""docker's `--env-file`: `NAME=VALUE` a line, `#` comments, no quotes and no expansion."""

from __future__ import annotations

import os

from sandbox.errors import SpecError


def parse_env_file(text: str, path: str) -> dict[str, str]:
    """Return the variables of a file; a name alone takes the caller's value, if there is one.

    Raises:
        SpecError: a name is empty or holds a blank, with file and line.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        stripped = line.lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not name or any(character.isspace() for character in name):
            raise SpecError(
                f"{path}:{number}: `{name}` cannot be the name of a variable",
                hint="write NAME=VALUE; this format knows no quotes and no `export`",
            )
        if equals:
            values[name] = value
        elif name in os.environ:
            values[name] = os.environ[name]
    return values
