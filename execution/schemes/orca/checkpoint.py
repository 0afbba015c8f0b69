# SPDX-License-Identifier: Apache-2.0
"""Imports Orca's actor: from the TensorFlow 1 checkpoint that its public code writes to a policy artefact.

The network is that of rl-module/agent.py of its code.
"""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.inputs import read_regular
from sagecc.execution.schemes.orca.control import CONTROL
from sagecc.execution.schemes.orca.observation import OBSERVATIONS, SOURCE
from sagecc.policy import artefact
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.mlp import Mlp, fold_batch_norm
from sagecc.policy.scaling import Scaling
from sagecc.policy.tensorflow_checkpoint import prefix_of, read

ORIGIN = "orca"

LEAKY_SLOPE = 0.2
"""TensorFlow's default for tf.nn.leaky_relu, which agent.py leaves as it is."""

BATCH_NORM_EPSILON = 1e-3
"""TensorFlow's default for tf.layers.batch_normalization, which agent.py leaves as it is; it has no factor there."""

LICENCE = {
    "code": "https://github.com/Soheil-ab/Orca",
    "paper": "Classic Meets Modern: A Pragmatic Learning-Based Congestion Control for the Internet, SIGCOMM 2020",
    "licence": "MIT",
    "copyright": "Copyright (c) 2020 Soheil Abbasloo and Chen-Yu Yen",
}
NOTICES = ("COPYRIGHT", "copyright", "LICENSE", "LICENCE")
"""Files beside a checkpoint that may hold the terms under which it may be passed on; the first one's text is kept."""

NORM = ("batch_normalization", "batch_normalization_1")


@dataclass(frozen=True)
class Imported:
    """The artefact made from a checkpoint."""

    folder: Path
    """The artefact's folder."""
    step: int
    """Optimiser step of the checkpoint."""
    parameters: int
    """Number of the network's parameters."""


def import_checkpoint(checkpoint: Path, out: Path) -> Imported:
    """Turn the actor in a checkpoint into a policy artefact.

    Args:
        checkpoint: the folder that holds its files, one of them, or their common prefix (model.ckpt-1283529).
        out: the artefact's folder.

    Raises:
        SageccError: The checkpoint is not one of Orca's actor or is damaged, or `out` exists and is not an earlier
            import; nothing has been written then.
    """
    _refuse_other(out)
    prefix = prefix_of(checkpoint)
    values = read(prefix, lambda name: name == "global_step" or (name.startswith("actor/") and "/Adam" not in name))
    sizes, weights = network(values, prefix)
    inputs = sizes.inputs
    if inputs != len(OBSERVATIONS):
        raise SageccError(f"{prefix}: the actor observes {inputs} numbers, Orca's has {len(OBSERVATIONS)}")
    files = sorted(file for file in prefix.parent.glob(f"{glob.escape(prefix.name)}.*") if file.suffix != ".meta")
    notices = [prefix.parent / name for name in NOTICES if (prefix.parent / name).is_file()]
    step = int(values.get("global_step", np.array(0)))
    provenance = {
        "imported": {
            "from": ORIGIN,
            "checkpoint": prefix.name,
            "sha256": {file.name: sha256_file(file) for file in files},
            "step": step,
            **LICENCE,
            "notice": read_regular(notices[0]).decode(errors="replace") if notices else "",
        }
    }
    scaling = Scaling("none", np.zeros(inputs, np.float32), np.ones(inputs, np.float32), 0.0)

    def write(folder: Path) -> None:
        artefact.write(folder, weights, sizes, scaling, OBSERVATIONS, provenance, control=CONTROL, source=SOURCE)

    if out.is_dir() and any(out.iterdir()):
        write(out)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".tmp-{out.name}-", dir=out.parent) as temporary:
            folder = Path(temporary) / out.name
            write(folder)
            folder.replace(out)
    return Imported(out, step, sizes.parameters)


def network(values: Mapping[str, npt.NDArray[Any]], checkpoint: object) -> tuple[Mlp, dict[str, Floats]]:
    """Return the actor's sizes and weights.

    Batch normalisation in inference is linear, so each is folded into the dense layer before it, in double precision.

    Args:
        values: the checkpoint's variables by name.
        checkpoint: path of the checkpoint, for errors.

    Raises:
        SageccError: A variable is missing, has another shape, or holds values that are not finite.
    """

    def value(name: str, *shape: int) -> npt.NDArray[np.float64]:
        if f"actor/{name}" not in values:
            raise SageccError(f"{checkpoint} has no variable 'actor/{name}': it is no checkpoint of Orca's actor")
        array = np.asarray(values[f"actor/{name}"])
        if array.ndim != len(shape) or any(size not in (-1, n) for size, n in zip(shape, array.shape, strict=True)):
            shape_text = " x ".join("any" if size < 0 else str(size) for size in shape)
            raise SageccError(
                f"{checkpoint}: variable 'actor/{name}' has the shape {array.shape}, Orca's actor {shape_text}"
            )
        if not np.isfinite(array).all():
            raise SageccError(f"{checkpoint}: variable 'actor/{name}' holds values that are not finite")
        return array.astype(np.float64)

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


def _refuse_other(out: Path) -> None:
    """Raise SageccError unless `out` is missing, empty or an earlier import."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        is_import = PolicyArtefact.load(out).card.get("imported", {}).get("from") == ORIGIN
    except SageccError:
        is_import = False
    if not is_import:
        raise SageccError(f"{out} exists and is no policy imported from {ORIGIN}: choose another --out, or remove it")
