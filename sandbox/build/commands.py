"""RUN: from the instruction to what is executed, with its mounts."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from sandbox.build.cache import cache_directory, cache_path
from sandbox.build.options import Secret
from sandbox.build.stack import Stack
from sandbox.build.state import ImageState
from sandbox.errors import SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.lines import parse_heredoc
from sandbox.image.ingest import Ingest
from sandbox.image.owners import Owners
from sandbox.image.places import keeps_owners
from sandbox.records.enclosure import Mount, MountKind
from sandbox.records.light import dataclass

_OURS = "/dev/.sandbox"
"""In a file system of the run's own, so that nothing of it is in the layer."""
_SCRIPTS = "/dev/pipes"
_SECRETS = "/run/secrets"
_APT = re.compile(r"\b(?:apt|apt-get|aptitude)\b")
_PIP = re.compile(r"\b(?:pip[0-9.]*|uv)\b")
_SECRET_MODE = 0o400

TakeTree = Callable[[syntax.Mount, Path], Path]
"""Copies what a bind mount shows into a directory; returns where it is."""

Give = Callable[[Path, Owners], None]
"""Gives files of a tree away, by their paths, as far as there are such ids inside."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a RUN executes."""

    argv: tuple[str, ...]
    mounts: tuple[Mount, ...]
    environment: dict[str, str]
    """On top of the image's own and the build arguments."""


