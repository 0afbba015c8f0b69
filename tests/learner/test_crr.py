# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import snt, tf
from sagecc.learner import acme_compat, optimisers
from sagecc.learner.algorithms import crr
from sagecc.learner.core import Batch
from sagecc.learner.mixture import Mixture
from sagecc.learner.specification import RunSpecification
from tests.helpers import specifications
from tests.helpers.specifications import pool_batch, spec, varied

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

l2_project = importlib.import_module("acme.tf.losses.distributional").l2_project

CONFIG = spec(specifications.SMALLEST, width=16, gru=12, batch=4, window=7, atoms=11, value_samples=3)
ALGORITHM: Any = CONFIG.algorithm
RANGE = (-20.0, 60.0)


def batch(config: RunSpecification = CONFIG, features: int = 5, seed: int = 0) -> Batch:
    generator = np.random.default_rng(seed)
    shape = (config.window, config.batch)
    return pool_batch(
        tf.constant(generator.normal(size=(*shape, features)), tf.float32),
        tf.constant(generator.normal(size=shape), tf.float32),
        tf.constant(generator.uniform(-5, 10, size=shape), tf.float32),
    )


def learner(config: RunSpecification = CONFIG, seed: int = 0) -> Any:
    tf.random.set_seed(seed)
    return specifications.learner(config, 5, seed=seed, value_range=RANGE)


@cache
def graph(learner: Any) -> Any:
    return optimisers.compiled(learner.update)


def step(learner: Any, *batches: Batch) -> Any:
    """Take an update on each; return the metrics of the last."""
    return [graph(learner)(each).metrics for each in batches][-1]


def test_projection_by_hand() -> None:
    """Support 0, 1, 2. From r = 0.5, discount 0.5: the points go to 0.5, 1, 1.5."""
    values = tf.constant([0.0, 1.0, 2.0])
    projected = crr.project(tf.constant([0.5]), 0.5, tf.constant([[0.2, 0.3, 0.5]]), values)
    np.testing.assert_allclose(projected, [[0.1, 0.1 + 0.3 + 0.25, 0.25]], atol=1e-6)


