# SPDX-License-Identifier: Apache-2.0
"""Folders whose names a reader would take for something else: a pattern, a partition, no text at all."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_SPECIAL = frozenset("*?[\\=")
_DESCRIPTOR = re.compile(r"/proc/self/fd/[0-9]+")


def is_literal(path: str) -> bool:
    """Tell whether DuckDB takes a path for what it says.

    Its `*`, `?` and `[` are wildcards, a backslash separates folders, and `NAME=VALUE` is a partition wherever it
    stands in the path; it reads UTF-8 only.
    """
    return not _SPECIAL & set(path) and not any("\ud800" <= character <= "\udfff" for character in path)


def literal(folder: Path) -> Path:
    """Return a folder's path, or another name of it that `is_literal`.

    The other name is that of a descriptor, `/proc/self/fd/N`, which stays open as long as the process lives: were it
    closed, its number could become another folder's. `spelled_out` turns it back.

    Args:
        folder: an existing folder.

    Raises:
        OSError: the folder cannot be opened.
    """
    if is_literal(str(folder)):
        return folder
    about = folder.stat()
    return Path(f"/proc/self/fd/{_descriptor(folder, about.st_dev, about.st_ino)}")


@cache
def _descriptor(folder: Path, device: int, inode: int) -> int:
    """Open a folder, once for each: `device` and `inode` tell it from an earlier one of its name."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY)


def spelled_out(text: str) -> str:
    """Return a text with what the names of `literal` stand for."""
    return _DESCRIPTOR.sub(lambda match: _target(match[0]), text)


def _target(link: str) -> str:
    try:
        return str(Path(link).readlink())
    except OSError:
        return link
