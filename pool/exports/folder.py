# SPDX-License-Identifier: Apache-2.0
"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.common.files import new_temporary, stale_temporaries, sync
from sagecc.common.marks import remove_leftover


@contextmanager
def write_folder_atomically(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path` to write to; name it `path` on success, remove it on failure.

    What a killed run left beside `path` is removed.

    Raises:
        SageccError: `path` exists already.
    """
    refuse_existing(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in stale_temporaries(path):
        remove_leftover(leftover)
    temporary, handle = new_temporary(path, _make_folder)
    try:
        yield temporary
        for written in (*temporary.rglob("*"), temporary):
            sync(written)
        refuse_existing(path)
        temporary.rename(path)
        sync(path.parent)
    except BaseException:
        remove_leftover(temporary)
        raise
    finally:
        os.close(handle)


def _make_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def refuse_existing(path: Path) -> None:
    """Raise SageccError if `path` exists."""
    if path.exists() or path.is_symlink():
        raise SageccError(f"{path} is there already: choose another path, or remove it first")
