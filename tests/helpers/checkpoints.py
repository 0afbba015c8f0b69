# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 1 checkpoints of the layout that Orca's code writes, and its actor's graph in TensorFlow's own words."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.common.tensorflow_runtime import tf
from tests.conftest import ROOT

v1 = tf.compat.v1
Values = dict[str, npt.NDArray[np.float32]]

PUBLISHED = Path(os.environ.get("SAGECC_ORCA", ROOT.parent / "shared" / "models" / "orca"))
"""The authors' own actor, which is not part of this project."""

needs_published = pytest.mark.skipif(
    not list(PUBLISHED.glob("*.index")), reason=f"no checkpoint of Orca's actor at {PUBLISHED} (SAGECC_ORCA names one)"
)


def synthetic_values(seed: int = 0, inputs: int = 70, units: int = 256) -> Values:
    """Return variables by name, at the scale of a trained actor's."""
    random = np.random.default_rng(seed)
    values: dict[str, npt.NDArray[np.floating]] = {}
    for i, (size, norm) in enumerate(((inputs, "batch_normalization"), (units, "batch_normalization_1")), start=1):
        values[f"actor/fc{i}/kernel"] = random.normal(0, 1 / np.sqrt(size), (size, units))
        values[f"actor/fc{i}/bias"] = random.normal(0, 0.1, units)
        values[f"actor/{norm}/beta"] = random.normal(0, 0.5, units)
        values[f"actor/{norm}/moving_mean"] = random.normal(0, 0.5, units)
        values[f"actor/{norm}/moving_variance"] = random.lognormal(-1, 1.5, units)
    values["actor/dense/kernel"] = random.normal(0, 1 / np.sqrt(units), (units, 1))
    values["actor/dense/bias"] = random.normal(0, 0.1, 1)
    return {name: value.astype(np.float32) for name, value in values.items()}


def save_checkpoint(folder: Path, values: Values, step: int = 7) -> Path:
    """Write values with a session's saver, among variables of others as Orca's learner has; return the prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default():
        variables = [v1.Variable(value, name=name, use_resource=False) for name, value in values.items()]
        variables.append(v1.Variable(np.int64(step), name="global_step", use_resource=False))
        others = ("critic/fc1/kernel", "actor/fc1/kernel/Adam", "target_actor/fc1/kernel")
        variables += [v1.Variable(np.zeros((3, 2), np.float32), name=name, use_resource=False) for name in others]
        with v1.Session() as session:
            session.run([variable.initializer for variable in variables])
            return Path(v1.train.Saver(variables).save(session, str(folder / "model.ckpt"), global_step=step))


def graph_answers(values: Values, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the actor's answers [B, 1], with TensorFlow's own batch normalisation, as agent.py builds it."""
    x = tf.constant(observation)
    for i, norm in enumerate(("batch_normalization", "batch_normalization_1"), start=1):
        x = tf.matmul(x, values[f"actor/fc{i}/kernel"]) + values[f"actor/fc{i}/bias"]
        mean, variance, beta = (values[f"actor/{norm}/{name}"] for name in ("moving_mean", "moving_variance", "beta"))
        x = tf.nn.leaky_relu(tf.nn.batch_normalization(x, mean, variance, beta, None, 1e-3))
    return np.asarray(tf.tanh(tf.matmul(x, values["actor/dense/kernel"]) + values["actor/dense/bias"]))


def meta_graph_answers(prefix: Path, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the answers [B, 1] of the very graph that was saved beside a checkpoint."""
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(f"{prefix}.meta", clear_devices=True)
        saver.restore(session, str(prefix))
        answers = session.run("actor/Mul:0", {"s0:0": observation, "Actor_is_training:0": False})
        return np.asarray(answers)


def observations(count: int = 500, seed: int = 1) -> npt.NDArray[np.float32]:
    """Return observations such as flows make, [count, 70]."""
    random = np.random.default_rng(seed)
    report = random.uniform(0, 1, (count, 10, 7))
    report[..., 1] *= 3
    report[..., 2] = random.exponential(0.05, (count, 10)) * (random.uniform(size=(count, 10)) < 0.1)
    report[..., 4] = random.uniform(0.01, 0.05, (count, 10))
    return report.reshape(count, 70).astype(np.float32)
