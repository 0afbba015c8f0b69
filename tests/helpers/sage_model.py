# SPDX-License-Identifier: Apache-2.0
"""Sage's network with random weights: a checkpoint without TensorFlow, and the layers that Acme and Sonnet have."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.execution.schemes.sage.checkpoint import END, NAMES, POLICY, SIGNATURE, SIZES
from sagecc.execution.schemes.sage.control import control
from sagecc.execution.schemes.sage.observation import OBSERVATIONS, RULES, SOURCE
from sagecc.policy import artefact
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import Scaling
from tests.conftest import ROOT
from tests.helpers.tensor_bundle import save_bundle

Values = dict[str, npt.NDArray[Any]]

PUBLISHED = Path(os.environ.get("SAGECC_SAGE", ROOT.parent / "shared" / "models" / "sage"))
"""The authors' checkpoint, or its index alone, which is not part of this project."""


def synthetic_values(seed: int = 0) -> Values:
    """Return variables by the names of the published checkpoint, at the scale of a trained network's."""
    random = np.random.default_rng(seed)
    values: Values = {SIGNATURE: np.array(20230806, np.int32)}
    for ours, shape in SIZES.shapes().items():
        scale = 1 / np.sqrt(shape[0]) if len(shape) == 2 else 0.1
        value = random.normal(0, scale, shape) + ours.endswith("norm.scale")
        values[f"{POLICY}{NAMES[ours]}{END}"] = value.astype(np.float32)
    return values


def save_model(folder: Path, values: Values | None = None) -> Path:
    """Write a checkpoint, without TensorFlow; return the prefix of its files."""
    return save_bundle(folder / "ckpt-1", values or synthetic_values())


def save_sage(folder: Path, sizes: NetworkSizes = SIZES, without: Collection[str] = (), gain: float = 1.0) -> Path:
    """Write a policy of Sage's description with random weights.

    Args:
        folder: where to.
        sizes: of its network.
        without: rules that are not to hold.
        gain: factor of its answers.
    """
    random = np.random.default_rng(0)
    weights = {}
    for name, shape in sizes.shapes().items():
        scale = 1 / np.sqrt(shape[0]) if len(shape) == 2 else 0.1
        weights[name] = (random.normal(0, scale, shape) + name.endswith("norm.scale")).astype(np.float32)
    for name in ("head.loc.w", "head.loc.b"):
        weights[name] *= np.float32(gain)
    none = np.zeros(sizes.inputs, np.float32)
    artefact.write(
        folder,
        weights,
        sizes,
        Scaling("none", none, none + 1, 0.0),
        OBSERVATIONS,
        {},
        control=control(without),
        source=SOURCE,
        without=[rule for rule in without if rule in RULES],
    )
    return folder


def acme_network() -> Any:
    """Return the network as sage_rl/offline/offline_agent.py (make_networks) puts it together.

    Its two parts that are neither Acme's nor Sonnet's, the ControlNetworks, are Acme's LayerNormMLP under a name.
    """
    from sagecc.common.tensorflow_runtime import snt
    from sagecc.learner.acme_compat import networks

    class ControlNetwork(snt.Module):  # type: ignore[misc]
        def __init__(self, size: int) -> None:
            super().__init__(name="control_network")
            self._proprio_encoder = networks.LayerNormMLP([size])

        def __call__(self, inputs: Any) -> Any:
            return self._proprio_encoder(inputs)

    head = networks.MultivariateGaussianMixture(num_components=5, num_dimensions=1)
    neck = networks.LayerNormAndResidualMLP(hidden_size=256, num_blocks=2)
    return snt.DeepRNN([ControlNetwork(256), snt.GRU(1024), ControlNetwork(256), neck, head])
