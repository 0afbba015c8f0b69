# SPDX-License-Identifier: Apache-2.0
"""What an online run learns, from its configuration: labs for a learner that knows none."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

from sagecc.collector.kernel.identity import kernel_identity
from sagecc.common import versions
from sagecc.common.errors import SageccError
from sagecc.execution.environments.networks import candidates
from sagecc.execution.environments.rollouts import Rollouts
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.learner.online.config import OnlineConfig
from sagecc.learner.online.labs import OnlineTask
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import NO_CODE, POLICY_PREFIX, TrustedCode


def observed(config: OnlineConfig) -> tuple[str, ...]:
    """Return the names of what a configuration's policy observes; raises SageccError where its task is none."""
    return LearningTask.of(config.task).observations


def online_task(config: OnlineConfig, kernel: Path, trusted: TrustedCode = NO_CODE) -> OnlineTask:
    """Return what a configuration says is to be learned.

    Args:
        config: the configuration.
        kernel: the lab's kernel.
        trusted: the code that its networks may name.

    Raises:
        SageccError: The task is none, names no networks or code that is not trusted, or there is no kernel.
    """
    task = LearningTask.of(config.task)
    give_up = GiveUp(config.give_up_share, config.give_up_time_s) if config.give_up_share else None
    named = _named(task, trusted)
    competitors = {cross.scheme for environment in named for cross in environment.cross}
    lab = kernel_identity(kernel, {POLICY_PREFIX, task.control.underlying_scheme, *competitors})
    labs = f"labs-{versions.LABS}"
    parts = [json.dumps(config.task, sort_keys=True), lab, labs, *([_digest(named)] if named else [])]
    return OnlineTask(
        identity=" ".join(parts),
        observations=task.observations,
        states=len(task.states),
        source=task.source,
        control=task.control,
        # Beside the flow under test, the networks of a profile have flows of other schemes; drawn ones, of this policy.
        make_labs=partial(Rollouts, task, flows="own", kernel=kernel, give_up=give_up, trusted=trusted),
    )


def networks_digest(config: OnlineConfig) -> str:
    """Return what tells the networks of the profiles and sets that a configuration names from others so named."""
    return _digest(_named(LearningTask.of(config.task), NO_CODE))


def _named(task: LearningTask, trusted: TrustedCode) -> tuple[Environment, ...]:
    if task.networks is None:
        raise SageccError("training configuration: task: name the networks to learn on")
    networks = candidates(task.networks, trusted)
    return tuple(item for item in networks if isinstance(item, Environment)) if isinstance(networks, tuple) else ()


def _digest(environments: tuple[Environment, ...]) -> str:
    """Return what tells networks that have the same name from each other."""
    return hashlib.sha256("\n".join(environment.to_json() for environment in environments).encode()).hexdigest()
