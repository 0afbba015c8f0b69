# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BESIDE = ".tmp-"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError that names no file (pyarrow's do not) the file's name."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        number = error.errno or errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; rename it over `path` on success, remove it on failure.

    The file's bytes reach the disk before its name does, and both before this ends: a power cut leaves the old one or
    the new one, and what was written stays written. What killed processes were writing in its place is removed.
    """
    for left in left_beside(path):
        left.unlink(missing_ok=True)
    beside = beside_of(path)
    try:
        with naming(path):
            yield beside
            sync(beside)
            beside.replace(path)
            sync(path.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def beside_of(path: Path) -> Path:
    """Return where this process writes what is to become `path`."""
    return path.with_name(f"{_BESIDE}{os.getpid()}-{path.name}")


def left_beside(path: Path) -> list[Path]:
    """Return what processes that have ended left beside `path`, where they wrote what was to become it."""
    form = re.compile(rf"{re.escape(_BESIDE)}(\d+)-{re.escape(path.name)}")
    with suppress(OSError):  # there is no such folder: the writer will say so
        found = {each: match for each in path.parent.iterdir() if (match := form.fullmatch(each.name))}
        return [each for each, match in found.items() if not Path("/proc", match[1]).exists()]
    return []


def sync(path: Path) -> None:
    """Make a written file's bytes durable, or a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise
    finally:
        os.close(handle)


def parquet_digest(path: Path, name: str) -> str:
    """Return a digest of a Parquet file's name, length and footer, which tells two apart without reading them whole.

    Raises OSError or struct.error where the file cannot be read or is cut short.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        (footer_length,) = struct.unpack("<I", file.read(8)[:4])
        file.seek(max(0, size - 8 - footer_length))
        footer = file.read(footer_length)
    return hashlib.sha256(f"{name} {size} ".encode() + footer).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
