# SPDX-License-Identifier: Apache-2.0
"""What tasks offer beside the pool's: observations, action maps, periods and rewards, by hand from the equations."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import AckedStart, action_map, ratios
from sagecc.execution.agent.astraea import REPORTING
from sagecc.execution.agent.decisions import period_ticks
from sagecc.execution.agent.reports import Reports
from sagecc.execution.environments import astraea
from sagecc.execution.environments.astraea import Flows
from sagecc.execution.environments.congestion import CongestionEnv
from sagecc.execution.environments.rewards import Place, PoolEarnings, graded, orca, orca_paper, reward_of, shared
from sagecc.execution.environments.rollouts import Rollouts
from sagecc.learner.online.config import load
from sagecc.online import online_task
from sagecc.policy.artefact import HUNDREDTHS_MAP, LINEAR_MAP, MAPS, SPREAD_MAP, Control
from sagecc.policy.astraea import CONTROL, GLOBAL_STATE, OBSERVATIONS
from sagecc.policy.orca import CONTROL as ORCA
from sagecc.policy.orca import OBSERVATIONS as ORCA_OBSERVATIONS
from sagecc.policy.task import AstraeaWeights, LearningTask
from sagecc.pool.reward import friendliness, power
from sagecc.schemas import wire
from sagecc.schemas.environment import CrossFlow, Environment, Flow
from sagecc.schemas.network_distribution import NetworkDistribution
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.networks import network


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


@pytest.mark.parametrize(
    ("control", "actions", "expected"),
    [
        (Control(), (-2, -1, 0, 1, 2), (0.25, 0.5, 1, 2, 4)),
        (ORCA, (-1, -0.5, 0, 0.5, 1), (0.25, 0.5, 1, 2, 4)),  # 2**alpha, |alpha| < 2
        (CONTROL, (-1, -0.4, 0, 0.4, 1), (1 / 1.025, 1 / 1.01, 1, 1.01, 1.025)),
    ],
    ids=["sage", "orca", "astraea"],
)
def test_an_action_is_a_ratio(control: Control, actions: tuple[float, ...], expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(ratios(control, np.array(actions, np.float64)), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "base", "action", "given"),
    [("power", 2, 0.5, 141), ("spread", 2, 0.5, 141), ("hundredths", 4, 0.3, 151), ("linear", 1.025, -0.8, 98)],
)
def test_a_map_makes_windows_paced_at_one_an_srtt(name: str, base: float, action: float, given: int) -> None:
    windows = action_map(Control(base=base, map=MAPS[name], underlying_scheme="cubic"), 1)
    cwnd, pacing = windows.step(row(0), np.zeros(1, np.int64), np.ones(1, np.bool_), np.array([action]))
    assert (cwnd.tolist(), pacing.tolist()) == ([given], [given * 1000 * 20])


def test_astraeas_small_steps_add_up() -> None:
    """A window of 10 packets grows though 2.5 % of it is no packet."""
    windows, cwnd = action_map(CONTROL, 1), 10
    for _ in range(10):
        (given,), _ = windows.step(row(0, cwnd_pkts=cwnd), np.zeros(1, np.int64), np.ones(1, np.bool_), np.ones(1))
        cwnd = int(given)
    assert cwnd == math.floor(10 * 1.025**10)


def test_a_window_grows_by_what_was_acknowledged() -> None:
    start, slot, acked = AckedStart(CONTROL, 1), np.zeros(1, np.int64), np.ones(1, np.bool_)
    quick = {"srtt_us": 40_000, "min_rtt_us": 40_000, "ssthresh_pkts": 2**31 - 1}
    first = row(0, delivered_pkts=0, cwnd_pkts=10, **quick)
    assert start.active(first, slot).all()
    np.testing.assert_array_equal(start.step(first, slot, acked)[0], [10])
    second = row(1, delivered_pkts=7, cwnd_pkts=10, **quick)
    assert start.active(second, slot).all()
    # two windows of 17 packets of 1,000 bytes an sRTT of 40 ms
    np.testing.assert_array_equal(start.step(second, slot, acked), [[17], [850_000]])


@pytest.mark.parametrize(
    ("change", "halved"), [({"srtt_us": 50_001}, True), ({"lost_total_pkts": 1}, True), ({"ssthresh_pkts": 9}, False)]
)
def test_a_slow_start_by_acknowledgements_ends_for_good(change: dict[str, int], halved: bool) -> None:
    start, slot, acked = AckedStart(CONTROL, 1), np.zeros(1, np.int64), np.ones(1, np.bool_)
    going_on = {"srtt_us": 50_000, "min_rtt_us": 40_000, "ssthresh_pkts": 2**31 - 1, "cwnd_pkts": 60}
    assert start.active(row(0, **going_on), slot).all()
    ending = row(1, **(going_on | change))
    assert start.active(ending, slot).all() == halved
    if halved:  # its last word
        np.testing.assert_array_equal(start.step(ending, slot, acked)[0], [30])
    assert not start.active(row(2, **going_on), slot).any()
    start.reset(0)
    assert start.active(row(0, **going_on), slot).all()


def test_a_period_is_a_multiple_of_the_tick_or_a_share_of_the_minimum_rtt() -> None:
    rows = np.concatenate([row(0, min_rtt_us=rtt) for rtt in (4_000, 24_900, 25_100, 200_000, 0xFFFFFFFF)])
    assert period_ticks(Control(period_ms=30), rows).tolist() == [3] * 5
    assert period_ticks(Control(period_min_rtts=1), rows).tolist() == [1, 2, 3, 20, 1]
    assert period_ticks(Control(period_ms=20, period_min_rtts=0.5), rows).tolist() == [2, 2, 2, 10, 2]


def test_orcas_rewards_by_its_code_and_by_its_paper() -> None:
    """8 of 10 Mbps, 0.4 lost: net 0.6; RTTs at, within and beyond 1.25 times the lowest of 40 ms."""
    rate, lost, highest, lowest = (np.full(4, value) for value in (8.0, 0.4, 10.0, 40.0))
    srtt = np.array([40.0, 50, 51, 80])
    np.testing.assert_allclose(orca(rate, lost, highest, lowest, srtt), 0.6 * np.array([1, 1, 50 / 51, 50 / 80]))
    np.testing.assert_allclose(orca_paper(rate, lost, highest, lowest, srtt), 0.6 * np.array([1, 1, 40 / 51, 0.5]))
    nothing = np.zeros(1)
    assert orca(nothing, nothing, nothing, nothing, nothing) == orca_paper(*[nothing] * 5) == 0
    assert orca(np.ones(1), np.ones(1), np.ones(1), lowest[:1], srtt[:1]) == -4  # losing costs five times


def test_the_graded_reward_is_felt_from_far_away() -> None:
    """R of 25 / e is 25 / 2; beside others a share x of the fair one earns 25 / (1 + 8 (x - 1)^2)."""
    np.testing.assert_allclose(graded(25 * np.exp([0.0, -1, -3])), [25, 12.5, 6.25])
    share = np.array([0.0, 0.25, 0.5, 1, 1.5])
    capacity, flows = np.full(5, 1e6), np.full(5, 2.0)
    rewards = friendliness(share * 0.95e6 / 2, capacity, flows)
    np.testing.assert_allclose(graded(rewards), 25 / (1 + 8 * (share - 1) ** 2))
    np.testing.assert_allclose(graded(np.array([-25.0, 0])), [-25, 0])  # losing more than half is as bad as it was


@pytest.mark.parametrize(
    ("share", "lost", "expected"),
    [(1, 0, 25), (1, 0.02, 25 * 0.9), (1.5, 0, 25 / 3), (0, 0, 25 / 9), (1, 0.2, 0), (0.5, 0.5, 0)],
    ids=["fair", "lossy", "greedy", "starved", "flood", "greater-flood"],
)
def test_a_share_counts_less_by_what_it_costs(share: float, lost: float, expected: float) -> None:
    """25 / (1 + 8 (x - 1)^2), less five times the share of packets lost, down to 0."""
    rate = np.array([share * 0.95e6 / 2])
    found = shared(rate, rate * lost / (1 - lost), np.array([1e6]), np.array([2.0]))
    np.testing.assert_allclose(found, [expected], atol=1e-9)


class Measured:
    """Observes what it is given: one slot's delivery rate, loss, capacity and min RTT / sRTT."""

    measured = np.array([[0.25e6, 0.0, 1e6, 1.0]])

    def reset(self, slot: int) -> None:
        """Forget a flow."""

    def update_flows(self, samples: object, slots: object) -> None:
        """Take a row."""


