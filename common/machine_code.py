# SPDX-License-Identifier: Apache-2.0
"""Compilation of numeric loops to machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function to machine code that releases the GIL; cached on disk where a cache folder is writable."""
    try:
        return cast("Function", njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # Numba can write neither beside the source nor in the user's home
        return cast("Function", njit(nogil=True, error_model="numpy")(function))
