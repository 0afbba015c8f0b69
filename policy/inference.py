# SPDX-License-Identifier: Apache-2.0
"""A policy's network for one tick, written once: numpy runs it, and the exporters and the exact runtime reuse it."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from sagecc.common.arrays import Floats

LAYER_NORM_EPSILON = 1e-5
"""Epsilon of Sonnet's LayerNorm."""

ZERO, HALF = np.float32(0), np.float32(0.5)


class Ops(Protocol):
    """The operations a network is made of, for one kind of tensor. Rows are flows: x [B, N]; weights are numpy's."""

    def linear(self, x: Any, w: Floats, b: Floats) -> Any:
        """X w + b."""

    def layer_norm(self, x: Any, scale: Floats, offset: Floats) -> Any:
        """Each row to mean 0 and deviation 1, then scaled and shifted."""

    def tanh(self, x: Any) -> Any:
        """Tanh."""

    def relu(self, x: Any) -> Any:
        """Max(x, 0)."""

    def leaky_relu(self, x: Any, slope: float) -> Any:
        """Max(x, slope x)."""

    def zeros_like(self, x: Any) -> Any:
        """0 for each element of x."""

    def add(self, x: Any, y: Any) -> Any:
        """X + y."""

    def greatest(self, x: Any) -> Any:
        """1 at each row's greatest element, the first of several, and 0 elsewhere."""

    def softplus(self, x: Any, least: float) -> Any:
        """Log(1 + exp(x)) + least."""

    def gru(self, x: Any, h: Any, w_i: Floats, w_h: Floats, b: Floats) -> Any:
        """h' = h + z (a - h); z, r = sigmoid(x w_i + h w_h + b), a = tanh(x w_ia + (r h) w_ha + b_a)."""


class Architecture(Protocol):
    """A kind of network with its sizes: a frozen dataclass, whose fields are those of the card beside `kind`."""

    kind: ClassVar[str]

    @property
    def inputs(self) -> int:
        """Number of observations F."""

    @property
    def state(self) -> int:
        """Size H of the hidden state."""

    @property
    def mixture(self) -> int:
        """Number K of components."""

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight by name."""

    def forward(self, w: dict[str, Floats], ops: Ops, x: Any, hidden: Any) -> tuple[Any, Any, Any, Any]:
        """Run the network for one tick.

        Args:
            w: weights by name.
            ops: the operations, of the kind of tensor that x and hidden are.
            x: scaled observations [B, F].
            hidden: hidden state that the last step returned [B, H].

        Returns:
            The mixture's logits, loc and scale [B, K] and the next hidden state [B, H].
        """


class NumpyOps:
    """Ops on float32 arrays."""

    def linear(self, x: Any, w: Floats, b: Floats) -> Any:
        """X w + b."""
        return x @ w + b

    def layer_norm(self, x: Any, scale: Floats, offset: Floats) -> Any:
        """Each row to mean 0 and deviation 1, then scaled and shifted."""
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + np.float32(LAYER_NORM_EPSILON)) * scale + offset

    def tanh(self, x: Any) -> Any:
        """Tanh."""
        return np.tanh(x)

    def relu(self, x: Any) -> Any:
        """Max(x, 0)."""
        return np.maximum(x, ZERO)

    def leaky_relu(self, x: Any, slope: float) -> Any:
        """Max(x, slope x)."""
        return np.maximum(x, np.float32(slope) * x)

    def zeros_like(self, x: Any) -> Any:
        """0 for each element of x."""
        return np.zeros_like(x)

    def add(self, x: Any, y: Any) -> Any:
        """X + y."""
        return x + y

    def greatest(self, x: Any) -> Any:
        """1 at each row's greatest element, the first of several, and 0 elsewhere."""
        return np.eye(x.shape[1], dtype=np.float32)[x.argmax(axis=1)]

    def softplus(self, x: Any, least: float) -> Any:
        """Log(1 + exp(x)) + least."""
        return np.logaddexp(x, ZERO) + np.float32(least)

    def gru(self, x: Any, h: Any, w_i: Floats, w_h: Floats, b: Floats) -> Any:
        """Return the next hidden state."""
        size = len(w_h)
        gates = x @ w_i + b
        zr = HALF + HALF * np.tanh(HALF * (gates[:, : 2 * size] + h @ w_h[:, : 2 * size]))
        z, r = zr[:, :size], zr[:, size:]
        a = np.tanh(gates[:, 2 * size :] + (r * h) @ w_h[:, 2 * size :])
        return h + z * (a - h)
