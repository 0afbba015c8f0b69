# SPDX-License-Identifier: Apache-2.0
"""The split of a pool by environments: what a policy learned from, and what it is judged on.

Rows of one trajectory are alike, and so are trajectories of one environment, so whole environments are left out. Which
ones follows from their ids alone: a pool that grows keeps its split, and the environments of a smaller share are among
those of a larger one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from sagecc.common.arrays import Bools
from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool


def is_for_validation(environments: Iterable[str], share: float) -> Bools:
    """Tell of each environment whether it is for validation [n].

    Args:
        environments: the environments' ids [n].
        share: of all environments, which share is for validation.
    """
    digests = (hashlib.sha256(f"validation {environment}".encode()).digest() for environment in environments)
    return np.array([int.from_bytes(digest[:8], "little") < share * 2**64 for digest in digests], np.bool_)


def training_part(pool: CompiledPool, share: float) -> CompiledPool:
    """Return the episodes of environments to learn from: the pool itself where the share is 0.

    Raises:
        SageccError: One of the parts has no environment.
    """
    return pool.part(~_for_validation(pool, share)) if share else pool


def validation_part(pool: CompiledPool, share: float) -> CompiledPool:
    """Return the episodes of environments to judge on.

    Raises:
        SageccError: One of the parts has no environment.
    """
    return pool.part(_for_validation(pool, share))


def _for_validation(pool: CompiledPool, share: float) -> Bools:
    environments = pool.trajectories.environments()
    chosen = is_for_validation(environments.tolist(), share)
    if chosen.all() or not chosen.any():
        missing, other = ("learn from", "smaller") if chosen.all() else ("judge on", "larger")
        raise SageccError(
            f"a validation share of {share:g} leaves no environment to {missing}, of"
            f" {len(set(environments.tolist()))}: choose a {other} one"
        )
    return chosen
