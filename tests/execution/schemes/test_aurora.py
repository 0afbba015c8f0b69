# SPDX-License-Identifier: Apache-2.0
"""Aurora's observation, action and reward, by hand from its formulas; test_rollouts.py has it in a lab."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import action_map
from sagecc.execution.environments.earnings import IntervalEarnings, Place
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.flow.intervals import Intervals
from sagecc.execution.flow.reports import Reports
from sagecc.execution.schemes.aurora.control import CONTROL
from sagecc.execution.schemes.aurora.observation import OBSERVATIONS, REPORTING
from sagecc.execution.schemes.aurora.reward import REWARDS
from sagecc.policy.artefact import RATE_MAP, Control
from sagecc.policy.ratios import ratios
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment, Flow, Link, RateStep

SLOT, DUE, NOT_DUE = np.zeros(1, np.int64), np.ones(1, np.bool_), np.zeros(1, np.bool_)
NETWORK = Environment("custom", (Link((RateStep(0, 12),), 20, 60_000),), (Link(delay_ms=20),), 4, ((0, 4),))


def row(tick: int, **changes: int) -> npt.NDArray[np.void]:
    """A flow's row: 10 packets of 1,000 bytes delivered in each tick, and 11 sent."""
    record = np.zeros(1, wire.SAMPLE)
    values = {"t_ns": tick * 10_000_000, "mss_bytes": 1000, "delivered_pkts": 10 * tick, "bytes_sent": 11_000 * tick}
    for name, value in (values | {"cwnd_pkts": 20, "srtt_us": 50_000, "min_rtt_us": 40_000} | changes).items():
        record[name] = value
    return cast("npt.NDArray[np.void]", record)


def test_the_state_is_that_of_its_monitor_intervals() -> None:
    source = Reports(REPORTING, OBSERVATIONS, 1)
    for tick, srtt in enumerate((50_000, 40_000, 42_000, 47_000, 49_000, 52_000)):
        source.update(row(tick, srtt_us=srtt), SLOT)
    first = source.report(DUE).reshape(10, 3)
    assert not first[:9].any()
    # means of 41 and, with the odd one, 49 1/3 ms in 50 ms; the lowest mean RTT is this one; 55 kB sent for 50
    np.testing.assert_allclose(first[9], [(148 / 3 - 41) / 50, 1, 1.1], rtol=1e-6)
    source.update(row(6, srtt_us=69_000, delivered_pkts=70), SLOT)
    source.update(row(7, srtt_us=80_000, delivered_pkts=70), SLOT)  # without an acknowledgement
    second = source.report(DUE).reshape(10, 3)
    np.testing.assert_array_equal(second[8], first[9])
    np.testing.assert_allclose(second[9], [0, 69 / 46, 1.1], rtol=1e-6)  # one RTT has no gradient; 22 kB for 20
    source.update(row(8, srtt_us=80_000, delivered_pkts=70), SLOT)
    assert source.report(DUE)[0, -1] == 1  # nothing was acknowledged


def test_the_trend_of_an_interval_without_end_is_that_of_its_first_ten_seconds() -> None:
    intervals = Intervals(1, rises=True)
    for tick in range(1200):
        intervals.update(row(tick, srtt_us=10_000 + min(tick, 1024)), SLOT)
    report = intervals.report(DUE)
    assert report.rtt_rise_us == pytest.approx(512)
    assert report.rtt_us == pytest.approx(10_000 + (1024 * 1025 / 2 + 175 * 1024) / 1199)


def test_an_action_changes_the_rate_by_alpha_a() -> None:
    """1 + 0.025 a for a from 0 to 10, and 1 / (1 - 0.025 a) below; an action of 1 is a = 10."""
    expected = [1 / 1.25, 1 / 1.025, 1, 1.025, 1.25]
    np.testing.assert_allclose(ratios(CONTROL, np.array([-1, -0.1, 0, 0.1, 1])), expected, rtol=1e-13)


def test_a_rate_is_kept_whatever_the_rtt_and_its_window_does_not_bind() -> None:
    rates = action_map(CONTROL, 1)

    def step(due: npt.NDArray[np.bool_], action: float, **changes: int) -> tuple[int, int]:
        (cwnd,), (pacing,) = rates.step(row(1, **changes), SLOT, due, np.array([action]))
        return int(cwnd), int(pacing)

    assert step(NOT_DUE, 0, srtt_us=0) == (20, 0)  # no RTT is known: nothing is changed
    assert step(NOT_DUE, 0) == (40, 400_000)  # 20 packets in 50 ms
    assert step(DUE, 0.1, cwnd_pkts=40) == (41, 410_000)
    assert step(NOT_DUE, 0.1, cwnd_pkts=41, srtt_us=100_000) == (82, 410_000)
    assert step(DUE, -0.1, cwnd_pkts=82, srtt_us=100_000) == (80, 400_000)
    assert step(NOT_DUE, 0, cwnd_pkts=30, srtt_us=100_000) == (60, 300_000)  # somebody else changed the window
    cwnd = 60
    for _ in range(20):
        cwnd, pacing = step(DUE, -1, cwnd_pkts=cwnd, srtt_us=100_000)
    assert (cwnd, pacing) == (4, 20_000)  # no window is below 4
    rates.reset(0)
    assert step(NOT_DUE, 0) == (40, 400_000)


def test_a_rate_is_set_on_top_of_pure_alone() -> None:
    with pytest.raises(ValueError, match="on top of pure alone, not of cubic"):
        Control(map=RATE_MAP, underlying_scheme="cubic")
    with pytest.raises(SageccError, match=r"task: control: a rate is set on top of pure alone"):
        LearningTask.of({"control": {"like": "aurora", "underlying_scheme": "reno"}})


def test_the_reward_is_in_thousands_of_packets_seconds_and_shares() -> None:
    (reward,) = REWARDS
    earnings = IntervalEarnings(reward, Place(cast("Any", None), 1, 1, None))
    earnings.begin(0, NETWORK, Flow())
    for tick in range(5):
        earnings.update(row(tick, lost_total_pkts=5 * (tick > 2)), SLOT)
    # 40 packets in 40 ms, 50 ms, 5 of 45 lost
    np.testing.assert_allclose(earnings.earned(DUE), [10 - 0.05 - 2 * 5 / 45])
    earnings.update(row(4), SLOT)
    assert np.isfinite(earnings.earned(DUE)).all()
