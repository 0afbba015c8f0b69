# SPDX-License-Identifier: Apache-2.0
"""Astraea's observation, action, reward and global state, by hand; test_rollouts.py has it in a lab."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.execution.agent.actions import action_map
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.flow.competition import Flows
from sagecc.execution.flow.reports import Reports
from sagecc.execution.schemes.astraea.control import CONTROL
from sagecc.execution.schemes.astraea.global_state import GLOBAL_STATE, global_state
from sagecc.execution.schemes.astraea.observation import OBSERVATIONS, REPORTING
from sagecc.execution.schemes.astraea.reward import AstraeaWeights, astraea
from sagecc.schemas import wire


def row(tick: int, **changes: int) -> npt.NDArray[np.void]:
    """A flow's row, 50 packets delivered in each tick."""
    record = np.zeros(1, wire.SAMPLE)
    values = {"t_ns": tick * 10_000_000, "mss_bytes": 1000, "delivered_pkts": 1 + 50 * tick, "cwnd_pkts": 100}
    values |= {"srtt_us": 50_000, "min_rtt_us": 40_000, "unacked_pkts": 90}
    for name, value in (values | changes).items():
        record[name] = value
    return cast("npt.NDArray[np.void]", record)


def test_astraeas_state_is_what_its_section_3_3_says() -> None:
    source, slot = Reports(REPORTING, OBSERVATIONS, 1), np.zeros(1, np.int64)
    assert not source.update(row(0), slot).any()  # nothing behind it
    for tick in (1, 2, 3):
        assert source.update(row(tick), slot).all()
    first = source.report(np.ones(1, np.bool_)).reshape(5, 10)
    assert not first[:4].any()
    # 5,000 packets of 1,000 bytes a second are 40 Mbps; a window of 100 packets an sRTT of 50 ms is 2 MB/s
    expected = [1, 0.4, 1.25, 0.4, 100_000 / (5e6 * 0.04), 0, 0.9, 2e6 / 5e6, 1.25, 0]
    np.testing.assert_allclose(first[4], expected, rtol=1e-6)

    slow = {"cwnd_pkts": 200, "srtt_us": 80_000, "unacked_pkts": 180, "sacked_pkts": 12, "lost_pkts": 6}
    source.update(row(4, delivered_pkts=161, srtt_us=60_000), slot)
    source.update(row(5, delivered_pkts=161, srtt_us=70_000), slot)  # no acknowledgement: its sRTT does not count
    source.update(row(6, delivered_pkts=181, lost_total_pkts=6, retrans_pkts=4, **slow), slot)
    second = source.report(np.ones(1, np.bool_)).reshape(5, 10)
    np.testing.assert_array_equal(second[3], first[4])
    throughput, pacing = 30 * 1000 / 0.03, 200 * 1000 / 0.08
    ratios_ = [throughput / 5e6, 0.4, 70 / 40, 0.4, 200_000 / (5e6 * 0.04), 6000 / 0.03 / 5e6]
    expected = [*ratios_, (180 - 12 - 6 + 4) / 200, pacing / 5e6, 2, 4 / 200]
    np.testing.assert_allclose(second[4], expected, rtol=1e-6)
    source.reset(0)
    source.update(row(0), slot)
    source.update(row(1), slot)
    assert not source.report(np.ones(1, np.bool_)).reshape(5, 10)[:4].any()


def test_a_flow_without_a_sample_of_its_rtt_has_finite_numbers() -> None:
    source, slot = Reports(REPORTING, OBSERVATIONS, 1), np.zeros(1, np.int64)
    for tick in range(2):
        source.update(row(tick, srtt_us=0, min_rtt_us=0xFFFFFFFF, delivered_pkts=1), slot)
    assert np.isfinite(source.report(np.ones(1, np.bool_))).all()


def test_astraeas_small_steps_add_up() -> None:
    """A window of 10 packets grows though 2.5 % of it is no packet."""
    windows, cwnd = action_map(CONTROL, 1), 10
    for _ in range(10):
        (given,), _ = windows.step(row(0, cwnd_pkts=cwnd), np.zeros(1, np.int64), np.ones(1, np.bool_), np.ones(1))
        cwnd = int(given)
    assert cwnd == math.floor(10 * 1.025**10)