@pytest.mark.parametrize(("reward", "end"), [(-100.0, 0), (100.0, 2)])
def test_projection_clips_to_the_support(reward: float, end: int) -> None:
    projected = crr.project(tf.constant([reward]), 0.9, tf.constant([[0.2, 0.3, 0.5]]), tf.constant([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(projected, [np.eye(3)[end]], atol=1e-6)


@settings(max_examples=30)
@given(
    reward=st.floats(-50, 50, width=32),
    discount=st.floats(0, 0.99),
    low=st.floats(-100, 0),
    width=st.floats(1, 500),
    atoms=st.integers(2, 101),
    seed=st.integers(0, 99),
)
def test_projection_agrees_with_acmes(
    reward: float, discount: float, low: float, width: float, atoms: int, seed: int
) -> None:
    values = tf.linspace(tf.constant(low, tf.float32), tf.constant(low + width, tf.float32), atoms)
    probabilities = np.random.default_rng(seed).dirichlet(np.ones(atoms), size=2).astype(np.float32)
    rewards = tf.constant([reward, -reward], tf.float32)
    ours = crr.project(rewards, discount, probabilities, values).numpy()
    theirs = l2_project(rewards[:, None] + discount * values, probabilities, values)
    np.testing.assert_allclose(ours, theirs, atol=2e-4)
    np.testing.assert_allclose(ours.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "expected"), [("exp", [np.exp(-1), 1, 20]), ("binary", [0, 0, 1]), ("identity", [1, 1, 1])]
)
def test_filters(kind: str, expected: list[float]) -> None:
    config = varied(CONFIG, filter=kind, beta=2.0)
    np.testing.assert_allclose(learner(config)._filter(tf.constant([-2.0, 0.0, 50.0])), expected, rtol=1e-6)


class _Fixed(snt.Module):  # type: ignore[misc]
    """Our head as Acme's learner wants it: a distribution whose samples are its components' means in turn."""

    def __init__(self, head: snt.Module) -> None:
        super().__init__()
        self.head = head

    def __call__(self, hidden: tf.Tensor) -> object:
        return _Distribution(self.head(hidden))


class _Distribution:
    def __init__(self, mixture: Mixture) -> None:
        self.mixture, self.batch_shape = mixture, mixture.loc.shape[:1]

    def sample(self, count: int) -> tf.Tensor:
        return fixed_sample(self.mixture, count, None)[..., None]

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        return self.mixture.log_prob(action[:, 0])


def fixed_sample(mixture: Mixture, count: int, seed: object, share: object = None) -> tf.Tensor:
    return tf.stack([mixture.loc[..., i] + 0.3 * i for i in range(count)])


class _Multiplexer(snt.Module):  # type: ignore[misc]
    def __init__(self, encoder: snt.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return self.encoder(tf.concat([observation, action], -1))


class _Values(snt.Module):  # type: ignore[misc]
    def __init__(self, head: snt.Linear, values: tf.Tensor) -> None:
        super().__init__()
        self.head, self.values = head, values

    def __call__(self, hidden: tf.Tensor) -> object:
        distribution = acme_compat.networks.DiscreteValuedDistribution
        return distribution(values=self.values, logits=self.head(hidden))


class _Recorder:
    """An optimizer that keeps the gradients it is given and changes nothing."""

    def apply(self, gradients: list[tf.Tensor], variables: list[tf.Variable]) -> None:
        self.gradients = {v.ref(): g for v, g in zip(variables, gradients, strict=True)}


def _as_acme_policy(policy: snt.Module) -> snt.Module:
    trunk = policy.trunk
    return snt.DeepRNN([trunk.encoder, trunk.gru.core, trunk.encoder2, trunk.fc, *trunk.blocks, _Fixed(policy.head)])


def _as_acme_critic(critic: snt.Module, values: tf.Tensor) -> snt.Module:
    trunk = critic.trunk
    return acme_compat.networks.CriticDeepRNN(
        [
            _Multiplexer(trunk.encoder),
            trunk.gru.core,
            trunk.encoder2,
            trunk.fc,
            *trunk.blocks,
            _Values(critic.head, values),
        ]
    )


@pytest.mark.parametrize("kind", ["exp", "binary", "identity"])
def test_losses_and_gradients_agree_with_acmes_learner(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same weights, same batch, same actions drawn: Acme's RCRRLearner, unrolled tick by tick, is the reference.

    Acme divides its sums over T-1 transitions by T, and clips gradients at 40; neither changes what is compared.
    """
    config = varied(CONFIG, filter=kind, td_samples=1, beta=3.0)
    ours, algorithm = learner(config), vars(config.algorithm)
    # Different targets and an uneven policy, so that no term of the losses vanishes or coincides.
    for i, variable in enumerate(
        v for n in (ours.policy, ours.critic, ours.target_policy, ours.target_critic) for v in n.weights().values()
    ):
        variable.assign_add(tf.random.stateless_normal(variable.shape, [i, 0], stddev=0.1))
    data = batch(config)
    monkeypatch.setattr(Mixture, "sample", fixed_sample)
    with tf.GradientTape(persistent=True) as tape:
        losses = ours.losses(data, tf.constant([0, 0]))
    scale = (config.window - 1) / config.window

    transition = tree.map_structure(
        lambda x: tf.transpose(x, [1, 0, *range(2, x.shape.rank)]),
        {"o": data.observations, "a": data.actions[..., None], "r": data.rewards},
    )
    dataset = tf.data.Dataset.from_tensors(
        acme_compat.types.Transition(
            transition["o"], transition["a"], transition["r"], tf.ones_like(transition["r"]), ()
        )
    ).repeat()
    recorders = (_Recorder(), _Recorder())
    reference = acme_compat.reference_learner().RCRRLearner(
        policy_network=_as_acme_policy(ours.policy),
        critic_network=_as_acme_critic(ours.critic, ours.values),
        target_policy_network=_as_acme_policy(ours.target_policy),
        target_critic_network=_as_acme_critic(ours.target_critic, ours.values),
        dataset=dataset,
        policy_optimizer=recorders[0],
        critic_optimizer=recorders[1],
        discount=algorithm["discount"],
        num_action_samples_policy_weight=algorithm["value_samples"],
        policy_improvement_modes={"identity": "all"}.get(kind, kind),
        beta=algorithm["beta"],
        clipping=False,
    )
    reported = reference._step(next(reference._iterator))
    assert float(losses.critic) * scale == pytest.approx(float(reported["critic_loss"]), rel=1e-4)
    assert float(losses.policy) * scale == pytest.approx(float(reported["policy_loss"]), rel=1e-4)
    for network, loss, recorder in (
        (ours.policy, losses.policy, recorders[0]),
        (ours.critic, losses.critic, recorders[1]),
    ):
        variables = list(network.weights().values())
        assert len(variables) == len(recorder.gradients)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            np.testing.assert_allclose(gradient * scale, recorder.gradients[variable.ref()], atol=1e-4, rtol=1e-4)


def test_n_step_returns_by_hand() -> None:
    """Rewards 1, 2, 4, 8 and discount 0.5: two steps from each, one from the last."""
    reward = tf.constant([1.0, 2.0, 4.0, 8.0])[:, None]
    total, last, discount = crr.n_step_returns(reward, 0.5, 2)
    np.testing.assert_allclose(total[:, 0], [2, 4, 8, 8])
    np.testing.assert_array_equal(last, [1, 2, 3, 3])
    np.testing.assert_allclose(discount[:, 0, 0], [0.25, 0.25, 0.25, 0.5])


def test_more_steps_than_a_window_holds_are_those_there_are() -> None:
    reward = tf.constant([1.0, 2.0, 4.0])[:, None]
    for mine, other in zip(crr.n_step_returns(reward, 0.5, 3), crr.n_step_returns(reward, 0.5, 99), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("trace", [0.0, 0.6, 1.0])
def test_means_of_lambda_returns_by_hand(trace: float) -> None:
    """Of six transitions, the fourth action no label: the third's return ends in the value of the state there."""
    random, values = np.random.default_rng(0), np.linspace(-50, 50, 101)
    following = random.dirichlet(np.ones(101), size=(6, 3)).astype(np.float32)
    rewards, labels = random.uniform(-2, 2, size=(6, 3)), np.array([1, 1, 1, 0, 1, 1])[:, None] * np.ones(3)
    data = pool_batch(*(tf.constant(x, tf.float32) for x in (np.zeros((6, 3, 1)), rewards, rewards)))
    data = data._replace(labels=tf.constant(labels, tf.float32))
    found = crr.lambda_returns(data, tf.constant(following), 0.9, trace, tf.constant(values, tf.float32))
    np.testing.assert_allclose(tf.reduce_sum(found, axis=-1), np.ones((6, 3)), atol=1e-5)
    means, expected = following @ values, np.zeros((6, 3))
    for t in reversed(range(6)):
        onwards = trace if t < 5 and labels[t + 1, 0] else 0.0
        expected[t] = rewards[t] + 0.9 * ((1 - onwards) * means[t] + (onwards * expected[t + 1] if onwards else 0))
    np.testing.assert_allclose(found.numpy() @ values, expected, atol=1e-3)


def test_lambda_of_nothing_is_one_reward_and_of_all_changes_the_critics_loss_alone() -> None:
    data, seed = batch(), tf.constant([0, 0])
    one, tiny, most = (learner(varied(CONFIG, trace=trace)).losses(data, seed) for trace in (0.0, 1e-7, 0.9))
    assert float(one.critic) == pytest.approx(float(tiny.critic), rel=1e-5)
    assert float(most.critic) != pytest.approx(float(one.critic), rel=1e-3)
    assert float(most.policy) == float(one.policy)


def test_lambda_goes_with_single_rewards() -> None:
    with pytest.raises(SageccError, match="trace goes with an n_step of 1"):
        varied(CONFIG, trace=0.5, n_step=2)


def test_the_critic_sees_the_network_and_the_policy_does_not() -> None:
    tf.random.set_seed(0)
    ours = specifications.learner(CONFIG, 5, states=2, value_range=RANGE)
    data, seed = batch(), tf.constant([0, 0])
    one, other = (
        ours.losses(data._replace(states=states + tf.zeros([*data.actions.shape, 2])), seed) for states in (0.0, 1.0)
    )
    assert np.abs(one.q - other.q).max() > 1e-3
    np.testing.assert_array_equal(one.drawn, other.drawn)
    assert np.isfinite(step(ours, data._replace(states=tf.zeros([*data.actions.shape, 2])))).all()


def test_n_step_is_off_by_default_and_changes_the_critics_loss_alone() -> None:
    data, seed = batch(), tf.constant([0, 0])
    one, three = (learner(varied(CONFIG, n_step=n)).losses(data, seed) for n in (1, 3))
    assert ALGORITHM.n_step == 1
    assert float(one.critic) != float(three.critic)
    assert float(one.policy) == float(three.policy)


@pytest.mark.parametrize(
    "change",
    [{"gru": 0}, {"gru": 0, "burn_in": 2}, {"second_encoder": False}, {"mixture": 1}, {"n_step": 3}, {"trace": 0.9}],
)
def test_every_variant_takes_a_step_and_moves_every_weight(change: dict[str, int]) -> None:
    ours = learner(varied(CONFIG, **change))
    before = {name: variable.numpy() for name, variable in ours.state().items()}
    assert np.isfinite(step(ours, batch(), batch(seed=1))).all()
    frozen = {"policy/head.logits.w", "policy/head.logits.b"} if "mixture" in change else set()
    for name, variable in ours.state().items():
        if name.startswith(("policy/", "critic/")):
            assert np.array_equal(before[name], variable) == (name in frozen), name


def test_without_gru_a_tick_stands_alone() -> None:
    ours = learner(varied(CONFIG, gru=0))
    data = batch()
    observation = data.observations
    other = tf.concat([observation[:2] + 1, observation[2:]], axis=0)
    zeros = tf.zeros([CONFIG.batch, 16])
    np.testing.assert_array_equal(*(ours.policy.unroll(x, zeros)[0].loc[2:] for x in (observation, other)))


def test_burn_in_rows_warm_the_state_but_carry_no_loss() -> None:
    warm = learner(varied(CONFIG, burn_in=3))
    data, seed = batch(), tf.constant([0, 0])
    losses = warm.losses(data, seed)
    assert losses.q.shape == (3, 4)
    full = learner(CONFIG).losses(data, seed)
    np.testing.assert_allclose(losses.q, full.q[3:], atol=1e-5)
    other_rewards = data._replace(rewards=data.rewards + tf.constant([9.0] * 3 + [0.0] * 4)[:, None])
    assert float(warm.losses(other_rewards, seed).critic) == pytest.approx(float(losses.critic), rel=1e-6)


def test_targets_follow_every_period() -> None:
    ours = learner(varied(CONFIG, target_period=2))
    weight, copy = ours.policy.weights()["fc.w"], ours.target_policy.weights()["fc.w"]
    before = weight.numpy()
    step(ours, batch())
    np.testing.assert_array_equal(copy, before)
    assert not np.array_equal(weight, before)
    step(ours, batch())
    np.testing.assert_array_equal(copy, weight)


@pytest.mark.parametrize(
    ("decay", "share"), [(0.0, (0.0, 0.0, 1.0)), (0.9, (1 / 3, 1 / 3, 1 / 3)), (0.5, (0.25, 0.25, 0.5))]
)
def test_exported_weights_are_the_average_of_the_steps(decay: float, share: tuple[float, ...]) -> None:
    """Step n leaves min(decay, n / (n + 1)) of the average before it: a plain mean until the decay remembers less."""
    ours = learner(varied(CONFIG, average=decay))
    weight, exported = ours.policy.weights()["fc.w"], ours.exported()["fc.w"]
    seen = [weight.numpy()]
    for i in range(2):
        step(ours, batch(seed=i))
        seen.append(weight.numpy())
    assert not np.array_equal(seen[1], seen[2])
    np.testing.assert_allclose(exported, sum(s * w for s, w in zip(share, seen, strict=True)), atol=1e-6)


def test_adam_moves_by_the_rate_at_first() -> None:
    """Adam's first update is the rate times the gradient's sign."""
    variable = tf.Variable([1.0, 1.0])
    optimisers.Adam([variable], 0.1).apply([tf.constant([3.0, -0.2])], tf.constant(1))
    np.testing.assert_allclose(variable, [0.9, 1.1], atol=1e-5)


def test_steps_are_a_function_of_the_seed() -> None:
    runs = []
    for seed in (0, 0, 1):
        ours = learner(seed=seed)
        runs.append(step(ours, batch(), batch(seed=1)).numpy())
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert runs[0].shape == (len(crr.METRICS),)


def test_a_step_shows_what_it_saw_of_each_transition() -> None:
    data, seed = batch(), tf.constant([0, 0], tf.int64)
    losses = learner().losses(data, seed)
    metrics, seen = optimisers.compiled(learner().update)(data)
    for name, wanted in (("advantage", "advantage"), ("filter_weight", "weight"), ("action", "drawn")):
        assert seen[name].shape == data.actions[1:].shape
        np.testing.assert_allclose(seen[name], getattr(losses, wanted), atol=1e-5)
    mean = metrics.numpy()[crr.METRICS.index("advantage_mean")]
    assert mean == pytest.approx(float(tf.reduce_mean(seen["advantage"])), abs=1e-5)
    np.testing.assert_array_equal(metrics, step(learner(), data))


def test_rates_fall_along_half_a_cosine() -> None:
    shares = [float(optimisers.rate_share(tf.constant(step), 101, 0.1)) for step in (1, 51, 101)]
    np.testing.assert_allclose(shares, [1, 0.55, 0.1], rtol=1e-6)
    assert optimisers.rate_share(tf.constant(7), 101, 1.0) == 1
