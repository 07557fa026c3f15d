"""What a Dockerfile says: one record for each instruction, as written and not yet expanded."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.errors import DockerfileError
from sandbox.records.light import dataclass

DEFAULT_ESCAPE = "\\"


def refusal(file: str, line: int, what: str, hint: str | None = None) -> DockerfileError:
    """Return the error for something in a Dockerfile: `file:line: what`."""
    return DockerfileError(f"{file}:{line}: {what}", hint=hint)


@dataclass(frozen=True, kw_only=True)
class Heredoc:
    """A document within an instruction: the lines from `<<NAME` to `NAME`."""

    name: str
    """The word that ends it, without its quotes; for COPY also the name of the file."""
    content: str
    """As written, with the last newline; the tabs that `<<-` takes away are still there."""
    expand: bool
    """Whether variables in it count: no part of its word was quoted."""
    chomp: bool
    """Whether it began with `<<-`, which takes the tabs from the start of each line."""
    descriptor: int = 0
    """The number before `<<`, 0 if there is none."""

    def text(self) -> str:
        """Return what the document holds: without the leading tabs after `<<-`."""
        if not self.chomp:
            return self.content
        lines = self.content.splitlines(keepends=True)
        return "".join(line.lstrip("\t") for line in lines)


@dataclass(frozen=True, kw_only=True)
class Command:
    """The program of RUN, CMD or ENTRYPOINT."""

    words: tuple[str, ...]
    """The arguments of the exec form; one text (or none at all) in the shell form."""
    is_shell: bool
    """Whether it is for the shell in force (SHELL) to read."""
    heredocs: tuple[Heredoc, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One `RUN --mount`, after expansion."""

    kind: str
    """`bind`, `cache`, `tmpfs` or `secret`."""
    target: str = ""
    """Where, from the working directory if not absolute; empty is that directory, or for a secret a
    place by its id."""
    source: str = ""
    """The path within what is mounted; empty is its top. For a secret its id."""
    from_stage: str | None = None
    """A stage or an image; None is the build context for `bind`, nothing for `cache`."""
    read_only: bool
    size_bytes: int | None = None
    """Of a tmpfs."""
    id: str = ""
    """Of a cache or a secret; empty means by its target, or its source."""
    sharing: str = "shared"
    """Of a cache: `shared`, `private` or `locked`."""
    required: bool = False
    """Whether a missing secret is an error."""
    env: str | None = None
    """A variable that a secret is put into."""
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """`RUN`."""

    line: int
    source: str
    command: Command
    mounts: tuple[str, ...] = ()
    """As written: `fields.mounts_of` expands and reads them."""
    network: str = "default"
    """`default`, `none` or `host`."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """`COPY`."""

    line: int
    source: str
    sources: tuple[str, ...]
    destination: str
    heredocs: tuple[Heredoc, ...] = ()
    """Files whose content stands in the Dockerfile, named by `Heredoc.name`."""
    from_stage: str | None = None
    """A stage's name or number, or an image; None is the build context."""
    chown: str | None = None
    chmod: str | None = None
    """Octal, at most 7777, or symbolic such as `u+x`: `fields.change_mode` applies it."""
    excludes: tuple[str, ...] = ()
    parents: bool = False
    link: bool = False


@dataclass(frozen=True, kw_only=True)
class Add:
    """`ADD`."""

    line: int
    source: str
    sources: tuple[str, ...]
    """Paths, or addresses that begin with `http://` or `https://`."""
    destination: str
    heredocs: tuple[Heredoc, ...] = ()
    chown: str | None = None
    chmod: str | None = None
    excludes: tuple[str, ...] = ()
    link: bool = False
    checksum: str | None = None
    """`sha256:…` that the one address has to have."""
    unpack: bool | None = None
    """What `--unpack` says; None: local archives yes, fetched ones no."""


@dataclass(frozen=True, kw_only=True)
class Env:
    """`ENV`."""

    line: int
    source: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Label:
    """`LABEL`."""

    line: int
    source: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Arg:
    """`ARG`; the value is None where only a name is declared."""

    line: int
    source: str
    pairs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, kw_only=True)
class Workdir:
    """`WORKDIR`."""

    line: int
    source: str
    path: str


@dataclass(frozen=True, kw_only=True)
class User:
    """`USER`."""

    line: int
    source: str
    user: str


@dataclass(frozen=True, kw_only=True)
class Entrypoint:
    """`ENTRYPOINT`; no words at all take an inherited one away."""

    line: int
    source: str
    command: Command


@dataclass(frozen=True, kw_only=True)
class Cmd:
    """`CMD`."""

    line: int
    source: str
    command: Command


@dataclass(frozen=True, kw_only=True)
class Shell:
    """`SHELL`: what the shell form of the instructions after it is given to."""

    line: int
    source: str
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Expose:
    """`EXPOSE`, as written: `fields.expand_fields` gives `80/tcp` for each port."""

    line: int
    source: str
    ports: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Volume:
    """`VOLUME`."""

    line: int
    source: str
    paths: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StopSignal:
    """`STOPSIGNAL`."""

    line: int
    source: str
    signal: str


@dataclass(frozen=True, kw_only=True)
class Healthcheck:
    """`HEALTHCHECK`; times in nanoseconds as the image's configuration has them, 0 is unset."""

    line: int
    source: str
    test: tuple[str, ...]
    """`("NONE",)`, `("CMD", argument, …)` or `("CMD-SHELL", text)`."""
    interval_ns: int = 0
    timeout_ns: int = 0
    start_period_ns: int = 0
    start_interval_ns: int = 0
    retries: int = 0


@dataclass(frozen=True, kw_only=True)
class Onbuild:
    """`ONBUILD`: an instruction for those who build on the image, which can be parsed."""

    line: int
    source: str
    expression: str
    """Its text, as the image's configuration keeps it; `parse.parse_trigger` reads it."""


@dataclass(frozen=True, kw_only=True)
class Maintainer:
    """`MAINTAINER`, the author; docker has given it up for a label."""

    line: int
    source: str
    name: str


Instruction = (
    Run
    | Copy
    | Add
    | Env
    | Label
    | Arg
    | Workdir
    | User
    | Entrypoint
    | Cmd
    | Shell
    | Expose
    | Volume
    | StopSignal
    | Healthcheck
    | Onbuild
    | Maintainer
)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One FROM and what follows it."""

    line: int
    source: str
    """The text of FROM itself."""
    base: str
    """As written: an image, an earlier stage or `scratch`, with variables of the global ARGs."""
    name: str | None = None
    """After AS, in small letters."""
    platform: str | None = None
    """As written."""
    instructions: tuple[Instruction, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Warned:
    """Something that is most likely not meant; the file counts all the same."""

    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Dockerfile:
    """A whole file."""

    name: str
    """How the user knows it; errors begin with it."""
    directives: Mapping[str, str]
    """`escape`, `syntax`, `check`: those that are there, as written."""
    global_args: tuple[Arg, ...]
    """The ARGs before the first FROM."""
    stages: tuple[Stage, ...]
    """One at least."""
    warnings: tuple[Warned, ...] = ()

    @property
    def escape(self) -> str:
        """Return the character that escapes and continues lines."""
        return self.directives.get("escape", DEFAULT_ESCAPE)


def keyword(instruction: Instruction) -> str:
    """Return the instruction's name as it is written: `RUN`."""
    return type(instruction).__name__.upper()