def two_flows(**changes: Any) -> Flows:
    """Two flows with 6 and 4 of 10 MB/s, steady, at 1.2 times their base RTT, without loss; and room for a third."""
    values: dict[str, Any] = {
        "throughput": np.repeat([[6e6], [4e6]], 5, axis=1),
        "lost": np.zeros(2),
        "latency": np.array([48e3, 48e3]),
        "pacing": np.array([6e6, 4e6]),
        "cwnd": np.array([300.0, 100.0]),
        "base_rtt": np.array([40e3, 40e3]),
    }
    padded = {name: np.concatenate([value, value[:1] * np.nan])[None] for name, value in (values | changes).items()}
    return Flows(up=np.array([[True, True, False]]), **padded)


CAPACITY = np.array([10e6])


FAIRNESS = math.sqrt((1e6**2 + 1e6**2) / (2 * 10e6**2))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0.1 - 0.02 * FAIRNESS),
        ({"throughput": np.full((2, 5), 5e6)}, 0.1),  # nothing to wish for
        ({"latency": np.array([40e3, 60e3])}, 0.1 - 0.02 * FAIRNESS),  # on average within 1.25
        ({"latency": np.array([60e3, 60e3])}, 0.1 - 0.02 * (1.5 - 1.25) - 0.02 * FAIRNESS),
        ({"lost": np.array([0.6e6, 0.0])}, 0.1 - 0.5 * 0.1 - 0.02 * FAIRNESS),
        ({"lost": np.array([6e6, 4e6])}, -0.1),  # bounded
        ({"throughput": np.zeros((2, 5)), "pacing": np.zeros(2)}, 0.0),
    ],
    ids=["unfair", "best", "dead-band", "late", "lossy", "bounded", "silent"],
)
def test_astraeas_reward_by_its_five_terms(changes: dict[str, Any], expected: float) -> None:
    assert astraea(two_flows(**changes), CAPACITY) == pytest.approx(expected, abs=1e-12)


def test_astraeas_reward_weighs_its_terms_as_told() -> None:
    fair = AstraeaWeights(fairness=0.5)
    expected = 0.1 - 0.5 * FAIRNESS
    assert astraea(two_flows(), CAPACITY, fair) == pytest.approx(expected, abs=1e-12)
    task = LearningTask.of({"reward": "astraea", "reward_weights": {"fairness": 0.5}})
    assert task.reward_weights == fair
    assert LearningTask.of({"reward": "astraea"}).reward_weights == AstraeaWeights(0.1, 0.02, 1, 0.02, 0.01)


def test_astraeas_reward_wants_stable_throughputs_and_takes_young_flows_as_they_are() -> None:
    wobbling = np.array([[4e6, 6e6, 4e6, 6e6, 5e6], [5e6] * 5])
    deviation = math.sqrt(4 * 1e6**2 / (5 * 5e6**2))
    steady = 0.1 - 0.01 * deviation / 2
    assert astraea(two_flows(throughput=wobbling), CAPACITY) == pytest.approx(steady, abs=1e-12)
    young = np.array([[np.nan, np.nan, np.nan, np.nan, 5e6], [5e6] * 5])
    assert astraea(two_flows(throughput=young), CAPACITY) == pytest.approx(0.1, abs=1e-12)
    nobody = replace(two_flows(), up=np.zeros((1, 3), np.bool_))
    assert astraea(nobody, CAPACITY) == 0


def test_the_global_state_is_table_2s() -> None:
    flows = two_flows(
        throughput=np.array([[6.25e6], [3.75e6]]), lost=np.array([0.625e6, 0.0]), latency=np.array([40e3, 60e3])
    )
    link = {"base_rtt": np.array([40e3]), "buffer": np.array([150e3]), "capacity": np.array([12.5e6])}
    (state,) = global_state(flows, **link)
    expected = [0.8, 0.3, 0.5, 0.5, 0.1, 0.3, 0.2, 0.05, 2, 0.4, 0.1, 1]
    assert state.dtype == np.float32
    assert dict(zip(GLOBAL_STATE, state.tolist(), strict=True)) == pytest.approx(
        dict(zip(GLOBAL_STATE, expected, strict=True))
    )
    (empty,) = global_state(replace(flows, up=np.zeros((1, 3), np.bool_)), **link)
    assert empty.tolist() == pytest.approx([0] * 9 + expected[9:])
