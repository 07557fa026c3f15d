"""`.dockerignore`: what of a context a build does not see."""

from __future__ import annotations

from sandbox.errors import SpecError
from sandbox.image.dockerfile.globs import PathPatterns, parse_path_pattern
from sandbox.image.dockerfile.syntax import refusal

NAME = ".dockerignore"


def parse_ignore(data: bytes, name: str) -> PathPatterns:
    """Return the patterns of a file.

    A line is a pattern unless it is empty or begins with `#`; `!` takes back. Slashes in front do
    not matter: all are from the top of the context.

    Args:
        data: The file.
        name: What errors begin with.

    Raises:
        SpecError: a line is no pattern, with file and line.
    """
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    patterns = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            patterns.append(parse_path_pattern(line))
        except SpecError as exc:
            raise refusal(name, number, str(exc), exc.hint) from exc
    return PathPatterns(patterns)
