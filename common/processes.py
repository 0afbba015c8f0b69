# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: it decides when processes end, not what they make.
"""Relations between processes."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel to send this process a signal when its parent ends, even if that is killed (prctl(2)).

    If the parent has ended before this call, no signal comes: compare os.getppid() with the expected parent.

    Args:
        number: the signal.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
