"""From what a user calls a sandbox to the one that is meant, or why there is none."""

from __future__ import annotations

from pathlib import Path

from sandbox.control.running import RunningSandbox, find_running, running_sandboxes
from sandbox.errors import StoreError
from sandbox.kernel.roots import Roots
from sandbox.records.result import Outcome
from sandbox.store.home import find_home
from sandbox.store.reading import StoredRun, load

NO_SUCH = "no such sandbox: {}"
_HINT = "`sandbox ps` lists those that run, `sandbox ps -a` all"


class Names:
    """The sandboxes that run, looked for once for a command that names several."""

    def __init__(self, home: Path | None = None, roots: Roots | None = None) -> None:
        """Look only when the first name is asked for."""
        self._home = home or find_home()
        self.roots = roots or Roots()
        self._own: list[RunningSandbox] | None = None
        self._all: list[RunningSandbox] | None = None

    def find(self, asked: str) -> RunningSandbox | None:
        """Return the live sandbox of an id, a name or the beginning of an id; None if none is.

        Raises:
            StoreError: more than one is meant.
        """
        if self._own is None:
            self._own = running_sandboxes(self._home, self.roots, others=False)
        for one in self._own:
            if asked in {one.id, one.name} and asked:
                return one
        if self._all is None:  # other users' groups are looked for only for what is not ours
            self._all = running_sandboxes(self._home, self.roots)
        if not any(asked and asked in {one.name, one.id[: len(asked)]} for one in self._all):
            return None
        return find_running(asked, self._all)

    def running(self, asked: str) -> RunningSandbox:
        """Return a live sandbox.

        Raises:
            StoreError: there is none of that name, or it has ended: the text says how.
        """
        found = self.find(asked)
        if found is not None:
            return found
        result = self.stored(asked).result
        hint = "`sandbox ps` lists those that run"
        if result.outcome is Outcome.SUPERVISOR_LOST:
            hint = "`sandbox clean` removes what it may have left"
        raise StoreError(
            f"{asked} is not running: {result.reason or result.outcome.value}", hint=hint
        )

    def stored(self, asked: str) -> StoredRun:
        """Return the record of a run, live or not.

        Raises:
            StoreError: there is none, or it cannot be read.
        """
        # A path is for `sandbox runs`: what is controlled is named, as in docker.
        if not asked or "/" in asked or asked in {".", ".."} or not self._is_known(asked):
            raise StoreError(NO_SUCH.format(asked), hint=_HINT)
        return load(asked, self._home)

    def _is_known(self, asked: str) -> bool:
        from sandbox.store.reading import find_run

        try:
            return find_run(asked, self._home).parent.name == "runs"
        except StoreError as error:
            if "beginning of" in str(error):
                raise
            return False
