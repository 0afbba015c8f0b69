# SPDX-License-Identifier: Apache-2.0
"""The kind of network `choice`: a GRU and a score for each of several actions, of which it takes the best."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.policy.bounds import MAX_ACTION, are_sizes, check_parameters
from sagecc.policy.inference import Ops


@dataclass(frozen=True)
class Chooser:
    """A GRU, and a linear layer whose highest score chooses the action.

    To a runtime its output is a mixture of one component without deviation.
    """

    kind: ClassVar[str] = "choice"
    """Name of this kind of network in a card."""

    inputs: int
    """Number of observations F."""
    gru: int
    """Size H of the GRU's state."""
    actions: tuple[float, ...]
    """The actions to choose from."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", tuple(self.actions))  # a card has a list
        sizes = are_sizes(self.inputs, self.gru, len(self.actions))
        numbers = all(type(action) in (int, float) and abs(action) <= MAX_ACTION for action in self.actions)
        if not (sizes and numbers):
            raise ValueError(
                f"no network has {self.inputs} inputs, a GRU of {self.gru} and the actions {self.actions!s:.80}"
            )
        check_parameters(self.shapes())

    @property
    def state(self) -> int:
        """Size of the hidden state: the GRU's."""
        return self.gru

    @property
    def mixture(self) -> int:
        """Number of components."""
        return 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight by name."""
        gates, count = 3 * self.gru, len(self.actions)
        return {
            "gru.w_i": (self.inputs, gates),
            "gru.w_h": (self.gru, gates),
            "gru.b": (gates,),
            "scores.w": (self.gru, count),
            "scores.b": (count,),
        }

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes().values())

    def forward(self, w: dict[str, Floats], ops: Ops, x: Any, hidden: Any) -> tuple[Any, Any, Any, Any]:
        """Return logits, loc and scale [B, 1], the first and last all 0, and the next hidden state."""
        hidden = ops.gru(x, hidden, w["gru.w_i"], w["gru.w_h"], w["gru.b"])
        choice = ops.greatest(ops.linear(hidden, w["scores.w"], w["scores.b"]))
        action = ops.linear(choice, *_layer_of(self.actions))
        zeros = ops.zeros_like(action)
        return zeros, action, zeros, hidden


@cache
def _layer_of(actions: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Return the layer that makes an action of a choice; always the same arrays, as policy.exact packs each once."""
    return np.array(actions, np.float32)[:, None], np.zeros(1, np.float32)
