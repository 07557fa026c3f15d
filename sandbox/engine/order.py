"""One run in its order: check, create, apply, launch, sample, wait, read, remove."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sandbox.engine.capture import Stdio, open_capture
from sandbox.engine.limits import mark_defaults, refuse_unenforced, supervised_limits
from sandbox.engine.mailbox import Mailbox
from sandbox.engine.network import RunNetwork
from sandbox.engine.starting import preload, refuse_if_stopped, start_child
from sandbox.engine.watch import Watch, watched_signals
from sandbox.environment.host import prepare
from sandbox.errors import LaunchError, SandboxError
from sandbox.kernel.backend import Backend, open_backend
from sandbox.kernel.check import check
from sandbox.kernel.host import has_energy_counters, read_host, read_load
from sandbox.kernel.libc import SignalInfo
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.kernel.signals import SignalState
from sandbox.records.codec import fields_of, to_plain
from sandbox.records.light import dataclass, field, replace
from sandbox.records.observed import Observed
from sandbox.records.program import control_name, mark_name
from sandbox.records.result import Event, Outcome, RunResult, RunWarning
from sandbox.records.sample import TIME
from sandbox.sampling.clock import monotonic, utc_ns
from sandbox.sampling.loop import Loop
from sandbox.sampling.sampler import Sampler
from sandbox.spec import RunSpec
from sandbox.store.directory import new_run_id, open_directory
from sandbox.store.home import find_home

if TYPE_CHECKING:
    from sandbox.engine.control import Control
    from sandbox.engine.live_limits import LiveLimits
    from sandbox.engine.phases import Phases, PhasesBeside
    from sandbox.kernel.launcher import Child
    from sandbox.kernel.scope import Scope
    from sandbox.sampling.energy import EnergyMeter


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a run takes from around it; tests pass their own."""

    roots: Roots = field(default_factory=Roots)
    home: Path | None = None
    """Where run directories are; None finds it as the command line does."""
    stop_fd: int | None = None
    """Readable or hung up when the caller wants the run to end."""
    signals: SignalState | None = None
    """The signals that the program is to find blocked and ignored; None: as we find them."""
    stdio: Stdio | None = None
    """The program's, which stay the caller's; None: what `spec.capture` says."""
    keep_descriptors: bool = True
    """Whether the program inherits what we were started with, such as a shell's `<(…)`."""
    on_copy: Callable[[int | None, int], None] | None = None
    """Told how many entries and bytes of a root were copied; None: it is done."""
    on_started: Callable[[RunResult], None] | None = None
    """Called once the program runs."""
    on_signal: Callable[[int], None] = lambda _number: None
    """Told of each signal that we take, while it is on its way to the program."""
    conclude: Callable[[RunResult], None] = lambda _result: None
    """Called with the whole result before the run directory is unlocked."""
    open_backend: Callable[..., Backend] = open_backend


def run(spec: RunSpec, surroundings: Surroundings | None = None) -> RunResult:
    """Run one command to its end and return all that is known of it.

    Raises:
        SandboxError: nothing was started, and nothing is left behind.
    """
    with _Run(spec, surroundings or Surroundings()) as one:
        one.survey()
        one.open_record()
        one.make_group()
        child = one.pause_child()
        observed = one.release_and_watch(child)
        return one.finish(observed)


