"""The phases of a run: at each mark the counters are read, and the peaks begin anew.

Whoever is in the run may send marks, so a letter is read with distrust: it is short, its sender is
known to the kernel, and after enough of them nobody listens any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sandbox.analysis.phases import phase_totals
from sandbox.engine.mailbox import Letter, answer, receive
from sandbox.engine.network import RunNetwork
from sandbox.environment.marks import LONGEST_NAME_BYTES, TAKEN
from sandbox.errors import SandboxError
from sandbox.kernel.group import Group
from sandbox.records.light import dataclass
from sandbox.records.result import Phase, RunWarning, Split, Totals
from sandbox.sampling.clock import Clock, monotonic
from sandbox.sampling.energy import EnergyMeter
from sandbox.sampling.sampler import Peak, Sampler

FIRST = "start"
"""What comes before the first mark."""
MOST_PHASES = 1_000
_MOST_LETTERS = 4 * MOST_PHASES  # refused ones are counted too
_LETTERS_AT_ONCE = 16

TOO_MANY = f"a run has at most {MOST_PHASES} phases"
_NOT_OURS = "only the run itself, its user and root may mark it"


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """A phase that goes on."""

    name: str
    started_ns: int
    before: Totals | None
    """What the run had used when the phase began; None at the run's own start."""


@dataclass(frozen=True)
class PhasesBeside:
    """Takes marks at another place than the first."""

    serve: Callable[[], bool]
    """Take those that wait; return whether more of them will be taken."""


class Phases:
    """Takes the marks of one run and keeps what each phase has used."""

    def __init__(  # noqa: PLR0913 - all that a phase is made of
        self,
        *,
        fd: int,
        group: Group,
        sampler: Sampler,
        energy: EnergyMeter | None,
        network: RunNetwork | None = None,
        emit: Callable[[str, dict[str, Any]], None],
        started_ns: int,
        uids: Collection[int],
        clock: Clock = monotonic,
    ) -> None:
        """Begin with the phase before the first mark.

        `fd` receives the marks and remains the caller's; `uids` may mark from anywhere.
        """
        self._fd = fd
        self._group = group
        self._sampler = sampler
        self._energy = energy
        self._network = network
        self._emit = emit
        self._run_started_ns = started_ns
        self._uids = frozenset(uids)
        self._clock = clock
        self._letters = 0
        self._is_full = False
        self._ended: list[Phase] = []
        self._now = _Begun(name=FIRST, started_ns=started_ns, before=None)

    def serve(self) -> bool:
        """Take the marks that wait; return whether more of them will be taken."""
        return self._serve_at(self._fd)

    def beside(self, fd: int) -> PhasesBeside:
        """Return what takes marks for the same phases at another place."""
        return PhasesBeside(lambda: self._serve_at(fd))

    def _serve_at(self, fd: int) -> bool:
        for _ in range(_LETTERS_AT_ONCE):
            letter = receive(fd, LONGEST_NAME_BYTES)
            if letter is None:
                break
            self._letters += 1
            answer(fd, letter, self._take(letter).encode())
        return not self._is_full and self._letters < _MOST_LETTERS

    def _take(self, letter: Letter) -> str:
        """Begin a phase; return the answer."""
        if letter.uid not in self._uids and letter.pid not in self._group.pids():
            return _NOT_OURS
        name = clean_name(letter.data)
        if not name:
            return "a phase needs a name"
        if len(self._ended) + 1 >= MOST_PHASES:
            self._is_full = True
            return TOO_MANY
        try:
            self.begin(name)
        except SandboxError as error:  # the group is gone: the run is about to end
            return str(error)
        return TAKEN

    def begin(self, name: str) -> None:
        """End the phase that goes on and begin another.

        Raises:
            KernelError: the counters cannot be read.
        """
        self._sampler.read_now()
        split = self._group.split()
        now_ns = self._clock()
        self._read_energy()
        totals = self._with_energy(self._with_network(split.totals))
        self._end(totals, split, self._sampler.split_peaks(), now_ns)
        self._now = _Begun(name=name, started_ns=now_ns, before=totals)
        since_start_ns = now_ns - self._run_started_ns
        self._emit(
            "mark", {"name": name, "phase": len(self._ended), "since_start_ns": since_start_ns}
        )

    def _read_energy(self) -> None:
        if self._energy is not None:
            self._energy.read()

    def _with_network(self, totals: Totals) -> Totals:
        return totals if self._network is None else self._network.add_to(totals)

    def _with_energy(self, totals: Totals) -> Totals:
        return totals if self._energy is None else self._energy.add_to(totals)

    def _end(
        self, totals: Totals, split: Split, sampled: Mapping[str, Peak], ended_ns: int
    ) -> None:
        self._ended.append(
            Phase(
                name=self._now.name,
                started_ns=self._now.started_ns,
                wall_ns=max(0, ended_ns - self._now.started_ns),
                totals=phase_totals(
                    self._now.before,
                    totals,
                    peaks=(split.memory_peak_bytes, split.swap_peak_bytes),
                    sampled={column: peak.value for column, peak in sampled.items()},
                ),
            )
        )

    def finish(self, totals: Totals, ended_ns: int) -> tuple[Phase, ...]:
        """Return all phases of a run that has ended; none if none was marked.

        `totals` are those of the run, with its energy and its network.
        """
        if not self._ended:
            return ()
        try:
            last = self._group.split()
        except SandboxError:  # samples stand in for the peaks of the last phase
            last = Split(totals=totals)
        self._end(totals, last, self._sampler.split_peaks(), ended_ns)
        return tuple(self._ended)

    def problems(self) -> tuple[RunWarning, ...]:
        """Return what a reader of the phases should know."""
        if not self._is_full:
            return ()
        return (
            RunWarning(
                code="too_many_marks",
                text=f"marks were refused: {TOO_MANY}",
                hint="mark what is compared, not every step",
            ),
        )


def clean_name(data: bytes) -> str:
    """Return a phase's name of what was sent: one printable line."""
    text = data[:LONGEST_NAME_BYTES].decode("utf-8", "replace").strip()
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
