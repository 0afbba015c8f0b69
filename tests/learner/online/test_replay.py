# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.learner.online.replay import Layout, Replay, Ring, batch_of

LAYOUT = Layout(rows=2, observations=2, states=1)


def numbered(first: int, count: int, size: int = LAYOUT.size) -> np.ndarray:
    """Records that hold their own position everywhere."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], size, axis=1)


@given(capacity=st.integers(1, 12), writes=st.lists(st.integers(0, 3), max_size=12), index=st.integers(0, 10**6))
def test_a_ring_holds_the_last_records(
    tmp_path_factory: pytest.TempPathFactory, capacity: int, writes: list[int], index: int
) -> None:
    path = tmp_path_factory.mktemp("ring") / "ring.f32"
    ring, written = Ring(path, 3, capacity), 0
    assert ring.places == capacity + ring.spare > capacity
    for count in writes:
        ring.write(written, numbered(written, min(count, ring.places), 3))
        written += min(count, ring.places)
        kept = ring.count(written)
        assert kept == min(written, capacity)
        positions = np.arange(written - kept, written)
        assert (ring.read(positions) == positions[:, None]).all()
    # another process sees the same, and what lies in the spare places does no harm to those that count
    again, checkpoint = Ring(path, 3, capacity), written
    again.write(written, numbered(written, ring.spare, 3))
    positions = np.arange(checkpoint - ring.count(checkpoint), checkpoint)
    assert (ring.read(positions) == positions[:, None]).all()
    assert path.stat().st_size == ring.places * (3 + 1) * 4
    assert again.holds(checkpoint, ring.checksum(checkpoint))


@given(written=st.integers(1, 40), place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_where_it_counts(
    tmp_path_factory: pytest.TempPathFactory, written: int, place: int, bit: int
) -> None:
    """As one is in a run that goes on; one in a spare place does no harm."""
    path = tmp_path_factory.mktemp("ring") / "ring.f32"
    ring = Ring(path, 3, 12)
    for position in range(written):
        ring.write(position, numbered(position, 1, 3))
    known = ring.checksum(written)
    ring.sync()
    data = bytearray(path.read_bytes())
    flipped = place % (ring.places * 3 * 4)
    data[flipped] ^= 1 << bit
    path.write_bytes(data)
    counting = {position % ring.places for position in range(max(0, written - 12), written)}
    assert Ring(path, 3, 12).holds(written, known) == (flipped // 12 not in counting)


def test_another_rings_records_are_not_those(tmp_path: Path) -> None:
    known = []
    for name, first in (("one", 0), ("other", 1)):
        ring = Ring(tmp_path / name, 3, 12)
        ring.write(0, numbered(first, 9, 3))
        known.append(ring.checksum(9))
    assert ring.holds(9, known[1])
    assert not ring.holds(9, known[0])


def test_a_ring_of_another_size_is_refused(tmp_path: Path) -> None:
    Ring(tmp_path / "ring", 3, 10)
    with pytest.raises(SageccError, match="no replay of this run"):
        Ring(tmp_path / "ring", 4, 10)


def test_every_record_that_counts_is_drawn_alike_and_no_other(tmp_path: Path) -> None:
    rings = [Ring(tmp_path / name, LAYOUT.size, 8) for name in "abc"]
    replay = Replay(rings, LAYOUT, seed=1)
    offsets, written = (0, 100, 200), np.array([5, 0, 19])
    for ring, offset, count in zip(rings, offsets, written, strict=True):
        for position in range(count):
            ring.write(position, numbered(offset + position, 1))
    replay.written = written
    assert len(replay) == 5 + 8
    batch = replay.sample(20, 1300)
    assert batch.observations.shape == (20, 2, 1300, 2)
    assert batch.actions.shape == (20, 2, 1300)
    drawn, counts = np.unique(batch.rewards, return_counts=True)
    assert drawn.tolist() == [0, 1, 2, 3, 4, *range(211, 219)]
    expected = batch.rewards.size / 13  # both rows of a record hold its number
    assert (abs(counts - expected) < 6 * np.sqrt(expected * 2)).all()


def test_the_same_state_draws_the_same(tmp_path: Path) -> None:
    replay = Replay([Ring(tmp_path / "a", LAYOUT.size, 50)], LAYOUT, seed=3)
    replay.rings[0].write(0, numbered(0, 50))
    replay.written = np.array([50])
    state = replay.random.bit_generator.state
    first = replay.sample(1, 10)
    second = replay.sample(1, 10)
    replay.random.bit_generator.state = state
    again = replay.sample(1, 10)
    assert np.array_equal(first.rewards, again.rewards)
    assert not np.array_equal(first.rewards, second.rewards)


def test_a_record_is_taken_apart_time_first() -> None:
    records = np.arange(3 * LAYOUT.size, dtype=np.float32).reshape(3, LAYOUT.size)
    batch = batch_of(records, LAYOUT)
    assert batch.observations[:, 1].tolist() == [[10, 11], [15, 16]]  # of the second record: o o s a r, twice
    assert batch.states[:, 1].tolist() == [[12], [17]]
    assert [batch.actions[0, 1], batch.rewards[0, 1]] == [13, 14]
