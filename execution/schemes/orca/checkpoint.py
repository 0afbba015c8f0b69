# SPDX-License-Identifier: Apache-2.0
"""Imports Orca's actor: from the TensorFlow 1 checkpoint that its public code writes to a policy artefact.

The network is that of rl-module/agent.py of its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.execution.schemes.orca.control import CONTROL
from sagecc.execution.schemes.orca.observation import OBSERVATIONS, SOURCE
from sagecc.policy import artefact
from sagecc.policy.importing import Imported, Origin, Variables, provenance, refuse_other, write_whole
from sagecc.policy.mlp import Mlp, fold_batch_norm
from sagecc.policy.scaling import unscaled
from sagecc.policy.tensorflow_checkpoint import prefix_of, read

LEAKY_SLOPE = 0.2
"""TensorFlow's default for tf.nn.leaky_relu, which agent.py leaves as it is."""

BATCH_NORM_EPSILON = 1e-3
"""TensorFlow's default for tf.layers.batch_normalization, which agent.py leaves as it is; it has no factor there."""

ORIGIN = Origin(
    name="orca",
    network="Orca's actor",
    licence={
        "code": "https://github.com/Soheil-ab/Orca",
        "paper": "Classic Meets Modern: A Pragmatic Learning-Based Congestion Control for the Internet, SIGCOMM 2020",
        "licence": "MIT",
        "copyright": "Copyright (c) 2020 Soheil Abbasloo and Chen-Yu Yen",
    },
)

NORM = ("batch_normalization", "batch_normalization_1")


def import_checkpoint(checkpoint: Path, out: Path) -> Imported:
    """Turn the actor in a checkpoint into a policy artefact.

    Args:
        checkpoint: the folder that holds its files, one of them, or their common prefix (model.ckpt-1283529).
        out: the artefact's folder.

    Raises:
        SageccError: The checkpoint is not one of Orca's actor or is damaged, or `out` exists and is not an earlier
            import; nothing has been written then.
    """
    refuse_other(out, ORIGIN)
    prefix = prefix_of(checkpoint)
    values = read(prefix, lambda name: name == "global_step" or (name.startswith("actor/") and "/Adam" not in name))
    sizes, weights = network(values, prefix)
    inputs = sizes.inputs
    if inputs != len(OBSERVATIONS):
        raise SageccError(f"{prefix}: the actor observes {inputs} numbers, Orca's has {len(OBSERVATIONS)}")
    step = int(values.get("global_step", np.array(0)))
    card = provenance(ORIGIN, prefix, step=step)
    write_whole(
        out,
        lambda folder: artefact.write(
            folder, weights, sizes, unscaled(inputs), OBSERVATIONS, card, control=CONTROL, source=SOURCE
        ),
    )
    return Imported(out, sizes.parameters, step)


def network(values: Mapping[str, npt.NDArray[Any]], checkpoint: object) -> tuple[Mlp, dict[str, Floats]]:
    """Return the actor's sizes and weights.

    Batch normalisation in inference is linear, so each is folded into the dense layer before it, in double precision.

    Args:
        values: the checkpoint's variables by name.
        checkpoint: path of the checkpoint, for errors.

    Raises:
        SageccError: A variable is missing, has another shape, or holds values that are not finite.
    """

    variables = Variables(values, checkpoint, ORIGIN.network)

    def value(name: str, *shape: int) -> npt.NDArray[np.float64]:
        return variables.value(f"actor/{name}", *shape)

    weights: dict[str, npt.NDArray[np.float64]] = {}
    units = -1
    hidden = []
    for i, norm in enumerate(NORM):
        kernel = value(f"fc{i + 1}/kernel", units, -1)
        units = kernel.shape[1]
        hidden.append(units)
        bias, beta, mean, variance = (
            value(name, units)
            for name in (f"fc{i + 1}/bias", f"{norm}/beta", f"{norm}/moving_mean", f"{norm}/moving_variance")
        )
        if (variance < 0).any():
            raise SageccError(f"{checkpoint}: variable 'actor/{norm}/moving_variance' is below 0")
        weights[f"layer{i}.w"], weights[f"layer{i}.b"] = fold_batch_norm(
            kernel, bias, mean, variance, beta, 1.0, BATCH_NORM_EPSILON
        )
    weights["answer.w"], weights["answer.b"] = value("dense/kernel", units, 1), value("dense/bias", 1)
    sizes = Mlp(len(weights["layer0.w"]), tuple(hidden), LEAKY_SLOPE)
    return sizes, {name: weight.astype(np.float32) for name, weight in weights.items()}
