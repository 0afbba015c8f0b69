# SPDX-License-Identifier: Apache-2.0
"""Arrays on disk as safetensors, with the digest of all that a file holds: that format itself has no checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

Tensors = Mapping[str, npt.NDArray[Any]]

DAMAGED = (SafetensorError, ValueError, KeyError, TypeError)
"""What `unpack`, and the use of what it returns, raises over a damaged file."""

_DIGEST = "sha256"


def pack(tensors: Tensors, about: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return a file of arrays by name, and of what is said about them."""
    data: bytes = save(dict(tensors), {**about, _DIGEST: _digest(tensors, about)})
    return data


def unpack(data: bytes) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Return the arrays and what is said about them; of files with nothing but arrays, as they once were, the arrays.

    Raises:
        SafetensorError: It is no such file.
        ValueError: Its digest does not hold.
    """
    tensors: dict[str, npt.NDArray[Any]] = load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about: dict[str, str] = header.get("__metadata__", {})
    if about and about.pop(_DIGEST, "") != _digest(tensors, about):
        raise ValueError("its digest does not hold")
    return tensors, about


def not_finite(tensors: Tensors) -> str | None:
    """Return the name of an array with values that are not finite; None where there is none."""
    return next(
        (
            name
            for name, value in tensors.items()
            if np.issubdtype(value.dtype, np.inexact) and not np.isfinite(value).all()
        ),
        None,
    )


def _digest(tensors: Tensors, about: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()
