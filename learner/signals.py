# SPDX-License-Identifier: Apache-2.0
"""SIGTERM (a scheduler's or a stopped DVC's) and SIGINT (Ctrl-C), held back until a step is whole."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT)


class HeldSignals:
    """While entered, the first of STOPPING is only noted; the second is obeyed at once, as before it was entered.

    Threads other than the main one cannot take signals: there it does nothing. A signal that the process ignores
    (SIGINT under nohup) stays ignored.
    """

    def __init__(self) -> None:
        self.noted: int | None = None
        self._before: dict[int, Callable[..., Any] | int] = {}

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                handler = signal.getsignal(number) or signal.SIG_DFL
                if handler != signal.SIG_IGN:
                    self._before[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Obey signals at once meanwhile, the noted one first."""
        self._restore()
        self.obey()
        try:
            yield
        finally:
            self.__enter__()

    def obey(self) -> None:
        """End the process, by an exception, as the noted signal would have: KeyboardInterrupt, or exit code 143.

        Handlers are not asked: one that gives the process some seconds to clean up, wherever it was interrupted, is
        for those it interrupts, and TensorFlow on a busy machine takes longer to go.
        """
        if self.noted == signal.SIGINT:
            raise KeyboardInterrupt
        if self.noted is not None:
            sys.exit(128 + self.noted)

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted is not None:
            self._restore()
            signal.raise_signal(number)
        self.noted = number
