# SPDX-License-Identifier: Apache-2.0
"""Actions of the lab's are no labels: from a pool with kicks to what algorithms learn of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from sagecc.common.errors import SageccError
from sagecc.learner.compiled import KICKS_FILE, compile_pool
from sagecc.learner.core import Batch
from sagecc.learner.data import WindowSampler
from sagecc.learner.specification import load
from sagecc.policy.scaling import Scaling
from sagecc.schemas.partitions import partition
from sagecc.schemas.pool import FEATURE_NAMES, IS_KICKED
from sagecc.schemas.schemes import EXPLORERS
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


def given(name: str) -> tuple[Any, Batch, npt.NDArray[np.float64]]:
    """Return a learner of an algorithm, a batch for it, and the batch's rewards."""
    import tensorflow as tf

    from sagecc.learner.core import Setting

    config = spec({**specifications.SMALLEST, "algorithm": {"name": name, "policy_rate": 1e-3, "critic_rate": 1e-3}})
    setting = Setting(config.network, 5, 0, 0, 6, 10, 0, (-1.0, 1.0))
    random = np.random.default_rng(0)
    shape = (6, 4)
    arrays = (random.normal(size=(*shape, 5)), random.normal(size=shape) * 0.1, random.normal(size=shape))
    batch = pool_batch(*(tf.constant(x, tf.float32) for x in arrays))
    return config.algorithm.learner(setting), batch, arrays[2]


def losses(learner: Any, batch: Batch) -> tuple[float, float]:
    """Return the losses of critic and policy."""
    import tensorflow as tf

    from sagecc.learner.algorithms.crr import Crr

    of_samples = (tf.constant([0, 0], tf.int64),) if isinstance(learner, Crr) else ()
    found = learner.losses(batch, *of_samples)
    return float(found.critic), float(found.policy)


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
        first, (*_, labels, _) = sampler.first_rows(0), sampler.batch(0)
    rows = first[None, :, None] + period * np.arange(8)[:, None, None] + np.arange(period)
    np.testing.assert_array_equal(labels == 0, np.isin(rows, compiled.kicks).any(axis=-1))
    assert 0 < (labels == 0).sum() < labels.size / 10


@pytest.mark.parametrize("period", [1, 5])
def test_of_a_window_without_a_kick_only_what_is_looked_at_is_read(pool: Path, tmp_path: Path, period: int) -> None:
    compiled = compile_pool(pool, tmp_path / "cache")
    scaling, seen = compiled.moments.scaling("symlog", 5.0), (0, 3, 7)
    with WindowSampler(compiled, scaling, 200, 8, seed=0, period=period) as every:
        whole = every.batch(0)
    with WindowSampler(compiled, scaling, 200, 8, seed=0, period=period, seen=seen) as sampler:
        found = sampler.batch(0)
    kicked = ~whole.labels.all(axis=0)
    assert 0 < kicked.sum() < 100
    wanted = whole.observations.copy()
    wanted[np.ix_([row for row in range(8) if row not in seen], ~kicked)] = 0
    for one, other in zip(found, whole._replace(observations=wanted), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_explorer_is_judged_and_no_example(pool: Path, tmp_path: Path) -> None:
    compiled = compile_pool(pool, tmp_path / "cache")
    with WindowSampler(compiled, AS_IS, 200, 8, seed=0, explorers=("cubic",)) as sampler:
        schemes, (*_, labels, examples) = sampler.schemes(0), sampler.batch(0)
    assert labels[:, schemes == "cubic"].all()
    assert not examples[:, schemes == "cubic"].any()
    np.testing.assert_array_equal(examples[:, schemes != "cubic"], labels[:, schemes != "cubic"])


def test_an_explorer_that_the_pool_lacks_is_an_error_unless_it_is_a_known_one(pool: Path, tmp_path: Path) -> None:
    compiled = compile_pool(pool, tmp_path / "cache")
    with pytest.raises(SageccError, match="the pool has no scheme 'mine'; it has cubic, cubic\\+kicks"):
        WindowSampler(compiled, AS_IS, 200, 8, seed=0, explorers=("mine",))
    with WindowSampler(compiled, AS_IS, 200, 8, seed=0, explorers=EXPLORERS) as sampler:
        *_, labels, examples = sampler.batch(0)
    np.testing.assert_array_equal(examples, labels)


@pytest.mark.parametrize("name", ["crr", "iql"])
def test_what_is_no_example_moves_the_policy_no_more(name: str) -> None:
    tf = pytest.importorskip("tensorflow")
    learner, plain, _ = given(name)
    unlike = plain._replace(examples=tf.zeros_like(plain.examples))
    assert losses(learner, unlike) == pytest.approx((losses(learner, plain)[0], 0))


@pytest.mark.parametrize("name", ["crr", "iql"])
def test_what_is_no_label_moves_no_weight(name: str) -> None:
    """The losses are those of the other transitions, whatever stands there."""
    tf = pytest.importorskip("tensorflow")
    learner, plain, rewards = given(name)
    labels = np.ones(rewards.shape, np.float32)
    labels[-2] = 0  # the last transition, whose action no recurrent critic has seen before another
    own = tf.constant(labels)
    masked, other = (
        plain._replace(labels=own, examples=own, rewards=tf.constant(rewards + shift * (1 - labels), tf.float32))
        for shift in (0.0, 100.0)
    )
    of_masked, of_other, of_plain = (losses(learner, batch) for batch in (masked, other, plain))
    assert of_masked[0] == pytest.approx(of_other[0])
    assert of_masked[0] != pytest.approx(of_plain[0])
    assert of_masked[1] != pytest.approx(of_plain[1])


def test_sums_of_rewards_end_before_a_kick() -> None:
    tf = pytest.importorskip("tensorflow")
    from sagecc.learner.algorithms.crr import labelled_spans

    labels = tf.constant([1.0, 1, 1, 0, 1, 1])[:, None]
    assert labelled_spans(labels, 1)[:, 0].numpy().tolist() == [1, 1, 1, 0, 1, 1]
    assert labelled_spans(labels, 3)[:, 0].numpy().tolist() == [1, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("name", ["offline", "bc-mean", "awr", "iql", "small"])
def test_no_algorithm_imitates_an_explorer_unless_told(name: str) -> None:
    data = load(name).data
    assert data is not None and data.explorers == EXPLORERS
