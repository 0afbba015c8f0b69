# SPDX-License-Identifier: Apache-2.0
"""Compilation of numeric loops to machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function to machine code that releases the GIL; cached on disk where a cache folder is writable."""
    try:
        return cast("Function", njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # Numba can write neither beside the source nor in the user's home
        return cast("Function", njit(nogil=True, error_model="numpy")(function))


@contextmanager
def telling_of_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once when something is compiled within, in this process; what the cache has is not."""
    with event.install_listener("numba:compile", _FirstStart(tell)):
        yield


class _FirstStart(event.Listener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: object) -> None:
        tell, self._tell = self._tell, None
        if tell:
            tell()

    def on_end(self, event: object) -> None:
        pass
