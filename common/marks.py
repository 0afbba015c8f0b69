# SPDX-License-Identifier: Apache-2.0
"""The rule on what a command may remove or replace: only what carries its own mark.

A mark is what shows that a command wrote a folder: the names of its files, and a proof in one of them. Folders of one's
own under the name of an option are refused, whatever is in them. All removal of folders goes through here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.common.parquet import parquet_metadata
from sagecc.common.tables import UNREADABLE, is_damage, reading_error

LEFTOVER = re.compile(r"\.(tmp|old)-.+")
"""Names that commands give to what they have not finished; nothing else is called so."""

_UNFINISHED = ".sagecc-unfinished"
"""In a folder whose files are being written, before any of them can prove anything."""


@dataclass(frozen=True)
class Mark:
    """What shows that a command wrote a folder."""

    what: str
    """What such a folder holds, such as "a policy"."""

    names: str
    """Regular expression of the names in it that the command writes, files and folders."""

    proves: Callable[[Path], bool]
    """Tells whether a folder's content proves that the command wrote it; called where it has such names."""

    def remove(self, folder: Path) -> None:
        """Remove a folder and all in it; nothing is done where it does not exist.

        Raises:
            SageccError: it holds anything else; it stays as it is.
        """
        self.check_whole(folder)
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def remove_own(self, folder: Path) -> None:
        """Remove what the command wrote into a folder, and the folder where nothing else is in it.

        Raises:
            SageccError: as `check`.
        """
        self.clear(folder)
        with suppress(OSError):  # it does not exist, or holds something else
            (folder / _UNFINISHED).unlink(missing_ok=True)
            folder.rmdir()

    def clear(self, folder: Path) -> None:
        """Remove what the command wrote into a folder, which stays.

        Raises:
            SageccError: as `check`.
        """
        for name in self.check(folder):
            if re.fullmatch(self.names, name):
                (folder / name).unlink()

    def check_whole(self, folder: Path) -> None:
        """Raise SageccError unless a folder is missing, or holds what the command wrote and nothing else."""
        names = self.check(folder)
        others = [name for name in names if not re.fullmatch(self.names, name)]
        if others:
            raise SageccError(f"{folder / min(others)} is no part of {self.what}: move it away, its folder is replaced")

    def check(self, folder: Path) -> list[str]:
        """Raise SageccError where files that the command would replace are not its own; others may stand there.

        Returns:
            The names in the folder.
        """
        names = _entries(folder)
        own = [name for name in names if re.fullmatch(self.names, name)]
        if own and not (folder / _UNFINISHED).is_file() and not self.proves(folder):
            raise SageccError(
                f"{folder / min(own)} stands where {self.what} would be written, and is none: name another folder, or "
                "move it away"
            )
        return names

    @contextmanager
    def filling(self, folder: Path) -> Iterator[None]:
        """Make a folder, and write its files within: what is killed then may be replaced by the next.

        Raises:
            SageccError: as `check`.
        """
        self.check(folder)
        folder.mkdir(parents=True, exist_ok=True)
        note = folder / _UNFINISHED
        note.touch()
        yield
        note.unlink(missing_ok=True)  # one that is called within has removed it, after its proof


def parquet_mark(what: str, names: str, key: bytes) -> Mark:
    """Return the mark of a folder whose Parquet files carry a key in their metadata.

    Args:
        what: as Mark's.
        names: as Mark's.
        key: the key, which one file at least must have.
    """
    return Mark(what, names, lambda folder: carries(folder, key))


def carries(folder: Path, key: bytes) -> bool:
    """Tell whether one of a folder's Parquet files has a key in its metadata; damaged files prove nothing.

    Raises:
        SageccError: a file cannot be read, for a reason that is not the file's.
    """
    for path in sorted(folder.glob("*.parquet")):
        try:
            if key in (parquet_metadata(path)):
                return True
        except UNREADABLE as error:
            if not is_damage(error):
                raise reading_error(path, error, "") from error
    return False


def remove_leftover(folder: Path) -> None:
    """Remove a folder that a command has not finished, by its name; nothing is done where it does not exist."""
    if not LEFTOVER.fullmatch(folder.name):
        raise ValueError(f"{folder} is not named as a leftover")
    shutil.rmtree(folder, ignore_errors=True)


def _entries(folder: Path) -> list[str]:
    """Return the names in a folder, less those of leftovers; raises SageccError where it is a file."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise SageccError(f"{folder} is a file, not a folder: name another one, or move it away") from None
    return [name for name in names if not LEFTOVER.fullmatch(name) and name != _UNFINISHED]
