"""The one loop of a run: descriptors, deadlines, ticks and signals, in a single thread.

Everything is an absolute timer or a descriptor in one epoll, which waits without a time-out;
so the thread's timer slack plays no part, and is left alone (a child would inherit it).
"""

from __future__ import annotations

import gc
import heapq
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum

from sandbox.kernel import libc
from sandbox.kernel.libc import SignalInfo

# Given to every poll: without it CPython allocates room for 1023 events each time.
_MOST_EVENTS = 32
# A timerfd is read as an eventfd is (8 bytes, a count), and this call returns an int.
_read_count = os.eventfd_read


class _Rank(IntEnum):
    """What is served first when several descriptors are ready at once.

    A signal explains the end of the child that follows it; an end beats the deadline that it
    just met; and nothing waits for a sample.
    """

    SIGNAL = 0
    EVENT = 1
    DEADLINE = 2
    TICK = 3


class Deadline:
    """A call at a moment; `cancel` takes it back."""

    __slots__ = ("_order", "callback", "deadline_ns")

    def __init__(self, deadline_ns: int, order: int, callback: Callable[[], None]) -> None:
        """Of several at one moment the one of the lowest order comes first."""
        self.deadline_ns = deadline_ns
        self._order = order
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: Deadline) -> bool:
        """Return which comes first in a heap."""
        return (self.deadline_ns, self._order) < (other.deadline_ns, other._order)

    def cancel(self) -> None:
        """Never call; nothing happens if it was called already."""
        self.callback = None


class Ticker:
    """Calls on the grid `start_ns + n * interval_ns`, which no slow call can shift."""

    __slots__ = ("_callback", "_loop", "_unserved", "fd", "interval_ns", "start_ns")

    def __init__(
        self, loop: Loop, start_ns: int, interval_ns: int, callback: Callable[[int], None]
    ) -> None:
        """Arm the timer; `Loop.every` makes these."""
        self._loop = loop
        self._callback = callback
        self._unserved = 0
        self.start_ns = start_ns
        self.interval_ns = interval_ns
        self.fd = libc.timerfd_create()
        self._arm(start_ns + interval_ns)

    def cancel(self) -> None:
        """Stop ticking; again is harmless."""
        self._loop.drop(self)

    def serve(self) -> None:
        """Hand the expirations that wait to the callback."""
        try:
            expirations = _read_count(self.fd)
        except BlockingIOError:
            return  # re-armed since epoll saw it
        if expirations > 1:
            # Late, or stopped: then SIGCONT waits too, and these are a gap, not missed ticks.
            self._unserved = expirations
            self._loop.serve_signals()
            if not self._unserved:
                return
            self._unserved = 0
        self._callback(expirations)

    def skip(self, now_ns: int) -> int:
        """Drop what was missed until `now_ns`; return the time since the last tick served."""
        unserved, self._unserved = self._unserved, 0
        with suppress(BlockingIOError):
            unserved += _read_count(self.fd)
        since_tick_ns = (now_ns - self.start_ns) % self.interval_ns
        self._arm(now_ns - since_tick_ns + self.interval_ns)
        return since_tick_ns + unserved * self.interval_ns

    def _arm(self, first_ns: int) -> None:
        # 0 would disarm the timer; a moment in the past fires at once, as it should.
        libc.timerfd_settime(self.fd, max(first_ns, 1), self.interval_ns)


