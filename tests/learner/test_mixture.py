# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_probability as tfp

from sagecc.common.arrays import Ints
from sagecc.common.tensorflow_runtime import snt, tf
from sagecc.learner import mixture as mixtures
from sagecc.learner.architectures import SageNetwork
from sagecc.learner.core import Batch
from sagecc.learner.data import ALL, WindowSampler
from sagecc.learner.gru import Gru
from sagecc.learner.pool_source import PoolWindows
from sagecc.learner.specification import Data
from sagecc.policy import artefact
from sagecc.policy.scaling import Scaling
from tests.helpers.specifications import SMALLEST, spec, varied

pytestmark = pytest.mark.tensorflow

SMALL = spec(SMALLEST, width=12, gru=10, batch=3, window=6)


def normal(seed: int, *shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def test_gru_unrolls_like_sonnets_with_the_same_gradients() -> None:
    gru = Gru(5, 4)
    inputs, state, upstream = normal(0, 7, 3, 5), normal(1, 3, 4), normal(2, 7, 3, 4)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([inputs, state])
        ours = gru.unroll(inputs, state)
        theirs, _ = snt.static_unroll(gru.core, inputs, state)
        ours_loss, theirs_loss = (tf.reduce_sum(x * upstream) for x in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    wanted = (inputs, state, *gru.core.trainable_variables)
    for mine, other in zip(tape.gradient(ours_loss, wanted), tape.gradient(theirs_loss, wanted), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)


def test_gru_step_serves_alternatives_from_one_state() -> None:
    gru = Gru(5, 4)
    inputs, state = normal(0, 2, 3, 5), normal(1, 3, 4)
    stepped = gru.step(inputs, state)
    for i in range(2):
        np.testing.assert_allclose(stepped[i], gru.core(inputs[i], state)[0], atol=1e-6)


def test_mixture_agrees_with_tensorflow_probability() -> None:
    mixture = mixtures.Mixture(normal(0, 4, 5), normal(1, 4, 5), tf.exp(normal(2, 4, 5)))
    other = tfp.distributions.MixtureSameFamily(
        tfp.distributions.Categorical(logits=mixture.logits),
        tfp.distributions.Normal(mixture.loc, mixture.scale),
    )
    action = normal(3, 4)
    np.testing.assert_allclose(mixture.log_prob(action), other.log_prob(action), atol=1e-5)
    np.testing.assert_allclose(mixture.mean(), other.mean(), atol=1e-5)


def test_samples_follow_the_mixture_and_its_seed() -> None:
    mixture = mixtures.Mixture(tf.math.log([[0.7, 0.3]]), tf.constant([[-1.0, 2.0]]), tf.constant([[0.1, 0.5]]))
    drawn = mixture.sample(20_000, [1, 2]).numpy()
    assert drawn.shape == (20_000, 1)
    np.testing.assert_array_equal(drawn, mixture.sample(20_000, [1, 2]))
    assert not np.array_equal(drawn, mixture.sample(20_000, [1, 3]))
    low = drawn[drawn < 0.4]
    assert len(low) / 20_000 == pytest.approx(0.7, abs=0.015)
    assert low.std() == pytest.approx(0.1, rel=0.05)
    assert drawn.mean() == pytest.approx(0.7 * -1 + 0.3 * 2, abs=0.05)


VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"gru": 0},
    {"second_encoder": False},
    {"gru": 0, "second_encoder": False},
    {"mixture": 1},
)


@pytest.mark.parametrize("change", VARIANTS)
def test_policy_has_the_papers_layers_and_no_others(change: dict[str, Any]) -> None:
    network = varied(SMALL, **change).network
    policy = network.policy(69)
    shapes = {name: tuple(v.shape) for name, v in policy.weights().items()}
    assert shapes == network.sizes(69).shapes()
    assert len(policy.trainable_variables) == len(shapes)
    assert sum(math.prod(v.shape) for v in policy.trainable_variables) == network.sizes(69).parameters


