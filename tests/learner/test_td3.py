# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.actor_critic import error_loss
from sagecc.learner.algorithms.td3 import METRICS, Td3, returns_over
from sagecc.learner.core import Batch
from sagecc.learner.optimisers import compiled, earned, in_turn
from sagecc.learner.specification import RunSpecification
from sagecc.policy.inference import NumpyOps
from tests.helpers import specifications
from tests.helpers.acme_td3 import AcmeTd3
from tests.helpers.specifications import spec, varied

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

CONFIG = spec(specifications.IN_LABS)
RECURRENT: Any = spec(
    {**specifications.IN_LABS, "network": {"kind": "recurrent", "width": 8, "gru": 7}}, residual_blocks=1, window=6
)
SEEN, STATES = 4, 3


@pytest.fixture
def eagerly() -> Iterator[None]:
    """Without graphs, which take seconds to build."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def batches(config: RunSpecification, count: int = 1, seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    shape = (count, config.window, config.batch)
    seen, states = (tf.constant(random.normal(size=(*shape, size)), tf.float32) for size in (SEEN, STATES))
    actions = tf.constant(random.uniform(-1, 1, size=shape), tf.float32)
    return Batch(seen, actions, tf.constant(random.normal(size=shape), tf.float32), states, *(tf.ones(shape),) * 2)


def test_rewards_are_scaled_and_then_clipped() -> None:
    plain: Any = CONFIG.algorithm
    rewards = tf.constant([25.0, 10, 0, -20, -3000])
    scaled, limited = replace(plain, reward_scale=0.04), replace(plain, reward_scale=0.04, reward_limit=1.0)
    np.testing.assert_allclose(
        earned(rewards, scaled.reward_scale, scaled.reward_limit), [1, 0.4, 0, -0.8, -120], rtol=1e-6
    )
    np.testing.assert_allclose(
        earned(rewards, limited.reward_scale, limited.reward_limit), [1, 0.4, 0, -0.8, -1], rtol=1e-6
    )
    np.testing.assert_array_equal(earned(rewards, plain.reward_scale, plain.reward_limit), rewards)


def learner(config: RunSpecification, seed: int = 3) -> Td3:
    """With last layers that matter from the start."""
    tf.random.set_seed(seed)
    td3: Td3 = specifications.learner(config, SEEN, states=STATES, seed=seed)
    random = np.random.default_rng(seed)
    networks: list[Any] = [
        td3.networks.actor,
        td3.networks.target_actor,
        *td3.networks.critics,
        *td3.networks.target_critics,
    ]
    for network in networks:
        weights = network.weights()
        for name in ("answer.w", "answer.b"):
            weights[name].assign(random.normal(size=weights[name].shape) * 0.5)
    for source, target in (*td3.networks.pairs(), (td3.networks.actor, td3.networks.average_actor)):
        for a, b in zip(source.weights().values(), target.weights().values(), strict=True):
            b.assign(a)
    return td3


@cache
def graph(td3: Td3) -> Any:
    return compiled(in_turn(td3.update, len(METRICS)))


def learn(td3: Td3, several: Batch) -> Any:
    """Take an update on each of several batches; return the means of their metrics."""
    return graph(td3)(several).metrics


def params(network: Any) -> dict[str, Any]:
    return {name: tf.constant(variable.numpy()) for name, variable in network.weights().items()}


def reference(td3: Td3, config: RunSpecification) -> AcmeTd3:
    return AcmeTd3(
        config, SEEN, params(td3.networks.actor), params(td3.networks.critics[0]), params(td3.networks.critics[1])
    )


def transition(batch: Batch) -> dict[str, Any]:
    inputs = batch.inputs
    return {
        "observation": inputs[0],
        "action": batch.actions[0][:, None],
        "reward": batch.rewards[0],
        "discount": tf.ones_like(batch.rewards[0]),
        "next_observation": inputs[1],
    }


def part(several: Batch, number: int) -> Batch:
    return Batch(*(x[number] for x in several))


@pytest.mark.parametrize("action_layer", [1, 2])
def test_losses_and_gradients_are_acmes(action_layer: int) -> None:
    config = varied(CONFIG, action_layer=action_layer)
    td3 = learner(config)
    acme, batch = reference(td3, config), part(batches(CONFIG), 0)
    noise = tf.constant(np.random.default_rng(1).normal(size=(1, CONFIG.batch)), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        ours = td3.critic_losses(batch, noise)
    for number, weights in enumerate((acme.critic, acme.twin)):
        loss, gradients = acme.critic_loss(weights, transition(batch), noise[0][:, None])
        np.testing.assert_allclose(ours.losses[number], loss, rtol=1e-4)
        for name, variable in td3.networks.critics[number].weights().items():
            found = tape.gradient(ours.losses[number], variable)
            np.testing.assert_allclose(found, gradients[name], rtol=1e-4, atol=1e-6)
    loss, gradients = acme.policy_loss(transition(batch)["next_observation"])
    found = td3.actor_loss(batch)
    np.testing.assert_allclose(found.loss, loss, rtol=1e-4)
    for name, gradient in zip(td3.networks.actor.weights(), found.gradients, strict=True):
        assert np.abs(gradient).max() > 1e-6
        np.testing.assert_allclose(gradient, gradients[name], rtol=1e-4, atol=1e-7)


def test_updates_are_acmes() -> None:
    """Eight of them, in two calls: optimisers, targets and the delay too."""
    config = varied(CONFIG, policy_delay=3)
    td3 = learner(config)
    acme, several = reference(td3, config), batches(config, 8)
    metrics = [learn(td3, Batch(*(x[4 * call : 4 * call + 4] for x in several))) for call in range(2)]  # one graph
    expected = []
    for number in range(8):
        seed = [td3.setting.seed, number]
        noise = tf.random.stateless_normal([1, config.batch], seed) * 0.2
        expected.append(acme.update_step(transition(part(several, number)), noise[0][:, None]))
    pairs: list[tuple[Any, Any]] = [
        (td3.networks.actor, acme.policy),
        (td3.networks.target_actor, acme.target_policy),
        *zip(td3.networks.critics, (acme.critic, acme.twin), strict=True),
        *zip(td3.networks.target_critics, (acme.target_critic, acme.target_twin), strict=True),
    ]
    for ours, theirs in pairs:
        for name, variable in ours.weights().items():
            np.testing.assert_allclose(variable, theirs[name], rtol=1e-4, atol=1e-5)
    for values, part_of in zip(metrics, (expected[:4], expected[4:]), strict=True):
        mean = np.mean([step["critic_loss"] for step in part_of])
        np.testing.assert_allclose(values[METRICS.index("critic_loss")], mean, rtol=1e-4)
    assert int(td3.networks.steps) == 8


def test_target_by_hand() -> None:
    """The lower of two targets, of actions whose noise is clipped."""
    td3 = learner(CONFIG)
    batch = part(batches(CONFIG), 0)
    found = td3.critic_losses(batch, tf.fill([1, CONFIG.batch], 100.0))  # clipped to 0.5
    actions, _ = td3.networks.target_actor.unroll(batch.observations[1:], None)
    actions = np.clip(actions + 0.5, -1, 1)
    inputs = batch.inputs
    values = [critic.values(inputs[1:], tf.constant(actions), None) for critic in td3.networks.target_critics]
    expected = batch.rewards[:1] + 0.9 * np.minimum(*values)
    np.testing.assert_allclose(found.targets, expected, rtol=1e-5)


def test_returns_by_hand() -> None:
    rewards = tf.constant([[1.0, 0.0], [2.0, 0.0], [4.0, 8.0]])
    found = returns_over(rewards, tf.constant([16.0, 0.0]), 0.5, 3)
    np.testing.assert_allclose(found, [[1 + 1 + 1 + 2, 2], [2 + 2 + 4, 4], [4 + 8, 8]])


def test_returns_over_a_window_end_in_its_last_rows_value() -> None:
    """The last transition's target is that of one step; each one before has its reward and the discounted next."""
    config = varied(CONFIG, window=4, returns="window")
    batch = part(batches(config), 0)
    noise = tf.constant(np.random.default_rng(1).normal(size=(3, config.batch)), tf.float32)
    found = learner(config).critic_losses(batch, noise)
    last = learner(CONFIG).critic_losses(Batch(*(x[-2:] for x in batch)), noise[-1:])
    np.testing.assert_allclose(found.targets[-1:], last.targets, rtol=1e-5)
    np.testing.assert_allclose(found.values[0][-1:], last.values[0], rtol=1e-5)
    np.testing.assert_allclose(found.targets[:-1], batch.rewards[:-2] + 0.9 * found.targets[1:], rtol=1e-5)


