# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of TensorFlow, read without it: what was written comes back, and no damage passes."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.policy.tensor_bundle import BundleError, masked_crc, read_index
from sagecc.policy.tensorflow_checkpoint import read
from tests.helpers.sage_model import PUBLISHED
from tests.helpers.tensor_bundle import block, entry, field, save_bundle, table

VALUES: dict[str, npt.NDArray[Any]] = {
    "policy/w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "policy/wide": np.linspace(0, 1, 300, dtype=np.float64),
    "step": np.array(2**40, np.int64),
    "signature": np.array(20230806, np.int32),
}
HEADER = (b"", field(1, 1))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bundle(tmp_path_factory.mktemp("bundle") / "ckpt-1", VALUES)


def index_of(prefix: Path) -> bytes:
    return prefix.with_name(f"{prefix.name}.index").read_bytes()


def test_the_checksum_is_crc_32c() -> None:
    """RFC 3720, appendix B.4, whose check value is masked as LevelDB does."""
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_variables_come_back_with_type_shape_and_bytes(prefix: Path) -> None:
    found = read(prefix, lambda name: True)
    assert found.keys() == VALUES.keys()
    for name, value in VALUES.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)
    assert read(prefix, lambda name: name.startswith("policy/")).keys() == {"policy/w", "policy/wide"}


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_of_an_index_changes_what_is_read(prefix: Path, at: int, bit: int) -> None:
    data = bytearray(index_of(prefix))
    place = at % len(data)
    data[place] ^= 1 << bit
    try:
        index = read_index(bytes(data))
    except BundleError:
        return
    assert index == read_index(index_of(prefix))


@given(st.integers(0, 10_000))
def test_no_part_of_an_index_passes(prefix: Path, count: int) -> None:
    data = index_of(prefix)
    with pytest.raises(BundleError):
        read_index(data[: count % len(data)])


@given(st.binary(max_size=200))
def test_whatever_a_block_holds_it_is_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(BundleError):
        assert read_index(table([HEADER, (b"w", content)])).entries.keys() == {"w"}


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([(b"w", entry(1, (1,), 0, bytes(4)))], "has no header"),
        ([(b"", field(1, 1) + field(2, 1))], "big-endian"),
        ([HEADER, (b"w", field(1, b"float"))], "bytes where a number"),
        ([HEADER, (b"w", field(2, 3))], "number where bytes"),
        ([HEADER, (b"w", b"\x12\x7f")], "damaged entry"),
        ([HEADER, (b"w", b"\x08" + b"\xff" * 11)], "too long"),
        ([HEADER, (b"\xff", b"")], "cut short or damaged"),
    ],
)
def test_a_strange_index_is_refused(items: list[tuple[bytes, bytes]], reason: str) -> None:
    with pytest.raises(BundleError, match=reason):
        read_index(table(items))


def test_a_compressed_block_is_refused() -> None:
    data = bytearray(table([HEADER]))
    length = len(block([HEADER])) - 5
    data[length] = 1
    data[length + 1 : length + 5] = struct.pack("<I", masked_crc(bytes(data[: length + 1])))
    with pytest.raises(BundleError, match="compressed"):
        read_index(bytes(data))


def refused(prefix: Path, message: str) -> None:
    with pytest.raises(SageccError, match=message) as found:
        read(prefix, lambda name: True)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("of_entry", "message"),
    [
        (entry(14, (1,), 0, bytes(4)), "'w' is of type 14"),
        (entry(1, (1,), 0, bytes(4)) + field(7, b""), "'w' is partitioned"),
        (entry(1, (2,), 0, bytes(4)), "'w' has 4 bytes in place of 8"),
        (entry(1, (1,), 2, bytes(4)), "ends before 'w'"),
        (entry(1, (1,), 0, b"abcd"), r"'w' has other bytes than were written \(CRC-32C differs\)"),
        (field(3, 1) + entry(1, (1,), 0, bytes(4)), "data a.data-00001-of-00001 is not: fetch it again"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(tmp_path: Path, of_entry: bytes, message: str) -> None:
    (tmp_path / "a.index").write_bytes(table([HEADER, (b"w", of_entry)]))
    (tmp_path / "a.data-00000-of-00001").write_bytes(bytes(4))
    refused(tmp_path / "a", message)


@pytest.mark.skipif(
    not list(PUBLISHED.glob("*.index")), reason=f"no index of Sage's at {PUBLISHED} (SAGECC_SAGE names it)"
)
def test_the_published_index_is_of_the_signed_model() -> None:
    (path,) = PUBLISHED.glob("*.index")
    index = read_index(path.read_bytes())
    assert index.shards == 1
    signature = index.entries["signature/.ATTRIBUTES/VARIABLE_VALUE"]
    assert signature.crc == masked_crc(struct.pack("<i", 20230806))  # rl_module/test_loading_sage_model.py
