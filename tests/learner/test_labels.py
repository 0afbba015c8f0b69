# SPDX-License-Identifier: Apache-2.0
"""Actions of the lab's are no labels: from a pool with kicks to what algorithms learn of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sagecc.learner.compiled import KICKS_FILE, compile_pool
from sagecc.learner.core import Batch
from sagecc.learner.data import WindowSampler
from sagecc.policy.scaling import Scaling
from sagecc.schemas.partitions import partition
from sagecc.schemas.pool import FEATURE_NAMES, IS_KICKED
from tests.helpers import specifications
from tests.helpers.specifications import pool_batch, spec
from tests.learner.conftest import episode, write_part

AS_IS = Scaling("none", np.zeros(len(FEATURE_NAMES), np.float32), np.ones(len(FEATURE_NAMES), np.float32), 0.0)
KICKED = (30, 31, 77)
"""Rows of the second episode."""


def kicked(table: pa.Table, rows: tuple[int, ...] = ()) -> pa.Table:
    return table.append_column(IS_KICKED.name, pa.array(np.isin(np.arange(len(table)), rows)))


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    write_part(tmp_path / "pool" / partition("I", "cubic") / "part-000.parquet", [episode("a", 100, 0)])
    tables = [kicked(episode("b", 120, 1), KICKED), kicked(episode("c", 90, 2))]
    write_part(tmp_path / "pool" / partition("I", "cubic+kicks") / "part-000.parquet", tables)
    return tmp_path / "pool"


def test_a_compiled_pool_knows_its_kicks(pool: Path, tmp_path: Path) -> None:
    compiled = compile_pool(pool, tmp_path / "cache")
    assert compiled.kicks.tolist() == [100 + row for row in KICKED]
    assert compile_pool(pool, tmp_path / "cache").kicks.tolist() == compiled.kicks.tolist()


def test_a_plain_pool_has_no_file_of_kicks(tmp_path: Path) -> None:
    write_part(tmp_path / "pool" / partition("I", "cubic") / "part-000.parquet", [episode("a", 100, 0)])
    compiled = compile_pool(tmp_path / "pool", tmp_path / "cache")
    assert not len(compiled.kicks)
    assert not (compiled.folder / KICKS_FILE).exists()


@pytest.mark.parametrize("period", [1, 5])
def test_a_decision_with_a_kick_in_it_is_no_label(pool: Path, tmp_path: Path, period: int) -> None:
    compiled = compile_pool(pool, tmp_path / "cache")
    with WindowSampler(compiled, AS_IS, 200, 8, seed=0, period=period) as sampler:
        first, (*_, labels) = sampler.first_rows(0), sampler.batch(0)
    rows = first[None, :, None] + period * np.arange(8)[:, None, None] + np.arange(period)
    np.testing.assert_array_equal(labels == 0, np.isin(rows, compiled.kicks).any(axis=-1))
    assert 0 < (labels == 0).sum() < labels.size / 10


@pytest.mark.parametrize("name", ["crr", "iql"])
def test_what_is_no_label_moves_no_weight(name: str) -> None:
    """The losses are those of the other transitions, whatever stands there."""
    tf = pytest.importorskip("tensorflow")
    from sagecc.learner.core import Setting

    config = spec({**specifications.SMALLEST, "algorithm": {"name": name, "policy_rate": 1e-3, "critic_rate": 1e-3}})
    setting = Setting(config.network, 5, 0, 0, 6, 10, 0, (-1.0, 1.0))
    learner: Any = config.algorithm.learner(setting)
    random = np.random.default_rng(0)
    shape = (6, 4)
    arrays = (random.normal(size=(*shape, 5)), random.normal(size=shape) * 0.1, random.normal(size=shape))
    plain = pool_batch(*(tf.constant(x, tf.float32) for x in arrays))
    labels = np.ones(shape, np.float32)
    labels[-2] = 0  # the last transition, whose action no recurrent critic has seen before another
    masked, other = (
        plain._replace(labels=tf.constant(labels), rewards=tf.constant(arrays[2] + shift * (1 - labels), tf.float32))
        for shift in (0.0, 100.0)
    )

    def losses(batch: Batch) -> tuple[float, float]:
        found = learner.losses(batch, tf.constant([0, 0], tf.int64)) if name == "crr" else learner.losses(batch)
        return float(found.critic), float(found.policy)

    assert losses(masked)[0] == pytest.approx(losses(other)[0])
    assert losses(masked)[0] != pytest.approx(losses(plain)[0])
    assert losses(masked)[1] != pytest.approx(losses(plain)[1])


def test_sums_of_rewards_end_before_a_kick() -> None:
    tf = pytest.importorskip("tensorflow")
    from sagecc.learner.algorithms.crr import labelled_spans

    labels = tf.constant([1.0, 1, 1, 0, 1, 1])[:, None]
    assert labelled_spans(labels, 1)[:, 0].numpy().tolist() == [1, 1, 1, 0, 1, 1]
    assert labelled_spans(labels, 3)[:, 0].numpy().tolist() == [1, 0, 0, 0, 1, 1]
