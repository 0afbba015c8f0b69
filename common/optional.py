# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: what is missing ends a run, and changes none.
"""Libraries that only some commands need, and the extra of `sagecc` (setup.cfg) that brings each."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sagecc.common.errors import SageccError


@contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Import libraries of an extra within; raises SageccError, saying what to install, where one does not load."""
    try:
        yield
    except ImportError as error:
        words = " ".join(str(error).split())
        raise SageccError(f"this needs another library ({words}): {how_to_install(extra)}") from error


def how_to_install(extra: str) -> str:
    """Return the command that brings an extra."""
    return f"pip install 'sagecc[{extra}]'"


def library(name: str, extra: str) -> Any:
    """Return a library by its import name; raises as `brought_by` does."""
    with brought_by(extra):
        if not is_installed(name):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return importlib.import_module(name)


def is_installed(name: str) -> bool:
    """Tell, without importing it, whether there is a library of that import name.

    A folder of the same name in the working directory (`datasets`, for one) is none.
    """
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None
