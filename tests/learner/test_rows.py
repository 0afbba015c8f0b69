# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.learner.rows import (
    BLOCK_BYTES,
    CHECKSUMS_FILE,
    COLUMNS,
    ROW_BYTES,
    ROWS_FILE,
    RowFile,
    RowWriter,
    columns_of,
)


def write(folder: Path, rows: np.ndarray, *parts: int) -> Path:
    with RowWriter(folder) as file:
        for part in np.split(rows, sorted(part for part in parts if part < len(rows))):
            file.write(part)
    return folder / ROWS_FILE


def made_up(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, COLUMNS)).astype(np.float32)


@given(st.integers(1, 80), st.lists(st.integers(0, 80), max_size=4), st.data())
def test_what_was_written_is_read(rows: int, parts: list[int], data: st.DataObject) -> None:
    """In whatever parts; a window twice, for the second is no longer checked."""
    wanted, size = made_up(rows), data.draw(st.integers(1, rows))
    first = data.draw(st.lists(st.integers(0, rows - size), min_size=1, max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), wanted, *parts)
        assert (path.parent / CHECKSUMS_FILE).stat().st_size == -(-rows * ROW_BYTES // BLOCK_BYTES) * 4
        with closing(RowFile(path.parent)) as file:
            for _ in range(2):
                for every in (1, 3):
                    found = file.read(np.array(first), size, every)
                    np.testing.assert_array_equal(found, np.stack([wanted[i : i + size : every] for i in first]))
        for column, found in zip((-2, -1), columns_of(path.parent), strict=True):
            np.testing.assert_array_equal(found, wanted[:, column])


@given(st.integers(0, 60 * ROW_BYTES - 1), st.integers(0, 7), st.integers(0, 50))
def test_a_flipped_bit_is_found_by_who_reads_its_block(place: int, bit: int, first: int) -> None:
    rows, size = made_up(60), 10
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), rows)
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << bit
        path.write_bytes(data)
        begin, end = first * ROW_BYTES, (first + size) * ROW_BYTES
        block = place // BLOCK_BYTES
        with closing(RowFile(path.parent)) as file:
            if begin // BLOCK_BYTES <= block <= (end - 1) // BLOCK_BYTES:
                with pytest.raises(SageccError, match=rf"rows\.f32 is damaged at byte {block * BLOCK_BYTES} .*remove"):
                    file.read(np.array([first]), size)
            else:
                np.testing.assert_array_equal(file.read(np.array([first]), size)[0], rows[first : first + size])


def test_blocks_in_each_others_place_are_damage(tmp_path: Path) -> None:
    path = write(tmp_path, made_up(60))
    data = path.read_bytes()
    path.write_bytes(data[BLOCK_BYTES : 2 * BLOCK_BYTES] + data[:BLOCK_BYTES] + data[2 * BLOCK_BYTES :])
    with closing(RowFile(path.parent)) as file, pytest.raises(SageccError, match="damaged at byte 0 "):
        file.read(np.array([0]), 1)


def test_what_the_disk_cannot_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    path = write(tmp_path, made_up(60))
    monkeypatch.setattr("os.preadv", fail)
    with closing(RowFile(path.parent)) as file, pytest.raises(OSError, match="Input/output error") as caught:
        file.read(np.array([0]), 1)
    assert caught.value.filename == str(path)
