# SPDX-License-Identifier: Apache-2.0
"""SIGTERM (a scheduler's), SIGINT (Ctrl-C) and SIGHUP (a closed terminal's), held back until a step is whole."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class HeldSignals:
    """Holds STOPPING back while entered: the first signal is only noted, the same again has its usual effect at once.

    SIGHUP never has, for a closed terminal may bring several, and SIGTERM by who dies of it. Threads other than the
    main one cannot take signals: in those it does nothing. A signal that the process ignores (SIGHUP under nohup) stays
    ignored.
    """

    def __init__(self) -> None:
        self.noted: int | None = None
        """The number of the signal that was noted first; None before."""
        self._seen: set[int] = set()
        self._before: dict[int, Callable[..., Any] | int] = {}

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                handler = signal.getsignal(number) or signal.SIG_DFL
                if handler != signal.SIG_IGN:
                    self._before[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let signals have their usual effect meanwhile, the noted one first."""
        self._restore()
        self.obey()
        try:
            yield
        finally:
            self.__enter__()

    def obey(self) -> None:
        """End the process by an exception, as the noted signal would have; do nothing if none was noted.

        Handlers are not called: one that limits the time for cleaning up is meant for code that it interrupts, and
        TensorFlow on a busy machine takes longer to end.

        Raises:
            KeyboardInterrupt: SIGINT was noted.
            SystemExit: SIGTERM or SIGHUP was noted (exit code 143 or 129).
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
        if number in self._seen and number != signal.SIGHUP:
            self._restore()
            signal.raise_signal(number)
        self._seen.add(number)
        self.noted = self.noted or number
