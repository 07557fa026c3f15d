"""What a user can ask of a build, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sandbox.errors import SpecError
from sandbox.records.enclosure import Network
from sandbox.records.light import dataclass, field
from sandbox.spec import Limits

Tell = Callable[[str], None]
"""Called with each line of progress."""


@dataclass(frozen=True, kw_only=True)
class Secret:
    """What `RUN --mount=type=secret` shows to a step and no layer keeps."""

    id: str
    path: Path | None = None
    """A file; one of the two is given."""
    variable: str | None = None
    """A variable of our environment."""

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Return the secret of `id=…,src=FILE` or `id=…,env=NAME`; an id alone is both.

        Raises:
            SpecError: the text is not one.
        """
        values: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if not equals or not value:
                raise SpecError(
                    f"`{text}` is not a secret",
                    hint="write `id=NAME,src=FILE` or `id=NAME,env=VAR`",
                )
            values[{"source": "src"}.get(key, key)] = value
        kind = values.pop("type", None)
        name, path, variable = (values.pop(key, None) for key in ("id", "src", "env"))
        if values or kind not in {None, "file", "env"} or (path and variable):
            raise SpecError(
                f"`{text}` is not a secret", hint="write `id=NAME,src=FILE` or `id=NAME,env=VAR`"
            )
        if name is None:
            raise SpecError(f"`{text}`: a secret needs an id", hint="write `id=NAME,src=FILE`")
        if kind == "env" and variable is None:
            variable, path = path or name, None
        if path is None and variable is None:
            path = name
        return cls(id=name, path=None if path is None else Path(path), variable=variable)


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How to build."""

    tags: tuple[str, ...] = ()
    """References, such as `name:tag`."""
    build_args: dict[str, str] = field(default_factory=dict)
    target: str | None = None
    """The stage to end with; the last unless given."""
    use_cache: bool = True
    pull: bool = False
    """Ask the registry for the base even if it is here."""
    platform: str | None = None
    network: Network = Network.HOST
    """Of RUN."""
    limits: Limits = field(default_factory=Limits)
    """Of each RUN."""
    secrets: tuple[Secret, ...] = ()
    insecure: frozenset[str] = frozenset()
    """Registries that may do without TLS, as `PullOptions.insecure`."""


@dataclass(frozen=True, kw_only=True)
class Variables:
    """An image without a Dockerfile; its steps come in this order."""

    base: str
    """An image of this machine, else of a registry."""
    apt: tuple[str, ...] = ()
    """Packages of the distribution."""
    directory: Path | None = None
    """Its content is copied to `workdir`; its .dockerignore is heeded."""
    workdir: str = "/app"
    pre_run: str | None = None
    """Text for the shell, executed in `workdir` while the image is built."""
    pip: tuple[str, ...] = ()
    """Arguments of `pip install`, each as it would stand between quotes."""
    command: tuple[str, ...] = ()
    """What the image executes."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """What came of a build."""

    image_id: str
    references: tuple[str, ...]
    """Full names that mean the image now."""
    steps: int
    """Steps of all stages that were needed."""
    cached: int
    """How many of them were done before."""
