# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from sagecc.learner.signals import HeldSignals
from tests.helpers.processes import sighup, sigint


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    with sigint():
        yield


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    signal.sigpending()  # Python runs handlers between two of its instructions


def test_the_first_is_noted_and_obeyed_when_asked_the_second_at_once() -> None:
    with HeldSignals() as held:
        send(signal.SIGINT)
        assert held.noted == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        held.obey()
    with pytest.raises(KeyboardInterrupt), HeldSignals():
        send(signal.SIGINT)
        send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with HeldSignals() as held:
        send(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        held.obey()
    assert ended.value.code == 143


def test_a_closed_terminal_is_noted_and_what_it_brings_does_not_hurry() -> None:
    with sighup(), HeldSignals() as held:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            send(number)
        assert held.noted == signal.SIGHUP
        with pytest.raises(SystemExit) as ended:
            held.obey()
        assert ended.value.code == 129
        with pytest.raises(KeyboardInterrupt):  # who is in a hurry says so twice
            send(signal.SIGINT)
            send(signal.SIGINT)


def test_released_they_are_obeyed_at_once() -> None:
    with HeldSignals() as held:
        with pytest.raises(KeyboardInterrupt), held.released():
            send(signal.SIGINT)
        assert held.noted is None
        send(signal.SIGINT)
        assert held.noted == signal.SIGINT
        entered = False
        with pytest.raises(KeyboardInterrupt), held.released():
            entered = True
        assert not entered


def test_an_ignored_signal_stays_ignored() -> None:
    with sigint(ignored=True), sighup(ignored=True), HeldSignals() as held:
        send(signal.SIGINT)
        send(signal.SIGHUP)
        assert held.noted is None


def test_other_threads_take_no_signals() -> None:
    def enter() -> None:
        with HeldSignals():
            handlers.append(signal.getsignal(signal.SIGTERM))

    handlers: list[object] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]
