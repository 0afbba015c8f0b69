# SPDX-License-Identifier: Apache-2.0
"""TD3+BC and ReBRAC: losses against the papers' equations in numpy, kicks, what critics see."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.core import WHOLE, Batch
from sagecc.learner.specification import RunSpecification
from tests.conftest import ROOT
from tests.helpers import specifications
from tests.helpers.specifications import spec, varied
from tests.helpers.training import command
from tests.helpers.updates import assert_moves_alike
from tests.learner.conftest import PoolMaker
from tests.learner.test_train import preferred

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

SEEN, STATES = 4, 3
OFFLINE: dict[str, Any] = {
    "steps": 10,
    "batch": 6,
    "window": 2,
    "data": {"action_base": 2.0},
    "network": {"kind": "mlp", "hidden": [12, 8], "action_layer": 2},
    "algorithm": {"name": "td3_bc", "policy_rate": 1e-3, "critic_rate": 3e-3, "discount": 0.9},
}
CONFIG = spec(OFFLINE)
REBRAC = varied(CONFIG, follows="lower", critic_cloning=0.5, critic_norm=True, alpha=4.0)
RECURRENT = spec({**OFFLINE, "network": {"kind": "recurrent", "width": 8, "gru": 7}}, residual_blocks=1, window=6)


def batch_of(config: RunSpecification, seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    shape = (config.window, config.batch)
    seen, states = (tf.constant(random.normal(size=(*shape, size)), tf.float32) for size in (SEEN, STATES))
    actions = tf.constant(random.uniform(-1, 1, size=shape), tf.float32)
    return Batch(seen, actions, tf.constant(random.normal(size=shape), tf.float32), states, *(tf.ones(shape),) * 2)


def learner(config: RunSpecification, seed: int = 3) -> Any:
    """With targets unlike their networks, and last layers that matter from the start."""
    tf.random.set_seed(seed)
    made = specifications.learner(config, SEEN, states=STATES, seed=seed)
    for i, pair in enumerate(made.networks.pairs()):
        for j, network in enumerate(pair):
            for k, (name, variable) in enumerate(network.weights().items()):
                wide = 0.5 if name.startswith("answer") else 0.1
                variable.assign_add(tf.random.stateless_normal(variable.shape, [i, 10 * j + k], stddev=wide))
    return made


def kicked(data: Batch, *rows: int) -> Batch:
    """Say that some rows' actions are the lab's."""
    labels = np.ones(data.labels.shape, np.float32)
    labels[list(rows)] = 0
    return data._replace(labels=tf.constant(labels), examples=tf.constant(labels))


def acted(made: Any, data: Batch) -> Any:
    """The actor's loss, all labels weighing alike."""
    return made.actor_loss(data, data.labels[made.judges.rows])


def drawn(config: RunSpecification, rows: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(1).normal(size=(rows, config.batch)), tf.float32)


def assert_looks_at_no_other_row(config: RunSpecification) -> None:
    """A row that it says it does not see may hold anything; of a recurrent network it says nothing."""
    assert config.algorithm.seen(varied(RECURRENT, window=config.window)) is None
    seen = config.algorithm.seen(config)
    assert seen is not None
    others = [row for row in range(config.window) if row not in seen]
    data = batch_of(config)
    observations = data.observations.numpy()
    observations[others] = np.nan
    ends = []
    for given in (data, data._replace(observations=tf.constant(observations))):
        made = learner(config)
        made.update(given)
        ends.append({name: variable.numpy() for name, variable in made.state().items()})
    assert others
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name], err_msg=name)


