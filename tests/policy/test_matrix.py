# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from sagecc.common.arrays import Floats
from sagecc.policy.matrix import COLUMNS, Layer, product


def in_order(x: Floats, w: Floats, b: Floats) -> Floats:
    """Add to the bias one product after another, each rounded to single precision."""
    y = np.tile(b, (len(x), 1))
    for i in range(len(w)):
        y = y + x[:, i : i + 1] * w[i]
    return y


def case(rows: int, inputs: int, outputs: int) -> tuple[Floats, Floats, Floats]:
    random = np.random.default_rng(rows + inputs)
    x, w = random.normal(0, 1, (rows, inputs)), random.normal(0, 1, (inputs, outputs))
    return x.astype(np.float32), w.astype(np.float32), random.normal(0, 9, outputs).astype(np.float32)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 8, 13, 29])
@pytest.mark.parametrize("outputs", [1, 5, COLUMNS, 3 * COLUMNS + 1])
def test_every_sum_is_taken_in_order(rows: int, outputs: int) -> None:
    for inputs in (1, 3, 69):
        x, w, b = case(rows, inputs, outputs)
        y = product(x, Layer.of(w, b))
        assert y.dtype == np.float32
        assert y.flags.c_contiguous
        np.testing.assert_array_equal(y.view(np.int32), in_order(x, w, b).view(np.int32))


def test_a_row_is_the_same_among_any_others() -> None:
    x, w, b = case(16, 131, 70)
    layer = Layer.of(w, b)
    together = product(x, layer)
    for rows in (slice(0, 1), slice(3, 5), slice(2, 9), slice(5, 16, 2)):
        np.testing.assert_array_equal(product(x[rows], layer), together[rows])


def test_what_is_no_number_stays_in_its_row() -> None:
    x, w, b = case(9, 20, 40)
    sound = product(x, Layer.of(w, b))
    x[4, 7], x[8, 0] = np.nan, np.inf
    y = product(x, Layer.of(w, b))
    assert np.isnan(y[4]).all()
    assert np.isinf(y[8]).all()
    np.testing.assert_array_equal(y[[0, 1, 2, 3, 5, 6, 7]], sound[[0, 1, 2, 3, 5, 6, 7]])
