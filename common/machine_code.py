# SPDX-License-Identifier: Apache-2.0
"""How numeric loops are compiled, the pool's and a policy's alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile to machine code that does not hold Python's lock; kept on disk where there is a place to write."""
    try:
        return cast("Function", njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # Numba's: neither beside the source nor in the user's home
        return cast("Function", njit(nogil=True, error_model="numpy")(function))
