# SPDX-License-Identifier: Apache-2.0
"""Atomic writes, durability and digests of files."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.common.inputs import check_regular, errors_naming
from sagecc.common.locks import POLL_S, hold, is_held

_TEMPORARY_PREFIX = ".tmp-"

FOOTER_BYTES = 2**26
"""Largest footer of a Parquet file that is read."""

READER_S = 5.0
"""How long a pipe's reader is waited for (s)."""


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes `path` on success and is removed on failure.

    A file is replaced by a rename beside it, through symbolic links. Its bytes are synced before the rename, and the
    rename before this returns: a power cut leaves the old file or the new one. Temporary files that killed processes
    left for the same `path` are removed. What is a pipe or a character device gets the bytes in the end.

    Raises:
        SageccError: `path` is a folder, a socket or a block device, or a pipe that nobody reads.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # nor what a symbolic link points to
        mode = stat.S_IFREG
    if stat.S_ISREG(mode):
        with _replacing(path, Path(os.path.realpath(path))) as temporary:
            yield temporary
    elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder, path.name)
            yield temporary
            with errors_naming(path):
                _stream(temporary, path)
    else:
        raise SageccError(f"{path} is a folder, a socket or a disk, which no file can be written to: name another path")


@contextmanager
def _replacing(path: Path, target: Path) -> Iterator[Path]:
    """Yield a temporary file beside `target`, which becomes it; errors name `path`."""
    remove_stale_temporaries(target)
    with errors_naming(path):
        temporary, handle = new_temporary(target, _make_file)
    try:
        with errors_naming(path):
            yield temporary
            sync(temporary)
            temporary.replace(target)
            sync(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _stream(source: Path, target: Path) -> None:
    """Copy a file into a pipe or a character device."""
    deadline = time.monotonic() + READER_S
    while True:
        try:
            handle = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > deadline:
                raise SageccError(f"{target} is a pipe that nobody reads: start its reader first") from None
            time.sleep(POLL_S)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as sink, source.open("rb") as file:
        shutil.copyfileobj(file, sink)


def temporary_path(path: Path) -> Path:
    """Return a path beside `path`, which no one else uses, at which what is to become `path` is written."""
    return path.with_name(f"{_TEMPORARY_PREFIX}{secrets.token_hex(4)}-{path.name}")


def _make_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def new_temporary(path: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Make and lock a temporary file or folder for `path`: while its writer lives, in whatever container, it is locked.

    Args:
        path: what it is to become.
        make: makes it where it is told to, and opens it.

    Returns:
        The path, and the descriptor that holds its lock.
    """
    while True:
        temporary = temporary_path(path)
        handle = make(temporary)
        if hold(handle, temporary):
            return temporary, handle
        os.close(handle)


def stale_temporaries(path: Path) -> list[Path]:
    """Return the temporary files and folders for `path` whose writers have ended: nobody holds their locks."""
    pattern = re.compile(rf"{re.escape(_TEMPORARY_PREFIX)}[0-9a-f]+-{re.escape(path.name)}")
    with suppress(OSError):  # the folder does not exist: the writer will report it
        return [file for file in path.parent.iterdir() if pattern.fullmatch(file.name) and not is_held(file)]
    return []


def remove_stale_temporaries(path: Path) -> None:
    """Remove the temporary files for `path` whose writers have ended."""
    for stale in stale_temporaries(path):
        with suppress(OSError):  # gone meanwhile, or a folder, which is none of a file's
            stale.unlink()


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
        SageccError: it is no regular file, or claims too large a footer.
    """
    check_regular(path)
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        (footer_length,) = struct.unpack("<I", file.read(8)[:4])
        if footer_length > FOOTER_BYTES:
            raise SageccError(f"{path} claims a footer of {footer_length:,} bytes; {FOOTER_BYTES:,} are the most")
        file.seek(max(0, size - 8 - footer_length))
        footer = file.read(footer_length)
    return hashlib.sha256(f"{name} {size} ".encode() + footer).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
