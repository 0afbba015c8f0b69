# SPDX-License-Identifier: Apache-2.0
"""Advantage-weighted regression: advantages, weights and losses by hand, where gradients go, and what it learns."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.advantages import KEPT, AdvantageWeights, advantages
from sagecc.learner.core import WHOLE
from sagecc.learner.specification import from_dict
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.environment import Link, RateStep, dumbbell
from sagecc.schemas.partitions import EPISODES_FILE
from tests.conftest import ROOT
from tests.helpers import specifications
from tests.helpers.specifications import pool_batch, varied
from tests.helpers.training import command
from tests.helpers.updates import assert_moves_alike
from tests.learner.conftest import PoolMaker
from tests.learner.test_bc import NETWORKS, SEEN, WINDOW, WINDOWS
from tests.learner.test_train import preferred

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

STATES = 6
ALGORITHM = {"name": "awr", "policy_rate": 1e-3, "value_rate": 1e-3, "discount": 0.9, "trace": 0.8, "reward_scale": 0.5}


def config(kind: str = "mlp", **changes: Any) -> Any:
    values = {
        "steps": 10,
        "batch": WINDOWS,
        "window": WINDOW,
        "data": {"action_base": 2.0, "states": "network"},
        "network": NETWORKS[kind],
        "algorithm": {**ALGORITHM, "ratio_cap": 3.0},
    }
    return varied(from_dict(values), **changes)


def batch() -> Any:
    """The first of its windows is alone, the others beside others; two actions are the lab's."""
    random, shape = np.random.default_rng(0), (WINDOW, WINDOWS)
    arrays = (random.normal(size=(*shape, SEEN)), random.uniform(-1, 1, size=shape), random.normal(size=shape))
    states = random.normal(size=(*shape, STATES))
    states[..., 0] = [0, 0.5, 1]
    labels = np.ones(shape)
    labels[1, 2] = labels[3, 0] = 0
    found = pool_batch(*(tf.constant(x, tf.float32) for x in arrays))
    return found._replace(
        states=tf.constant(states, tf.float32),
        labels=tf.constant(labels, tf.float32),
        examples=tf.constant(labels, tf.float32),
    )


def learner(of: Any) -> Any:
    """With a target unlike its value, and last layers that matter."""
    tf.random.set_seed(0)
    awr = specifications.learner(of, SEEN, states=STATES)
    for i, network in enumerate((awr.target, awr.policy)):
        for j, variable in enumerate(network.weights().values()):
            variable.assign_add(tf.random.stateless_normal(variable.shape, [i, j], stddev=0.3))
    return awr


def test_advantages_are_worked_out_by_hand() -> None:
    """Discount 1/2 and trace 1/2. Differences: 1 + 2 - 2 = 1, 0 + 1 - 4 = -3, 4 + 3 - 2 = 5, 2 + 1 - 6 = -3."""
    rewards, values = tf.constant([[1.0], [0], [4], [2]]), tf.constant([[2.0], [4], [2], [6], [2]])
    found = advantages(rewards, values, tf.ones([4, 1]), 0.5, 0.5)
    np.testing.assert_allclose(found[:, 0], [1 + (-3 + (5 - 3 / 4) / 4) / 4, -3 + (5 - 3 / 4) / 4, 5 - 3 / 4, -3])
    cut = advantages(rewards, values, tf.constant([[1.0], [1], [0], [1]]), 0.5, 0.5)
    np.testing.assert_allclose(cut[:, 0], [1 - 3 / 4, -3, 0, -3])
    alone = advantages(rewards, values, tf.ones([4, 1]), 0.5, 0.0)
    np.testing.assert_allclose(alone[:, 0], [1, -3, 5, -3])


def test_with_all_of_the_trace_returns_reach_the_windows_end() -> None:
    random = np.random.default_rng(0)
    rewards, values = random.normal(size=(6, 3)), random.normal(size=(7, 3))
    found = advantages(tf.constant(rewards), tf.constant(values), tf.ones([6, 3], tf.float64), 0.9, 1.0)
    returns = [sum(0.9**k * rewards[t + k] for k in range(6 - t)) + 0.9 ** (6 - t) * values[6] for t in range(6)]
    np.testing.assert_allclose(found + values[:-1], returns, rtol=1e-5, atol=1e-5)


