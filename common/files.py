# SPDX-License-Identifier: Apache-2.0
"""Atomic writes, durability and digests of files."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TEMPORARY_PREFIX = ".tmp-"


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Name `path` in an OSError raised within that names no file (pyarrow's do not)."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        number = error.errno or errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; rename it to `path` on success, remove it on failure.

    The file's bytes are synced before the rename, and the rename before this returns: a power cut leaves the old file
    or the new one. Temporary files that killed processes left for the same `path` are removed.
    """
    for stale in stale_temporaries(path):
        stale.unlink(missing_ok=True)
    temporary = temporary_path(path)
    try:
        with errors_naming(path):
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_path(path: Path) -> Path:
    """Return the temporary path at which this process writes what is to become `path`."""
    return path.with_name(f"{_TEMPORARY_PREFIX}{os.getpid()}-{path.name}")


def stale_temporaries(path: Path) -> list[Path]:
    """Return the temporary files for `path` whose processes have ended."""
    pattern = re.compile(rf"{re.escape(_TEMPORARY_PREFIX)}(\d+)-{re.escape(path.name)}")
    with suppress(OSError):  # the folder does not exist: the writer will report it
        matches = {file: match for file in path.parent.iterdir() if (match := pattern.fullmatch(file.name))}
        return [file for file, match in matches.items() if not Path("/proc", match[1]).exists()]
    return []


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise
    finally:
        os.close(handle)


def parquet_digest(path: Path, name: str) -> str:
    """Return a digest that distinguishes Parquet files without reading them whole.

    Args:
        path: the file.
        name: the name under which it counts.

    Returns:
        SHA-256 of its name, length and footer, in hex.

    Raises:
        OSError: the file cannot be read.
        struct.error: the file is truncated.
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
