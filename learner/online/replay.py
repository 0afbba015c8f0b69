# SPDX-License-Identifier: Apache-2.0
"""Replay: fixed-size records in a preallocated file, a ring, written by one process and sampled by another.

The file is mapped into memory, so it is as fast as memory where it fits there; in a folder of a memory file system it
is nothing but memory. A ring has more places than records that count: what is written after a checkpoint goes to the
spare ones, so that all records of the checkpoint's ring are still there when a killed run goes on from it. Each place
has a CRC-32 behind the records, and the checkpoint one of those, so that a run goes on with what it had, and no other.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.learner.core import Batch

SPARE_SHARE = 0.25
"""Spare places, as a share of the records that count."""


class Layout(NamedTuple):
    """What a record holds: `rows` consecutive decisions of one agent."""

    rows: int
    """Decisions T; a record holds T - 1 transitions."""
    observations: int
    """Numbers D in an observation."""
    states: int
    """Numbers G in a global state."""

    @property
    def row(self) -> int:
        """Numbers of one decision: observation, state, action, and the reward after it."""
        return self.observations + self.states + 2

    @property
    def size(self) -> int:
        """Numbers of a record."""
        return self.rows * self.row


def batch_of(records: Floats, layout: Layout) -> Batch:
    """Take records [..., size] apart; what leads stays in front of T. The last row's action is unknown, and 0."""
    shaped = records.reshape(*records.shape[:-1], layout.rows, layout.row)
    x = np.moveaxis(shaped, -2, -3)
    d, g = layout.observations, layout.states
    actions = x[..., d + g]
    return Batch(x[..., :d], actions, x[..., d + g + 1], x[..., d : d + g], *(np.ones_like(actions),) * 2)


class Ring:
    """The last `capacity` records written.

    Positions count all records ever written; record p is at place p % places.
    """

    def __init__(self, path: Path, record: int, capacity: int) -> None:
        """Open the file, or make it, zeros.

        Args:
            path: the file.
            record: numbers in a record.
            capacity: records that count.

        Raises:
            SageccError: There is a file of another size.
        """
        self.capacity, self.spare = capacity, max(1, int(capacity * SPARE_SHARE))
        self.path, self.places = path, capacity + self.spare
        size = self.places * (record + 1) * 4
        path.touch()
        with path.open("r+b") as file:
            found = file.seek(0, 2)
            if found not in (0, size):
                raise SageccError(f"{path} is no replay of this run ({found} bytes, not {size}): remove it")
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._data = np.frombuffer(self._map, np.float32, self.places * record).reshape(self.places, record)
        self._checksums = np.frombuffer(self._map, np.uint32, offset=self._data.nbytes)

    def write(self, position: int, records: Floats) -> None:
        """Write records [N, record] from a position on; N is at most the number of places."""
        places = (position + np.arange(len(records))) % self.places
        self._data[places] = records
        self._checksums[places] = self._computed(places)

    def read(self, positions: Ints) -> Floats:
        """Return the records [..., record] at positions [...], which have been written and still count."""
        records: Floats = self._data[positions % self.places]
        return records

    def count(self, written: int) -> int:
        """Return how many records count after so many were written."""
        return min(written, self.capacity)

    def checksum(self, written: int) -> int:
        """Return the checksum of the records that count after so many were written."""
        return zlib.crc32(self._checksums[self._counting(written)].data)

    def holds(self, written: int, checksum: int) -> bool:
        """Tell whether the records that count after so many were written are those of that checksum."""
        return zlib.crc32(self._computed(self._counting(written)).data) == checksum

    def _counting(self, written: int) -> Ints:
        return np.arange(written - self.count(written), written) % self.places

    def _computed(self, places: Ints) -> npt.NDArray[np.uint32]:
        return np.array([zlib.crc32(self._data[place].data) for place in places.tolist()], np.uint32)

    def sync(self) -> None:
        """Flush what was written to the disk."""
        self._map.flush()


class Replay:
    """The rings of all actors, as the learner samples them.

    Args:
        rings: one for each actor process.
        layout: what a record holds.
        seed: seed of the sampling.
    """

    def __init__(self, rings: Sequence[Ring], layout: Layout, seed: int) -> None:
        self.rings, self.layout = tuple(rings), layout
        self.written = np.zeros(len(rings), np.int64)
        """Records that each ring has got, as far as the learner knows: what it samples from."""
        self.random = np.random.default_rng(seed)
        """The source of the samples; its state is a checkpoint's."""

    def __len__(self) -> int:
        """Return the number of records that count."""
        return sum(ring.count(int(n)) for ring, n in zip(self.rings, self.written, strict=True))

    def sample(self, batches: int, size: int) -> Batch:
        """Draw records, each with the same probability at each draw.

        Args:
            batches: number of batches K.
            size: records in each.

        Returns:
            K batches, in front of T: observations [K, T, B, D] and so on.
        """
        counts = np.array([ring.count(int(n)) for ring, n in zip(self.rings, self.written, strict=True)])
        drawn = self.random.integers(counts.sum(), size=(batches, size))
        records = np.empty((batches, size, self.layout.size), np.float32)
        first = 0
        for ring, written, count in zip(self.rings, self.written, counts, strict=True):
            mine = (drawn >= first) & (drawn < first + count)
            records[mine] = ring.read(written - count + drawn[mine] - first)
            first += count
        return batch_of(records, self.layout)