def earned_at(times_s: list[float], environment: Environment, flow: Flow) -> list[float]:
    """What a flow with a quarter of the link earns by `pool-fair` at some times."""
    earnings = cast("PoolEarnings", reward_of("pool-fair").earnings(Place(cast("Any", None), 1, 1, None)))
    earnings._tracker = cast("Any", Measured())
    earnings.begin(0, environment, flow)
    slot, found = np.zeros(1, np.int64), []
    for t_s in times_s:
        earnings.update(row(round(t_s * 100)), slot)
        found.append(float(earnings.earned(np.ones(1, np.bool_))[0]))
    return found


def test_a_fair_share_is_one_among_the_flows_that_are_up() -> None:
    """Alone it is R1 that counts; a flow that has gone, or is still to come, has no share."""
    others = (CrossFlow("cubic", Flow(start_s=2, stop_s=6)), CrossFlow("cubic", Flow(start_s=4)))
    environment = replace(network(8, 20, duration_s=10), cross=others)
    alone = graded(power(*Measured.measured.T))[0]
    among = [25 / (1 + 8 * (0.25 * n / 0.95 - 1) ** 2) for n in (2, 3, 2)]
    found = earned_at([1, 3, 5, 7], environment, environment.flow)
    np.testing.assert_allclose(found, [alone, *among])


