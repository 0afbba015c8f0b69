# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: what is missing ends a run, and changes none.
"""Libraries that only some commands need, and the extra of `sagecc` (setup.cfg) that brings each."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sagecc.schemas.errors import SageccError


@contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Import libraries of an extra within; raises SageccError, saying what to install, where one does not load."""
    try:
        yield
    except ImportError as error:
        words = " ".join(str(error).split())
        raise SageccError(f"this needs another library ({words}): pip install 'sagecc[{extra}]'") from error


def library(name: str, extra: str) -> Any:
    """Return a library by its import name; raises as `brought_by` does.

    A folder of the same name in the working directory (`datasets`, for one) is no library.
    """
    with brought_by(extra):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return importlib.import_module(name)
