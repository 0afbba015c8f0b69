# SPDX-License-Identifier: Apache-2.0
"""Indigo's observation, steps and expert, by hand; test_rollouts.py has it in a lab."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import action_map
from sagecc.execution.agent.decisions import Decisions
from sagecc.execution.agent.sources import observation_source
from sagecc.execution.environments.rollouts import Rollouts
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.schemes.indigo.control import CONTROL
from sagecc.execution.schemes.indigo.expert import expert, ideal_window
from sagecc.execution.schemes.indigo.observation import OBSERVATIONS, SOURCE, IndigoStates
from sagecc.policy import artefact, exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.choice import Chooser
from sagecc.policy.scaling import Scaling
from sagecc.policy.steps import ACTIONS
from sagecc.schemas import wire
from sagecc.schemas.environment import CrossFlow, Environment, Flow, Link, RateStep

SLOT, DUE = np.zeros(1, np.int64), np.ones(1, np.bool_)
STEP = (RateStep(0, 12), RateStep(2, 24))
NETWORK = Environment("custom", (Link(STEP, 20, 600_000),), (Link(delay_ms=20),), 4, ((0, 4),))


def row(tick: int, **changes: int) -> npt.NDArray[np.void]:
    record = np.zeros(1, wire.SAMPLE)
    values = {"t_ns": tick * 10_000_000, "mss_bytes": 1000, "delivered_pkts": 10 * tick, "cwnd_pkts": 100}
    values |= {"srtt_us": 50_000, "min_rtt_us": 40_000, "unacked_pkts": 90, "delivery_rate_bytes_s": 1_500_000}
    for name, value in (values | changes).items():
        record[name] = value
    return cast("npt.NDArray[np.void]", record)


def test_the_state_and_the_last_action() -> None:
    source = IndigoStates(OBSERVATIONS, 1)
    assert not source.update(row(0), SLOT).any()  # nothing was acknowledged
    assert source.update(row(1), SLOT).all()
    # 10 of 200 ms; 12 of 200 Mbps; 90 packets of 1,000 bytes in 50 ms are 14.4 Mbps; 100 of 5,000 packets
    expected = [0.05, 0.06, 0.072, 0.02]
    np.testing.assert_allclose(source.report(DUE)[0], [*expected, 0, 0, 0, 0, 1], rtol=1e-6)
    assert not source.update(row(2, delivered_pkts=10), SLOT).any()
    for number, action in enumerate(ACTIONS):
        source.acted(SLOT, np.array([action]))
        np.testing.assert_array_equal(source.report(DUE)[0, 4:], np.eye(5)[number])
    source.reset(0)
    source.update(row(0, srtt_us=0, min_rtt_us=0xFFFFFFFF), SLOT)
    np.testing.assert_allclose(source.report(DUE)[0], [0, 0.06, 0, 0.02, 0, 0, 0, 0, 1], rtol=1e-6)
    with pytest.raises(SageccError, match="does not observe queueing_delay"):
        IndigoStates(("srtt",), 1)


def test_a_decision_is_seen_in_the_next_state() -> None:
    decisions = Decisions(CONTROL, observation_source(SOURCE, OBSERVATIONS, 1, "task"), 1, "task")
    observed, seen = decisions.observe(row(1), SLOT)
    assert seen[0, 8] == 1
    cwnd, pacing = decisions.act(observed, np.array([-0.5]))
    assert (cwnd.tolist(), pacing.tolist()) == ([90], [1_800_000])
    _, seen = decisions.observe(row(2, cwnd_pkts=90), SLOT)
    assert seen[0, 4:].tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("action", "cwnd", "wanted"),
    [(-1, 101, 50), (-0.5, 101, 91), (0.1, 101, 101), (0.5, 101, 111), (1, 101, 202), (-1, 3, 2), (-0.5, 9, 2)],
)
def test_the_five_steps(action: float, cwnd: int, wanted: int) -> None:
    (given,), _ = action_map(CONTROL, 1).step(row(1, cwnd_pkts=cwnd), SLOT, DUE, np.array([action]))
    assert given == wanted


def test_the_expert_steps_nearest_to_the_ideal() -> None:
    """From 100: 50, 90, 100, 110, 200; of two as near the first."""
    ideal = np.array([0.0, 60, 71, 94, 95, 104, 106, 154, 156, 5000])
    wanted = [-1, -1, -0.5, -0.5, -0.5, 0, 0.5, 0.5, 1, 1]
    assert expert(np.full(10, 100), ideal).tolist() == wanted
    assert expert(np.array([3]), np.array([2.0])).tolist() == [-1]  # 2 of 1, which no window is below


def test_the_ideal_window_is_a_share_of_the_bdp() -> None:
    """12 and then 24 Mbps over 40 ms are 40 and 80 packets of 1,500 bytes."""
    assert ideal_window(NETWORK, NETWORK.flow, 1.99) == pytest.approx(40)
    assert ideal_window(NETWORK, NETWORK.flow, 2.0) == pytest.approx(80)
    other = Flow(start_s=1, stop_s=3, extra_rtt_ms=40)
    shared = replace(NETWORK, cross=(CrossFlow("cubic", other),))
    assert [ideal_window(shared, shared.flow, t_s) for t_s in (0.5, 1.5, 2.5, 3.5)] == pytest.approx([40, 20, 40, 80])
    assert ideal_window(shared, other, 2.5) == pytest.approx(80)


def test_an_expert_goes_with_its_steps() -> None:
    for plain in ({"expert": True}, {"control": "indigo", "expert": True, "global_state": True}):
        with pytest.raises(SageccError, match="an expert goes with the map steps"):
            LearningTask.of(plain)
    with pytest.raises(SageccError, match="expert must be true or false"):
        LearningTask.of({"expert": "indigo"})


def test_whoever_does_what_the_expert_says_fills_the_link_without_a_queue(kernel: Path) -> None:
    plain: dict[str, Any] = {"observation": "indigo", "control": "indigo", "reward": "power", "expert": True}
    rollouts = Rollouts(LearningTask.of(plain), NETWORK, kernel=kernel)
    step, rows = rollouts.reset([1]), []
    try:
        while not step.over.all():
            rows.append(step.samples[0])
            step = rollouts.step(step.states[~step.over, 0], renew=False)
    finally:
        rollouts.close()
    times_s = np.array([int(sample["t_ns"]) / 1e9 for sample in rows])
    windows = np.array([int(sample["cwnd_pkts"]) for sample in rows])
    for ideal, settled in ((40, (times_s > 1) & (times_s < 2)), (80, times_s > 2.5)):
        assert settled.sum() > 50
        assert abs(windows[settled] - ideal).max() <= 5
    assert max(int(sample["srtt_us"]) for sample in rows[-50:]) < 46_000
    assert rows[-1]["link_bytes"] / rows[-1]["link_capacity_bytes"] > 0.9


def test_what_was_trained_is_what_runs(kernel: Path, tmp_path: Path) -> None:
    """A policy of random weights, whose windows vary, as an artefact in the lab and in its environment."""
    task = LearningTask.of({"observation": "indigo", "control": "indigo", "reward": "power"})
    sizes, random = Chooser(len(OBSERVATIONS), 32, ACTIONS), np.random.default_rng(33)
    weights = {name: random.normal(0, 1, shape).astype(np.float32) for name, shape in sizes.shapes().items()}
    scaling = Scaling("none", np.zeros(9, np.float32), np.ones(9, np.float32), 0.0)
    artefact.write(tmp_path, weights, sizes, scaling, OBSERVATIONS, {}, control=task.control, source=task.source)
    played = play_episode(kernel, NETWORK, f"policy:{tmp_path}", 5).rows
    policy = PolicyArtefact.load(tmp_path)
    act, hidden = runtime.load(policy), policy.initial_state()
    rollouts = Rollouts(task, NETWORK, kernel=kernel)
    step, samples = rollouts.reset([5]), []
    try:
        while not step.over.all():
            samples.append(step.samples[0])
            logits, loc, _, hidden = act(step.observations, hidden)
            step = rollouts.step(exact.mean(logits, loc), renew=False)
    finally:
        rollouts.close()
    ticks = np.rint(played["t_s"].to_numpy() * 100).astype(int)
    at = np.searchsorted(ticks, [round(int(sample["t_ns"]) / 1e7) for sample in samples])
    assert len(at) > 100
    for name in ("cwnd_pkts", "srtt_us", "delivered_pkts", "pacing_rate_bytes_s"):
        np.testing.assert_array_equal([sample[name] for sample in samples], played[name].to_numpy()[at])
    assert len({int(sample["cwnd_pkts"]) for sample in samples}) > 20
