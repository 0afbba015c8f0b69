# SPDX-License-Identifier: Apache-2.0
"""What a rival is: everything of one paper's scheme, in a folder of its own beside this module.

A folder's `RIVAL` says what it has of these; configurations lie beside it as `NAME.yaml`, for `sagecc train --config
NAME`. execution.schemes.rivals finds it there, and nothing else needs to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.execution.flow.competition import StateFunction
from sagecc.execution.flow.source import ObservationSource
from sagecc.execution.schemes.scheme import SchemeClass
from sagecc.policy.artefact import Control
from sagecc.pool.reward import Reward
from sagecc.schemas.environment import Environment, Flow


@dataclass(frozen=True)
class Observation:
    """What a policy observes."""

    source: tuple[str, str]
    """Name of its definition in cards, and the version implemented here."""
    names: tuple[str, ...]
    """Names of its numbers, in order."""
    make: Callable[[tuple[str, ...], int, frozenset[str]], ObservationSource]
    """Makes what derives it, from the names asked for, the number of slots, and the rules that are not to hold."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """Rules that a policy may be without, by name; what each says, for --help."""


@dataclass(frozen=True)
class GlobalState:
    """What critics see of all flows of a network, beside an observation."""

    names: tuple[str, ...]
    """Names of its numbers, in order."""
    function: StateFunction
    """Returns it."""


class ExpertActions(Protocol):
    """What an expert would do in the place of flows, one slot per flow."""

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""

    def actions(self, samples: npt.NDArray[np.void], slots: Ints) -> Floats:
        """Return the expert's actions for flows of one row each [B, 1]."""


@dataclass(frozen=True)
class Expert:
    """An expert that knows the network, to be imitated."""

    names: tuple[str, ...]
    """Names of what it gives beside an observation."""
    make: Callable[[], ExpertActions]
    """Makes one."""


@dataclass(frozen=True)
class Rival:
    """A scheme of a paper: a policy that learns, or a class in user space."""

    name: str
    """By which tasks name its observation and its control."""
    version: int = 1
    """Of its classes in user space: raised where their golden run comes to something else (common.versions)."""
    observation: Observation | None = None
    """What its policy observes."""
    control: Control | None = None
    """How its policy decides and what its actions do."""
    rewards: tuple[Reward, ...] = ()
    """What its policy earns."""
    global_state: GlobalState | None = None
    """What its critics see beside."""
    expert: Expert | None = None
    """Whom it imitates."""
    schemes: Mapping[str, SchemeClass] = field(default_factory=dict)
    """Its classes in user space, by names of schemas.schemes.USER_SPACE."""
