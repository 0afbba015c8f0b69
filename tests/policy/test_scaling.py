# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.policy.scaling import Moments, symlog

DATA = np.random.default_rng(0).lognormal(0, 2, (5000, 3)).astype(np.float32)
DATA[:, 2] = 4
MOMENTS = Moments(
    DATA.mean(axis=0, dtype=float),
    DATA.std(axis=0, dtype=float),
    symlog(DATA).mean(axis=0, dtype=float),
    symlog(DATA).std(axis=0, dtype=float),
)


@given(st.floats(-1e6, 1e6, width=32))
def test_symlog_is_odd_and_near_the_identity_at_zero(x: float) -> None:
    value = np.array([x], np.float32)
    assert symlog(value) == -symlog(-value)
    assert symlog(value)[0] == pytest.approx(np.sign(x) * np.log1p(abs(x)), rel=1e-5)


@pytest.mark.parametrize("transform", ["linear", "symlog"])
def test_scaled_features_have_mean_zero_and_deviation_one(transform: str) -> None:
    scaled = MOMENTS.scaling(transform, 0)(DATA)  # type: ignore[arg-type]
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(axis=0)[:2], 1, atol=1e-3)
    assert scaled.dtype == np.float32
    assert (scaled[:, 2] == 0).all()


def test_none_changes_nothing_and_a_limit_clips() -> None:
    np.testing.assert_array_equal(MOMENTS.scaling("none", 0)(DATA), DATA)
    assert np.abs(MOMENTS.scaling("linear", 3)(DATA)).max() == 3
