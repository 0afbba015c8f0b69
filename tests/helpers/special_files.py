# SPDX-License-Identifier: Apache-2.0
"""What may stand in a file's place, and whose reading would never end or never fit."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(os.path.relpath(path))  # a socket's path is short


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**42)


PUT: Mapping[str, Callable[[Path], object]] = {
    "is a pipe": os.mkfifo,
    "is a socket": _socket,
    "is a device": lambda path: path.symlink_to("/dev/zero"),
    "is a folder": Path.mkdir,
    "has 4,398,046,511,104 bytes": _sparse,
}
"""By what is said of it, what puts such a thing at a path."""


def put(kind: str, path: Path) -> None:
    """Put such a thing in a file's place."""
    path.unlink(missing_ok=True)
    PUT[kind](path)