def test_returns_over_a_recurrent_learners_window() -> None:
    config = varied(RECURRENT, burn_in=2)
    batch = part(batches(config), 0)
    noise = tf.constant(np.random.default_rng(1).normal(size=(config.window - 1, config.batch)), tf.float32)
    found = learner(varied(config, returns="window")).critic_losses(batch, noise)
    step = learner(config).critic_losses(batch, noise)
    np.testing.assert_allclose(found.targets[-1], step.targets[-1], rtol=1e-5)
    np.testing.assert_allclose(found.values[0], step.values[0], rtol=1e-5)
    np.testing.assert_allclose(found.targets[:-1], batch.rewards[2:-2] + 0.9 * found.targets[1:], rtol=1e-5)


def test_huber_by_hand() -> None:
    errors = tf.constant([-3.0, -0.5, 0.0, 1.0, 2.0])
    np.testing.assert_allclose(error_loss(errors, 1.0), [2.5, 0.125, 0, 0.5, 1.5])
    np.testing.assert_allclose(error_loss(errors, 0.0), [9, 0.25, 0, 1, 4])
    np.testing.assert_allclose(
        error_loss(errors, 2.0), tf.compat.v1.losses.huber_loss(errors, [0.0] * 5, 1, 2.0, reduction="none")
    )


