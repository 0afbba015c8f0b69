# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: who waits for whom changes no bytes.
"""Locks on files and folders that end with their holder, however it ends."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_S = 0.1
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What a file system says that has no locks: whoever works there takes care alone."""


def lock(path: Path, wait_s: float = 0.0) -> int:
    """Lock a folder, or a file (made if there is none); return the descriptor that holds the lock while it is open.

    Args:
        path: what is locked.
        wait_s: how long to wait for another holder (s); math.inf for as long as it takes.

    Raises:
        BlockingIOError: another still holds it then.
        FileNotFoundError: its folder is not there.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _acquire(handle, wait_s)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            os.close(handle)
            raise
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def locked(path: Path, wait_s: float = 0.0) -> Iterator[int]:
    """Hold a lock on `path` meanwhile; yields its descriptor. Arguments and errors are those of `lock`."""
    handle = lock(path, wait_s)
    try:
        yield handle
    finally:
        os.close(handle)


def _acquire(handle: int, wait_s: float) -> None:
    if wait_s == math.inf:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(POLL_S)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
