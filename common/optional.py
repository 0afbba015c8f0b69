# SPDX-License-Identifier: Apache-2.0
"""Optional libraries, which only some commands need, and the extras of `sagecc` (setup.cfg) that install them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.common.exhaustion import exhausted


@contextmanager
def requires_extra(extra: str) -> Iterator[None]:
    """Import libraries of an extra within this context.

    Args:
        extra: the extra's name.

    Raises:
        SageccError: a library does not load; the message gives the command that installs it.
    """
    try:
        yield
    except ImportError as error:
        if exhausted(error):
            raise
        message = " ".join(str(error).split())
        raise SageccError(f"this needs another library ({message}): {how_to_install(extra)}") from error


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'sagecc[{extra}]'"


def import_library(name: str, extra: str) -> Any:
    """Return an imported library.

    Args:
        name: its import name.
        extra: the extra that installs it.

    Raises:
        SageccError: the library is not installed or does not load.
    """
    with requires_extra(extra):
        if not is_installed(name):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return importlib.import_module(name)


def is_installed(name: str) -> bool:
    """Tell, without importing it, whether a library of that import name is installed.

    A folder of the same name in the working directory (such as `datasets`) does not count.
    """
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None