class Loop:
    """Waits for everything that a run depends on; callbacks run one after the other.

    An exception of a callback leaves `run`. After it, and after `stop`, what was ready and not
    yet served is still ready for the next `run`.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._ranks: dict[int, _Rank] = {}
        self._deadlines: list[Deadline] = []
        self._deadlines_made = 0
        self._deadline_fd = libc.timerfd_create()
        self._armed_ns = 0
        self._tickers: list[Ticker] = []
        self._signals: dict[int, Callable[[SignalInfo], None] | None] = {}
        self._signal_fd: int | None = None
        self._mask_before: set[int] | None = None
        self._on_gap: Callable[[int], None] | None = None
        self._is_stopped = False
        self._watch(self._deadline_fd, select.EPOLLIN, _Rank.DEADLINE, self._serve_deadlines)

    def on_fd(self, fd: int, mask: int, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `fd` is ready for `mask` (EPOLLIN, EPOLLPRI …) or has hung up.

        Level-triggered: as long as it stays ready. The descriptor must not block when read, and
        remains the caller's: `forget` it before closing it.
        """
        self._watch(fd, mask, _Rank.EVENT, callback)

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer; also right inside a callback, also when it was never watched."""
        if self._callbacks.pop(fd, None) is not None:
            with suppress(OSError):  # closed already: epoll has dropped it by itself
                self._epoll.unregister(fd)

    def at(self, deadline_ns: int, callback: Callable[[], None]) -> Deadline:
        """Call `callback` once, at an absolute CLOCK_MONOTONIC time; at once if it has passed.

        Sampling cannot delay it: deadlines have a timer of their own and are served first.
        """
        self._deadlines_made += 1
        deadline = Deadline(deadline_ns, self._deadlines_made, callback)
        heapq.heappush(self._deadlines, deadline)
        self._arm_deadlines()
        return deadline

    def every(
        self, interval_ns: int, callback: Callable[[int], None], start_ns: int | None = None
    ) -> Ticker:
        """Call `callback(expirations)` at `start_ns + n * interval_ns` for n = 1, 2 and so on.

        `expirations` is above 1 when ticks were missed. The grid starts now unless told.
        """
        start = time.monotonic_ns() if start_ns is None else start_ns
        ticker = Ticker(self, start, interval_ns, callback)
        self._tickers.append(ticker)
        self._watch(ticker.fd, select.EPOLLIN, _Rank.TICK, ticker.serve)
        return ticker

    def drop(self, ticker: Ticker) -> None:
        """Forget and close a ticker; again is harmless."""
        if ticker in self._tickers:
            self._tickers.remove(ticker)
            self.forget(ticker.fd)
            os.close(ticker.fd)

    def on_signals(self, signals: Iterable[int], callback: Callable[[SignalInfo], None]) -> None:
        """Block `signals` in this thread and call `callback` for each that comes.

        The mask is inherited: what is forked from here must unblock them before its exec. It is
        as before after `close`, and what came too late for a callback then takes its usual way.
        """
        self._take(dict.fromkeys(map(int, signals), callback))

    def on_gap(self, callback: Callable[[int], None]) -> None:
        """Call `callback(gap_ns)` when this process goes on after it was stopped (^Z, SIGSTOP).

        The gap is counted from the last tick that was served. Its ticks are dropped, not missed,
        and those to come stay on their grid. It is called before any deadline that has passed
        meanwhile, and before SIGCONT's own callback, if there is one.
        """
        self._on_gap = callback
        self._take({int(signal.SIGCONT): self._signals.get(signal.SIGCONT)})

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Serve until `until()` is true, which is asked before each wait, or `stop` is called."""
        self._is_stopped = False
        poll, callbacks = self._epoll.poll, self._callbacks
        with _garbage_collection_off():
            while not self._is_stopped and not until():
                ready = poll(-1, _MOST_EVENTS)
                if len(ready) == 1:  # nearly always, and then there is nothing to put in order
                    callbacks[ready[0][0]]()
                else:
                    self._serve([fd for fd, _ in ready])

    def stop(self) -> None:
        """Make `run` return after the callback that is running."""
        self._is_stopped = True

    def close(self) -> None:
        """Close the loop's own descriptors and restore the signal mask; again is harmless."""
        if self._epoll.closed:
            return
        for ticker in tuple(self._tickers):
            self.drop(ticker)
        self._epoll.close()
        os.close(self._deadline_fd)
        self._callbacks.clear()
        self._deadlines.clear()
        if self._signal_fd is not None:
            os.close(self._signal_fd)
            self._signal_fd = None
        if self._mask_before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
            self._mask_before = None

    def serve_signals(self) -> None:
        """Hand out the signals that wait; a gap comes first."""
        infos = [] if self._signal_fd is None else libc.read_signals(self._signal_fd)
        if any(info.number == signal.SIGCONT for info in infos):
            self._skip_gap()
        for info in infos:
            callback = self._signals[info.number]
            if callback is not None:
                callback(info)

    def _watch(self, fd: int, mask: int, rank: _Rank, callback: Callable[[], None]) -> None:
        self._epoll.register(fd, mask)
        self._callbacks[fd] = callback
        self._ranks[fd] = rank

    def _serve(self, ready: list[int]) -> None:
        waiting = [(fd, self._callbacks[fd]) for fd in sorted(ready, key=self._ranks.__getitem__)]
        for fd, callback in waiting:
            # An earlier callback may have forgotten it, and its number may be another's by now.
            if self._callbacks.get(fd) is callback:
                callback()
                if self._is_stopped:
                    return

    def _serve_deadlines(self) -> None:
        with suppress(BlockingIOError):
            _read_count(self._deadline_fd)
        self._armed_ns = 0
        try:
            while self._deadlines and self._deadlines[0].deadline_ns <= time.monotonic_ns():
                callback = heapq.heappop(self._deadlines).callback
                if callback is not None:
                    callback()
                if self._is_stopped:
                    break
        finally:
            self._arm_deadlines()

    def _arm_deadlines(self) -> None:
        while self._deadlines and self._deadlines[0].callback is None:
            heapq.heappop(self._deadlines)
        first_ns = max(self._deadlines[0].deadline_ns, 1) if self._deadlines else 0
        if first_ns != self._armed_ns:
            libc.timerfd_settime(self._deadline_fd, first_ns)
            self._armed_ns = first_ns

    def _take(self, signals: dict[int, Callable[[SignalInfo], None] | None]) -> None:
        """Block `signals` too; all that are taken are read from one descriptor."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        if self._mask_before is None:
            self._mask_before = {int(number) for number in before}
        self._signals.update(signals)
        if self._signal_fd is not None:
            self.forget(self._signal_fd)
            os.close(self._signal_fd)
        self._signal_fd = libc.signalfd(self._signals)
        self._watch(self._signal_fd, select.EPOLLIN, _Rank.SIGNAL, self.serve_signals)

    def _skip_gap(self) -> None:
        now_ns = time.monotonic_ns()
        gap_ns = min((ticker.skip(now_ns) for ticker in self._tickers), default=0)
        # SIGCONT also comes to a process that was not stopped: then not even one tick was lost.
        shortest_ns = min((ticker.interval_ns for ticker in self._tickers), default=0)
        if self._on_gap is not None and gap_ns > shortest_ns:
            self._on_gap(gap_ns)


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Keep the collector from pausing the loop, which makes no cycles; restore it afterwards."""
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    if not was_frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()
