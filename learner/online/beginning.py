# SPDX-License-Identifier: Apache-2.0
"""Going on in labs from a policy that was learned elsewhere, from a pool say.

The actor, its target and its average begin with the policy's weights, and inputs are scaled as the policy's are.
Critics begin new: those of a pool may have seen what only its recorder knows, and labs have none of that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.specification import RunSpecification
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.folder import WEIGHTS


def check_policy(policy: PolicyArtefact, specification: RunSpecification, task: OnlineTask) -> None:
    """Raise SageccError where a policy has another network, other inputs or another control than a run in labs."""
    for what, theirs, ours in _compared(policy, specification, task):
        if theirs != ours:
            raise SageccError(
                f"{policy.path}: its {what} is {theirs!r:.60}, this configuration's {ours!r:.60}: choose another "
                "configuration or policy"
            )


def policy_identity(policy: PolicyArtefact) -> str:
    """Return what tells the weights and inputs that a run goes on from."""
    content = [policy.card["files"][WEIGHTS], policy.card["inputs"]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _compared(
    policy: PolicyArtefact, specification: RunSpecification, task: OnlineTask
) -> Iterator[tuple[str, Any, Any]]:
    """Yield what must be alike: its name, the policy's and the run's."""
    network, scaling = specification.network, policy.scaling
    sizes = network.sizes(len(task.observations))
    yield "observation", " ".join(policy.source), " ".join(task.source)
    yield "list of observations", policy.observations, task.observations
    yield "list of rules left out", policy.without, ()
    yield "kind of network", policy.sizes.kind, sizes.kind
    yield "network", policy.sizes, sizes
    yield "input_transform", scaling.transform, network.input_transform
    yield "input_limit", scaling.limit, float(network.input_limit)
    control = specification.control.around(task.control)
    for field in fields(control):
        yield f"control.{field.name}", getattr(policy.control, field.name), getattr(control, field.name)
