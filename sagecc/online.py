# SPDX-License-Identifier: Apache-2.0
"""What a run learns in labs, from its specification: labs for a learner that knows none."""

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
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.specification import RunSpecification
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import NO_CODE, POLICY_PREFIX, TrustedCode


def observed(specification: RunSpecification) -> tuple[str, ...]:
    """Return the names of what a policy observes; raises SageccError where the task that says so is none."""
    if specification.data:
        return specification.data.observations
    return LearningTask.of(specification.task or {}).observations


def online_task(specification: RunSpecification, kernel: Path, trusted: TrustedCode = NO_CODE) -> OnlineTask:
    """Return what a specification says is to be learned in labs.

    Args:
        specification: the run's.
        kernel: the lab's kernel.
        trusted: the code that its networks may name.

    Raises:
        SageccError: The task is none, names no networks or code that is not trusted, or there is no kernel.
    """
    if specification.task is None or specification.labs is None:
        raise SageccError("training configuration: there is no task to learn in labs")
    labs, task = specification.labs, LearningTask.of(specification.task)
    give_up = GiveUp(labs.give_up_share, labs.give_up_time_s) if labs.give_up_share else None
    named = _named(task, trusted)
    competitors = {cross.scheme for environment in named for cross in environment.cross}
    lab = kernel_identity(kernel, {POLICY_PREFIX, task.control.underlying_scheme, *competitors})
    version = f"labs-{versions.LABS}"
    parts = [json.dumps(specification.task, sort_keys=True), lab, version, *([_digest(named)] if named else [])]
    return OnlineTask(
        identity=" ".join(parts),
        observations=task.observations,
        states=len(task.states),
        source=task.source,
        control=task.control,
        # Beside the flow under test, the networks of a profile have flows of other schemes; drawn ones, of this policy.
        make_labs=partial(Rollouts, task, flows="own", kernel=kernel, give_up=give_up, trusted=trusted),
    )


def networks_digest(specification: RunSpecification) -> str:
    """Return what tells the networks of the profiles and sets that a specification names from others so named."""
    return _digest(_named(LearningTask.of(specification.task or {}), NO_CODE))


def _named(task: LearningTask, trusted: TrustedCode) -> tuple[Environment, ...]:
    if task.networks is None:
        raise SageccError("training configuration: task: name the networks to learn on")
    networks = candidates(task.networks, trusted)
    return tuple(item for item in networks if isinstance(item, Environment)) if isinstance(networks, tuple) else ()


def _digest(environments: tuple[Environment, ...]) -> str:
    """Return what tells networks that have the same name from each other."""
    return hashlib.sha256("\n".join(environment.to_json() for environment in environments).encode()).hexdigest()
