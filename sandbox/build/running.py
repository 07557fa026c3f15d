"""RUN: a run like any other, whose writes become a layer."""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from sandbox.build.layers import Whose, add_written
from sandbox.build.options import BuildOptions, Tell
from sandbox.build.stack import Stack
from sandbox.build.stubs import SYSTEM_PLACES, changes_nothing, find_missing, remove_stubs
from sandbox.environment.accounts import find_account
from sandbox.environment.rootfs import find_file
from sandbox.errors import ImageError, LaunchError, SandboxError
from sandbox.image.built import WORK, open_work
from sandbox.image.ingest import Ingest, LayerMeta
from sandbox.image.lend import give, lend
from sandbox.image.owners import Owners
from sandbox.image.places import keeps_owners, uses_userxattr
from sandbox.image.store import each_once
from sandbox.kernel.namespaces import find_ids
from sandbox.kernel.roots import Roots
from sandbox.kernel.scratch import remove_scratch
from sandbox.records.enclosure import IdMap, Mount, Network, RootSpec
from sandbox.records.light import dataclass
from sandbox.records.result import Outcome, RunResult
from sandbox.records.security import OWNERLESS, Security
from sandbox.spec import RunSpec

HOSTNAME = "sandbox-build"
ACCOUNTS = ("/etc/passwd", "/etc/group")
_INTERVAL_NS = 100_000_000
_LONGEST_LINE = 1 << 16
_TAIL = 20
"""Lines of a step's output that its error repeats."""
_NOTE = (
    "note: there is one user only inside: to give files to others, or to become them, seems to "
    "succeed, but all stays root's; ranges in /etc/subuid and /etc/subgid give more users"
)
_COMMENT = "sandbox: built by one user only; files that this step gave to others stayed its own"
_BEYOND = (
    "note: {count} files are root's while the steps run, such as /{path}, which is {uid}:{gid}'s: "
    "larger ranges in /etc/subuid and /etc/subgid have room for them"
)
_NO_NAMES = re.compile(
    r"resolv|Name or service not known|getaddrinfo|No route|unreachable", re.IGNORECASE
)
_NO_ROOM = os.strerror(errno.ENOSPC)
_NO_OWNERS = re.compile(
    r"ch(own|grp)|set[ug]id|setgroups|Operation not permitted|Invalid arg", re.IGNORECASE
)
_BEYOND_RANGE = re.compile(r"(ch(own|grp)|set[ug]id).*Invalid arg", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one RUN executes, and in what."""

    argv: tuple[str, ...]
    trees: tuple[Path, ...]
    """The stage so far, bottom first."""
    environment: dict[str, str]
    user: str
    workdir: str
    network: Network
    mounts: tuple[Mount, ...] = ()
    latest_sec: int | None = None
    """What no file may be younger than."""
    input_fd: int | None = None


class Runner:
    """Executes the steps of one build."""

    def __init__(self, ingest: Ingest, options: BuildOptions, home: Path, tell: Tell) -> None:
        """Add layers by `ingest`, keep runs below `home`, and `tell` each line of output."""
        self._ingest = ingest
        self._options = options
        self._home = home
        self._tell = tell
        self._ids: IdMap | None = None
        self._is_noted = self._has_told_beyond = False
        if os.geteuid() != 0:
            self._ids = find_ids(os.geteuid(), os.getegid(), roots=Roots())

    @property
    def is_single(self) -> bool:
        """Return whether there is one user only inside."""
        return self._ids is not None and self._ids.is_single

    @property
    def comment(self) -> str:
        """Return what the history of the image is to say of each step; often nothing."""
        return _COMMENT if self.is_single else ""

    @contextmanager
    def work_directory(self) -> Iterator[Path]:
        """Give a directory of the step's own, which goes with it."""
        path = self._ingest.new_path(WORK)
        fd = open_work(path)
        try:
            yield path
        finally:
            remove_scratch(path, self._ids)
            os.close(fd)

    def run(self, job: Job, work: Path) -> LayerMeta | None:
        """Execute it to its end and return the layer of what it has written; None for nothing.

        Args:
            job: What to execute.
            work: A directory of `work_directory`; its entries `writes` is ours.

        Raises:
            StepError: it ended badly.
            SandboxError: it could not be started.
            OSError: the layer cannot be written.
        """
        if self.is_single and not self._is_noted:
            self._is_noted = True
            self._tell(_NOTE)
        if not job.trees:
            raise ImageError(
                "there is nothing to execute it with: the image is empty",
                hint="begin with an image that has a shell, or copy a program into it",
            )
        writes = work / "writes"
        writes.mkdir(mode=0o700)
        trees = each_once(job.trees)
        places = [*SYSTEM_PLACES, job.workdir, *(mount.target for mount in job.mounts)]
        below = Stack(trees)
        missing = find_missing(below, places)
        self._execute(job, trees, writes)
        upper = writes / "upper"
        remove_stubs(upper, missing, below)
        if changes_nothing(upper, below):
            return None
        return add_written(self._ingest, upper, job.latest_sec, self._whose(job, trees, below))

    def _whose(self, job: Job, trees: Sequence[Path], below: Stack) -> Whose | None:
        if self._ids is None:
            return None
        layers = tuple(map(str, trees))
        passwd, group = (find_file(layers, name).decode(errors="replace") for name in ACCOUNTS)
        account = find_account(job.user, passwd, group)
        return Whose(ids=self._ids, own=(account.uid, account.gid), below=below)

    def give(self, tree: Path, owners: Owners) -> None:
        """Give files of a tree, by their paths, to whom they belong inside, where that can be.

        Raises:
            SandboxError: it fails.
            OSError: likewise.
        """
        if self._ids is not None and not self._ids.is_single:
            give(tree, owners, self._ids)
        elif keeps_owners():
            for path, owner in owners.items():
                os.chown(tree / os.fsdecode(path), *owner, follow_symlinks=False)

    def _owned(self, trees: Sequence[Path]) -> Sequence[Path]:
        """Return a stack whose files belong to their owners, as far as there are such ids."""
        if self._ids is None or self._ids.is_single:
            return trees
        lent = lend(self._ingest.store, trees, self._ids)
        if lent.beyond and not self._has_told_beyond:
            self._has_told_beyond = True
            path, uid, gid = lent.beyond[0]
            self._tell(_BEYOND.format(count=len(lent.beyond), path=path, uid=uid, gid=gid))
        return lent.trees

    def _execute(self, job: Job, trees: Sequence[Path], writes: Path) -> None:
        from sandbox.engine.order import Surroundings, run
        from sandbox.engine.series import ending_signal

        spec = RunSpec(
            command=job.argv,
            limits=self._options.limits,
            environment=job.environment,
            user=job.user or None,
            workdir=job.workdir,
            interval_ns=_INTERVAL_NS,
            thread_hints=False,
            root=RootSpec(
                layers=tuple(map(str, self._owned(trees))),
                userxattr=uses_userxattr(),
                writes_to=str(writes),
                mounts=job.mounts,
                hostname=HOSTNAME,
                security=Security(seccomp=OWNERLESS if self.is_single else ""),
                network=job.network,
            ),
        )
        heard: list[int] = []
        with _Output(self._tell, job.input_fd) as output:
            around = Surroundings(
                home=self._home,
                stdio=output.stdio,
                keep_descriptors=False,
                on_started=output.follow,
                on_signal=heard.append,
            )
            try:
                result = run(spec, around)
            except LaunchError as exc:
                raise ImageError(str(exc), hint=exc.hint) from exc
        number = ending_signal(heard)
        if number is not None:
            self._forget(result)
            raise StoppedError(number)
        self._judge(result, output.tail, job)

    def _judge(self, result: RunResult, tail: Sequence[str], job: Job) -> None:
        if result.outcome is Outcome.EXITED and result.exit_code == 0:
            self._forget(result)
            return
        status = result.exit_code if result.exit_code is not None else 125
        why = "" if result.outcome is Outcome.EXITED else f" ({result.reason})"
        raise StepError(
            f"exited {status}{why}",
            exit_code=status,
            tail=tuple(tail),
            hint=self._hint(result, "\n".join(tail), job),
        )

    def _forget(self, result: RunResult) -> None:
        """Remove the record of a run that nobody will ask for."""
        from sandbox.store.reading import remove_run

        if result.directory is not None:
            with suppress(SandboxError, OSError):
                remove_run(self._home, result.run_id)

    def _hint(self, result: RunResult, output: str, job: Job) -> str | None:
        if result.outcome is Outcome.OOM_KILLED:
            return "`--memory` gives the steps more"
        if result.outcome is Outcome.KILLED:
            return None
        hint = self._hint_of_ids(output)
        if _NO_ROOM in output:
            hint = "free some space, or set SANDBOX_HOME to another disk: the steps write there"
        if hint is not None:
            return hint
        if job.network is Network.NONE and _NO_NAMES.search(output):
            return "the step has no network: `--network host` gives it the host's"
        if result.exit_code == 127:  # noqa: PLR2004 - as every shell says it
            return "is the program in the image, and on its PATH?"
        return None

    def _hint_of_ids(self, output: str) -> str | None:
        if self.is_single and _NO_OWNERS.search(output):
            return (
                "there is one user only inside: ranges in /etc/subuid and /etc/subgid, and "
                "`apt install uidmap`, give more"
            )
        if self._ids is not None and _BEYOND_RANGE.search(output):
            return (
                "there are no such ids inside: larger ranges in /etc/subuid and /etc/subgid give "
                "more"
            )
        return None


class StepError(ImageError):
    """A step that ended badly."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: int,
        tail: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        """Say what happened; `tail` is the end of the step's output."""
        super().__init__(message, hint=hint)
        self.status = exit_code
        self.tail = tail


class StoppedError(ImageError):
    """A signal asked the build to end, while a step ran."""

    def __init__(self, number: int) -> None:
        """Name the signal; the exit status is as a shell says it."""
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.command_exit_code = 128 + number


class _Output:
    """The one pipe that a step writes to, and who reads it."""

    def __init__(self, tell: Tell, input_fd: int | None) -> None:
        self._tell = tell
        self._undo = ExitStack()
        self._source, self._sink = os.pipe()
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._undo.callback(os.close, null)
        self.stdio = (null if input_fd is None else input_fd, self._sink, self._sink)
        self._thread: object = None
        self.tail: deque[str] = deque(maxlen=_TAIL)

    def __enter__(self) -> Self:
        return self

    def follow(self, _result: RunResult) -> None:
        """Begin to read, once the program runs: no thread may be there before."""
        import threading

        os.close(self._sink)
        self._sink = -1
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self._undo.callback(self._thread.join)

    def _read(self) -> None:
        begun = time.monotonic()
        with os.fdopen(self._source, "rb", closefd=False) as file:
            while line := file.readline(_LONGEST_LINE):
                text = line.decode(errors="replace").rstrip("\r\n").rpartition("\r")[2]
                self.tail.append(text)
                self._tell(f"{time.monotonic() - begun:.1f} {text}")

    def __exit__(self, *_error: object) -> None:
        self._undo.close()
        for fd in (self._source, self._sink):
            if fd >= 0:
                os.close(fd)
