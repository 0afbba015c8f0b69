# SPDX-License-Identifier: Apache-2.0
"""x W + b for many rows at once, every sum taken in the order of the inputs: bias first, one product after another.

So an output has the same bits whatever rows it is computed with, on any processor. To be fast none the less, a block
of outputs of several rows stays in the processor's registers while the weights, laid out in the order in which they
are read, pass by once for all of these rows. The order is held because nothing here may fuse or reorder: LLVM does
neither to plain multiplications and additions. The blocks are written in LLVM's own language, for no compiler
keeps arrays in registers by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic

from sagecc.common.arrays import Floats
from sagecc.common.machine_code import compiled

LANES, VECTORS = 16, 2
COLUMNS = LANES * VECTORS
"""Outputs of a block. With 8 rows it fills the registers of AVX-512; on processors with fewer, LLVM spills some."""

cgutils: Any = _cgutils  # it has no types
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


@dataclass(frozen=True)
class PackedLayer:
    """Weights [inputs, outputs] and bias [outputs], laid out for `product` and padded with zeros to whole panels."""

    panels: Floats
    """Weights in panels of COLUMNS outputs [ceil(outputs / COLUMNS), inputs, COLUMNS]."""
    bias: Floats
    """Bias, padded [ceil(outputs / COLUMNS) * COLUMNS]."""
    outputs: int
    """Outputs without the padding."""

    @classmethod
    def of(cls, w: Floats, b: Floats) -> Self:
        """Lay out weights [inputs, outputs] and their bias [outputs]."""
        inputs, outputs = w.shape
        width = -(-outputs // COLUMNS) * COLUMNS
        padded, bias = np.zeros((inputs, width), np.float32), np.zeros(width, np.float32)
        padded[:, :outputs], bias[:outputs] = w, b
        return cls(np.ascontiguousarray(padded.reshape(inputs, -1, COLUMNS).transpose(1, 0, 2)), bias, outputs)


def product(x: Floats, layer: PackedLayer) -> Floats:
    """Return x W + b; x [B, inputs] -> [B, outputs], contiguous by row."""
    y = _product(np.ascontiguousarray(x), layer.panels, layer.bias)
    return y if y.shape[1] == layer.outputs else np.ascontiguousarray(y[:, : layer.outputs])


def _block_of(rows: int) -> Callable[..., None]:
    """Return the code of a block of `rows` rows of x and one panel of weights, to be called in compiled code.

    Its arguments are four arrays (x, weights, bias, y), the first element in each, the number of inputs, and the
    elements from one row of y to the next.
    """

    @intrinsic
    def block(_: Any, x: Any, w: Any, b: Any, y: Any, x0: Any, w0: Any, b0: Any, y0: Any, n: Any, step: Any) -> Any:
        signature = types.void(x, w, b, y, x0, w0, b0, y0, n, step)

        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            arrays = zip(signature.args[:4], arguments[:4], strict=True)
            x, w, b, y = (context.make_array(kind)(context, builder, value).data for kind, value in arrays)
            x0, w0, b0, y0, n, step = arguments[4:]

            def element(base: Any, start: Any, *offsets: Any) -> Any:
                for offset in offsets:
                    start = builder.add(start, offset)
                return builder.gep(base, [start])

            def vector(pointer: Any) -> Any:
                return builder.bitcast(pointer, _VECTOR.as_pointer())

            def number(value: int) -> Any:
                return ir.Constant(n.type, value)

            columns = [number(v * LANES) for v in range(VECTORS)]
            sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in columns] for _ in range(rows)]
            for v, column in enumerate(columns):
                bias = builder.load(vector(element(b, b0, column)), align=4)
                for row in range(rows):
                    builder.store(bias, sums[row][v])
            with cgutils.for_range(builder, n) as loop:
                line = builder.mul(loop.index, number(COLUMNS))
                weights = [builder.load(vector(element(w, w0, line, column)), align=4) for column in columns]
                for row in range(rows):
                    value = builder.load(element(x, x0, builder.mul(n, number(row)), loop.index))
                    broadcast = _broadcast(builder, value)
                    for v, weight in enumerate(weights):
                        term = builder.fmul(broadcast, weight)
                        builder.store(builder.fadd(builder.load(sums[row][v]), term), sums[row][v])
            for row in range(rows):
                for v, column in enumerate(columns):
                    target = vector(element(y, y0, builder.mul(step, number(row)), column))
                    builder.store(builder.load(sums[row][v]), target, align=4)
            return context.get_dummy_value()

        return signature, write

    return block


def _broadcast(builder: Any, value: Any) -> Any:
    undefined, first = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(undefined, value, first), undefined, mask)


_eight, _four, _two, _one = _block_of(8), _block_of(4), _block_of(2), _block_of(1)


@compiled
def _product(x: Floats, panels: Floats, bias: Floats) -> Floats:
    rows, inputs = x.shape
    width = panels.shape[0] * COLUMNS
    y = np.empty((rows, width), np.float32)
    for panel in range(panels.shape[0]):
        w0, b0, row = panel * inputs * COLUMNS, panel * COLUMNS, 0
        while row + 8 <= rows:
            _eight(x, panels, bias, y, row * inputs, w0, b0, row * width + b0, inputs, width)
            row += 8
        if row + 4 <= rows:
            _four(x, panels, bias, y, row * inputs, w0, b0, row * width + b0, inputs, width)
            row += 4
        if row + 2 <= rows:
            _two(x, panels, bias, y, row * inputs, w0, b0, row * width + b0, inputs, width)
            row += 2
        if row < rows:
            _one(x, panels, bias, y, row * inputs, w0, b0, row * width + b0, inputs, width)
    return y
