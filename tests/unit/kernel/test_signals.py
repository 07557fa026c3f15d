"""What a program inherits of signals, and that our own state comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from sandbox.kernel.signals import SignalState, keep_exit_statuses


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCHLD)
    }
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_state_is_what_is_blocked_and_ignored_but_for_pythons_own_habits() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGRTMAX})

    state = SignalState.capture()

    assert signal.SIGUSR1 in state.ignored
    assert {signal.SIGUSR2, signal.SIGRTMAX} <= state.blocked
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    assert signal.SIGPIPE not in state.ignored


def test_around_a_fork_everything_is_as_the_program_needs_it_and_afterwards_as_before() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    state = SignalState.capture()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    handler = lambda *_: None  # noqa: E731 - it is compared by identity below
    signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    with state.during_fork():
        inside = {
            number: signal.getsignal(number)
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE)
        }
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert inside == {
        signal.SIGHUP: signal.SIG_IGN,
        signal.SIGUSR1: signal.SIG_DFL,
        signal.SIGUSR2: signal.SIG_DFL,
        signal.SIGPIPE: signal.SIG_DFL,
    }
    assert blocked >= signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask


def test_the_state_comes_back_after_an_error_too() -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    with pytest.raises(OSError, match="no fork"), SignalState.capture().during_fork():
        raise OSError("no fork")

    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


def test_statuses_of_children_are_kept() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    keep_exit_statuses()

    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
