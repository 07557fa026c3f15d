"""The image that a profile runs in: built of its variables or by its DOCFILE, and kept.

Nothing is written beside the project: no Dockerfile is made, and what was built is found again by
what it was built of.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.errors import SandboxError, SpecError
from sandbox.records.light import dataclass

WORKDIR = "/app"
"""Where a copy of DIR is, as in Auptimizer's images."""

_VARIABLES = (
    ("FROM", "IMAGEREPO"),
    ("RUN apt-get", "APTREQUIREMENTS"),
    ("RUN pip", "PIPREQUIREMENTS"),
    ("RUN", "PRERUN"),
    ("COPY", "DIR"),
)
"""What each step of an image that is built of variables stands for."""
_DOCUMENT = re.compile(r"\bRUN <<'END_*'")
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """What an image is made of: the variables, or the file, which wins over them."""

    base: str = ""
    """IMAGEREPO."""
    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    prerun: str | None = None
    directory: str = ""
    docfile: str | None = None
    """DOCFILE, and the directory that its COPY means."""
    context: str = ""
    platform: str | None = None
    places: tuple[tuple[str, str], ...] = ()
    """Variables with their file and line, for errors."""


def build_plan(plan: ImagePlan, command: tuple[str, ...], tell: Callable[[str], None]) -> str:
    """Return the id of the image, which is built as far as it is not there yet.

    Raises:
        ImageError: a step failed, or the base cannot be had.
        SpecError: the file cannot be meant.
    """
    from sandbox.build.images import build_from_variables, build_image
    from sandbox.build.options import BuildOptions, Variables

    if plan.docfile is not None:
        path = Path(plan.docfile)
        bases = _FROM.findall(path.read_text("utf-8", errors="replace"))
        options = BuildOptions(platform=plan.platform, insecure=loopback_registries(bases))
        return build_image(Path(plan.context), path, options, tell=tell).image_id
    variables = Variables(
        base=plan.base,
        apt=plan.apt,
        directory=Path(plan.directory),
        workdir=WORKDIR,
        pre_run=plan.prerun,
        pip=plan.pip,
        command=command,
    )
    options = BuildOptions(platform=plan.platform, insecure=loopback_registries([plan.base]))
    try:
        built = build_from_variables(
            variables, options, tell=lambda line: tell(show_prerun(line, plan.prerun))
        )
    except SandboxError as error:
        named = name_variable(str(error), dict(plan.places))
        error.args = (show_prerun(named, plan.prerun),)
        raise
    return built.image_id


def show_prerun(line: str, prerun: str | None) -> str:
    """Return a line of the build with the command instead of the document that it is kept in."""
    if not prerun:
        return line
    first, *more = prerun.strip().splitlines()
    return _DOCUMENT.sub(lambda _: f"RUN {first}{' …' if more else ''}", line)


def name_variable(message: str, places: Mapping[str, str]) -> str:
    """Return an error of a step with the place of its variable, where one stands for the step."""
    step = re.sub(r"\Avariables:\d+: ", "", message)
    name = next((name for words, name in _VARIABLES if step.startswith(words)), "")
    if step == message or name not in places:
        return message
    return f"{places[name]}: {name}: {step}"


def loopback_registries(names: Iterable[str]) -> frozenset[str]:
    """Return the registries of this very machine that images are named of.

    Docker lets these do without TLS too.
    """
    from sandbox.image.reference import parse_reference

    found = set()
    for name in names:
        with suppress(SpecError):  # a stage, a variable
            registry = parse_reference(name).registry
            if _is_loopback(registry):
                found.add(registry)
    return frozenset(found)


def _is_loopback(registry: str) -> bool:
    host = re.sub(r":\d+$", "", registry).strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
