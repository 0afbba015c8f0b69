# SPDX-License-Identifier: Apache-2.0
"""What tasks offer beside the pool's: observations, action maps, periods and rewards, by hand from the equations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import AckedStart, action_map
from sagecc.execution.agent.decisions import period_ticks
from sagecc.execution.environments.congestion import CongestionEnv
from sagecc.execution.environments.earnings import Place, TickEarnings
from sagecc.execution.environments.rollouts import Rollouts
from sagecc.execution.environments.task import LearningTask, checked_reward
from sagecc.execution.schemes.astraea.control import CONTROL
from sagecc.execution.schemes.orca.control import CONTROL as ORCA
from sagecc.execution.schemes.orca.observation import OBSERVATIONS as ORCA_OBSERVATIONS
from sagecc.learner.specification import load
from sagecc.online import online_task
from sagecc.policy.artefact import HUNDREDTHS_MAP, LINEAR_MAP, MAPS, SPREAD_MAP, Control
from sagecc.policy.ratios import ratios
from sagecc.pool.reward import graded, power
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


class Measured:
    """Observes what it is given: one slot's delivery rate, loss, capacity and min RTT / sRTT."""

    measured = np.array([[0.25e6, 0.0, 1e6, 1.0]])

    def reset(self, slot: int) -> None:
        """Forget a flow."""

    def update_flows(self, samples: object, slots: object) -> None:
        """Take a row."""


def earned_at(times_s: list[float], environment: Environment, flow: Flow) -> list[float]:
    """What a flow with a quarter of the link earns by `fair` at some times."""
    earnings = TickEarnings(checked_reward("fair"), Place(cast("Any", None), 1, 1, None))
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
        ({"observation": "sprout"}, "observation must be one of pool, no-min-max, .*, orca, sage or a list"),
        ({"observation": ["srtt", "speed"]}, "'speed', which is no feature"),
        ({"control": "sprout"}, "control must be one of pool, astraea, aurora, indigo, orca, sage, or fields"),
        ({"control": {"periode_ms": 20}}, "control has no field periode_ms; known are like, base"),
        ({"control": {"map": "cwnd"}}, "map must be one of power, ceiled, spread, hundredths, linear, rate, steps"),
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
    names = "power, friendliness, pool, graded, fair, astraea, aurora, orca, orca-paper"
    message = f"task: there is no reward 'sprout': it must be one of {names}"
    for start in (CongestionEnv, Rollouts):
        with pytest.raises(SageccError, match=message):
            start(task=LearningTask.of({"reward": "sprout"}), kernel=tmp_path / "no-kernel")
    config = load("labs-tiny")
    config = config.changed(task={"reward": "sprout"})
    with pytest.raises(SageccError, match=message):
        online_task(config, tmp_path / "no-kernel")
