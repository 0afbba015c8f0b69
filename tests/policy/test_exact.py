# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.policy import exact
from sagecc.policy.scaling import Scaling
from tests.helpers.exact_bits import digest, network

pytestmark = pytest.mark.heavy

BITS = "2c97d1a4adf51a3d1c2252366abb87b5eb43fe942be71fc1a5324aec6b60c07e"
"""Of all that `network` computes; trajectories of policies that are kept or published hang on it."""


def test_bits_are_what_they_were() -> None:
    assert digest() == BITS


def test_a_flow_gets_the_same_bits_alone_and_in_any_batch() -> None:
    heads, states = network(7)
    for flows in (1, 2, 5):
        some_heads, some_states = network(flows)
        np.testing.assert_array_equal(some_heads, heads[:, :flows])
        np.testing.assert_array_equal(some_states, states[:, :flows])


def test_another_processor_gives_the_same_bits(tmp_path: Path) -> None:
    """The oldest x86-64, without AVX or fused multiply-add, in the compiler's and in numpy's eyes."""
    older = {
        "NUMBA_CPU_NAME": "x86-64",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512_SKX",
        "OPENBLAS_CORETYPE": "Prescott",
    }
    code = "from tests.helpers.exact_bits import digest; print(digest())"
    run = [sys.executable, "-W", "ignore", "-c", code]
    other = subprocess.run(run, env={**os.environ, **older}, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest()


@given(st.floats(-80, 80))
def test_functions_are_within_their_bounds(x: float) -> None:
    assert exact._exp(x) == pytest.approx(math.exp(x), rel=4e-15)
    assert exact._tanh(x) == pytest.approx(math.tanh(x), rel=1e-14, abs=1e-15)
    assert exact._log1p(abs(x)) == pytest.approx(math.log1p(abs(x)), rel=1e-14, abs=1e-15)


def test_functions_beyond_all_bounds() -> None:
    assert exact._exp(1e6) == exact._log1p(math.inf) == math.inf
    assert exact._exp(-1e6) == 0.0
    assert exact._tanh(-1e6) == -1.0
    assert math.copysign(1, exact._tanh(-0.0)) == -1
    assert all(math.isnan(f(math.nan)) for f in (exact._exp, exact._tanh, exact._log1p))


def test_mean_and_power_by_hand() -> None:
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    loc = np.array([[1.0, -1.0], [9.0, 9.0]], np.float32)
    np.testing.assert_allclose(exact.mean(logits, loc), [-0.5, 9.0], atol=1e-7)
    np.testing.assert_allclose(exact.power(4.0, np.array([0.5, -1.0, 0.0])), [2, 0.25, 1], rtol=1e-14)


@pytest.mark.parametrize("transform", ["none", "linear", "symlog"])
def test_scaling_is_scalings_own(transform: str) -> None:
    random = np.random.default_rng(1)
    x = random.normal(0, 9, (4, 6)).astype(np.float32)
    ones = np.ones(6, np.float32)
    shift, scale = (0 * ones, ones) if transform == "none" else random.uniform(0.5, 2, (2, 6)).astype(np.float32)
    for limit in (0.0, 3.0):
        wanted = Scaling(transform, shift, scale, limit)  # type: ignore[arg-type]
        np.testing.assert_allclose(exact.scaled(wanted, x), wanted(x), rtol=1e-5, atol=1e-6)
    assert np.isnan(exact.scaled(wanted, x * np.nan)).all()
