# SPDX-License-Identifier: Apache-2.0
"""The kind of network `recurrent`: the layers of `sage` around a GRU, and one number in [-1, 1] as its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.policy.bounds import are_sizes
from sagecc.policy.inference import Ops
from sagecc.policy.residual import NetworkSizes


@dataclass(frozen=True)
class Recurrent:
    """The layers of policy.residual before its head, and a last one of a single unit followed by tanh.

    To a runtime its output is a mixture of one component without deviation.
    """

    kind: ClassVar[str] = "recurrent"
    """Name of this kind of network in a card."""

    inputs: int
    """Number of observations F."""
    width: int
    """Neurons of the encoders, the fully connected layer and the residual blocks."""
    gru: int
    """Size H of the GRU's state."""
    residual_blocks: int
    """Number of residual blocks after the fully connected layer."""
    second_encoder: bool = True
    """Whether there is an encoder between the GRU and the fully connected layer."""

    def __post_init__(self) -> None:
        if not are_sizes(self.inputs, self.width, self.gru):
            raise ValueError(f"no network has {self.inputs} inputs, width {self.width} and a GRU of {self.gru}")
        self._sage()

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
        return self._sage().trunk_shapes() | {"answer.w": (self.width, 1), "answer.b": (1,)}

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes().values())

    def forward(self, w: dict[str, Floats], ops: Ops, x: Any, hidden: Any) -> tuple[Any, Any, Any, Any]:
        """Return logits, loc and scale [B, 1], the first and last all 0, and the next hidden state."""
        x, hidden = self._sage().trunk(w, ops, x, hidden)
        action = ops.tanh(ops.linear(x, w["answer.w"], w["answer.b"]))
        zeros = ops.zeros_like(action)
        return zeros, action, zeros, hidden

    def _sage(self) -> NetworkSizes:
        return NetworkSizes(
            inputs=self.inputs,
            width=self.width,
            gru=self.gru,
            residual_blocks=self.residual_blocks,
            mixture=1,
            min_scale=1.0,
            second_encoder=self.second_encoder,
        )