def test_weights_are_worked_out_by_hand_in_each_group() -> None:
    """Advantages of one group are a hundred times those of the other, and weigh as much."""
    weights = AdvantageWeights(beta=0.5, cap=4.0)
    advantage = tf.constant([[1.0, 200], [-1, -100], [3, 500]])
    labels, groups = tf.constant([[1.0, 1], [1, 1], [0, 1]]), tf.constant([[0, 1]] * 3)
    first = np.asarray(weights.of(advantage, groups, labels, WHOLE))
    alone = np.minimum(np.exp(np.array([1, -1]) / (0.5 * 1)), 4)
    np.testing.assert_allclose(first[:, 0], [*(alone / alone.mean()), 0], rtol=1e-5)
    beside = np.minimum(np.exp(np.array([200, -100, 500]) / (0.5 * np.std([200, -100, 500]))), 4)
    np.testing.assert_allclose(first[:, 1], beside / beside.mean(), rtol=1e-5)
    again = np.asarray(weights.of(2 * advantage, groups, labels, WHOLE))
    deviation = np.sqrt((1 + 4) / 2)
    twice = np.minimum(np.exp(np.array([2, -2]) / (0.5 * deviation)), 4)
    np.testing.assert_allclose(again[:2, 0], twice / np.mean([alone.mean(), twice.mean()]), rtol=1e-5)


def test_a_group_that_is_not_in_a_batch_keeps_its_averages() -> None:
    weights, ones = AdvantageWeights(beta=1.0, cap=9.0), tf.ones([2, 1])
    weights.of(tf.constant([[1.0], [-1]]), tf.zeros([2, 1], tf.int32), ones, WHOLE)
    before = {name: variable.numpy() for name, variable in weights.state().items()}
    weights.of(tf.constant([[5.0], [-5]]), tf.ones([2, 1], tf.int32), ones, WHOLE)
    for name, variable in weights.state().items():
        np.testing.assert_array_equal(variable[0], before[name][0])
        assert not np.array_equal(variable[1], before[name][1])
    for _ in range(500):
        weights.of(tf.constant([[3.0], [-3]]), tf.zeros([2, 1], tf.int32), ones, WHOLE)
    assert float(weights.state()["advantage_moments"][0, 1]) == pytest.approx(9 - 8 * KEPT**500, rel=0.01)


def test_where_no_action_of_a_group_counts_no_weight_does() -> None:
    weights, none = AdvantageWeights(beta=1.0, cap=9.0), tf.zeros([2, 1])
    assert not np.asarray(weights.of(tf.constant([[1.0], [-1]]), tf.zeros([2, 1], tf.int32), none, WHOLE)).any()