@given(st.lists(st.floats(-25, 25, allow_subnormal=False), min_size=2, max_size=20))
def test_the_graded_reward_keeps_the_order(rewards: list[float]) -> None:
    values = np.sort(np.array(rewards))
    found = graded(values)
    assert np.all(np.diff(found) >= 0)
    assert np.all(np.abs(found) <= 25)
    assert np.all(np.sign(found) == np.sign(values))


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
    assert astraea.reward(two_flows(**changes), CAPACITY) == pytest.approx(expected, abs=1e-12)


def test_astraeas_reward_weighs_its_terms_as_told() -> None:
    fair = AstraeaWeights(fairness=0.5)
    expected = 0.1 - 0.5 * FAIRNESS
    assert astraea.reward(two_flows(), CAPACITY, fair) == pytest.approx(expected, abs=1e-12)
    task = LearningTask.of({"reward": "astraea", "reward_weights": {"fairness": 0.5}})
    assert task.reward_weights == fair
    assert LearningTask.of({"reward": "astraea"}).reward_weights == AstraeaWeights(0.1, 0.02, 1, 0.02, 0.01)


def test_astraeas_reward_wants_stable_throughputs_and_takes_young_flows_as_they_are() -> None:
    wobbling = np.array([[4e6, 6e6, 4e6, 6e6, 5e6], [5e6] * 5])
    deviation = math.sqrt(4 * 1e6**2 / (5 * 5e6**2))
    steady = 0.1 - 0.01 * deviation / 2
    assert astraea.reward(two_flows(throughput=wobbling), CAPACITY) == pytest.approx(steady, abs=1e-12)
    young = np.array([[np.nan, np.nan, np.nan, np.nan, 5e6], [5e6] * 5])
    assert astraea.reward(two_flows(throughput=young), CAPACITY) == pytest.approx(0.1, abs=1e-12)
    nobody = replace(two_flows(), up=np.zeros((1, 3), np.bool_))
    assert astraea.reward(nobody, CAPACITY) == 0


