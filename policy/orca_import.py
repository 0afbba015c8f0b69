# SPDX-License-Identifier: Apache-2.0
"""Orca's actor: from the TensorFlow 1 checkpoint that its public code writes to a policy artefact.

policy.orca says what Orca is; the network is that of rl-module/agent.py of its code.
"""

from __future__ import annotations

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
from sagecc.policy import artefact
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.mlp import Mlp
from sagecc.policy.orca import CONTROL, OBSERVATIONS, SOURCE
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
"""Files that may lie beside a checkpoint and say under which terms it may be passed on; their text goes with it."""

NORM = ("batch_normalization", "batch_normalization_1")


@dataclass(frozen=True)
class Imported:
    """What was made of a checkpoint: the artefact's folder, the optimiser's step it is of, its parameters."""

    folder: Path
    step: int
    parameters: int


def import_checkpoint(checkpoint: Path, out: Path) -> Imported:
    """Turn the actor in a checkpoint into the policy artefact `out`.

    checkpoint: the folder that holds its files, one of them, or their common beginning (model.ckpt-1283529).
    Raises SageccError, before anything is written, where that is no checkpoint of Orca's actor, is damaged, or `out` is
    something other than an earlier import.
    """
    _refuse_other(out)
    prefix = prefix_of(checkpoint)
    values = read(prefix, lambda name: name == "global_step" or (name.startswith("actor/") and "/Adam" not in name))
    sizes, weights = network(values, prefix)
    inputs = sizes.inputs
    if inputs != len(OBSERVATIONS):
        raise SageccError(f"{prefix}: the actor observes {inputs} numbers, Orca's has {len(OBSERVATIONS)}")
    files = sorted(file for file in prefix.parent.glob(f"{prefix.name}.*") if file.suffix != ".meta")
    notices = [prefix.parent / name for name in NOTICES if (prefix.parent / name).is_file()]
    step = int(values.get("global_step", np.array(0)))
    provenance = {
        "imported": {
            "from": ORIGIN,
            "checkpoint": prefix.name,
            "sha256": {file.name: sha256_file(file) for file in files},
            "step": step,
            **LICENCE,
            "notice": notices[0].read_text(errors="replace") if notices else "",
        }
    }
    scaling = Scaling("none", np.zeros(inputs, np.float32), np.ones(inputs, np.float32), 0.0)

    def write(folder: Path) -> None:
        artefact.write(folder, weights, sizes, scaling, OBSERVATIONS, provenance, None, CONTROL, SOURCE)

    if out.is_dir() and any(out.iterdir()):
        write(out)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".tmp-{out.name}-", dir=out.parent) as beside:
            whole = Path(beside) / out.name
            write(whole)
            whole.replace(out)
    return Imported(out, step, sizes.parameters)


def network(values: Mapping[str, npt.NDArray[Any]], where: object) -> tuple[Mlp, dict[str, Floats]]:
    """Return the actor's sizes and weights of a checkpoint's variables by name; `where` it is, for errors.

    Batch normalisation at rest is linear, so each goes into the dense layer before it; in double precision.
    Raises SageccError where a variable is missing, has another shape, or holds what is not a number.
    """

    def value(name: str, *shape: int) -> npt.NDArray[np.float64]:
        if f"actor/{name}" not in values:
            raise SageccError(f"{where} has no variable 'actor/{name}': it is no checkpoint of Orca's actor")
        found = np.asarray(values[f"actor/{name}"])
        if found.ndim != len(shape) or any(want not in (-1, n) for want, n in zip(shape, found.shape, strict=True)):
            asked = " x ".join("any" if size < 0 else str(size) for size in shape)
            raise SageccError(f"{where}: variable 'actor/{name}' has the shape {found.shape}, Orca's actor {asked}")
        if not np.isfinite(found).all():
            raise SageccError(f"{where}: variable 'actor/{name}' holds values that are not finite")
        return found.astype(np.float64)

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
            raise SageccError(f"{where}: variable 'actor/{norm}/moving_variance' is below 0")
        factor = 1 / np.sqrt(variance + BATCH_NORM_EPSILON)
        weights[f"layer{i}.w"] = kernel * factor
        weights[f"layer{i}.b"] = (bias - mean) * factor + beta
    weights["answer.w"], weights["answer.b"] = value("dense/kernel", units, 1), value("dense/bias", 1)
    sizes = Mlp(len(weights["layer0.w"]), tuple(hidden), LEAKY_SLOPE)
    return sizes, {name: weight.astype(np.float32) for name, weight in weights.items()}


def _refuse_other(out: Path) -> None:
    """Raise SageccError where `out` is something other than an earlier import, or nothing."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        mine = PolicyArtefact.load(out).card.get("imported", {}).get("from") == ORIGIN
    except SageccError:
        mine = False
    if not mine:
        raise SageccError(f"{out} exists and is no policy imported from {ORIGIN}: choose another --out, or remove it")
