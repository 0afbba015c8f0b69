# SPDX-License-Identifier: Apache-2.0
"""Acme's network modules on today's TensorFlow.

dm-acme imports, beside the modules the learner wants, packages that have no wheels for this Python or bring
another TensorFlow: launchpad (signal handling), reverb (one type of its replay buffer) and, through
`acme.wrappers`, jax and gym. None is used here, so bare stand-ins replace them while Acme loads, and are
removed after it: once this module is imported `import reverb` fails (or finds the real one) as before.

One value in Acme is replaced. Its layers share one Keras initializer, which under Keras 2.21 returns the same
numbers at every call, so that all layers of a shape would start identical; Sonnet's draws afresh each time.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import snt

TESTED_VERSIONS = ("0.2.4", "0.4.0")


def _stand_ins() -> dict[str, ModuleType]:
    """Build the bare modules that replace those that Acme imports but does not need."""
    launchpad = ModuleType("launchpad")
    reverb = ModuleType("reverb")
    reverb.ReplaySample = type("ReplaySample", (), {})  # type: ignore[attr-defined]
    wrappers = ModuleType("acme.wrappers")
    spec = importlib.util.find_spec("acme")
    folders = (spec.submodule_search_locations or []) if spec else []
    # A package with a path but no __init__: `acme.wrappers.base` still loads, the gym and jax wrappers do not.
    wrappers.__path__ = [f"{folder}/wrappers" for folder in folders]
    return {"launchpad": launchpad, "reverb": reverb, "acme.wrappers": wrappers}


@contextmanager
def _standing_in() -> Iterator[None]:
    modules = _stand_ins()
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _load(name: str, *attributes: str) -> Any:
    """Import one of Acme's modules and check that it has these attributes.

    Raises:
        SageccError: It does not load, or lacks one of them.
    """
    try:
        with _standing_in():
            module = importlib.import_module(name)
        missing = [a for a in attributes if not hasattr(module, a)]
        if missing:
            raise ImportError(f"{name} has no {', '.join(missing)}")
    except Exception as error:
        raise SageccError(
            f"dm-acme {_version()} does not load ({type(error).__name__}: {error}); "
            f"install one of {', '.join(TESTED_VERSIONS)}: pip install -r requirements/requirements.txt"
        ) from error
    return module


def _version() -> str:
    try:
        return version("dm-acme")
    except PackageNotFoundError:
        return "(not installed)"


def uniform_initializer() -> snt.initializers.Initializer:
    """Return Acme's initializer for hidden layers: uniform, fan-out, scale 0.333, fresh numbers at each call."""
    return snt.initializers.VarianceScaling(scale=0.333, mode="fan_out", distribution="uniform")


def reference_learner() -> Any:
    """Return the module that holds Acme's own RCRRLearner, against which learner.crr is tested."""
    return _load("acme.agents.tf.crr.recurrent_learning", "RCRRLearner")


networks = _load(
    "acme.tf.networks",
    "MultivariateGaussianMixture",
    "DiscreteValuedHead",
    "DiscreteValuedDistribution",
    "CriticDeepRNN",
)
losses = _load("acme.tf.losses", "categorical")
types = _load("acme.types", "Transition")
utils = _load("acme.tf.utils", "create_variables")
continuous = _load("acme.tf.networks.continuous", "LayerNormMLP", "ResidualLayernormWrapper", "uniform_initializer")
continuous.uniform_initializer = uniform_initializer()

__all__ = [
    "TESTED_VERSIONS",
    "continuous",
    "losses",
    "networks",
    "reference_learner",
    "types",
    "uniform_initializer",
    "utils",
]
