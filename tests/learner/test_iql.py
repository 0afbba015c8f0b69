# SPDX-License-Identifier: Apache-2.0
"""Implicit Q-learning: its losses by hand, where their gradients go, and what it learns."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.tensorflow_runtime import tf
from sagecc.policy.artefact import PolicyArtefact
from tests.conftest import ROOT
from tests.helpers import specifications
from tests.helpers.specifications import SMALLEST, pool_batch, spec, varied
from tests.helpers.training import command
from tests.helpers.updates import assert_moves_alike
from tests.learner.conftest import BAD, GOOD, PoolMaker
from tests.learner.test_train import preferred

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

ALGORITHM = {"name": "iql", "policy_rate": 1e-3, "critic_rate": 1e-3}
CONFIG = spec(
    {**SMALLEST, "algorithm": ALGORITHM}, batch=3, window=5, expectile=0.8, beta=0.5, ratio_cap=1.5, reward_scale=0.1
)


def batch(seed: int = 0) -> Any:
    random, shape = np.random.default_rng(seed), (CONFIG.window, CONFIG.batch)
    sizes = ((*shape, 4), shape, shape)
    return pool_batch(*(tf.constant(random.normal(size=size), tf.float32) for size in sizes))


def learner(config: Any = CONFIG) -> Any:
    """With targets unlike their critics, so that no term of the losses vanishes."""
    tf.random.set_seed(0)
    iql = specifications.learner(config, 4)
    for i, target in enumerate(iql.targets):
        for j, variable in enumerate(target.weights().values()):
            variable.assign_add(tf.random.stateless_normal(variable.shape, [i, j], stddev=0.3))
    return iql


def judged(critic: Any, data: Any) -> np.ndarray:
    zeros = tf.zeros([CONFIG.batch, 8])
    return np.asarray(critic.logits(critic.states(data.observations[:-1], data.actions[:-1], zeros))[..., 0])


@pytest.mark.parametrize("gru", [8, 0])
def test_losses_are_those_of_the_paper_worked_out_by_hand(gru: int) -> None:
    """Eq. 5 to 7 in numpy, transition by transition, from what the networks say."""
    iql, data = learner(varied(CONFIG, gru=gru)), batch()
    zeros = tf.zeros([CONFIG.batch, 8])
    v = np.asarray(iql.value.unroll(data.observations, zeros)[0])
    log_prob = np.asarray(iql.policy.unroll(data.observations[:-1], zeros)[0].log_prob(data.actions[:-1]))
    targets, critics = ([judged(critic, data) for critic in of] for of in (iql.targets, iql.critics))
    critic_loss = value_loss = policy_loss = 0.0
    weights = []
    for t in range(CONFIG.window - 1):
        for b in range(CONFIG.batch):
            goal = 0.1 * float(data.rewards[t, b]) + 0.95 * v[t + 1, b]
            critic_loss += sum((goal - q[t, b]) ** 2 for q in critics)
            advantage = min(q[t, b] for q in targets) - v[t, b]
            value_loss += (0.8 if advantage >= 0 else 0.2) * advantage**2
            weights.append(min(np.exp(advantage / 0.5), 1.5))
            policy_loss -= weights[-1] * log_prob[t, b]
    assert min(weights) < 1 < max(weights) == 1.5
    found, count = iql.losses(data), (CONFIG.window - 1) * CONFIG.batch
    assert float(found.critic) == pytest.approx(critic_loss / count, rel=1e-5)
    assert float(found.value) == pytest.approx(value_loss / count, rel=1e-5)
    assert float(found.policy) == pytest.approx(policy_loss / count, rel=1e-5)


def test_each_loss_reaches_its_own_networks_alone() -> None:
    iql, data = learner(), batch()
    networks = {"policy": [iql.policy], "value": [iql.value], "critic": iql.critics, "none": iql.targets}
    with tf.GradientTape(persistent=True) as tape:
        losses = iql.losses(data)
    for loss in ("policy", "value", "critic"):
        for name, of in networks.items():
            found = [tape.gradient(getattr(losses, loss), list(network.weights().values())) for network in of]
            assert all(any(g is not None for g in each) == (name == loss) for each in found), (loss, name)


def test_critics_and_value_see_the_network_and_the_policy_does_not() -> None:
    tf.random.set_seed(0)
    iql, data = specifications.learner(CONFIG, 4, states=2), batch()
    one, other = (
        iql.losses(data._replace(states=states + tf.zeros([*data.actions.shape, 2]))) for states in (0.0, 1.0)
    )
    for name in ("q", "v"):
        assert np.abs(getattr(one, name) - getattr(other, name)).max() > 1e-3
    np.testing.assert_array_equal(one.mixture.loc, other.mixture.loc)


@pytest.mark.parametrize("changes", [{}, {"gru": 0}, {"burn_in": 2, "average": 0.9, "mixture": 1}])
def test_an_update_moves_every_weight_and_is_a_function_of_the_seed(changes: dict[str, Any]) -> None:
    config = varied(CONFIG, **changes)
    found = assert_moves_alike(lambda: learner(config), batch(), resting="head.logits")
    rows = CONFIG.window - 1 - config.burn_in
    assert all(x.shape == (rows, CONFIG.batch) for x in found.transitions.values())


def test_burn_in_rows_warm_the_memory_and_carry_no_loss() -> None:
    data = batch()
    whole, warm = learner().losses(data), learner(varied(CONFIG, burn_in=2)).losses(data)
    np.testing.assert_allclose(warm.v, whole.v[2:], atol=1e-6)
    np.testing.assert_allclose(warm.q, whole.q[2:], atol=1e-6)
    other = data._replace(rewards=data.rewards + tf.constant([9.0, 9, 0, 0, 0])[:, None])
    assert float(learner(varied(CONFIG, burn_in=2)).losses(other).critic) == pytest.approx(float(warm.critic))


def test_it_prefers_the_better_action_and_comes_out_as_any_policy(make_pool: PoolMaker, tmp_path: Path) -> None:
    algorithm = {**ALGORITHM, "discount": 0.5, "reward_scale": 0.05, "beta": 0.2, "tau": 0.05}
    changes: dict[str, Any] = {"steps": 300, "batch": 32, "min_scale": 0.05, "algorithm": algorithm}
    done = subprocess.run(
        command(tmp_path, make_pool((2000, 2000)), **changes), cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    low, high = preferred(tmp_path, "a")
    assert low > 0.5 * GOOD
    assert high < 0.5 * BAD
    policy = PolicyArtefact.load(tmp_path / "models" / "a")
    assert len(policy.intact_files()) == 3
    assert policy.card["training"]["algorithm"]["name"] == "iql"
    assert "value_range" not in policy.card