def test_a_limit_on_gradients(eagerly: None) -> None:
    before = learner(varied(CONFIG, gradient_clip=1e-9))
    weights = params(before.networks.actor)
    learn(before, batches(CONFIG, 1))
    free = learner(CONFIG)
    learn(free, batches(CONFIG, 1))
    moved = [np.abs(a - b).max() for a, b in zip(params(before.networks.actor).values(), weights.values(), strict=True)]
    assert max(moved) < 1e-3
    norm = METRICS.index("critic_gradient_norm")
    assert learn(before, batches(CONFIG, 1))[norm] > 1e-3  # what it was, not what it became


def test_learning_rates_fall_to_their_share(eagerly: None) -> None:
    """A half cosine over three steps: all of the rates, half, and at the last none."""
    config = varied(CONFIG, steps=3, round_steps=1, final_rate=0.0, policy_delay=1)
    falling, steady = learner(config), learner(varied(config, final_rate=1.0))
    for step in range(3):
        before = params(falling.networks.actor)
        for td3 in (falling, steady):
            learn(td3, batches(config, 1, step))
        same = [
            np.array_equal(a, b) for a, b in zip(before.values(), params(falling.networks.actor).values(), strict=True)
        ]
        assert all(same) == (step == 2)
        first = [
            np.array_equal(*pair)
            for pair in zip(*(params(x.networks.actor).values() for x in (falling, steady)), strict=True)
        ]
        assert all(first) == (step == 0)


@pytest.mark.parametrize(
    ("decay", "share"), [(0.0, (0.0, 0.0, 1.0)), (0.9, (1 / 3, 1 / 3, 1 / 3)), (0.5, (0.25, 0.25, 0.5))]
)
def test_what_comes_out_is_the_average_of_the_actors_updates(
    eagerly: None, decay: float, share: tuple[float, ...]
) -> None:
    """Update n leaves min(decay, n / (n + 1)) of the average before it; what plays has the last weights."""
    config = varied(CONFIG, average=decay)
    td3 = learner(config)
    seen = [params(td3.networks.actor)]
    for step in range(4):  # of which the actor takes two
        learn(td3, batches(config, 1, step))
        if step % 2 == 0:
            seen.append(params(td3.networks.actor))
    for index, exported in enumerate(td3.exported().values()):
        expected = sum(part * list(weights.values())[index] for part, weights in zip(share, seen, strict=True))
        np.testing.assert_allclose(exported, expected, atol=1e-6)
    for acting, last in zip(td3.acting().values(), seen[-1].values(), strict=True):
        np.testing.assert_array_equal(acting, last)