@pytest.mark.parametrize("change", VARIANTS)
def test_every_variant_is_the_same_policy_in_numpy(tmp_path: Path, change: dict[str, Any]) -> None:
    network, observations = varied(SMALL, **change).network, ("rttvar", "dr", "srtt")
    policy, sizes = network.policy(3), network.sizes(3)
    for i, variable in enumerate(policy.trainable_variables):
        variable.assign_add(tf.random.stateless_normal(variable.shape, [i, 0], stddev=0.3))
    weights = {name: variable.numpy() for name, variable in policy.weights().items()}
    scaling = Scaling("none", np.zeros(3, np.float32), np.ones(3, np.float32), 0)
    artefact.write(tmp_path, weights, sizes, scaling, observations, {})
    loaded = artefact.PolicyArtefact.load(tmp_path)
    assert loaded.observations == observations
    observation, hidden = normal(0, 6, 2, 3), loaded.initial_state(2)
    mixture, states = policy.unroll(observation, tf.constant(hidden))
    for t in range(6):
        logits, loc, scale, hidden = loaded.step(observation[t].numpy(), hidden)
        np.testing.assert_allclose(hidden, states[t], atol=1e-5)
        for mine, other in zip((logits, loc, scale), mixture, strict=True):
            np.testing.assert_allclose(mine, other[t], atol=1e-5)


class _Sampler(WindowSampler):
    def __init__(self) -> None:
        """It needs no pool."""

    def batch(self, step: int, part: slice | Ints = ALL) -> Batch:
        """Every feature holds its row of Table 1."""
        return Batch(
            observations=np.broadcast_to(np.arange(1, 70, dtype=np.float32), (6, 3, 69)),
            actions=np.full((6, 3), step, np.float32),
            rewards=np.broadcast_to(np.arange(6, dtype=np.float32)[:, None], (6, 3)),
            states=np.empty((6, 3, 0), np.float32),
            labels=np.ones((6, 3), np.float32),
            examples=np.ones((6, 3), np.float32),
        )


def source(data: Data) -> PoolWindows:
    return PoolWindows(_Sampler(), data, ALL, range(0))


def test_a_batch_holds_the_selected_inputs_in_their_order() -> None:
    found = source(Data(inputs=("dr_max", "srtt", "rtt_l.max"))).batch(4)
    np.testing.assert_array_equal(found.observations, np.broadcast_to([67, 1, 13], (6, 3, 3)))
    assert (found.actions == 4).all()
    assert source(Data()).batch(4).observations.shape == (6, 3, 69)


def test_reward_before_action_pairs_as_the_public_code_does() -> None:
    """Action t with the reward of row t - 1."""
    plain, shifted = (source(Data(reward_before_action=before)).batch(0) for before in (False, True))
    assert {len(x) for x in shifted} == {5}
    np.testing.assert_array_equal(plain.rewards[:, 0], range(6))
    np.testing.assert_array_equal(shifted.rewards[:, 0], range(5))


def test_same_shaped_layers_start_different() -> None:
    weights = SMALL.network.policy(69).weights()
    same = [weights[n].numpy() for n in ("fc.w", "residual0.linear0.w", "residual0.linear1.w", "residual1.linear0.w")]
    assert all(not np.allclose(a, b) for i, a in enumerate(same) for b in same[i + 1 :])
    assert not np.allclose(weights["head.logits.w"], weights["head.loc.w"])


def test_unrolling_at_once_is_unrolling_in_pieces() -> None:
    policy = SMALL.network.policy(4)
    observation, state = normal(0, 6, 3, 4), tf.zeros([3, 10])
    whole, states = policy.unroll(observation, state)
    first, middle = policy.unroll(observation[:2], state)
    second, _ = policy.unroll(observation[2:], middle[-1])
    np.testing.assert_allclose(whole.loc, tf.concat([first.loc, second.loc], 0), atol=1e-6)
    assert states.shape == (6, 3, 10)


@pytest.mark.parametrize("action_scale", [0.0, 0.01])
def test_the_critic_judges_the_taken_action_as_it_does_alternatives(action_scale: float) -> None:
    critic = SageNetwork(width=12, gru=10).critic(4, 7, action_scale)
    observation, action = normal(0, 6, 3, 4), normal(1, 6, 3)
    states = critic.states(observation, action, tf.zeros([3, 10]))
    before = tf.concat([tf.zeros([1, 3, 10]), states[:-1]], 0)
    others = critic.alternatives(observation, tf.stack([action, action + 1]), before)
    assert others.shape == (2, 6, 3, 7)
    np.testing.assert_allclose(critic.logits(states), others[0], atol=1e-5)
    assert not np.allclose(others[0], others[1])
