# SPDX-License-Identifier: Apache-2.0
"""The kind of network `mlp`: dense layers without memory, whose output is one number in [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from sagecc.common.arrays import Doubles, Floats
from sagecc.policy.bounds import MAX_LAYERS, are_sizes, check_parameters
from sagecc.policy.inference import Ops

Activation = Literal["leaky_relu", "tanh"]
"""What follows each hidden layer."""


@dataclass(frozen=True)
class Mlp:
    """Dense layers, each followed by a leaky ReLU or tanh, and a last one of a single unit followed by tanh.

    To a runtime its output is a mixture of one component without deviation, and its hidden state has no elements.
    """

    kind: ClassVar[str] = "mlp"
    """Name of this kind of network in a card."""

    inputs: int
    """Number of observations F."""
    hidden: tuple[int, ...]
    """Units of each hidden layer."""
    slope: float
    """Slope of the leaky ReLU below 0, from 0 to below 1."""
    activation: Activation = "leaky_relu"
    """What follows each hidden layer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))  # a card has a list
        sizes = (self.inputs, *self.hidden)
        if len(self.hidden) > MAX_LAYERS or not are_sizes(*sizes) or not 0 <= self.slope < 1:
            raise ValueError(f"no network has the sizes {sizes!s:.80} and slope {self.slope}")
        if self.activation not in get_args(Activation):
            raise ValueError(f"activation '{self.activation}' is not known here")
        check_parameters(self.shapes())

    @property
    def state(self) -> int:
        """Size of the hidden state: none."""
        return 0

    @property
    def mixture(self) -> int:
        """Number of components."""
        return 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        inputs = self.inputs
        for name, outputs in (*((f"layer{i}", size) for i, size in enumerate(self.hidden)), ("answer", 1)):
            shapes.update({f"{name}.w": (inputs, outputs), f"{name}.b": (outputs,)})
            inputs = outputs
        return shapes

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes().values())

    def forward(self, w: dict[str, Floats], ops: Ops, x: Any, hidden: Any) -> tuple[Any, Any, Any, Any]:
        """Return logits, loc and scale [B, 1], the first and last all 0, and the hidden state unchanged."""
        for i in range(len(self.hidden)):
            x = ops.linear(x, w[f"layer{i}.w"], w[f"layer{i}.b"])
            x = ops.tanh(x) if self.activation == "tanh" else ops.leaky_relu(x, self.slope)
        action = ops.tanh(ops.linear(x, w["answer.w"], w["answer.b"]))
        zeros = ops.zeros_like(action)
        return zeros, action, zeros, hidden


def fold_batch_norm(
    w: Doubles, b: Doubles, mean: Doubles, variance: Doubles, offset: Doubles, scale: Doubles | float, epsilon: float
) -> tuple[Doubles, Doubles]:
    """Return the dense layer that does what one and a batch normalisation behind it do in inference, which is linear.

    scale * (x w + b - mean) / sqrt(variance + epsilon) + offset, for every x.

    Args:
        w: weights of the dense layer [inputs, units].
        b: its bias [units].
        mean: moving mean [units].
        variance: moving variance [units].
        offset: beta [units].
        scale: gamma [units]; 1 where there is none.
        epsilon: added to the variance.
    """
    factor = scale / np.sqrt(variance + epsilon)
    return w * factor, (b - mean) * factor + offset
