# SPDX-License-Identifier: Apache-2.0
"""Conservative Q-learning: its term against the paper's equation in numpy, what it holds for worse, what it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.core import WHOLE, Batch
from sagecc.learner.optimisers import compiled
from sagecc.learner.specification import RunSpecification
from tests.helpers.specifications import spec, varied
from tests.helpers.updates import assert_moves_alike
from tests.learner.conftest import PoolMaker
from tests.learner.test_td3_bc import (
    OFFLINE,
    RECURRENT,
    assert_looks_at_no_other_row,
    assert_prefers_the_better_action,
    batch_of,
    drawn,
    kicked,
    learner,
)

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

ALGORITHM = {"name": "cql", "policy_rate": 1e-3, "critic_rate": 3e-3, "discount": 0.9}
CONFIG = spec({**OFFLINE, "algorithm": ALGORITHM})
GRU = spec({**RECURRENT.record(), "algorithm": ALGORITHM}, n_step=2, burn_in=1)


def others(made: Any, data: Batch) -> Any:
    return made.others(data, tf.constant([0, 1], tf.int64), WHOLE)


def test_it_looks_at_no_row_between_a_sums_ends() -> None:
    assert_looks_at_no_other_row(varied(CONFIG, window=4, n_step=3, policy_delay=1))


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_term_is_the_papers_over_the_integral_of_all_actions(temperature: float) -> None:
    """log of the integral of exp Q(s, u) du, less E Q(s, a) (Kumar et al., Eq. 4), by the trapezoidal rule."""
    config = varied(CONFIG, temperature=temperature, samples=400)
    made, data = learner(config), batch_of(config)
    grid = np.linspace(-1, 1, 2001)
    actions = tf.constant(np.broadcast_to(grid[:, None, None], (len(grid), 1, 6)), tf.float32)
    for critic, found in zip(made.networks.critics, made.gaps(data, others(made, data)), strict=True):
        every = np.asarray(made.judges.alternatives(critic, data, actions), np.float64)
        integral = np.trapezoid(np.exp(every / temperature), grid, axis=0)
        wanted = temperature * np.log(integral) - np.asarray(made.judges.values(critic, data, data.actions[:1]))
        # Less T log 2, which has no gradient.
        assert float(found) == pytest.approx(wanted.mean() - temperature * np.log(2), abs=1e-4)


def test_the_loss_is_the_temporal_differences_and_alpha_times_the_terms() -> None:
    config = varied(CONFIG, alpha=0.7)
    made, data, noise = learner(config), kicked(batch_of(config), 1), drawn(config, 1)
    drawn_others = others(made, data)
    total, (metrics, _) = made._judged(data, noise, drawn_others)
    differences, gaps = made.judges.losses(data, noise).losses, made.gaps(data, drawn_others)
    assert float(total) == pytest.approx(float(sum(differences) + 0.7 * sum(gaps)), rel=1e-5)
    assert float(metrics["conservative_gap"]) == pytest.approx(float(sum(gaps)) / 2, rel=1e-5)


def test_actions_are_one_in_each_equal_part() -> None:
    config = varied(CONFIG, samples=4)
    made, data = learner(config), batch_of(config)
    found = np.asarray(others(made, data))
    assert found.shape == (4, 1, 6)
    np.testing.assert_array_equal(np.floor((found + 1) * 2), np.arange(4)[:, None, None] * np.ones_like(found))
    assert len(np.unique(found)) == found.size


def test_a_thinner_term_is_that_of_some_windows_and_no_kick_has_one() -> None:
    config = varied(CONFIG, thinning=2)
    made, data = learner(config), kicked(batch_of(config), 0)
    assert [float(gap) for gap in made.gaps(data, others(made, data))] == [0, 0]
    whole, thin = batch_of(CONFIG), learner(config)
    part = Batch(*(x[:, ::2] for x in whole))
    same = others(thin, whole)
    assert same.shape == (10, 1, 3)
    np.testing.assert_allclose(thin.gaps(whole, same), learner(CONFIG).gaps(part, same), rtol=1e-5)


@pytest.mark.graph
@pytest.mark.parametrize(
    "config",
    [varied(CONFIG, alpha=5.0, window=4, n_step=2), pytest.param(varied(GRU, alpha=5.0), marks=pytest.mark.slow)],
)
def test_what_the_pool_does_not_show_becomes_worse(config: RunSpecification) -> None:
    """Of a pool whose actions are all near 0.5: without the term critics hardly tell, with it the others fall."""
    data = batch_of(config)
    data = data._replace(actions=0.5 + 0.01 * data.actions)
    gaps = {}
    for alpha in (0.0, 5.0):
        made = learner(varied(config, alpha=alpha))
        step = compiled(made.update)
        for _ in range(60):
            metrics = step(data).metrics
        gaps[alpha] = float(metrics[made.metrics.index("conservative_gap")])
    assert gaps[5.0] < gaps[0.0] - 0.1


@pytest.mark.parametrize("config", [varied(CONFIG, average=0.9, thinning=2), varied(GRU, gradient_clip=1.0)])
def test_an_update_moves_every_weight_and_is_a_function_of_the_seed(config: RunSpecification) -> None:
    assert_moves_alike(lambda: learner(config), batch_of(config))


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"alpha": -1.0}, "alpha cannot"), ({"temperature": 0.0}, "temperature must"), ({"samples": 0}, "samples must")],
)
def test_what_does_not_fit_is_one_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SageccError, match=told):
        varied(CONFIG, **changes)


def test_it_prefers_the_better_action_in_a_pool_of_both(make_pool: PoolMaker, tmp_path: Path) -> None:
    assert_prefers_the_better_action(tmp_path, make_pool((2000, 2000)), {"name": "cql", "alpha": 0.1})
