# SPDX-License-Identifier: Apache-2.0
"""The kind of network `sage`: encoders around a GRU, residual blocks, and a mixture of Gaussians as its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.policy.bounds import MAX_ACTION, MAX_LAYERS, are_sizes, check_parameters
from sagecc.policy.inference import Ops


@dataclass(frozen=True)
class NetworkSizes:
    """Sage's kind of network (section 4.2 and Fig. 6 of the paper), with its sizes."""

    kind: ClassVar[str] = "sage"
    """Name of this kind of network in a card."""

    inputs: int
    """Number of observations F."""
    width: int
    """Neurons of the encoders, the fully connected layer and the residual blocks."""
    gru: int
    """Size H of the GRU's state; 0 for no GRU."""
    residual_blocks: int
    """Number of residual blocks after the fully connected layer."""
    mixture: int
    """Number K of Gaussians in the head."""
    min_scale: float
    """Smallest standard deviation of a Gaussian, in log2(action)."""
    second_encoder: bool = True
    """Whether there is an encoder between the GRU and the fully connected layer."""

    def __post_init__(self) -> None:
        sizes = (self.inputs, self.width, self.gru, self.residual_blocks, self.mixture)
        layers = are_sizes(self.residual_blocks, least=0, most=MAX_LAYERS) and isinstance(self.second_encoder, bool)
        units = are_sizes(self.inputs, self.width, self.mixture) and are_sizes(self.gru, least=0)
        if not (layers and units and 0 < self.min_scale <= MAX_ACTION):
            raise ValueError(f"no network has the sizes {sizes} and min_scale {self.min_scale}")
        check_parameters(self.shapes())

    @property
    def state(self) -> int:
        """Size of the hidden state: the GRU's, or without one that of the encoder, whose last output it is."""
        return self.gru or self.width

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight by name."""
        shapes = self.trunk_shapes()
        for part in ("logits", "loc", "scale"):
            shapes |= {f"head.{part}.w": (self.width, self.mixture), f"head.{part}.b": (self.mixture,)}
        return shapes

    def trunk_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight but the head's by name."""
        width, gru = self.width, self.gru
        shapes: dict[str, tuple[int, ...]] = {}

        def linear(name: str, inputs: int, outputs: int) -> None:
            shapes.update({f"{name}.w": (inputs, outputs), f"{name}.b": (outputs,)})

        def norm(name: str) -> None:
            shapes.update({f"{name}.norm.scale": (width,), f"{name}.norm.offset": (width,)})

        linear("encoder", self.inputs, width)
        norm("encoder")
        if gru:
            shapes.update({"gru.w_i": (width, 3 * gru), "gru.w_h": (gru, 3 * gru), "gru.b": (3 * gru,)})
        if self.second_encoder:
            linear("encoder2", self.state, width)
            norm("encoder2")
        linear("fc", width if self.second_encoder else self.state, width)
        for i in range(self.residual_blocks):
            linear(f"residual{i}.linear0", width, width)
            linear(f"residual{i}.linear1", width, width)
            norm(f"residual{i}")
        return shapes

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes().values())

    def forward(self, w: dict[str, Floats], ops: Ops, x: Any, hidden: Any) -> tuple[Any, Any, Any, Any]:
        """Run the network for one tick; see policy.inference.Architecture.forward."""
        x, hidden = self.trunk(w, ops, x, hidden)

        def head(part: str) -> Any:
            return ops.linear(x, w[f"head.{part}.w"], w[f"head.{part}.b"])

        scale = ops.softplus(head("scale"), self.min_scale)
        return head("logits"), head("loc"), scale, hidden

    def trunk(self, w: dict[str, Floats], ops: Ops, x: Any, hidden: Any) -> tuple[Any, Any]:
        """Run the layers before the head for one tick; return the last one's outputs and the next hidden state."""

        def linear(x: Any, name: str) -> Any:
            return ops.linear(x, w[f"{name}.w"], w[f"{name}.b"])

        def norm(x: Any, name: str) -> Any:
            return ops.layer_norm(x, w[f"{name}.norm.scale"], w[f"{name}.norm.offset"])

        x = ops.tanh(norm(linear(x, "encoder"), "encoder"))
        x = hidden = ops.gru(x, hidden, w["gru.w_i"], w["gru.w_h"], w["gru.b"]) if self.gru else x
        if self.second_encoder:
            x = ops.tanh(norm(linear(x, "encoder2"), "encoder2"))
        x = linear(x, "fc")
        for i in range(self.residual_blocks):
            inner = linear(ops.relu(linear(x, f"residual{i}.linear0")), f"residual{i}.linear1")
            x = norm(ops.add(x, inner), f"residual{i}")
        return x, hidden
