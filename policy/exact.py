# SPDX-License-Identifier: Apache-2.0
"""A policy's arithmetic with the same bits on every x86-64 processor, and for every size of batch.

BLAS picks its kernels by processor and by shape, and numpy its exp and tanh, so their last bits differ from machine to
machine and between one flow and many; a window that is rounded to packets makes whole other episodes of that. Here
every sum is taken in the order written (policy.matrix has those of a layer), no sum spans the rows of two flows, and
exponentials and logarithms are polynomials in double precision, so nothing is left to a library. Numba's compiler
neither reorders nor fuses operations unless asked to; what it does choose by processor, the width of vectors, changes
no result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sagecc.common.arrays import Doubles, Floats
from sagecc.common.machine_code import compiled
from sagecc.policy.inference import LAYER_NORM_EPSILON
from sagecc.policy.matrix import PackedLayer, product
from sagecc.policy.scaling import Scaling

LN2 = math.log(2)
LN2_HIGH = 0.693147180369123816490
"""ln 2 in 33 bits: its products with a whole exponent have no rounding."""
LN2_LOW = 1.90821492927058770002e-10
EXPONENTS = 1000
POWERS_OF_2 = np.ldexp(1.0, np.arange(-EXPONENTS, EXPONENTS + 1))
C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1 / math.factorial(k) for k in range(3, 14))
"""Coefficients of Taylor's polynomial."""


@compiled
def _exp(x: float) -> float:
    """e**x: Taylor's polynomial over half a doubling, within 1e-15; beyond 2**±1000 the same as there."""
    n = np.floor(x * (1 / LN2) + 0.5)
    if not n < EXPONENTS:
        return np.inf if n >= EXPONENTS else x  # not a number stays that
    if n <= -EXPONENTS:
        return 0.0
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = C13
    p = C12 + r * p
    p = C11 + r * p
    p = C10 + r * p
    p = C9 + r * p
    p = C8 + r * p
    p = C7 + r * p
    p = C6 + r * p
    p = C5 + r * p
    p = C4 + r * p
    p = C3 + r * p
    p = 0.5 + r * p
    p = 1.0 + r * p
    p = 1.0 + r * p
    return float(p * POWERS_OF_2[int(n) + EXPONENTS])


@compiled
def _log1p(x: float) -> float:
    """log(1 + x) of x >= 0: 2 atanh((m - 1) / (m + 1)) of the mantissa m, within 1e-15."""
    if not x < np.inf:
        return x
    m, exponent = math.frexp(1.0 + x)
    if m < 0.7071067811865476:
        m, exponent = 2.0 * m, exponent - 1
    s = (m - 1.0) / (m + 1.0)
    square, p = s * s, 0.0
    for k in range(21, 0, -2):
        p = 1.0 / k + square * p
    return exponent * LN2 + 2.0 * s * p


@compiled
def _tanh(x: float) -> float:
    t = _exp(-2.0 * abs(x))
    return math.copysign((1.0 - t) / (1.0 + t), x)


@compiled
def _layer_norm(x: Floats, scale: Floats, offset: Floats) -> Floats:
    rows, size = x.shape
    y = np.empty_like(x)
    for row in range(rows):
        total = 0.0
        for j in range(size):
            total += x[row, j]
        mean = total / size
        total = 0.0
        for j in range(size):
            total += (x[row, j] - mean) * (x[row, j] - mean)
        factor = 1.0 / math.sqrt(total / size + LAYER_NORM_EPSILON)
        for j in range(size):
            y[row, j] = (x[row, j] - mean) * factor * scale[j] + offset[j]
    return y


@compiled
def _tanh_rows(x: Floats) -> Floats:
    y = np.empty_like(x)
    for row in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[row, j] = _tanh(x[row, j])
    return y


@compiled
def _softplus_rows(x: Floats, least: float) -> Floats:
    y = np.empty_like(x)
    for row in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[row, j] = max(x[row, j], 0.0) + _log1p(_exp(-abs(x[row, j]))) + least
    return y


@compiled
def _reset(gates: Floats, from_h: Floats, h: Floats) -> tuple[Floats, Floats]:
    """Return the update gate z and r * h."""
    size = h.shape[1]
    z, rh = np.empty_like(h), np.empty_like(h)
    for row in range(h.shape[0]):
        for j in range(size):
            z[row, j] = 1.0 / (1.0 + _exp(-float(gates[row, j] + from_h[row, j])))
            rh[row, j] = h[row, j] / (1.0 + _exp(-float(gates[row, size + j] + from_h[row, size + j])))
    return z, rh