@pytest.mark.parametrize("expectile", [0.5, 0.9])
@pytest.mark.parametrize("burn_in", [0, 1])
@pytest.mark.parametrize("kind", list(NETWORKS))
def test_losses_are_worked_out_by_hand_from_what_the_networks_say(kind: str, burn_in: int, expectile: float) -> None:
    """In numpy, transition by transition; flows beside others have a discount and a temperature of their own."""
    of = config(kind, burn_in=burn_in, expectile=expectile, discount_shared=0.7, beta_shared=0.3)
    discount, beta = np.array([0.9, 0.7, 0.7]), (0.5, 0.3)
    awr, data = learner(of), batch()
    inputs = tf.concat([data.observations, data.states], axis=-1)
    before = tf.zeros([WINDOWS, of.network.memory])
    target, v = (np.asarray(net.unroll(inputs, before)[0]) for net in (awr.target, awr.value))
    said = awr.policy.unroll(data.observations[:-1], before)[0]
    actions, labels = np.asarray(data.actions[:-1]), np.asarray(data.labels[:-1])
    misfit = -np.asarray(said.log_prob(actions)) if kind == "sage" else (np.asarray(said) - actions) ** 2
    rows = range(burn_in, WINDOW - 1)
    advantage = np.zeros((WINDOW, WINDOWS))
    for t in reversed(rows):
        difference = (1 - discount) * 0.5 * np.asarray(data.rewards[t]) + discount * target[t + 1] - target[t]
        advantage[t] = labels[t] * (difference + discount * 0.8 * advantage[t + 1])
    value_loss = policy_loss = 0.0
    for windows, temperature in zip(([0], [1, 2]), beta, strict=True):
        counted = [(t, b) for t in rows for b in windows if labels[t, b]]
        deviation = np.std([advantage[at] for at in counted])
        weight = {at: min(np.exp(advantage[at] / (temperature * deviation)), 3.0) for at in counted}
        policy_loss += sum(weight[at] * misfit[at] for at in counted) / np.mean(list(weight.values()))
        errors = [advantage[at] + target[at] - v[at] for at in counted]
        value_loss += sum(2 * (expectile if e > 0 else 1 - expectile) * e**2 for e in errors)
    found, count = awr.losses(data), len(rows) * WINDOWS
    assert float(found.value) == pytest.approx(value_loss / count, rel=1e-4)
    assert float(found.policy) == pytest.approx(policy_loss / count, rel=1e-4)
    np.testing.assert_allclose(found.v, v[burn_in:-1], rtol=1e-4, atol=1e-6)


def test_each_loss_reaches_its_own_network_alone() -> None:
    awr, data = learner(config()), batch()
    networks = {"policy": awr.policy, "value": awr.value, "none": awr.target}
    with tf.GradientTape(persistent=True) as tape:
        losses = awr.losses(data)
    for loss in ("policy", "value"):
        for name, network in networks.items():
            found = tape.gradient(getattr(losses, loss), list(network.weights().values()))
            assert any(g is not None for g in found) == (name == loss), (loss, name)


@pytest.mark.parametrize("kind", list(NETWORKS))
def test_an_update_moves_every_weight_and_is_a_function_of_the_seed(kind: str) -> None:
    of = config(kind, average=0.9, final_rate=0.1, burn_in=1, tau=0.1)
    found = assert_moves_alike(lambda: learner(of), batch(), resting="head.logits")
    assert all(x.shape == (WINDOW - 2, WINDOWS) for x in found.transitions.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 0}, "beta must be above 0"),
        ({"trace": 1.1}, "trace must be from 0 to 1"),
        ({"states": "none"}, "awr tells flows alone from others: give data.states"),
    ],
)
def test_bad_fields_are_one_clear_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=message):
        config(**changes)


def test_it_prefers_the_better_action_and_comes_out_as_any_policy(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool((2000, 2000))
    network = dumbbell("I", Link((RateStep(0, 24),), 20, queue_bytes=120_000), 20, 30.0, ((0, 30),)).to_json()
    schemes = [scheme for scheme in ("cubic", "vegas") for _ in range(2)]
    ids = [f"I-{scheme}-{i % 2}" for i, scheme in enumerate(schemes)]
    listing = {"episode_id": ids, "scheme": schemes, "environment": [network] * 4}
    pq.write_table(pa.table(listing), pool / EPISODES_FILE)
    changes: dict[str, Any] = {
        "steps": 300,
        "batch": 32,
        "data": {"action_base": 2.0, "states": "network"},
        "network": {**NETWORKS["mlp"], "input_transform": "symlog", "input_limit": 5},
        "algorithm": {**ALGORITHM, "policy_rate": 3e-3, "trace": 0.0},
    }
    done = subprocess.run(command(tmp_path, pool, **changes), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    low, high = preferred(tmp_path, "a")
    assert low > 0.2
    assert high < -0.2
    policy = PolicyArtefact.load(tmp_path / "models" / "a")
    assert policy.card["training"]["algorithm"]["name"] == "awr"
    assert policy.control.base == 2.0
