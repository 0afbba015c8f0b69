# SPDX-License-Identifier: Apache-2.0
"""Distributions within one step, for TensorBoard: actions by scheme, the pool's and the policy's; advantages; weights.

TensorFlow's own histogram takes thirty milliseconds, so buckets are counted here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.crr import Transitions
from sagecc.schemas.pool import ACTION_LOG2_LIMIT

SAMPLES = 200
"""Histograms that a run has at most of each kind."""

LEAST_STEPS = 50
"""Steps between two of them at least: they take time."""

BUCKETS = 40

_POSITIVE = np.geomspace(1e-3, ACTION_LOG2_LIMIT, BUCKETS // 2)
ACTION_EDGES = np.concatenate([-_POSITIVE[::-1], _POSITIVE])
"""Of the buckets of log2(ratio): finer near 0, where nearly all actions are, and the same at every step."""

Buckets = npt.NDArray[np.float64]


def period(steps: int) -> int:
    """Return the number of steps from one sample to the next in a run of that many."""
    return max(LEAST_STEPS, steps // SAMPLES)


def buckets(values: npt.ArrayLike, edges: npt.ArrayLike | int = BUCKETS) -> Buckets:
    """Count values: [K, 3] of left edge, right edge, count. Values beyond given edges count at the ends."""
    flat = np.asarray(values, np.float64).ravel()
    if not isinstance(edges, int):
        flat = np.clip(flat, np.min(edges), np.max(edges))
    counts, found = np.histogram(flat, edges)
    return np.stack([found[:-1], found[1:], counts], axis=1)


def of_step(schemes: npt.NDArray[np.str_], action: Floats, seen: Transitions) -> dict[str, Buckets]:
    """Return the histograms of one step by name.

    schemes [B] and the pool's log2 actions [T, B] of the batch's windows; what the step saw of their transitions.
    """
    advantage, weight, drawn = (np.asarray(x) for x in seen)
    pool = action[-len(drawn) - 1 : -1]  # a window's last row has no transition, nor have those of the burn-in
    found = {"advantage": buckets(advantage), "filter_weight": buckets(weight)}
    for scheme in np.unique(schemes):
        of = schemes == scheme
        found[f"action/{scheme}/pool"] = buckets(pool[:, of], ACTION_EDGES)
        found[f"action/{scheme}/policy"] = buckets(drawn[:, of], ACTION_EDGES)
    return found


def write(name: str, histogram: Buckets) -> None:
    """Write one to TensorBoard's default writer, at its step."""
    metadata: Any = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "histograms"
    tf.summary.write(name, tf.constant(histogram), metadata=metadata)
