# SPDX-License-Identifier: Apache-2.0
"""Networks that are left out of training: always the same ones, and never learned from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.specification import from_dict
from sagecc.learner.validation import is_for_validation, training_part, validation_part
from tests.helpers.specifications import SMALLEST, spec
from tests.learner.conftest import episode, write_part

NETWORKS = [f"I-{mbps}-{rtt}" for mbps in range(50) for rtt in range(40)]
Maker = Callable[[], Path]


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    """A pool of two schemes, each in the same twelve networks."""
    for number, scheme in enumerate(("cubic", "vegas+kicks")):
        tables = [episode(f"net-{i}.{scheme}.0", 60 + i, 20 * number + i) for i in range(12)]
        write_part(tmp_path / "pool" / "set=I" / f"scheme={scheme}" / "part-000.parquet", tables)
    return tmp_path / "pool"


def names(pool: CompiledPool) -> set[str]:
    return set(pool.trajectories.environments().tolist())


def test_the_share_is_that_of_the_networks_and_a_smaller_one_lies_within() -> None:
    few, many = (is_for_validation(NETWORKS, share) for share in (0.1, 0.3))
    assert few.mean() == pytest.approx(0.1, abs=0.02) and many.mean() == pytest.approx(0.3, abs=0.03)
    assert not (few & ~many).any()


def test_a_network_stays_where_it_is_when_the_pool_grows() -> None:
    whole = is_for_validation(NETWORKS, 0.2)
    assert (is_for_validation(NETWORKS[::-7], 0.2) == whole[::-7]).all()
    assert is_for_validation(["I-48", "I-96", "II-24", "II-12"], 0.5).tolist() == [True, False, True, True]


def test_the_parts_share_no_network_and_have_all_rows(networks: Path, tmp_path: Path) -> None:
    whole = compile_pool(networks, tmp_path / "cache")
    learned, judged = training_part(whole, 0.3), validation_part(whole, 0.3)
    assert names(learned) | names(judged) == names(whole) and not names(learned) & names(judged)
    assert learned.rows + judged.rows == whole.rows
    assert len({whole.identity, learned.identity, judged.identity}) == 3
    assert training_part(whole, 0.0) is whole
    for part in (learned, judged):
        schemes = [set(part.trajectories.schemes[part.trajectories.environments() == each]) for each in names(part)]
        assert schemes == [{"cubic", "vegas+kicks"}] * len(schemes)


def test_training_draws_from_its_networks_alone(networks: Path, tmp_path: Path) -> None:
    run = spec(SMALLEST, validation_share=0.3, batch=200, window=20)
    experience = PoolExperience(run, networks, tmp_path / "cache", seed=0)
    learned = training_part(compile_pool(networks, tmp_path / "cache"), 0.3)
    assert experience.identity() == [learned.identity]
    assert experience.provenance()["pool"]["episodes"] == len(learned.starts)
    np.testing.assert_array_equal(experience.scaling.shift, np.zeros(69))
    with experience.open(tmp_path, slice(0, 200), 0) as source:
        firsts = source._sampler.first_rows(0)
    ends = learned.starts + learned.lengths
    within = (firsts[:, None] >= learned.starts) & (firsts[:, None] + 20 <= ends)
    assert within.sum(axis=1).tolist() == [1] * 200


def test_a_part_without_a_network_is_an_error(networks: Path, tmp_path: Path) -> None:
    whole = compile_pool(networks, tmp_path / "cache")
    with pytest.raises(
        SageccError, match=r"share of 0.0001 leaves no environment to judge on, of 12: choose a larger one"
    ):
        validation_part(whole, 1e-4)
    with pytest.raises(SageccError, match=r"leaves no environment to learn from, of 12: choose a smaller one"):
        training_part(whole, 1 - 1e-9)


def test_no_run_without_a_share_becomes_another() -> None:
    assert "validation_share" not in spec(SMALLEST).record()["data"]
    assert spec(SMALLEST, validation_share=0.0) == spec(SMALLEST)
    record = spec(SMALLEST, validation_share=0.2).record()
    assert record["data"]["validation_share"] == 0.2
    assert from_dict(record).data == spec(SMALLEST, validation_share=0.2).data


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(SageccError, match=r"data\.validation_share must be from 0 to below 1"):
        spec(SMALLEST, validation_share=share)
