# SPDX-License-Identifier: Apache-2.0
"""The kind of network `mlp`: dense layers without memory, whose answer is one number in [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.policy.inference import Ops


@dataclass(frozen=True)
class Mlp:
    """Dense layers of `hidden` units, each followed by a leaky ReLU of that `slope`, and a last one of tanh.

    To a runtime its answer is a mixture of one component without deviation, and its hidden state has no elements.
    """

    kind: ClassVar[str] = "mlp"

    inputs: int
    hidden: tuple[int, ...]
    slope: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))  # a card has a list
        sizes = (self.inputs, *self.hidden)
        if not all(type(size) is int and size > 0 for size in sizes) or not 0 <= self.slope < 1:
            raise ValueError(f"no network has the sizes {sizes} and slope {self.slope}")

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
        """Return logits, loc and scale [B, 1], the first and last all 0, and the hidden state as it came."""
        for i in range(len(self.hidden)):
            x = ops.leaky_relu(ops.linear(x, w[f"layer{i}.w"], w[f"layer{i}.b"]), self.slope)
        answer = ops.tanh(ops.linear(x, w["answer.w"], w["answer.b"]))
        none = ops.zeros_like(answer)
        return none, answer, none, hidden
