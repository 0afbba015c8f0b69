# SPDX-License-Identifier: Apache-2.0
"""How networks are computed: the precision of their matrix products, and what XLA compiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sagecc.learner.lazy import tf


@dataclass(frozen=True)
class Arithmetic:
    """How a network is computed (architectures.TrunkNetwork)."""

    precision: str = "float32"
    """Precision of the matrix products."""
    xla: bool = False
    """Whether recurrences are compiled."""

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of tensors, compiled by XLA if `xla` says so."""
        found: Callable[..., Any] = tf.function(function, autograph=False, reduce_retracing=True, jit_compile=True)
        return found if self.xla else function


PLAIN = Arithmetic()


def lowered(weights: Any, precision: str) -> Any:
    """Return weights in the precision of a product; TensorFloat-32 is float32 that the GPU rounds by itself."""
    return tf.cast(weights, "float32" if precision == "tensorfloat32" else precision)


def product(x: Any, weights: Any) -> Any:
    """Return x [..., K] times weights [K, N], in the precision of the weights, cast back to x's [..., N]."""
    multiply = tf.matmul if x.shape.rank == 2 else lambda a, b: tf.tensordot(a, b, 1)
    return tf.cast(multiply(tf.cast(x, weights.dtype), weights), x.dtype)