class _Run:
    """The state between the steps; whatever a step has made is undone if a later one fails."""

    def __init__(self, spec: RunSpec, around: Surroundings) -> None:
        self.spec, self.around = spec, around
        self.undo = ExitStack()
        self.watch: Watch | None = None
        self.phases: Phases | None = None
        self.control: Control | None = None
        self.energy: EnergyMeter | None = None

    def __enter__(self) -> Self:
        self.undo.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self.undo.close()

    def survey(self) -> None:
        """Look at the host and refuse what it cannot give, before anything is made."""
        self.signals = self.around.signals or SignalState.capture()
        self.loop = Loop()
        self.undo.callback(self.loop.close)
        # From here on a signal waits until the loop serves it: none can cut a step in two.
        self.loop.on_signals(watched_signals(), self._signal)
        self.place = find_place(self.around.roots)
        self.host = read_host(self.around.roots, self.place)
        self.limits = self.spec.limits.with_defaults()
        self.run_id = new_run_id()
        self.advice = check(self.limits, self.host)
        self.home = self.around.home or find_home()
        self.prepared = prepare(self.spec, self.host, self.run_id, self.home)
        self.undo.callback(self.prepared.let_go)
        self.spec = self.prepared.spec or self.spec

    def open_record(self) -> None:
        """Claim the name and make the run directory, or a stand-in where none can be written."""
        spec, stdio = self.spec, self.around.stdio
        self.directory = open_directory(self.home, self.run_id, spec.name, must_last=spec.detach)
        self.undo.callback(self.directory.close)
        self.discard = self.undo.enter_context(ExitStack())
        self.discard.callback(self.directory.discard)
        self.capturing = open_capture(spec, self.directory, self.loop, self._signal, stdio)
        self.undo.callback(self.capturing.close_files)

    def make_group(self) -> None:
        """Start the guard, then make the group and set its limits."""
        scope = self._ask_for_scope() if self.place.needs_scope else None
        self.network = RunNetwork(self.prepared.program, self.run_id)
        self.backend = self.around.open_backend(
            self.place,
            self.around.roots,
            self.run_id,
            oom_group=not self.spec.oom_continue,
            signals=self.signals,
            keep_descriptors=self.around.keep_descriptors,
            scope=scope,
            connect=self.network.connect,
        )
        self.group = self.backend.group
        self.undo.callback(self.group.close)
        self.directory.write_groups(self.group.directories)
        self.undo.callback(self._start_guard())
        self.undo.callback(self.network.close)
        self.undo.callback(self.group.remove)
        self.group.create()
        self.reports = (
            *mark_defaults(self.spec.limits, self.group.apply(self.limits)),
            *self.prepared.reports,
            *supervised_limits(self.limits),
        )
        if self.spec.strict:
            refuse_unenforced(self.reports, self.prepared.protections)

    def _start_guard(self) -> Callable[[], None]:
        """Start the guard; a run in a root of its own has a directory that goes with it."""
        path = None
        if self.prepared.program.has_own_root:
            from sandbox.engine.scratch import make_scratch

            self.prepared, path = make_scratch(self.prepared, self.directory.path, self.undo)
        return self.backend.start_guard(path, self.network.lease)

    def _ask_for_scope(self) -> Scope | None:
        """Have systemd make the place that `survey` has only found; without one, do without."""
        from sandbox.kernel.scope import open_scope

        self.place, scope = open_scope(self.place, self.around.roots, self.run_id, preload)
        if scope is not None:
            self.undo.callback(scope.close)
        self.host = replace(
            self.host,
            mode=self.place.mode,
            mode_reason=self.place.reason,
            controllers=self.place.controllers,
        )
        return scope

    def pause_child(self) -> Child:
        """Put a paused child into the group and take the baseline."""
        self.killing = self.undo.enter_context(ExitStack())
        self.killing.callback(self.group.kill)
        adapt = self.capturing.adapt
        child, self.prepared = start_child(self.backend, self.prepared, adapt, self.around)
        self.undo.callback(child.abandon)
        self.capturing.start()
        self.group.start()
        self.reader = self.network.open_reader(child.pid, self.backend)
        self.undo.callback(self.reader.close)
        sink = self.directory.open_sink(
            (TIME, *self.reader.fast_columns), (TIME, *self.reader.slow_columns)
        )
        self.sink = sink
        self.sampler = Sampler(self.reader, sink, monotonic, self.spec.interval_ns)
        return child

    def release_and_watch(self, child: Child) -> Observed:
        """Let the program go and stay with it until its tree may be swept away."""
        self.result = self._first_result()
        self.directory.write_run(fields_of(self.result))
        self.load_before = read_load(self.around.roots)
        refuse_if_stopped()
        self._listen()
        self._start_energy()
        self.sampler.first()
        self.result = replace(self.result, started_ns=monotonic(), started_utc_ns=utc_ns())
        try:
            child.release()
        except LaunchError as error:
            self._keep_failed_start(error)
            raise
        self.discard.pop_all()
        if self.around.on_started is not None:
            self.around.on_started(self.result)
        self.watch = Watch(
            loop=self.loop,
            group=self.group,
            child=child,
            sampler=self.sampler,
            spec=self.spec,
            cpus=self._most_cpus(),
            emit=self._emit,
            started_ns=self.result.started_ns,
            stop_fd=self.around.stop_fd,
        )
        return self.watch.run()

    def finish(self, observed: Observed) -> RunResult:
        """Sweep the tree away, read the totals, remove the group and conclude."""
        self.marks.take_last()
        self.requests.take_last()
        self.sampler.last()
        if self.energy is not None:
            self.energy.read()
        leftovers = len(self.group.pids())
        self.group.kill()
        self.killing.pop_all()  # once is enough: who is not inside cannot get there any more
        self.capturing.finish()
        if self.watch is not None:
            observed = self.watch.add_late_oom_kills(observed)
        observed = replace(observed, leftover_processes=leftovers)
        totals = self.network.finish(self.group.totals())
        unavailable = self.result.unavailable | dict(self.group.unavailable)
        if self.energy is not None:
            totals = self.energy.add_to(totals)
            unavailable |= self.energy.unavailable
        phases = () if self.phases is None else self.phases.finish(totals, observed.ended_ns)
        overhead = self.sampler.overhead()
        self.sink.close()
        from sandbox.engine.conclude import conclude

        result = conclude(
            replace(
                self.result,
                totals=totals,
                phases=phases,
                overhead=overhead,
                unavailable=self.network.correct(unavailable | self.prepared.unavailable),
            ),
            observed,
            self.directory.blocks(),
            sampled_peaks=self.sampler.peaks(),
            loads=(self.load_before, read_load(self.around.roots)),
        )
        told = (*self.advice, *self.prepared.warnings)
        result = replace(result, warnings=(*told, *result.warnings, *self._problems()))
        self._emit("ended", {"outcome": result.outcome.value})
        self.directory.write_run(fields_of(result))
        self.around.conclude(result)
        return result

    def _start_energy(self) -> None:
        """Count the machine's energy, where it has counters: then only is the module worth it."""
        if has_energy_counters(self.around.roots):
            from sandbox.sampling.energy import EnergyMeter

            self.energy = EnergyMeter.start(self.around.roots, self.loop)
            self.undo.callback(self.energy.close)

    def _listen(self) -> None:
        """Take marks and requests from now on."""
        self.marks = Mailbox(
            self.loop, mark_name(self.run_id), self._make_phases, self.network.open_mailbox
        )
        self.undo.callback(self.marks.close)
        self.requests = Mailbox(self.loop, control_name(self.run_id), self._make_control)
        self.undo.callback(self.requests.close)

    def _make_phases(self, fd: int) -> Phases | PhasesBeside:
        from sandbox.engine.phases import Phases

        if self.phases is not None:
            return self.phases.beside(fd)
        user = self.prepared.program.user
        self.phases = Phases(
            fd=fd,
            group=self.group,
            sampler=self.sampler,
            energy=self.energy,
            network=self.network,
            emit=self._emit,
            started_ns=self.result.started_ns,
            uids={0, os.geteuid(), *(user[:1] if user is not None else ())},
        )
        return self.phases

    def _make_control(self, fd: int) -> Control:
        from sandbox.engine.control import Control
        from sandbox.engine.live_limits import LiveLimits

        live = LiveLimits(self.group, self.host, self.spec.limits, self.reports)
        self.control = Control(
            fd=fd,
            watch=self._watch(),
            group=self.group,
            limits=live,
            emit=self._emit,
            changed=lambda: self._change_limits(live),
        )
        return self.control

    def _change_limits(self, live: LiveLimits) -> None:
        """Have the record and the watch go by the limits that hold now."""
        self.limits, self.reports = live.asked.with_defaults(), live.reports
        spec = {**self.result.spec, "limits": to_plain(live.asked)}
        self.result = replace(self.result, limits=self.reports, spec=spec)
        self._watch().change_cpus(self._most_cpus())
        self.directory.write_run(fields_of(self.result))

    def _most_cpus(self) -> float:
        """Return how many CPUs the run can burn at once."""
        allowed = len(self.host.cpus_allowed)
        return min(self.limits.cpus or allowed, allowed)

    def _watch(self) -> Watch:
        if self.watch is None:
            raise SandboxError("the program was not started yet")
        return self.watch

    def _first_result(self) -> RunResult:
        from sandbox import __version__

        return RunResult(
            run_id=self.run_id,
            name=self.directory.name,
            command=self.spec.command,
            spec=self.spec.public(),
            host=self.host,
            limits=self.reports,
            outcome=Outcome.RUNNING,
            exit_code=None,
            started_utc_ns=utc_ns(),
            started_ns=monotonic(),
            unavailable=self.network.correct({**self.host.unavailable, **self.group.unavailable}),
            root=self.prepared.root_made,
            protections=self.prepared.protections,
            thread_hints=self.prepared.thread_hints,
            ports=self.network.ports,
            groups=tuple(map(str, self.group.directories)),
            directory=None if self.directory.path is None else str(self.directory.path),
            versions={
                "sandbox": __version__,
                "python": sys.version.split()[0],
                "kernel": self.host.kernel,
            },
        )

    def _keep_failed_start(self, error: LaunchError) -> None:
        """Keep the record of a program that could not be executed: a detached one has no other."""
        from sandbox.engine.conclude import not_started

        self.discard.pop_all()
        self.directory.write_run(fields_of(not_started(self.result, error)))

    def _signal(self, info: SignalInfo) -> None:
        self.around.on_signal(info.number)
        if self.watch is not None:
            self.capturing.heed(info.number)
            self.watch.signal(info)

    def _emit(self, kind: str, detail: dict[str, Any]) -> None:
        event = Event(time_ns=monotonic(), utc_ns=utc_ns(), kind=kind, detail=detail)
        self.directory.append_event(event)

    def _problems(self) -> tuple[RunWarning, ...]:
        texts = [*self.capturing.problems, *self.directory.problems()]
        if self.sampler.problem is not None:
            texts.append(self.sampler.problem)
        warnings = (RunWarning(code="record", text=text) for text in texts)
        asked = (part.problems() for part in (self.phases, self.control, self.network) if part)
        return (*warnings, *(warning for problems in asked for warning in problems))
