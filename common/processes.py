# SPDX-License-Identifier: Apache-2.0
"""Relations between processes."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel to send this process a signal when its parent ends, even if that is killed (prctl(2)).

    If the parent has ended before this call, no signal comes: compare os.getppid() with the expected parent.

    Args:
        number: the signal.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


@contextmanager
def starting_python(variables: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Give processes that are started within environment variables, and a safe path if they are Python.

    multiprocessing starts `python -c`, which looks for every module, Python's own too, in the working directory first.

    Args:
        variables: the environment variables.
    """
    environment = {"PYTHONSAFEPATH": "1", **variables}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