@compiled
def _update(gates: Floats, from_h: Floats, z: Floats, h: Floats) -> Floats:
    size = h.shape[1]
    y = np.empty_like(h)
    for row in range(h.shape[0]):
        for j in range(size):
            a = _tanh(gates[row, 2 * size + j] + from_h[row, j])
            y[row, j] = h[row, j] + z[row, j] * (a - h[row, j])
    return y


@compiled
def _scaled(x: Floats, shift: Floats, scale: Floats, limit: float, symlog: bool) -> Floats:
    y = np.empty_like(x)
    for row in range(x.shape[0]):
        for j in range(x.shape[1]):
            v = float(x[row, j])
            if symlog:
                v = math.copysign(_log1p(abs(v)), v)
            v = (v - shift[j]) / scale[j]
            if limit > 0.0:
                v = min(max(v, -limit), limit) if v == v else v
            y[row, j] = v
    return y


@compiled
def _mean(logits: Floats, loc: Floats) -> Doubles:
    """Return the mixtures' means: [B, K] each -> [B]."""
    y = np.empty(len(logits))
    for row in range(len(logits)):
        top = logits[row, 0]
        for k in range(1, logits.shape[1]):
            top = max(top, logits[row, k])
        total, weighted = 0.0, 0.0
        for k in range(logits.shape[1]):
            weight = _exp(float(logits[row, k]) - top)
            total += weight
            weighted += weight * loc[row, k]
        y[row] = weighted / total
    return y


@compiled
def _powers(exponent: Doubles, log_base: float) -> Doubles:
    y = np.empty_like(exponent)
    for row in range(len(exponent)):
        y[row] = _exp(exponent[row] * log_base)
    return y


def mean(logits: Floats, loc: Floats) -> Doubles:
    """Return the means of mixtures, logits and loc [B, K] -> [B]."""
    return _mean(logits, loc)


def exp(x: Doubles) -> Doubles:
    """Return e**x, element by element of [B]; within 1e-15 of it."""
    return _powers(x, 1.0)


def power(base: float, exponent: Doubles) -> Doubles:
    """Return base**exponent, element by element of [B]; within 1e-14 of it."""
    return _powers(exponent, math.log(base))


def scaled(scaling: Scaling, x: Floats) -> Floats:
    """Return scaled observations [B, F], equal to those of `scaling` itself but for some last bits."""
    return _scaled(x, scaling.shift, scaling.scale, float(scaling.limit), scaling.transform == "symlog")


class ExactOps:
    """policy.inference's Ops on float32 arrays, contiguous by row.

    Weights are packed when they are first used, so they must not be changed in place afterwards.
    """

    def __init__(self) -> None:
        self._layers: dict[tuple[int, int], tuple[Floats, PackedLayer]] = {}

    def linear(self, x: Any, w: Floats, b: Floats) -> Any:
        """X w + b."""
        return product(x, self._layer(w, 0, w.shape[1], b))

    def layer_norm(self, x: Any, scale: Floats, offset: Floats) -> Any:
        """Each row to mean 0 and deviation 1, then scaled and shifted."""
        return _layer_norm(x, scale, offset)

    def tanh(self, x: Any) -> Any:
        """Tanh."""
        return _tanh_rows(x)

    def relu(self, x: Any) -> Any:
        """Max(x, 0)."""
        return np.maximum(x, np.float32(0))

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
        return _softplus_rows(x, least)

    def gru(self, x: Any, h: Any, w_i: Floats, w_h: Floats, b: Floats) -> Any:
        """Return the next hidden state."""
        size = len(w_h)
        gates = self.linear(x, w_i, b)
        z, rh = _reset(gates, product(h, self._layer(w_h, 0, 2 * size)), h)
        return _update(gates, product(rh, self._layer(w_h, 2 * size, 3 * size)), z, h)

    def _layer(self, w: Floats, begin: int, end: int, b: Floats | None = None) -> PackedLayer:
        """Return the columns `begin` to `end` of weights with a bias (none: zeros), packed; made once."""
        entry = self._layers.get((id(w), begin))
        if entry is None:
            bias = np.zeros(end - begin, np.float32) if b is None else b
            # w is kept too, so that no other array gets its id.
            entry = self._layers[id(w), begin] = w, PackedLayer.of(w[:, begin:end], bias)
        return entry[1]