def test_a_recurrent_actor_is_its_artefacts_network() -> None:
    actor = RECURRENT.network.policy(SEEN)
    weights = {name: variable.numpy() for name, variable in actor.weights().items()}
    weights["answer.w"] = np.random.default_rng(0).normal(size=(8, 1)).astype(np.float32)
    actor.weights()["answer.w"].assign(weights["answer.w"])
    sizes = RECURRENT.network.sizes(SEEN)
    assert {name: w.shape for name, w in weights.items()} == sizes.shapes()
    observations = part(batches(RECURRENT), 0).observations
    actions, states = actor.unroll(observations, tf.zeros([RECURRENT.batch, 7]))
    hidden = np.zeros((RECURRENT.batch, 7), np.float32)
    for t in range(RECURRENT.window):
        _, loc, scale, hidden = sizes.forward(weights, NumpyOps(), observations[t].numpy(), hidden)
        np.testing.assert_allclose(loc[:, 0], actions[t], atol=1e-5)
        np.testing.assert_allclose(hidden, states[t], atol=1e-5)
        assert not scale.any()


def test_a_recurrent_critic_values_the_actions_taken_as_it_remembers_them() -> None:
    critic, batch = RECURRENT.network.critic(SEEN + STATES), part(batches(RECURRENT), 0)
    inputs, zeros = batch.inputs, tf.zeros([RECURRENT.batch, 7])
    states = critic.remember(inputs, batch.actions, zeros)
    before = tf.concat([zeros[None], states[:-1]], axis=0)
    values = critic.values(inputs, batch.actions, before)
    flat = critic._answer(critic._trunk.after_gru(tf.reshape(states, [-1, 7])))
    np.testing.assert_allclose(values, tf.reshape(flat, values.shape), atol=1e-5)


def test_recurrent_learners_see_the_past_and_no_future() -> None:
    """A reward's gradient reaches what came before it; a target does not depend on what came after its transition."""
    td3 = learner(RECURRENT)
    batch = part(batches(RECURRENT), 0)
    noise = tf.zeros([RECURRENT.window - 1, RECURRENT.batch])
    first = td3.critic_losses(batch, noise)
    later = Batch(*(tf.concat([x[:3], 5 + x[3:]], axis=0) for x in batch))
    second = td3.critic_losses(later, noise)
    np.testing.assert_allclose(first.values[0][:3], second.values[0][:3], atol=1e-6)
    np.testing.assert_allclose(first.targets[:2], second.targets[:2], atol=1e-6)
    assert (np.abs(first.targets[2:] - second.targets[2:]).max(axis=1) > 1e-3).all()
    earlier = Batch(batch.observations + tf.one_hot([0], RECURRENT.window)[0][:, None, None], *batch[1:])
    assert np.abs(td3.critic_losses(earlier, noise).values[0][-1] - first.values[0][-1]).max() > 1e-6


def test_burn_in_only_warms_up() -> None:
    """The losses are those of the rest of the window, from a memory that is not empty."""
    whole, warmed = learner(RECURRENT), learner(varied(RECURRENT, burn_in=2))
    batch = part(batches(RECURRENT), 0)
    noise = tf.constant(np.random.default_rng(1).normal(size=(RECURRENT.window - 1, RECURRENT.batch)), tf.float32)
    all_of_it, rest = whole.critic_losses(batch, noise), warmed.critic_losses(batch, noise)
    np.testing.assert_allclose(rest.values[0], all_of_it.values[0][2:], atol=1e-5)
    np.testing.assert_allclose(rest.targets, all_of_it.targets[2:], atol=1e-5)
    np.testing.assert_allclose(warmed.actor_loss(batch).actions, whole.actor_loss(batch).actions[2:], atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        varied(CONFIG, average=0.9),
        varied(CONFIG, window=4, returns="window"),
        varied(RECURRENT, burn_in=2, huber=1.0, gradient_clip=1.0),
    ],
)
def test_a_step_changes_every_weight(eagerly: None, config: RunSpecification) -> None:
    td3 = learner(config)
    before = {name: variable.numpy() for name, variable in td3.state().items()}
    values = learn(td3, batches(config, 2)).numpy()
    assert np.isfinite(values).all()
    unchanged = [name for name, v in td3.state().items() if np.array_equal(before[name], v.numpy())]
    assert unchanged == []
