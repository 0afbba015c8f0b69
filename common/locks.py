# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: who waits for whom changes no bytes.
"""Locks on files and folders; the kernel releases them when their holder ends, even if it is killed."""

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
"""Errors of a file system without locks: there, users must not run two writers at once."""


def lock(path: Path, wait_s: float = 0.0) -> int:
    """Lock a folder, or a file, which is made if it does not exist.

    Args:
        path: the folder or file.
        wait_s: how long to wait for another holder (s); math.inf to wait forever.

    Returns:
        The descriptor that holds the lock as long as it is open.

    Raises:
        BlockingIOError: another process still holds the lock after `wait_s`.
        FileNotFoundError: the file's folder does not exist.
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
    """Hold a lock on `path` and yield its descriptor; arguments and errors are those of `lock`."""
    handle = lock(path, wait_s)
    try:
        yield handle
    finally:
        os.close(handle)


def hold(handle: int, path: Path) -> bool:
    """Lock a file or folder that has just been made; return whether it is still the one at `path`."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def is_held(path: Path) -> bool:
    """Tell whether a process may hold a lock on a file or folder; never certain where there are no locks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def _acquire(handle: int, wait_s: float) -> None:
    if wait_s == math.inf:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(POLL_S)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
