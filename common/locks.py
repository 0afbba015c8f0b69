# SPDX-License-Identifier: Apache-2.0
"""Locks on files and folders; the kernel releases them when their holder ends, even if it is killed.

A folder is locked itself, so that no file of a lock lies in what is hashed. Programs that the holder starts do not
inherit its locks. On a file system that machines share, a folder's lock is one machine's.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sagecc.common.errors import SageccError

POLL_S = 0.1
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of a file system without locks: there, users must not run two writers at once."""

_LOCKS = Path("/proc/locks")


@contextmanager
def sole_writer(*folders: Path) -> Iterator[None]:
    """Hold the locks of the folders that a command writes, in a fixed order.

    They are made where there are none; what was made and is empty in the end is removed.

    Raises:
        SageccError: another command holds one.
    """
    with ExitStack() as locks:
        for folder in sorted({folder.resolve(): folder for folder in folders}.values(), key=Path.resolve):
            locks.enter_context(_writing(folder))
        yield


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        handle = lock_folder(folder)
    except BlockingIOError:
        raise SageccError(
            f"{folder}: another sagecc command writes there{_holder(folder)}; wait for it or end it"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in new_folders:
                path.rmdir()
        os.close(handle)


@contextmanager
def in_turn(path: Path, told: str) -> Iterator[None]:
    """Hold the lock of a file or an existing folder; while another process does, say so on stderr and wait.

    Args:
        path: the file or folder; a file is made where there is none.
        told: what to say.
    """
    try:
        handle = lock(path)
    except BlockingIOError:
        print(told, file=sys.stderr, flush=True)
        handle = lock(path, math.inf)
    try:
        yield
    finally:
        os.close(handle)


def lock_folder(folder: Path) -> int:
    """Lock a folder, which is made where there is none, whoever removes or replaces it meanwhile.

    Returns:
        The descriptor that holds the lock as long as it is open.

    Raises:
        BlockingIOError: another process holds the lock.
        SageccError: a file stands there.
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise SageccError(f"{folder} is no folder: name another one, or move it away") from None
        with suppress(FileNotFoundError):  # it was removed since
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _acquire(handle, 0)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), folder.stat()):
                    return handle
            os.close(handle)


def lock(path: Path, wait_s: float = 0.0) -> int:
    """Lock an existing folder, or a file, which is made if it does not exist.

    Args:
        path: the folder or file.
        wait_s: how long to wait for another holder (s); math.inf to wait forever.

    Returns:
        The descriptor that holds the lock as long as it is open.

    Raises:
        BlockingIOError: another process still holds the lock after `wait_s`.
        FileNotFoundError: the file's folder does not exist.
    """
    kind = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    handle = os.open(path, kind | os.O_CLOEXEC, 0o644)
    _acquire(handle, wait_s)
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
    """Lock a descriptor, which is closed if that fails; where there are no locks, do nothing."""
    try:
        _flock(handle, wait_s)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            os.close(handle)
            raise
    except BaseException:
        os.close(handle)
        raise


def _flock(handle: int, wait_s: float) -> None:
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


def _holder(folder: Path) -> str:
    """Return in parentheses which process holds a folder's lock; nothing where the kernel does not tell."""
    with suppress(OSError):
        status = folder.stat()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in _LOCKS.read_text().splitlines():
            _, kind, _, _, process, where, *_ = line.split()
            if (kind, where) == ("FLOCK", place) and int(process) > 0:
                return f" (process {process})"
    return ""
