# SPDX-License-Identifier: Apache-2.0
"""Acme's TD3 (acme/agents/jax/td3/learning.py of 0.2.4) over again, step by step, for dense networks.

Acme has it in JAX alone, which is not installed; this follows its functions policy_loss, critic_loss and update_step
line by line, with Acme's own TensorFlow `dpg` (acme/tf/losses/dpg.py), which is what rlax.dpg_loss computes. Optax's
Adam is written out. Noise is given and not drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.acme_compat import losses
from sagecc.learner.specification import RunSpecification

Params = dict[str, Any]


def layers(params: Params) -> int:
    return sum(name.startswith("layer") for name in params) // 2


def policy(params: Params, observation: Any, slope: float) -> Any:
    x = observation
    for i in range(layers(params)):
        x = tf.nn.leaky_relu(x @ params[f"layer{i}.w"] + params[f"layer{i}.b"], slope)
    return tf.tanh(x @ params["answer.w"] + params["answer.b"])


def critic(params: Params, observation: Any, action: Any, slope: float, action_layer: int) -> Any:
    x = observation
    for i in range(layers(params)):
        x = tf.concat([x, action], -1) if i + 1 == action_layer else x
        x = tf.nn.leaky_relu(x @ params[f"layer{i}.w"] + params[f"layer{i}.b"], slope)
    return (x @ params["answer.w"] + params["answer.b"])[:, 0]


class Adam:
    """optax.adam, with the epsilon where TensorFlow has it (Kingma and Ba, end of section 2)."""

    def __init__(self, rate: float) -> None:
        self.rate, self.count = rate, 0
        self.mu: Params = {}
        self.nu: Params = {}

    def update(self, params: Params, gradients: Params) -> Params:
        self.count += 1
        new = {}
        for name, g in gradients.items():
            self.mu[name] = 0.9 * self.mu.get(name, 0.0) + 0.1 * g
            self.nu[name] = 0.999 * self.nu.get(name, 0.0) + 0.001 * g * g
            rate = self.rate * np.sqrt(1 - 0.999**self.count) / (1 - 0.9**self.count)
            new[name] = params[name] - rate * self.mu[name] / (tf.sqrt(self.nu[name]) + 1e-8)
        return new


class AcmeTd3:
    """TD3Learner.

    A transition is observation [B, D + G], of which the policy sees the first D, action [B, 1], reward [B],
    discount [B], next_observation [B, D + G].
    """

    def __init__(
        self,
        specification: RunSpecification,
        seen: int,
        policy_params: Params,
        critic_params: Params,
        twin_params: Params,
    ) -> None:
        config: Any = specification.algorithm
        self.config, self.network, self.seen = config, vars(specification.network), seen
        self.policy, self.target_policy = policy_params, dict(policy_params)
        self.critic, self.target_critic = critic_params, dict(critic_params)
        self.twin, self.target_twin = twin_params, dict(twin_params)
        self.policy_adam, self.critic_adam, self.twin_adam = (
            Adam(rate) for rate in (config.policy_rate, config.critic_rate, config.critic_rate)
        )
        self.steps = 0

    def _critic(self, params: Params, observation: Any, action: Any) -> Any:
        return critic(params, observation, action, self.network["slope"], self.network["action_layer"])

    def _policy(self, params: Params, observation: Any) -> Any:
        return policy(params, observation[:, : self.seen], self.network["slope"])

    def policy_loss(self, next_observation: Any) -> tuple[Any, Params]:
        """The loss and its gradients; learning.py calls it with `transitions.next_observation`."""
        with tf.GradientTape(persistent=True) as tape:
            for value in self.policy.values():
                tape.watch(value)
            action = self._policy(self.policy, next_observation)
            value = self._critic(self.critic, next_observation, action)
            loss = tf.reduce_mean(losses.dpg(value, action, tape=tape))
        return loss, tape.gradient(loss, self.policy)

    def critic_loss(self, params: Params, transition: dict[str, Any], noise: Any) -> tuple[Any, Params]:
        """The loss of one critic and its gradients."""
        with tf.GradientTape() as tape:
            for value in params.values():
                tape.watch(value)
            q_tm1 = self._critic(params, transition["observation"], transition["action"])
            action = self._policy(self.target_policy, transition["next_observation"])
            clip = self.config.target_noise_clip
            noisy = tf.clip_by_value(action + tf.clip_by_value(noise, -clip, clip), -1.0, 1.0)
            q_t = self._critic(self.target_critic, transition["next_observation"], noisy)
            twin_q_t = self._critic(self.target_twin, transition["next_observation"], noisy)
            q_t = tf.minimum(q_t, twin_q_t)
            target = transition["reward"] + self.config.discount * transition["discount"] * q_t
            td_error = tf.stop_gradient(target) - q_tm1
            loss = tf.reduce_mean(tf.square(td_error))
        return loss, tape.gradient(loss, params)

    def update_step(self, transition: dict[str, Any], noise: Any) -> dict[str, float]:
        """Take one update; `delay` as learning.py has it."""
        tau = self.config.tau

        def polyak(target: Params, params: Params) -> Params:
            return {name: target[name] * (1 - tau) + params[name] * tau for name in params}

        critic_loss, critic_gradients = self.critic_loss(self.critic, transition, noise)
        twin_loss, twin_gradients = self.critic_loss(self.twin, transition, noise)
        policy_loss, policy_gradients = self.policy_loss(transition["next_observation"])
        critic_params = self.critic_adam.update(self.critic, critic_gradients)
        twin_params = self.twin_adam.update(self.twin, twin_gradients)
        self.target_critic = polyak(self.target_critic, critic_params)
        self.target_twin = polyak(self.target_twin, twin_params)
        if self.steps % self.config.policy_delay == 0:
            self.policy = self.policy_adam.update(self.policy, policy_gradients)
            self.target_policy = polyak(self.target_policy, self.policy)
        self.critic, self.twin = critic_params, twin_params
        self.steps += 1
        return {
            "policy_loss": float(np.asarray(policy_loss)),
            "critic_loss": float(np.asarray(critic_loss + twin_loss)) / 2,
        }
