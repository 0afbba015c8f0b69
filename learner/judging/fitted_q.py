# SPDX-License-Identifier: Apache-2.0
"""Fitted-Q evaluation (Le, Voloshin and Yue, ICML 2019; arXiv 1903.08738): what a policy would earn, from others' data.

Q(s, a) regresses on (1 - discount) r + discount Q'(s', pi(s')) over recorded transitions, Q' a target network that
follows it: a value is a discounted mean of rewards, in their units. Q sees the pool's features, which environment it
is, and the action; its layers are normalised, which bounds what it says of actions that nobody took (Ball et al.,
ICML 2023). Transitions whose action is not the recorder's own are left out, and so are trajectories' last ones,
which end because the recording does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.deterministic import DenseCritic
from sagecc.learner.optimisers import Trained, copy, differentiated, move, rate_share
from sagecc.policy.mlp import Mlp

ACTION_SCALE = 0.01
"""Q sees sign(a) ln(1 + |a| / ACTION_SCALE) of an action a in log2: most are near 0, and a halving is -1."""

ROWS_AT_ONCE = 50_000
"""RecordedDecisions whose values are computed at a time."""


@dataclass(frozen=True)
class Fitting:
    """How Q is fitted."""

    steps: int = 10_000
    """Updates."""
    batch: int = 512
    """Transitions of an update."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of its hidden layers."""
    rate: float = 1e-3
    """Learning rate of Adam, which falls to `final_rate` of it along a half cosine."""
    final_rate: float = 0.03
    """Share of the rate that is left at the end."""
    tau: float = 0.05
    """Share of the weights that the target takes over at each update."""


FITTING = Fitting()


@dataclass(frozen=True)
class Transitions:
    """What Q is fitted to: N decisions, of which M have an outcome that counts."""

    observations: Floats
    """Scaled [N, D]."""
    environments: Ints
    """Number of each one's environment, from 0 [N]."""
    done: Doubles
    """What was done, log2 of the window's ratio [N]."""
    policy: Doubles
    """What the policy would do, likewise [N]."""
    rewards: Doubles
    """Of what was done [N]."""
    counting: Ints
    """RecordedDecisions that count, from each of which decision n + 1 followed [M]."""


@dataclass(frozen=True)
class Evaluated:
    """What Q says, within the range of the rewards, as all values are."""

    done: Doubles
    """Q of what was done [N]."""
    policy: Doubles
    """Q of what the policy would do: the policy's value [N]."""
    errors: Doubles
    """(1 - discount) r + discount Q(s', pi(s')) - Q(s, a) of the decisions that count [M]."""


def evaluate(of: Transitions, discount: float, seed: int, fitting: Fitting) -> Evaluated:
    """Fit Q of a policy.

    Args:
        of: what it is fitted to.
        discount: per decision.
        seed: of the first weights and of what is drawn.
        fitting: how.
    """
    shift, scale = float(of.rewards[of.counting].mean()), float(of.rewards[of.counting].std()) or 1.0
    q = _Q(of, fitting, (of.rewards - shift) / scale)
    random = np.random.Generator(np.random.Philox(key=seed))
    q.begin(random)
    graph: Callable[..., Any] = tf.function(q.update, autograph=False)
    for step in range(1, fitting.steps + 1):
        rows = of.counting[random.integers(0, len(of.counting), fitting.batch)]
        graph(tf.constant(rows), tf.constant(step, tf.int64), discount)
    done, policy = (shift + scale * q.everywhere(actions) for actions in (q.done, q.policy))
    goals = (1 - discount) * of.rewards[of.counting] + discount * policy[of.counting + 1]
    return Evaluated(done, policy, goals - done[of.counting])


class _Q:
    """Q, its target, and what they are fitted to, in TensorFlow.

    Args:
        of: the transitions.
        fitting: how it is fitted.
        rewards: theirs, of mean 0 and deviation 1 [N]; a value of these is one of the others, shifted and scaled.
    """

    def __init__(self, of: Transitions, fitting: Fitting, rewards: Doubles) -> None:
        self._fitting, self._count = fitting, int(of.environments.max()) + 1
        self._observations, self._environments = tf.constant(of.observations), tf.constant(of.environments)
        self.done, self.policy = (tf.constant(_seen(actions)) for actions in (of.done, of.policy))
        self._rewards = tf.constant(rewards, tf.float32)
        self._range = float(rewards[of.counting].min()), float(rewards[of.counting].max())
        sizes = Mlp(of.observations.shape[1] + self._count, fitting.hidden, slope=0.2)
        self._critic, self._target = (DenseCritic(sizes, sizes.inputs, normalised=True) for _ in range(2))
        self._trained = Trained("critic", self._critic, fitting.rate, limit=0)

    def begin(self, random: np.random.Generator) -> None:
        """Draw weights of deviation 1 / sqrt(inputs), whatever TensorFlow's own generator has drawn before."""
        for variable in self._critic.weights().values():
            if len(variable.shape) == 2:
                variable.assign(random.normal(0, variable.shape[0] ** -0.5, variable.shape))
        copy(self._critic, self._target)

    def update(self, rows: Any, step: Any, discount: float) -> None:
        """Take a step, from 1, on some of the decisions that count [B]."""
        following = self._within(self._target, rows + 1, self.policy)
        goals = (1 - discount) * tf.gather(self._rewards, rows) + discount * following

        def loss() -> tuple[Any, None]:
            return tf.reduce_mean(tf.square(self._of(self._critic, rows, self.done) - goals)), None

        ((gradients,), _), fitting = differentiated(loss, [self._trained]), self._fitting
        self._trained.apply(gradients, step, rate_share(step, fitting.steps, fitting.final_rate))
        move(self._critic, self._target, fitting.tau)

    def everywhere(self, actions: Any) -> Doubles:
        """Return the values of actions at every decision [N]."""
        rows = np.arange(len(self._rewards))
        parts = (rows[begin : begin + ROWS_AT_ONCE] for begin in range(0, len(rows), ROWS_AT_ONCE))
        values = [self._within(self._critic, tf.constant(part), actions).numpy() for part in parts]
        return np.concatenate(values).astype(np.float64)

    def _within(self, network: DenseCritic, rows: Any, actions: Any) -> Any:
        return tf.clip_by_value(self._of(network, rows, actions), *self._range)

    def _of(self, network: DenseCritic, rows: Any, actions: Any) -> Any:
        environments = tf.one_hot(tf.gather(self._environments, rows), self._count)
        inputs = tf.concat([tf.gather(self._observations, rows), environments], axis=-1)
        return network.values(inputs, tf.gather(actions, rows), None)


def _seen(actions: Doubles) -> Floats:
    return np.asarray(np.sign(actions) * np.log1p(np.abs(actions) / ACTION_SCALE), np.float32)