def reads_of(run: syntax.Run, shell: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that are executed, heredocs as BuildKit has them.

    A heredoc alone is itself the program: by its `#!` line, else for the shell. In a longer command
    the shell gets all of it, documents included.
    """
    command = run.command
    if not command.is_shell:
        return command.words
    text = command.words[0] if command.words else ""
    if command.heredocs:
        first = command.heredocs[0]
        if parse_heredoc(text) is None:
            text += "".join(f"\n{each.content}{each.name}" for each in command.heredocs)
        elif first.text().startswith("#!"):
            text = f"{_SCRIPTS}/{first.name}"
        else:
            text = first.text()
    return (*shell, text)


class Preparation:
    """One RUN before it is executed; what it needs on the disk goes with `undo`."""

    def __init__(
        self, ingest: Ingest, state: ImageState, work: Path, undo: ExitStack, give: Give
    ) -> None:
        """Put files into `work`, and hold the locks of caches until `undo` is closed."""
        self._ingest = ingest
        self._state = state
        self._work = work
        self._undo = undo
        self._give = give
        self._environment: dict[str, str] = {}
        self._origins: Mapping[str, str] = {}
        self._files = 0

    def prepare(
        self,
        run: syntax.Run,
        mounts: tuple[syntax.Mount, ...],
        *,
        secrets: Mapping[str, Secret],
        origins: Mapping[str, str],
        take_tree: TakeTree,
    ) -> Prepared:
        """Return what is executed.

        Args:
            run: The instruction.
            mounts: Its mounts, expanded.
            secrets: By their ids.
            origins: What names the content of the stages that caches begin with.
            take_tree: How to get what a bind mount shows.

        Raises:
            SpecError: a secret is missing, or a mount cannot be had.
            OSError: a file cannot be written.
        """
        self._origins = origins
        argv = reads_of(run, self._state.shell)
        found: list[Mount] = []
        for mount in mounts:
            made = self._mount(mount, secrets, take_tree)
            if made is not None:
                found.append(made)
        found += self._script(run)
        found += self._caches(argv, {mount.target for mount in found})
        return Prepared(argv=argv, mounts=tuple(found), environment=self._environment)

    def _mount(
        self, mount: syntax.Mount, secrets: Mapping[str, Secret], take_tree: TakeTree
    ) -> Mount | None:
        from sandbox.build.configuring import join_workdir

        if mount.kind == "secret":
            return self._secret(mount, secrets)
        target = join_workdir(self._state.workdir, mount.target)
        if target == "/" or target.startswith(("/proc", "/sys")):
            raise SpecError(
                f"nothing can be mounted at {target}",
                hint="choose a directory of its own, such as `/mnt`",
            )
        if mount.kind == "tmpfs":
            return Mount(kind=MountKind.TMPFS, target=target, size_bytes=mount.size_bytes)
        if mount.kind == "cache":
            source = self._cache(mount, target, take_tree)
        else:
            source = take_tree(mount, self._new_path())
        return Mount(
            kind=MountKind.BIND, target=target, source=str(source), read_only=mount.read_only
        )

    def _new_path(self) -> Path:
        self._files += 1
        return self._work / f"mount-{self._files}"

    # --- secrets ----------------------------------------------------------------------------------

    def _secret(self, mount: syntax.Mount, secrets: Mapping[str, Secret]) -> Mount | None:
        name = mount.id or mount.source or os.path.basename(mount.target)  # noqa: PTH119 - text
        secret = secrets.get(name)
        if secret is None:
            if mount.required:
                raise SpecError(
                    f"the secret `{name}` was not given", hint=f"`--secret id={name},src=FILE`"
                )
            return None
        data = read_secret(secret)
        if mount.env is not None:
            self._environment[mount.env] = data.decode("utf-8", "surrogateescape")
            if not mount.target:
                return None
        path = self._new_path()
        self._write(path, data, mount.mode if mount.mode is not None else _SECRET_MODE)
        self._give(path, {b"": (mount.uid or 0, mount.gid or 0)})
        target = mount.target or f"{_SECRETS}/{name}"
        return Mount(kind=MountKind.BIND, target=target, source=str(path), read_only=True)

    @staticmethod
    def _write(path: Path, data: bytes, mode: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
        path.chmod(mode)

    # --- scripts ----------------------------------------------------------------------------------

    def _script(self, run: syntax.Run) -> Iterator[Mount]:
        argv = reads_of(run, ())
        heredocs = run.command.heredocs
        if not heredocs or argv != (f"{_SCRIPTS}/{heredocs[0].name}",):
            return
        directory = self._new_path()
        directory.mkdir(mode=0o755)
        self._write(directory / heredocs[0].name, _encoded(heredocs[0].text()), 0o755)
        yield Mount(kind=MountKind.BIND, target=_SCRIPTS, source=str(directory), read_only=True)

    # --- caches -----------------------------------------------------------------------------------

    def _cache(self, mount: syntax.Mount, target: str, take_tree: TakeTree) -> Path:
        name = mount.id or target
        if mount.from_stage is not None:
            # Other files to begin with make another cache, as BuildKit has it.
            name = f"{name} {mount.source} of {self._origins[mount.from_stage]}"
            self._begin_cache(name, mount, take_tree)
        path = self._locked_cache(name, mount.sharing)
        if mount.mode is not None:
            with suppress(PermissionError):  # it was given to somebody else before
                path.chmod(mount.mode)
        if mount.uid is not None or mount.gid is not None:
            self._give(path, {b"": (mount.uid or 0, mount.gid or 0)})
        if not mount.source or mount.from_stage is not None:
            return path
        return self._below(path, mount.source)

    def _begin_cache(self, name: str, mount: syntax.Mount, take_tree: TakeTree) -> None:
        """Fill a cache that is not there yet with files of a stage."""
        place = cache_path(self._ingest.store, name)
        with self._ingest.store.locked(f"fill-{place.name}"):
            if place.exists():
                return
            tree = take_tree(mount, self._new_path())
            if not tree.is_dir():
                raise SpecError(
                    f"`{mount.source}` is no directory, as a cache has to be",
                    hint="choose another `source=`",
                )
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            tree.rename(place)

    @staticmethod
    def _below(path: Path, source: str) -> Path:
        inner = Stack([path]).resolve(os.fsencode(source))[0]
        found = path / os.fsdecode(inner)
        found.mkdir(mode=0o755, parents=True, exist_ok=True)
        return found

    def _locked_cache(self, name: str, sharing: str) -> Path:
        path = cache_directory(self._ingest.store, name)
        lock = f"cache-{path.name}"
        if sharing == "locked":
            self._undo.enter_context(self._ingest.store.locked(lock))
        elif sharing == "private":
            try:
                self._undo.enter_context(self._ingest.store.locked(lock, wait=False))
            except BlockingIOError:  # somebody else has it: begin with an empty one
                path = self._new_path()
                path.mkdir(mode=0o755)
        return path

    def _caches(self, argv: tuple[str, ...], taken: set[str]) -> Iterator[Mount]:
        """Let apt and pip keep what they fetch outside of the image.

        They are told by their own settings, in variables of the step: what the step does at the
        usual places, such as `rm -rf ~/.cache`, works as ever.
        """
        text = " ".join(argv)
        stack = Stack(self._state.trees)
        environment = self._state.environment
        if _APT.search(text) and stack.find(b"/etc/apt") and "APT_CONFIG" not in environment:
            yield from self._apt(taken)
        is_root = self._state.user.partition(":")[0] in {"", "0", "root"}
        is_free = "/root/.cache/pip" not in taken and "PIP_CACHE_DIR" not in environment
        if _PIP.search(text) and is_root and is_free:
            path = self._locked_cache("pip", "shared")
            self._environment["PIP_CACHE_DIR"] = f"{_OURS}/pip"
            yield Mount(kind=MountKind.BIND, target=f"{_OURS}/pip", source=str(path))

    def _apt(self, taken: set[str]) -> Iterator[Mount]:
        lines = []
        if not any(place.startswith("/var/cache/apt") for place in taken):
            path = self._locked_cache("apt", "locked")
            yield Mount(kind=MountKind.BIND, target=f"{_OURS}/apt", source=str(path))
            lines.append(f'Dir::Cache "{_OURS}/apt";')
        if not keeps_owners():
            # Without other users there is nobody that apt could become for its downloads.
            lines.append('APT::Sandbox::User "root";')
        if lines:
            path = self._new_path()
            self._write(path, "\n".join([*lines, ""]).encode(), 0o644)
            self._environment["APT_CONFIG"] = f"{_OURS}/apt.conf"
            yield Mount(
                kind=MountKind.BIND,
                target=f"{_OURS}/apt.conf",
                source=str(path),
                read_only=True,
            )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def check_secret(secret: Secret) -> None:
    """Refuse a secret that is not there; a file is not read, as a pipe gives its bytes once.

    Raises:
        SpecError: the variable is not set, or the file is none that we may read.
    """
    if secret.path is None:
        read_secret(secret)
        return
    try:
        if secret.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        secret.path.stat()
        if not os.access(secret.path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as exc:
        raise _unreadable(secret, exc) from exc


def read_secret(secret: Secret) -> bytes:
    """Return what a secret is.

    Raises:
        SpecError: the file cannot be read, or the variable is not set.
    """
    if secret.variable is not None:
        value = os.environ.get(secret.variable)
        if value is None:
            raise SpecError(
                f"the secret `{secret.id}`: {secret.variable} is not set",
                hint=f"`export {secret.variable}=…`, or `--secret id={secret.id},src=FILE`",
            )
        return os.fsencode(value)
    try:
        return (secret.path or Path(secret.id)).read_bytes()
    except OSError as exc:
        raise _unreadable(secret, exc) from exc


def _unreadable(secret: Secret, exc: OSError) -> SpecError:
    return SpecError(
        f"cannot read the secret `{secret.id}` from {secret.path}: {exc.strerror}",
        hint="`src=` names a file, as seen from here; `env=NAME` takes a variable instead",
    )
