# SPDX-License-Identifier: Apache-2.0
"""Training on from where another run ended: its whole state, and what its policy has fixed for all that follow.

A state is every variable of the learner (weights, targets, Adam's moments, the average, the step), as its last
checkpoint has them. With it go the scaling of the inputs and the critic's range of returns, which the first run took
from its pool: networks that have learned with one scaling would see another world through another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.inputs import read_regular
from sagecc.common.tables import reading_error
from sagecc.learner.specification import RunSpecification
from sagecc.learner.tensors import DAMAGED, not_finite, pack, unpack
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.bounds import NETWORK_BYTES
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES

CHECKPOINT = "checkpoint.safetensors"
"""In a run's folder."""

OWN = "metric_sums"
"""What a checkpoint has beside the learner's variables: of its own run."""


@dataclass(frozen=True)
class Continuation:
    """Where another run ended."""

    policy: PolicyArtefact
    """The policy that it made."""
    state: dict[str, npt.NDArray[Any]]
    """The learner's variables by name."""

    @classmethod
    def load(cls, policy: Path, state: Path) -> Continuation:
        """Read where a run ended.

        Args:
            policy: folder of its policy.
            state: the file that `keep_state` wrote.

        Raises:
            SageccError: One of them is missing or damaged.
        """
        return cls(PolicyArtefact.load(policy), _read(state))

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self.state["steps"])

    @cached_property
    def identity(self) -> str:
        """SHA-256 over what a run that goes on from here takes from it."""
        digest = hashlib.sha256(repr((self.value_range, self.policy.observations)).encode())
        scaling = self.policy.scaling
        digest.update(f"{scaling.transform} {scaling.limit}".encode())
        for name, value in (("shift", scaling.shift), ("scale", scaling.scale), *sorted(self.state.items())):
            digest.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
        return digest.hexdigest()

    @property
    def value_range(self) -> tuple[float, float] | None:
        """Lowest and highest return that the critic can represent; None where it has no such range."""
        low, high = self.policy.card.get("value_range") or (None, None)
        return None if low is None or high is None else (float(low), float(high))

    @property
    def scaling(self) -> Scaling:
        """The scaling of all of the pool's features; those that the policy does not see are left as they are."""
        return of_all_features(self.policy.scaling, self.policy.observations)

    def check(self, specification: RunSpecification) -> None:
        """Raise SageccError where a run has other networks or inputs, or no steps beyond those taken."""
        network, observations = specification.network, specification.data.observations if specification.data else ()
        ours = (observations, network.sizes(len(observations)), network.input_transform, network.input_limit)
        policy = self.policy
        theirs = (policy.observations, policy.sizes, policy.scaling.transform, policy.scaling.limit)
        if ours != theirs:
            raise SageccError(f"{policy.path} has other networks or inputs: train on with its own configuration")
        if specification.steps <= self.steps:
            raise SageccError(
                f"{policy.path} has been trained for {self.steps} steps: {specification.steps} are no more"
            )


def of_all_features(scaling: Scaling, observations: Sequence[str]) -> Scaling:
    """Return a scaling of some of the pool's features as one of all, which leaves the others as they are."""
    columns = [FEATURE_NAMES.index(name) for name in observations]
    shift, scale = np.zeros(len(FEATURE_NAMES), np.float32), np.ones(len(FEATURE_NAMES), np.float32)
    shift[columns], scale[columns] = scaling.shift, scaling.scale
    return Scaling(scaling.transform, shift, scale, scaling.limit)


CHECKPOINT_BYTES = 12 * NETWORK_BYTES
"""Limit of a checkpoint: policy, critics, their targets, and the moments of their optimisers."""


def keep_state(logs: Path, out: Path) -> None:
    """Write the state with which a run ended, without what says which code ran it: the same state, the same bytes.

    Args:
        logs: the run's folder, with its last checkpoint.
        out: the file to write; left alone where it holds this state already.

    Raises:
        SageccError: There is no checkpoint, or it is damaged.
    """
    data = pack({name: value for name, value in _read(logs / CHECKPOINT).items() if name != OWN})
    if not out.exists() or read_regular(out, CHECKPOINT_BYTES) != data:
        with write_atomically(out) as beside:
            beside.write_bytes(data)


def _read(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        tensors, _ = unpack(read_regular(path, CHECKPOINT_BYTES))
        if tensors["steps"].shape != ():
            raise ValueError("steps is no number")
        if name := not_finite(tensors):
            raise ValueError(f"{name} is not finite")
    except FileNotFoundError as error:
        raise SageccError(
            f"{path} is missing: the run that ended there cannot be gone on with; train it again"
        ) from error
    except (OSError, *DAMAGED) as error:
        raise reading_error(path, error, "remove its folder and train again") from error
    return tensors
