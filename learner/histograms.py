# SPDX-License-Identifier: Apache-2.0
"""Distributions within one step, for TensorBoard: actions by scheme, the pool's and the policy's; advantages; weights.

TensorFlow's own histogram takes thirty milliseconds, so buckets are counted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.tensorflow_runtime import tf
from sagecc.schemas.pool import ACTION_LOG2_LIMIT

SAMPLES = 200
"""Most histograms of each kind in a run."""

LEAST_STEPS = 50
"""Fewest steps between two histograms: they take time."""

BUCKETS = 40

_POSITIVE = np.geomspace(1e-3, ACTION_LOG2_LIMIT, BUCKETS // 2)
ACTION_EDGES = np.concatenate([-_POSITIVE[::-1], _POSITIVE])
"""Edges of the buckets of log2(ratio): finer near 0, where nearly all actions are, and the same at every step."""

Buckets = npt.NDArray[np.float64]


def period(steps: int) -> int:
    """Return the number of steps from one histogram to the next in a run of `steps` steps."""
    return max(LEAST_STEPS, steps // SAMPLES)


def buckets(values: npt.ArrayLike, edges: npt.ArrayLike | int = BUCKETS) -> Buckets:
    """Count values in buckets.

    Args:
        values: the values, of any shape.
        edges: edges of the buckets, beyond which values count in the first or last one; or the number K of buckets,
            which are then equally wide.

    Returns:
        Left edge, right edge and count of each bucket [K, 3].
    """
    flat = np.asarray(values, np.float64).ravel()
    if not isinstance(edges, int):
        flat = np.clip(flat, np.min(edges), np.max(edges))
    counts, bounds = np.histogram(flat, edges)
    return np.stack([bounds[:-1], bounds[1:], counts], axis=1)


def of_step(schemes: npt.NDArray[np.str_], actions: Floats, transitions: Mapping[str, Any]) -> dict[str, Buckets]:
    """Return the histograms of one step.

    Args:
        schemes: scheme of each of the batch's windows [B].
        actions: the pool's log2 actions [T, B].
        transitions: what the step says of its transitions (core.Update).

    Returns:
        Buckets by the histogram's name.
    """
    drawn = np.asarray(transitions["action"])
    pool = actions[-len(drawn) - 1 : -1]  # a window's last row has no transition, nor have those of the burn-in
    histograms = {name: buckets(np.asarray(x)) for name, x in transitions.items() if name != "action"}
    for scheme in np.unique(schemes):
        windows = schemes == scheme
        histograms[f"action/{scheme}/pool"] = buckets(pool[:, windows], ACTION_EDGES)
        histograms[f"action/{scheme}/policy"] = buckets(drawn[:, windows], ACTION_EDGES)
    return histograms


def write(name: str, histogram: Buckets) -> None:
    """Write a histogram to TensorBoard's default writer, at the writer's step."""
    metadata: Any = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "histograms"
    tf.summary.write(name, tf.constant(histogram), metadata=metadata)
