# SPDX-License-Identifier: Apache-2.0
"""What is measured of actions, worked out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sagecc.learner.judging.decisions import RecordedDecisions
from sagecc.learner.judging.measures import likeness
from sagecc.learner.judging.predictions import Predictions

DONE = np.array([0.0, 1.0, -1.0, 0.5])
"""What was done at four decisions; the last one was not the recorder's."""
WOULD = np.array([0.1, 0.8, -1.0, -2.0])
RECORDED = RecordedDecisions(
    features=np.zeros((4, 69), np.float32),
    actions=DONE,
    rewards=np.zeros(4),
    labels=np.array([True, True, True, False]),
    starts=np.array([0]),
    lengths=np.array([4]),
    environments=np.array([0]),
    sets=("I",),
    period_ms=50,
)
ALL = np.array([True])


def test_error_correlation_and_limits_by_hand() -> None:
    found = likeness(
        RECORDED, Predictions(WOULD, np.array([False, True, False, True]), np.log([0.5, 0.25, 1.0, 1e-9])), ALL
    )
    assert found.action_error == pytest.approx((0.1**2 + 0.2**2) / 3)
    assert found.negative_log_likelihood == pytest.approx((np.log(2) + np.log(4)) / 3)
    assert found.at_limits == pytest.approx(1 / 3)
    # deviations from the means: (0, 1, -1) and (2/15, 5/6, -29/30)
    by_hand = 1.8 / np.sqrt(2 * ((2 / 15) ** 2 + (5 / 6) ** 2 + (29 / 30) ** 2))
    assert found.correlation == pytest.approx(by_hand)
    assert (found.drift_mean, found.drift_p5, found.drift_p95) == (None, None, None)


def test_a_drift_is_a_sum_over_10_s_without_what_the_lab_did() -> None:
    recorded = dataclasses.replace(RECORDED, period_ms=5000.0)
    found = likeness(recorded, Predictions(WOULD, np.zeros(4, np.bool_), None), ALL)
    # pieces of two decisions: 0.1 - 0.2, and 0 (the other is the lab's)
    assert found.drift_mean == pytest.approx(-0.05)
    assert found.drift_p5 == pytest.approx(-0.1 + 0.05 * 0.1)
    assert found.drift_p95 == pytest.approx(-0.05 * 0.1)
    assert found.negative_log_likelihood is None


def test_a_drift_is_within_a_trajectory() -> None:
    recorded = dataclasses.replace(
        RECORDED,
        period_ms=5000.0,
        labels=np.ones(4, np.bool_),
        starts=np.array([0, 3]),
        lengths=np.array([3, 1]),
        environments=np.array([0, 0]),
        sets=("I", "II"),
    )
    predictions = Predictions(WOULD, np.zeros(4, np.bool_), None)
    assert likeness(recorded, predictions, np.array([True, True])).drift_mean == pytest.approx(-0.1)
    second = likeness(recorded, predictions, np.array([False, True]))
    assert second.drift_mean is None and second.action_error == pytest.approx(2.5**2)


def test_what_never_varies_has_no_correlation() -> None:
    still = Predictions(np.full(4, 0.5), np.zeros(4, np.bool_), None)
    assert likeness(RECORDED, still, ALL).correlation == 0
