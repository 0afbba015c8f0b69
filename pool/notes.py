# SPDX-License-Identifier: Apache-2.0
"""Which version derived a pool's files: notes in a folder of the pool, read before deriving them again.

They are no part of the data, which are the same bytes whatever made them: DVC and checks leave them aside. A note holds
for exactly its files, so that others that took their place (a checkout) do not count as derived by this version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from sagecc.common.files import parquet_digest, write_atomically
from sagecc.common.inputs import read_regular


def write_note(note: Path, files: Iterable[Path], version: str) -> None:
    """Note which version derived a partition's files.

    Args:
        note: the note's path.
        files: the derived Parquet files.
        version: the version of what derived them (common.versions.POOL).
    """
    note.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(note) as temporary:
        temporary.write_text(_text(files, version))


def is_noted(note: Path, files: Iterable[Path], version: str) -> bool:
    """Tell whether a note says that this version derived exactly these files, as they are now."""
    try:
        return read_regular(note).decode() == _text(files, version)
    except (OSError, ValueError, struct.error):
        return False


def _text(files: Iterable[Path], version: str) -> str:
    return f"{version}\n" + "".join(f"{parquet_digest(path, path.name)}  {path.name}\n" for path in sorted(files))
