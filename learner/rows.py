# SPDX-License-Identifier: Apache-2.0
"""A compiled pool's rows on disk and the checksums of their blocks, so that no damaged row is learned from.

Actions and rewards lie in files of their own too: a window wants each of them, and of observations a few. A block is
the least that a disk reads: to check those of a window costs no other read. Each is checked when it is read for the
first time, which takes seconds in all for a pool of many gigabytes, whatever the number of windows.
"""

from __future__ import annotations

import os
import zlib
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.inputs import errors_naming
from sagecc.schemas.pool import FEATURE_NAMES

COLUMNS = len(FEATURE_NAMES) + 2
ROW_BYTES = 4 * COLUMNS

ROWS_FILE, CHECKSUMS_FILE = "rows.f32", "rows.crc32"
"""Row-major float32 [N, 71], and the CRC-32 of each of its blocks, uint32; both little-endian."""

ACTIONS_FILE, REWARDS_FILE = "actions.f32", "rewards.f32"
"""The last two columns of the rows, float32 [N] each."""

BYTES_EACH = ROW_BYTES + 8
"""What a row takes in all three files."""

BLOCK_BYTES = 4096


class RowWriter:
    """Writes the rows, their checksums, actions and rewards; use it as a context manager.

    Args:
        folder: where to write them.
    """

    def __init__(self, folder: Path) -> None:
        names = (ROWS_FILE, CHECKSUMS_FILE, ACTIONS_FILE, REWARDS_FILE)
        self._rows, self._checksums, *self._columns = (folder.joinpath(name).open("wb") for name in names)
        self._rest = b""

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with ExitStack() as files:
            for file in (self._rows, self._checksums, *self._columns):
                files.enter_context(file)
            self._add_checksums(self._rest)

    def write(self, rows: Floats) -> None:
        """Append rows [n, 71]."""
        for file, column in zip(self._columns, rows[:, -2:].T, strict=True):
            file.write(column.tobytes())
        data = rows.tobytes()
        self._rows.write(data)
        data = self._rest + data
        whole = len(data) - len(data) % BLOCK_BYTES
        self._add_checksums(data[:whole])
        self._rest = data[whole:]

    def _add_checksums(self, data: bytes) -> None:
        self._checksums.write(np.array(_checksums(memoryview(data)), "<u4").tobytes())


class RowFile:
    """The rows that RowWriter wrote, read at random places without read-ahead; safe for several threads."""

    def __init__(self, folder: Path) -> None:
        """Open the file.

        Args:
            folder: where it and its checksums are.

        Raises:
            OSError: One of them cannot be opened.
        """
        self._path = folder / ROWS_FILE
        self._checksums = np.fromfile(folder / CHECKSUMS_FILE, "<u4").data
        self._checked = bytearray(len(self._checksums))
        self._handle = os.open(self._path, os.O_RDONLY)
        self._size = os.fstat(self._handle).st_size
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_RANDOM)

    def announce(self, first: npt.NDArray[np.int64], rows: int) -> None:
        """Ask the disk for windows all at once, without waiting, so that `read` finds them in memory or being read.

        Args:
            first: first row of each window.
            rows: rows per window.
        """
        for offset in (first * ROW_BYTES).tolist():
            os.posix_fadvise(self._handle, offset, rows * ROW_BYTES, os.POSIX_FADV_WILLNEED)

    def read(self, first: npt.NDArray[np.int64], rows: int, every: int = 1) -> Floats:
        """Read windows.

        Args:
            first: first row of each window.
            rows: rows per window.
            every: which of them are wanted: the first and each so many rows further.

        Returns:
            The windows, float32 [len(first), ceil(rows / every), 71].

        Raises:
            SageccError: The file is shorter than that, or damaged there.
        """
        windows = np.empty((len(first), -(-rows // every), COLUMNS), np.float32)
        whole = np.empty((rows, COLUMNS), np.float32)
        with errors_naming(self._path):
            for window, begin in zip(windows, (first * ROW_BYTES).tolist(), strict=True):
                data = (window if every == 1 else whole).data.cast("B")
                block, end = begin // BLOCK_BYTES, -(-(begin + len(data)) // BLOCK_BYTES)
                if self._checked.find(0, block, end) < 0:
                    self._read(data, begin)
                else:
                    data[:] = self._read_checked(block, end)[begin - block * BLOCK_BYTES :][: len(data)]
                if every > 1:
                    window[:] = whole[::every]
        return windows

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _read_checked(self, block: int, end: int) -> memoryview:
        """Return the blocks from `block` to before `end` after checking them."""
        offset = block * BLOCK_BYTES
        data = np.empty(min(end * BLOCK_BYTES, self._size) - offset, np.uint8).data
        self._read(data, offset)
        found, stated = _checksums(data), self._checksums[block:end].tolist()
        if found != stated:
            damaged = next(i for i, (a, b) in enumerate(zip(found, stated, strict=False)) if a != b)
            raise SageccError(
                f"{self._path} is damaged at byte {offset + damaged * BLOCK_BYTES} or up to {BLOCK_BYTES} after it: "
                "remove its folder, it is made again from the pool"
            )
        self._checked[block:end] = bytes([1]) * (end - block)
        return data

    def _read(self, data: memoryview, offset: int) -> None:
        """Fill `data` from a place of the file."""
        while data:
            count = os.preadv(self._handle, [data], offset)
            if not count:
                raise SageccError(f"{self._path} was truncated: remove its folder, it is made again from the pool")
            data, offset = data[count:], offset + count


def columns_of(folder: Path) -> tuple[Floats, Floats]:
    """Return the actions and rewards of all rows, float32 [N] each, read when they are looked at."""
    actions, rewards = (np.asarray(np.memmap(folder / name, "<f4", "r")) for name in (ACTIONS_FILE, REWARDS_FILE))
    return actions, rewards


def _checksums(data: memoryview) -> list[int]:
    return [zlib.crc32(data[begin : begin + BLOCK_BYTES]) for begin in range(0, len(data), BLOCK_BYTES)]
