# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner import acme_compat

pytestmark = pytest.mark.tensorflow


def test_what_the_learner_and_its_tests_need_is_there() -> None:
    assert acme_compat.continuous.LayerNormMLP
    assert acme_compat.losses.categorical
    assert acme_compat.utils.create_variables
    assert acme_compat.reference_learner().RCRRLearner


def test_stand_ins_are_gone_after_loading() -> None:
    assert not {"reverb", "launchpad", "acme.wrappers"} & set(sys.modules)


def test_layers_of_one_shape_start_different() -> None:
    tf.random.set_seed(0)
    layer = acme_compat.continuous.LayerNormMLP([16, 16, 16])
    layer(tf.ones([2, 16]))
    weights = [v.numpy() for v in layer.variables if v.shape == (16, 16)]
    assert len(weights) == 3
    assert not np.allclose(weights[0], weights[1])
    assert not np.allclose(weights[1], weights[2])


def test_initializer_has_acmes_range() -> None:
    """Uniform of variance scale / fan_out: the limit is sqrt(3 * 0.333 / 64)."""
    values = acme_compat.uniform_initializer()([1000, 64], tf.float32).numpy()
    assert np.abs(values).max() == pytest.approx(np.sqrt(3 * 0.333 / 64), rel=1e-3)


@pytest.mark.parametrize(("module", "attribute"), [("acme.tf.networks", "NoSuchNetwork"), ("acme.tf.moved_away", "x")])
def test_an_acme_that_does_not_fit_is_one_clear_line(module: str, attribute: str) -> None:
    with pytest.raises(SageccError, match=r"dm-acme 0\.\d\.\d does not load .*install one of 0\.2\.4") as caught:
        acme_compat._load(module, attribute)
    assert "\n" not in str(caught.value)
    assert not {"reverb", "launchpad"} & set(sys.modules)


def test_a_missing_acme_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(SageccError, match=r"pip install -r requirements/requirements\.txt"):
        acme_compat._load("acme.tf.losses", "categorical")
