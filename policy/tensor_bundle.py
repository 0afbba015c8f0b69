# SPDX-License-Identifier: Apache-2.0
"""The index of a TensorFlow checkpoint: where its variables lie in its data files.

TensorFlow calls the format a tensor bundle (tensorflow/core/util/tensor_bundle). The index is a sorted table of LevelDB
(https://github.com/google/leveldb/blob/main/doc/table_format.md): from a variable's name to a BundleEntryProto
(tensorflow/core/protobuf/tensor_bundle.proto); the empty name has the BundleHeaderProto. Nothing is taken on trust:
each block and each variable has a CRC-32C.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from sagecc.common.machine_code import compiled

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
DTYPES = MappingProxyType({1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64})
"""By TensorFlow's number (tensorflow/core/framework/types.proto) the types that variables of networks have."""

_POLYNOMIAL = 0x82F63B78
_UNCOMPRESSED = 0
_MASK_DELTA = 0xA282EAD8


class BundleError(ValueError):
    """What is read is no tensor bundle, or a damaged one."""


@dataclass(frozen=True)
class Entry:
    """Where a variable lies."""

    dtype: int
    """Its type, by TensorFlow's number; DTYPES has those that are read."""
    shape: tuple[int, ...]
    """Its shape."""
    shard: int
    """Number of its data file."""
    offset: int
    """First byte there."""
    size: int
    """Bytes."""
    crc: int
    """Their masked CRC-32C."""
    whole: bool
    """Whether it lies there in one piece; a partitioned variable does not."""

    def array(self, data: bytes) -> npt.NDArray[np.generic]:
        """Return the variable.

        Args:
            data: its bytes.

        Raises:
            BundleError: They are others, or of a type that is not read.
        """
        if not self.whole or self.dtype not in DTYPES:
            kind = f"of type {self.dtype}" if self.whole else "partitioned"
            raise BundleError(f"is {kind}, which is not read here")
        dtype = np.dtype(DTYPES[self.dtype]).newbyteorder("<")
        if len(data) != self.size or self.size != math.prod(self.shape) * dtype.itemsize:
            raise BundleError(f"has {len(data):,} bytes in place of {math.prod(self.shape) * dtype.itemsize:,}")
        if masked_crc(data) != self.crc:
            raise BundleError("has other bytes than were written (CRC-32C differs)")
        return np.frombuffer(data, dtype).reshape(self.shape)


@dataclass(frozen=True)
class Index:
    """The variables of a checkpoint."""

    shards: int
    """Number of data files."""
    entries: dict[str, Entry]
    """By name."""


def read_index(data: bytes) -> Index:
    """Read the bytes of an index.

    Raises:
        BundleError: They are no index, or damaged.
    """
    if len(data) < FOOTER_BYTES or struct.unpack("<Q", data[-8:])[0] != MAGIC:
        raise BundleError("its index does not end as one does")
    try:
        handles = _varints(data[-FOOTER_BYTES:], 4)
        entries = {}
        shards = 0
        for _, handle in _block(data, handles[2], handles[3]):
            for name, value in _block(data, *_varints(handle, 2)):
                if name:
                    entries[name.decode()] = _entry(value)
                else:
                    shards = _header(value)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise BundleError("its index is cut short or damaged") from error
    if not shards:
        raise BundleError("its index has no header")
    return Index(shards, entries)


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of bytes, masked as LevelDB and TensorFlow store it."""
    crc = _crc(np.frombuffer(data, np.uint8), _TABLE)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _header(data: bytes) -> int:
    """Return how many data files a header announces."""
    fields = dict(_fields(data))
    if fields.get(2, 0):
        raise BundleError("its numbers are big-endian")
    return _whole(fields.get(1, 0))


def _entry(data: bytes) -> Entry:
    numbers: dict[int, int | bytes] = {}
    shape: tuple[int, ...] = ()
    whole = True
    for number, value in _fields(data):
        if number == 2:
            shape = tuple(_size(dimension) for field, dimension in _fields(_bytes(value)) if field == 2)
        elif number == 7:
            whole = False
        else:
            numbers[number] = value
    dtype, shard, offset, size = (_whole(numbers.get(number, 0)) for number in (1, 3, 4, 5))
    (crc,) = struct.unpack("<I", _bytes(numbers.get(6, b"\0\0\0\0")))
    return Entry(dtype, shape, shard, offset, size, crc, whole)


def _size(dimension: int | bytes) -> int:
    return _whole(dict(_fields(_bytes(dimension))).get(1, 0))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer by number."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            length, at = _varint(data, at)
        if length is None or at + length > len(data):
            raise BundleError("its index holds a damaged entry")
        yield tag >> 3, data[at : at + length]
        at += length


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block of the table."""
    block, kind = data[offset : offset + size], data[offset + size]
    (crc,) = struct.unpack("<I", data[offset + size + 1 : offset + size + 5])
    if masked_crc(data[offset : offset + size + 1]) != crc:
        raise BundleError("its index has other bytes than were written (CRC-32C differs)")
    if kind != _UNCOMPRESSED:
        raise BundleError("its index is compressed, which TensorFlow's are not")
    (restarts,) = struct.unpack("<I", block[-4:])
    at, end, key = 0, size - 4 - 4 * restarts, b""
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _varints(data: bytes, count: int) -> list[int]:
    numbers, at = [], 0
    for _ in range(count):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise BundleError("its index holds a number that is too long")


def _whole(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise BundleError("its index holds bytes where a number is expected")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise BundleError("its index holds a number where bytes are expected")
    return value


def _table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ _POLYNOMIAL, table >> 1).astype(np.uint32)
    return table


_TABLE = _table()


@compiled
def _crc(data: npt.NDArray[np.uint8], table: npt.NDArray[np.uint32]) -> int:
    crc = np.uint32(0xFFFFFFFF)
    for byte in data:
        crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return int(crc ^ np.uint32(0xFFFFFFFF))
