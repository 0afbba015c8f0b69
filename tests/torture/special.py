# SPDX-License-Identifier: Apache-2.0
"""What may stand in a file's place, and is no plain file of sensible size."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

SPARSE_BYTES = 1 << 40

NULL, ZERO, FULL = 3, 5, 7
"""Minor numbers of memory devices."""


def device(path: Path, minor: int) -> None:
    """Make a memory device."""
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))


def listening_socket(path: Path) -> None:
    """Make a socket's file; its path may be longer than a socket's address."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def sparse(path: Path) -> None:
    """Make a file of a terabyte that takes no room."""
    with path.open("wb") as file:
        file.truncate(SPARSE_BYTES)


FILES: Mapping[str, Callable[[Path], object]] = MappingProxyType(
    {
        "a folder": lambda path: path.mkdir(),
        "a pipe": os.mkfifo,
        "a device without end": lambda path: device(path, ZERO),
        "a socket": listening_socket,
        "a terabyte of nothing": sparse,
        "a link to nothing": lambda path: path.symlink_to("nothing"),
        "a link to itself": lambda path: path.symlink_to(path.name),
    }
)
