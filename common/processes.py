# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: it decides when processes end, not what they make.
"""What holds between processes."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Have this process sent a signal when whoever started it ends, even if that is killed (prctl(2)).

    A parent that has ended already sends none: whoever must know compares os.getppid() with what it was.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