def assert_prefers_the_better_action(folder: Path, pool: Path, algorithm: dict[str, Any], *options: str) -> None:
    """Trained on a pool that tosses a coin between 1 and -1, in units of the base."""
    rates = {"policy_rate": 1e-3, "critic_rate": 3e-3, "discount": 0.5, "reward_scale": 0.05, "tau": 0.05}
    changes: dict[str, Any] = {
        "steps": 300,
        "batch": 64,
        "window": 2,
        "data": {"action_base": 2**0.5},
        "network": {"kind": "mlp", "hidden": [32, 16], "input_transform": "symlog", "input_limit": 5},
        "algorithm": {**rates, "policy_delay": 1, **algorithm},
    }
    done = subprocess.run([*command(folder, pool, **changes), *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    low, high = preferred(folder, "a")
    assert low > 0.5
    assert high < -0.5


class InNumpy:
    """The networks of a dense learner on a transition (s, a, r, s', b'), as numpy has them."""

    def __init__(self, made: Any, data: Batch) -> None:
        self.made, self.data = made, data
        self.s, self.s2 = data.inputs[:1], data.inputs[1:]
        self.a, self.b2 = data.actions[:1].numpy(), data.actions[1:].numpy()

    def q(self, critic: Any, inputs: Any, actions: Any) -> np.ndarray:
        return np.asarray(critic.values(inputs, tf.constant(actions, tf.float32), None))

    def pi(self, actor: Any, observations: Any) -> np.ndarray:
        return np.asarray(actor.unroll(observations, None)[0])


@pytest.mark.parametrize("config", [CONFIG, REBRAC])
def test_critics_learn_the_papers_targets(config: RunSpecification) -> None:
    """TD3's min_j Q'_j(s', pi'(s') + noise), less ReBRAC's beta_2 (pi'(s') + noise - b')^2 (Tarasov et al., Eq. 4).

    Rewards are multiplied by 1 - discount.
    """
    made, data = learner(config), batch_of(config)
    of, noise, algorithm = InNumpy(made, data), drawn(config, 1), vars(config.algorithm)
    found = made.critic_losses(data, noise)
    a2 = np.clip(of.pi(made.networks.target_actor, data.observations[1:]) + np.clip(noise, -0.5, 0.5), -1, 1)
    lower = np.min([of.q(critic, of.s2, a2) for critic in made.networks.target_critics], axis=0)
    penalised = lower - algorithm["critic_cloning"] * (a2 - of.b2) ** 2
    targets = 0.1 * data.rewards[:1] + 0.9 * penalised
    np.testing.assert_allclose(found.targets, targets, rtol=1e-5, atol=1e-6)
    for loss, critic in zip(found.losses, made.networks.critics, strict=True):
        assert float(loss) == pytest.approx(np.mean((of.q(critic, of.s, of.a) - targets) ** 2), rel=1e-5)


def test_the_actor_loses_what_td3_bc_says() -> None:
    """-lambda Q_1(s, pi(s)) + (pi(s) - a)^2 with lambda = alpha / mean |Q_1| (Fujimoto and Gu, Eq. 3 to 5)."""
    made, data = learner(CONFIG), batch_of(CONFIG)
    of = InNumpy(made, data)
    pi = of.pi(made.networks.actor, data.observations[:1])
    q = of.q(made.networks.critics[0], of.s, pi)
    expected = -(2.5 / np.abs(q).mean()) * q.mean() + ((pi - of.a) ** 2).mean()
    assert float(acted(made, data).loss) == pytest.approx(expected, rel=1e-5)


def test_the_actor_loses_what_rebrac_says_times_alpha() -> None:
    """beta_1 (pi(s) - a)^2 - lambda min_i Q_i(s, pi(s)), lambda = 1 / mean |min Q|, with beta_1 = 1 / alpha."""
    made, data = learner(REBRAC), batch_of(REBRAC)
    of = InNumpy(made, data)
    pi = of.pi(made.networks.actor, data.observations[:1])
    q = np.min([of.q(critic, of.s, pi) for critic in made.networks.critics], axis=0)
    published = (0.25 * (pi - of.a) ** 2 - q / np.abs(q).mean()).mean()
    assert float(acted(made, data).loss) == pytest.approx(4.0 * published, rel=1e-5)


def test_q_in_units_of_its_deviation() -> None:
    config = varied(CONFIG, unit="deviation")
    made, data = learner(config), batch_of(config)
    of = InNumpy(made, data)
    pi = of.pi(made.networks.actor, data.observations[:1])
    q = of.q(made.networks.critics[0], of.s, pi)
    expected = -2.5 * q.mean() / q.std() + ((pi - of.a) ** 2).mean()
    assert float(acted(made, data).loss) == pytest.approx(expected, rel=1e-4)


def test_in_units_of_its_slope_q_pulls_as_hard_where_little_is_at_stake() -> None:
    config = varied(CONFIG, unit="slope", alpha=0.5)
    made, data = learner(config), batch_of(config)
    of = InNumpy(made, data)
    critic, pi = made.networks.critics[0], of.pi(made.networks.actor, data.observations[:1])
    step = 1e-3
    slopes = (of.q(critic, of.s, pi + step) - of.q(critic, of.s, pi - step)) / (2 * step)
    sizes = np.abs(slopes)
    pull = 0.5 * slopes / (sizes + 0.1 * sizes.mean())
    with tf.GradientTape() as tape:
        found = acted(made, data)
    assert float(found.loss) == pytest.approx(float((((pi - of.a) ** 2) - pull * pi).mean()), rel=1e-2)
    expected = (2 * (pi - of.a) - pull) / pi.size  # by each action: the direction is no function of it
    np.testing.assert_allclose(tape.gradient(found.loss, found.actions), expected, atol=2e-3)


def test_q_weighs_something_else_where_other_flows_share_the_link() -> None:
    config = varied(CONFIG, states="flows", alpha_shared=0.5)
    made, data = learner(config), batch_of(config)
    data = data._replace(states=tf.constant([0.0, 0.5, 0, 1, 0, 0])[None, :, None] * tf.ones([2, 1, STATES]))
    of = InNumpy(made, data)
    pi = of.pi(made.networks.actor, data.observations[:1])
    q = of.q(made.networks.critics[0], of.s, pi)
    alpha = np.array([2.5, 0.5, 2.5, 0.5, 2.5, 2.5])
    expected = -(alpha * q).mean() / np.abs(q).mean() + ((pi - of.a) ** 2).mean()
    assert float(acted(made, data).loss) == pytest.approx(expected, rel=1e-5)


def test_without_q_the_actor_clones() -> None:
    made, data = learner(varied(CONFIG, alpha=0.0)), batch_of(CONFIG)
    variables = made.networks.actor_variables
    with tf.GradientTape(persistent=True) as tape:
        loss = acted(made, data).loss
        wanted = tf.reduce_mean(
            tf.square(made.networks.actor.unroll(data.observations[:1], None)[0] - data.actions[:1])
        )
    for found, expected in zip(tape.gradient(loss, variables), tape.gradient(wanted, variables), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_q_pulls_the_actor_up_its_slope_and_moves_no_critic() -> None:
    """The gradient is that of -alpha / mean|Q| dQ/da dpi, and no critic has one."""
    made, data = learner(varied(CONFIG, alpha=1e6)), batch_of(CONFIG)
    networks = made.networks
    with tf.GradientTape(persistent=True) as tape:
        loss = acted(made, data).loss
        pi = networks.actor.unroll(data.observations[:1], None)[0]
        q = networks.critics[0].values(data.inputs[:1], pi, None)
        followed = -tf.reduce_mean(q) / tf.stop_gradient(tf.reduce_mean(tf.abs(q)))
    for found, expected in zip(
        tape.gradient(loss, made.networks.actor_variables),
        tape.gradient(followed, made.networks.actor_variables),
        strict=True,
    ):
        np.testing.assert_allclose(found / 1e6, expected, atol=1e-5)
    assert np.abs(tape.gradient(loss, made.networks.actor_variables)[0]).max() > 1


@pytest.mark.parametrize("burn_in", [0, 2])
def test_of_one_reward_recurrent_critics_learn_what_td3s_do(burn_in: int) -> None:
    config = varied(RECURRENT, burn_in=burn_in)
    in_labs = {**specifications.IN_LABS, "network": config.record()["network"]}
    td3 = learner(spec(in_labs, window=config.window, burn_in=burn_in, reward_scale=0.1))
    made, data, noise = learner(config), batch_of(config), drawn(config, config.window - 1)
    wanted, found = td3.critic_losses(data, noise), made.critic_losses(data, noise[burn_in:])
    np.testing.assert_allclose(found.targets, wanted.targets, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.values[0], wanted.values[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", [CONFIG, RECURRENT])
def test_a_target_of_three_rewards_by_hand(config: RunSpecification) -> None:
    """Of six rows the first three learn; each target ends three rows on, where that of one reward does."""
    three, one = varied(config, window=6, n_step=3), varied(config, window=6)
    data, noise = batch_of(three), drawn(three, 5)
    found, single = learner(three).critic_losses(data, noise[2:]), learner(one).critic_losses(data, noise)
    rewards = 0.1 * data.rewards
    values = (single.targets - rewards[:5]) / 0.9
    for t in range(3):
        expected = rewards[t] + 0.9 * rewards[t + 1] + 0.81 * rewards[t + 2] + 0.729 * values[t + 2]
        np.testing.assert_allclose(found.targets[t], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.values[0], single.values[0][:3], rtol=1e-5, atol=1e-6)


def test_flows_beside_others_have_a_discount_of_their_own() -> None:
    """Each window's sums are those of a learner whose only discount is its own."""
    whole = varied(CONFIG, window=5, n_step=3, states="flows", discount_shared=0.5)
    data, noise = batch_of(whole), drawn(whole, 2)
    shared = np.array([False, True, False, True, False, False])
    data = data._replace(states=tf.constant(shared * 0.5, tf.float32)[None, :, None] * tf.ones([5, 1, STATES]))
    alone, beside = (varied(whole, discount=of, discount_shared=None) for of in (0.9, 0.5))
    found, *expected = (learner(of).critic_losses(data, noise).targets for of in (whole, alone, beside))
    np.testing.assert_allclose(found, np.where(shared, expected[1], expected[0]), rtol=1e-5)
    assert np.abs(expected[0] - expected[1]).min() > 1e-3


@pytest.mark.parametrize("config", [CONFIG, REBRAC])
def test_nothing_after_a_kick_reaches_what_is_learned_of_the_rows_before(config: RunSpecification) -> None:
    config = varied(config, window=6, n_step=3)
    made, noise = learner(config), drawn(config, 3)
    data = kicked(batch_of(config), 2)
    after = tf.constant([0.0, 0, 0, 9, 9, 9])[:, None]
    at_kick = tf.constant([0.0, 0, 9, 0, 0, 0])[:, None]
    other = data._replace(
        observations=data.observations + after[..., None],
        rewards=data.rewards + after + at_kick,
        actions=data.actions + after + at_kick,
    )
    ours, theirs = (made.critic_losses(each, noise) for each in (data, other))
    np.testing.assert_allclose(ours.targets[:2], theirs.targets[:2], rtol=1e-6)
    for a, b in zip(ours.losses, theirs.losses, strict=True):
        assert float(a) == pytest.approx(float(b), rel=1e-6)
    plain = made.critic_losses(batch_of(config), noise)
    assert np.abs(plain.targets[:2] - ours.targets[:2]).min() > 1e-4
    ours, theirs = (made.judges.action_metrics(x, acted(made, x).actions)["cloning_error"] for x in (data, other))
    assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


def test_critics_see_the_network_and_the_actor_does_not() -> None:
    made, data = learner(CONFIG), batch_of(CONFIG)
    other = data._replace(states=data.states + 1)
    noise = drawn(CONFIG, 1)
    assert np.abs(made.critic_losses(data, noise).values[0] - made.critic_losses(other, noise).values[0]).min() > 1e-4
    assert np.abs(made.critic_losses(data, noise).targets - made.critic_losses(other, noise).targets).min() > 1e-4
    np.testing.assert_array_equal(acted(made, data).actions, acted(made, other).actions)


@pytest.mark.parametrize("config", [CONFIG, varied(RECURRENT, burn_in=1)])
def test_weights_follow_the_advantages_over_the_behaviours_value(config: RunSpecification) -> None:
    """A = r + 0.9 r' + 0.81 V(s'') - V(s), a kick's state in place of s''; exp(A / D), D their deviation in a group."""
    config = varied(config, window=6, n_step=2, states="flows", beta=1.0, ratio_cap=1.5)
    made, data = learner(config), kicked(batch_of(config), 3)
    data = data._replace(states=tf.constant([0.0, 0.5, 0, 1, 0, 0])[None, :, None] * tf.ones([6, 1, STATES]))
    first, value = config.burn_in, made.networks.value
    v = np.asarray(value.unroll(data.inputs, tf.zeros([config.batch, config.network.memory]))[0])
    found = np.asarray(made.advantages(data))
    rewards = 0.1 * data.rewards.numpy()
    for t in range(first, 4):
        one, two = rewards[t] + 0.9 * v[t + 1], rewards[t] + 0.9 * rewards[t + 1] + 0.81 * v[t + 2]
        np.testing.assert_allclose(found[t - first], (one if t == 2 else two) - v[t], rtol=1e-4, atol=1e-5)
    _, (metrics, weights) = made._judged(data, drawn(config, 4 - first), WHOLE)
    own = np.asarray(data.labels[first:4]) * np.ones_like(found)
    for group in ([1, 3], [0, 2, 4, 5]):
        counted = own[:, group] > 0
        exponents = np.exp(found[:, group] / found[:, group][counted].std())
        wanted = np.minimum(exponents, 1.5) * counted
        np.testing.assert_allclose(weights.numpy()[:, group], wanted / wanted[counted].mean(), rtol=1e-3)
    assert float(metrics["value_loss"]) == pytest.approx((own * found**2).mean(), rel=1e-4)
    error = (np.asarray(made.judges.actions(data)) - data.actions[first:4]) ** 2
    clone = varied(config, alpha=0.0).algorithm
    made.config = clone
    assert float(made.actor_loss(data, weights).loss) == pytest.approx((weights * error).numpy().mean(), rel=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        varied(CONFIG, average=0.9, window=5, n_step=2),
        varied(CONFIG, unit="slope", policy_delay=1),
        varied(REBRAC, policy_delay=1),
        varied(CONFIG, states="flows", beta=0.5, alpha_shared=1.0),
        varied(RECURRENT, burn_in=2, huber=1.0, gradient_clip=1.0, n_step=2, unit="deviation"),
    ],
)
def test_an_update_moves_every_weight_and_is_a_function_of_the_seed(config: RunSpecification) -> None:
    assert_moves_alike(lambda: learner(config), kicked(batch_of(config), 1), kicked(batch_of(config, 1), 1))


@pytest.mark.parametrize("changes", [{}, {"beta": 0.5, "states": "flows"}, {"critic_cloning": 0.5}])
def test_it_looks_at_no_row_between_a_sums_ends(changes: dict[str, Any]) -> None:
    assert_looks_at_no_other_row(varied(CONFIG, window=9, n_step=5, burn_in=2, policy_delay=1, **changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n_step": 2}, "n_step must be at most"),
        ({"alpha": -1.0}, "alpha cannot be negative"),
        ({"alpha_shared": 1.0}, "alpha_shared tells flows alone from others: give data.states"),
        ({"discount_shared": 0.9}, "discount_shared tells flows alone from others"),
        ({"discount_shared": 1.0, "states": "flows"}, "discount_shared must be from 0 to below 1"),
        ({"beta": 1.0}, "beta tells flows alone from others"),
        ({"critic_cloning": -1.0}, "critic_cloning cannot be negative"),
        ({"policy_delay": 0}, "policy_delay must be at least 1"),
    ],
)
def test_what_does_not_fit_is_one_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SageccError, match=told):
        varied(CONFIG, **changes)


def test_only_dense_critics_are_normalised() -> None:
    with pytest.raises(SageccError, match="kind mlp"):
        varied(RECURRENT, critic_norm=True)
    critic: Any = learner(REBRAC).networks.critics[0]
    assert critic.weights()["layer0.norm.scale"].shape == (12,)


def test_it_prefers_the_better_action_where_a_clone_would_do_neither(make_pool: PoolMaker, tmp_path: Path) -> None:
    algorithm = {"name": "td3_bc", "average": 0.9, "unit": "deviation"}
    assert_prefers_the_better_action(tmp_path, make_pool((2000, 2000)), algorithm)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) not in (2, 4, 8, 16), reason="cores must share 64 windows equally")
def test_all_cores_of_a_machine_train_what_one_does(make_pool: PoolMaker, tmp_path: Path) -> None:
    """Rounding apart, which grows with the updates."""
    algorithm, pool, policies = {"name": "td3_bc", "policy_delay": 2, "unit": "deviation"}, make_pool((2000, 2000)), []
    for strategy in ("one", "mirrored"):
        folder = tmp_path / strategy
        folder.mkdir()
        assert_prefers_the_better_action(folder, pool, algorithm, "--strategy", strategy, "--device", "cpu")
        policies.append(load_file(folder / "models" / "a" / "policy.safetensors"))
    for name, values in policies[0].items():
        np.testing.assert_allclose(policies[1][name], values, atol=1e-3, err_msg=name)
