# SPDX-License-Identifier: Apache-2.0
"""Files from elsewhere: each is a regular file below a limit before a byte of it is read."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from sagecc.common.errors import SageccError

DOCUMENT_BYTES = 16 * 2**20
"""Limit of a document: a card, a configuration, a network, a league's summary."""

_KINDS = MappingProxyType(
    {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
)


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


def check_regular(path: Path, limit_bytes: int | None = None) -> os.stat_result:
    """Refuse what is no regular file, before a library opens it: that could wait for ever, or never end.

    Args:
        path: the file; symbolic links are followed.
        limit_bytes: its largest size; None for any.

    Returns:
        What the system says of it.

    Raises:
        SageccError: it is a folder, pipe, socket or device, or larger.
        OSError: it is missing, or out of reach.
    """
    try:
        status = path.stat()
    except ValueError:  # a zero byte, or half of a character
        raise SageccError(f"no file can have the name {str(path)!r}") from None
    _check(path, status, limit_bytes)
    return status


def read_regular(path: Path, limit_bytes: int = DOCUMENT_BYTES) -> bytes:
    """Return the bytes of a regular file that is not above a limit.

    Args:
        path: the file; symbolic links are followed.
        limit_bytes: its largest size.

    Raises:
        SageccError: it is a folder, pipe, socket or device, or larger.
        OSError: it cannot be opened or read; the error names it.
    """
    check_regular(path, limit_bytes)  # before it is opened, for that alone does something to some devices
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait for a pipe's writer
    with errors_naming(path), os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        _check(path, status, limit_bytes)
        data = file.read(status.st_size + 1)
    if len(data) > status.st_size:
        raise SageccError(f"{path} grew while it was read: wait until it is written")
    return data


def _check(path: Path, found: os.stat_result, limit_bytes: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SageccError(f"{path} is {_KINDS.get(stat.S_IFMT(found.st_mode), 'no file')}, where a file is expected")
    if limit_bytes is not None and found.st_size > limit_bytes:
        raise SageccError(f"{path} has {found.st_size:,} bytes, and at most {limit_bytes:,} are read")