def test_the_global_state_is_table_2s() -> None:
    flows = two_flows(
        throughput=np.array([[6.25e6], [3.75e6]]), lost=np.array([0.625e6, 0.0]), latency=np.array([40e3, 60e3])
    )
    link = {"base_rtt": np.array([40e3]), "buffer": np.array([150e3]), "capacity": np.array([12.5e6])}
    (state,) = astraea.global_state(flows, **link)
    expected = [0.8, 0.3, 0.5, 0.5, 0.1, 0.3, 0.2, 0.05, 2, 0.4, 0.1, 1]
    assert state.dtype == np.float32
    assert dict(zip(GLOBAL_STATE, state.tolist(), strict=True)) == pytest.approx(
        dict(zip(GLOBAL_STATE, expected, strict=True))
    )
    (empty,) = astraea.global_state(replace(flows, up=np.zeros((1, 3), np.bool_)), **link)
    assert empty.tolist() == pytest.approx([0] * 9 + expected[9:])


def test_a_task_is_plain_data() -> None:
    task = LearningTask.of({"observation": "orca", "control": "orca", "reward": "orca"})
    assert (task.observations, task.control, task.networks) == (ORCA_OBSERVATIONS, ORCA, None)
    fields = {"like": "astraea", "period_min_rtts": 0.5, "map": "spread", "limits": [-0.5, 0.5]}
    task = LearningTask.of({"observation": ["srtt", "dr"], "control": fields, "global_state": True})
    assert task.observations == ("srtt", "dr")
    assert (task.control.period_min_rtts, task.control.map, task.control.base) == (0.5, SPREAD_MAP, 1.025)
    assert LearningTask.of({"networks": "small"}).networks == ("small",)
    assert LearningTask.of({"networks": ["small", "training"]}).networks == ("small", "training")
    among = LearningTask.of({"networks": ["small", {"rate_mbps": 12, "rtt_ms": 20, "queue_bdp": 1, "count": 7}]})
    assert isinstance(among.networks, tuple)
    assert isinstance(among.networks[1], NetworkDistribution)
    assert (among.networks[0], among.networks[1].count) == ("small", 7)
    assert LearningTask.of({}) == LearningTask()
    assert LearningTask().observations == FEATURE_NAMES
    assert (CONTROL.map, ORCA.map) == (LINEAR_MAP, HUNDREDTHS_MAP)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"observations": "orca"}, "unknown field observations; known are observation, control"),
        ({"observation": "sprout"}, "observation must be one of pool, orca, astraea, aurora, indigo or a list"),
        ({"observation": ["srtt", "speed"]}, "'speed', which is no feature"),
        ({"control": "sprout"}, "control must be one of pool, orca, astraea, aurora, indigo, or fields"),
        ({"control": {"periode_ms": 20}}, "control has no field periode_ms; known are like, base"),
        ({"control": {"map": "cwnd"}}, "map must be one of power, spread, hundredths, linear, rate, steps"),
        ({"control": {"base": 0.5}}, "control: no action has base 0.5"),
        ({"control": {"limits": 3}}, "control: "),
        ({"reward": 3}, "reward must be a name, not 3"),
        ({"reward": "astraea", "reward_weights": {"loss": -1}}, "reward_weights.loss must be a number from 0, not -1"),
        ({"reward": "astraea", "reward_weights": {"lost": 1}}, "reward_weights has no lost; known are throughput, la"),
        ({"reward_weights": {"loss": 1}}, "reward_weights are fields, and of the reward astraea only"),
        ({"global_state": "yes"}, "global_state must be true or false"),
        *(({"networks": odd}, "networks must have fields, or be names of profiles or sets") for odd in (3, [], [3])),
    ],
)
def test_what_is_no_task_is_refused(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=f"task: .*{message}"):
        LearningTask.of(plain)


def test_a_reward_that_is_none_is_refused_before_anything_runs(tmp_path: Path) -> None:
    names = "pool, pool-log, pool-fair, power, friendliness, orca, orca-paper, astraea, aurora"
    message = f"task: reward must be one of {names}, not 'sprout'"
    for start in (CongestionEnv, Rollouts):
        with pytest.raises(SageccError, match=message):
            start(task=LearningTask.of({"reward": "sprout"}), kernel=tmp_path / "no-kernel")
    config = load("labs-tiny")
    config = replace(config, task={**config.task, "reward": "sprout"})
    with pytest.raises(SageccError, match=message):
        online_task(config, tmp_path / "no-kernel")
