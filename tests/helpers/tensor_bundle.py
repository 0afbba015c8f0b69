# SPDX-License-Identifier: Apache-2.0
"""Writes TensorFlow checkpoints without TensorFlow: a data file, and an index of one block."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.policy.tensor_bundle import DTYPES, MAGIC, masked_crc

Values = Mapping[str, npt.NDArray[Any]]

NUMBERS = {np.dtype(dtype): number for number, dtype in DTYPES.items()}


def save_bundle(prefix: Path, values: Values) -> Path:
    """Write `prefix`.index and its data file; return the prefix."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    data, items = b"", [(b"", b"\x08\x01\x1a\x02\x08\x01")]  # one shard, little-endian, version 1
    for name, value in sorted(values.items()):
        content = np.ascontiguousarray(value).tobytes()
        items.append((name.encode(), entry(NUMBERS[value.dtype], value.shape, len(data), content)))
        data += content
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(items))
    return prefix


def entry(dtype: int, shape: tuple[int, ...], offset: int, content: bytes) -> bytes:
    dimensions = b"".join(field(2, field(1, size)) for size in shape)
    crc = b"\x35" + struct.pack("<I", masked_crc(content))
    return field(1, dtype) + field(2, dimensions) + field(4, offset) + field(5, len(content)) + crc


def table(items: list[tuple[bytes, bytes]]) -> bytes:
    """Return a sorted table of keys and values."""
    first = block(items)
    handle = varint(0) + varint(len(first) - 5)
    meta, index = block([]), block([(items[-1][0], handle)])
    ends = len(first), len(first) + len(meta)
    handles = varint(ends[0]) + varint(len(meta) - 5) + varint(ends[1]) + varint(len(index) - 5)
    return first + meta + index + handles.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def block(items: list[tuple[bytes, bytes]]) -> bytes:
    """Return a block with its type and CRC; each key shares with the one before what it can."""
    body, before = b"", b""
    for key, value in items:
        shared = next(
            (i for i, (a, b) in enumerate(zip(before, key, strict=False)) if a != b), min(len(before), len(key))
        )
        body += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    body += struct.pack("<II", 0, 1) + b"\0"  # one restart, at 0; not compressed
    return body + struct.pack("<I", masked_crc(body))


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    text = b""
    while number >= 0x80:
        text, number = text + bytes([number & 0x7F | 0x80]), number >> 7
    return text + bytes([number])
