# SPDX-License-Identifier: Apache-2.0
"""A policy as the controller of a flow in the lab, by the name of its scheme `policy:PATH`."""

from __future__ import annotations

import hashlib

from sagecc.collector.lab.spec import Drive
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.schemas.schemes import POLICY_PREFIX


def policy_controller(scheme: str, episode: str | None = None) -> PolicyAgent:
    """Return the agent of a scheme's policy.

    Args:
        scheme: `policy:PATH`.
        episode: an episode's id, which names its seed: actions are drawn from the policy's mixture, the same in every
            run of that episode. None takes the mixture's mean.

    Raises:
        SageccError: there is no policy, or none that can be run.
    """
    agent = PolicyAgent.load(scheme.removeprefix(POLICY_PREFIX), seed=None if episode is None else 0)
    agent.reset(stream=None if episode is None else random_stream(episode))
    return agent


def agent_drive(agent: PolicyAgent, latency_us: int = 0) -> Drive:
    """Return how an agent drives a flow: on top of its policy's underlying scheme.

    Args:
        agent: the policy's.
        latency_us: from a sample to when its action takes effect.
    """
    return Drive(agent.underlying_scheme, latency_us)


def policy_drive(scheme: str, latency_us: int = 0) -> Drive:
    """Return how the policy of a scheme `policy:PATH` drives a flow; see policy_controller and agent_drive."""
    return agent_drive(policy_controller(scheme), latency_us)


def random_stream(episode: str) -> int:
    """Return the number of the random stream that an episode's actions are drawn from."""
    return int.from_bytes(hashlib.sha256(episode.encode()).digest()[:8], "little")
