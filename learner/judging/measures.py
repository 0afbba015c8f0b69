# SPDX-License-Identifier: Apache-2.0
"""How near a policy's actions are to the recorded ones: error, correlation, drift, limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sagecc.common.arrays import Bools, Doubles
from sagecc.learner.judging.decisions import RecordedDecisions
from sagecc.learner.judging.predictions import Predictions

DRIFT_S = 10.0
"""Time over which actions' differences add up to a drift."""


@dataclass(frozen=True)
class Likeness:
    """How near a policy's actions are to those of the pool's schemes in the same states; log2 of windows' ratios."""

    action_error: float
    """Mean square of what the policy would do less what was done, per decision (log2^2)."""
    negative_log_likelihood: float | None
    """Mean of -ln p(what was done), p the density of its mixture per log2; None without a mixture."""
    correlation: float
    """Pearson's, of what it would do and what was done; 0 where one of them never varies."""
    drift_mean: float | None
    """Mean over whole pieces of DRIFT_S of the sum of what it would do less what was done (log2); None without any."""
    drift_p5: float | None
    """Their 5th percentile."""
    drift_p95: float | None
    """Their 95th percentile."""
    at_limits: float
    """Share of decisions at which it would go as far as it can."""


def likeness(decisions: RecordedDecisions, predictions: Predictions, which: Bools) -> Likeness:
    """Compare a policy's actions with the recorded ones; those that are not the recorder's own do not count.

    Args:
        decisions: the recorded ones.
        predictions: the policy's at these.
        which: marks the trajectories that count [E]; at least one decision of them is the recorder's own.
    """
    chosen = np.repeat(which, decisions.lengths) & decisions.labels
    done, predicted = decisions.actions[chosen], predictions.actions[chosen]
    densities = predictions.log_densities
    varies = len(done) > 1 and done.std() > 0 and predicted.std() > 0
    drifts = _drifts(decisions, predictions, which)
    low, high = np.percentile(drifts, (5, 95)).tolist() if len(drifts) else (None, None)
    return Likeness(
        action_error=float(np.square(predicted - done).mean()),
        negative_log_likelihood=None if densities is None else float(-densities[chosen].mean()),
        correlation=float(np.corrcoef(done, predicted)[0, 1]) if varies else 0.0,
        drift_mean=float(drifts.mean()) if len(drifts) else None,
        drift_p5=low,
        drift_p95=high,
        at_limits=float(predictions.at_limits[chosen].mean()),
    )


def _drifts(decisions: RecordedDecisions, predictions: Predictions, which: Bools) -> Doubles:
    """Return the drift over each whole piece of DRIFT_S of the trajectories."""
    differences = np.where(decisions.labels, predictions.actions - decisions.actions, 0.0)
    piece = max(1, round(DRIFT_S * 1000 / decisions.period_ms))
    found = [
        differences[start : start + length // piece * piece].reshape(-1, piece).sum(axis=1)
        for start, length in zip(decisions.starts[which].tolist(), decisions.lengths[which].tolist(), strict=True)
    ]
    return np.concatenate(found)
