# SPDX-License-Identifier: Apache-2.0
"""The bound on windows: its arithmetic, what meets it, and that it is the same wherever a policy works."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sagecc.execution.environments  # noqa: F401 - registers the environment
from sagecc.common.errors import SageccError
from sagecc.execution.agent.bound import WindowBound, bound_of
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.stock import shared
from sagecc.policy.artefact import Control, PolicyArtefact
from sagecc.schemas import wire
from tests.helpers.networks import network
from tests.helpers.policies import Fixed, save_still_policy

SLOT = np.zeros(1, np.int64)
LOOSE = np.array([10**9])


def ticks(delivered: Sequence[int], srtt_us: int = 40_000, start: int = 0) -> npt.NDArray[np.void]:
    """Return samples in which so many packets are delivered at each tick."""
    records = np.zeros(len(delivered), wire.SAMPLE)
    records["t_ns"] = (np.arange(len(delivered)) + 1) * 10_000_000
    records["delivered_pkts"] = (start + np.cumsum(delivered)).astype(np.uint32)
    records["srtt_us"], records["mss_bytes"], records["cwnd_pkts"] = srtt_us, 1448, 10
    return records


def bounds(factor: float, records: npt.NDArray[np.void]) -> list[int]:
    """Return the bound after each sample."""
    of_flow = WindowBound(factor)
    return [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records]


def plainly(factor: float, records: npt.NDArray[np.void]) -> list[int]:
    """Return the same from the definition, word for word."""
    times = records["t_ns"].astype(np.int64) // 1000
    total = np.cumsum(np.diff(records["delivered_pkts"], prepend=records["delivered_pkts"][0]))  # unsigned: wraps
    rates, found = [], []
    for now in range(len(records)):
        then = max(0, now - 10)
        passed = int(times[now] - times[then])
        rates.append(int(total[now] - total[then]) * 10**9 // passed if passed else 0)
        rate = max(rates[-200:]) * round(factor * 1000) // 1000
        found.append(max(rate * int(records["srtt_us"][now]) // 10**9 + 3, 10))
    return found


# ---- arithmetic ----


def test_golden_by_hand() -> None:
    """A thousand packets a second and 40 ms: B is 40. The rate halves after tick 20 and is forgotten 2 s later."""
    seen = bounds(2, ticks([10] * 21 + [5] * 215))
    assert seen[0] == 10  # nothing has been delivered
    assert seen[1 : 221 - 1] == [2 * 40 + 3] * 219
    assert seen[220] == 2 * 38 + 3  # nine ticks of 10 packets and one of 5: 950 a second
    assert seen[229] == seen[-1] == 2 * 20 + 3
    assert bounds(1.3, ticks([10] * 3))[-1] == 52 + 3
    assert bounds(2, ticks([10] * 3, srtt_us=0))[-1] == 10  # no RTT yet
    assert bounds(2, ticks([0] * 210))[-1] == 10
    assert bound_of(2_000_000, 40_000) == 83


@given(
    delivered=st.lists(st.integers(0, 300), min_size=1, max_size=450),
    factor=st.sampled_from([1, 1.3, 2, 2.125, 8]),
    srtt_us=st.integers(0, 2_000_000),
    start=st.sampled_from([0, 2**32 - 500]),
)
def test_it_is_its_definition(delivered: list[int], factor: float, srtt_us: int, start: int) -> None:
    records = ticks(delivered, srtt_us, start)
    assert bounds(factor, records) == plainly(factor, records)


def test_flows_do_not_touch_one_another_and_a_slot_serves_again() -> None:
    fast, slow = ticks([20] * 30), ticks([2] * 30)
    both = WindowBound(2, 2)
    slots = np.arange(2)
    for row in range(30):
        pair = np.array([fast[row], slow[row]])
        cwnd, _ = both.apply(pair, slots, np.repeat(LOOSE, 2), np.repeat(LOOSE, 2))
    assert cwnd.tolist() == [bounds(2, fast)[-1], bounds(2, slow)[-1]]
    both.reset(0)
    assert both.apply(slow[:1], slots[:1], LOOSE, LOOSE)[0].tolist() == [10]


def test_what_is_left_to_the_kernel_stays_unless_it_is_above() -> None:
    of_flow, row = WindowBound(2), ticks([0])
    row["cwnd_pkts"] = 9
    assert [x.tolist() for x in of_flow.apply(row, SLOT, np.array([0]), np.array([0]))] == [[0], [0]]
    row["cwnd_pkts"] = 11
    assert [x.tolist() for x in of_flow.apply(row, SLOT, np.array([0]), np.array([0]))] == [[10], [0]]
    paced = of_flow.apply(row, SLOT, np.array([20]), np.array([999]))
    assert [x.tolist() for x in paced] == [[10], [10 * 1448 * 25]]


def test_it_tightens_with_loss_by_hand() -> None:
    """A thousand packets a second and 40 ms; in the fourth round of 100 ms 2 of 102 packets are lost, no other."""
    records = ticks([10] * 200)
    records["lost_total_pkts"][35:] = 1
    records["lost_total_pkts"][38:] = 2
    of_flow = WindowBound(2, loss=0.01)
    seen = [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records]
    assert seen[1:40] == [83] * 39
    rounds = [900, 1010, 1011, 1012, 1013, 1014, 1015, 1016, 1018, 1020, 1022]
    assert seen[40:150:10] == [40 * k // 1000 + 3 for k in rounds]
    assert seen[40] == seen[49] == 39
    of_flow.reset(0)
    assert [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records[:2]] == [10, 83]


def test_one_that_drains_goes_without_the_spare_packets_for_a_round() -> None:
    """The same flow, 40 packets a round trip: 36 after the loss in place of 39, then as before."""
    records = ticks([10] * 200)
    records["lost_total_pkts"][38:] = 2
    spared, drained = (
        [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records]
        for of_flow in (WindowBound(2, loss=0.01), WindowBound(2, loss=0.01, drains=True))
    )
    assert spared[40:50] == [39] * 10 and drained[40:50] == [36] * 10
    assert drained[:40] == spared[:40] and drained[50:] == spared[50:]


def test_draining_leaves_the_smallest_window_and_bounds_in_the_kernel() -> None:
    """Where 3 packets are more than a round trip takes, what is told the kernel bounds still: 10 packets."""
    records = ticks([1] * 40, srtt_us=10_000)
    records["lost_total_pkts"][15:] = 1
    of_flow = WindowBound(2, loss=0.01, drains=True)
    seen = [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records]
    assert seen[25] == 10 and of_flow.rates(SLOT)[0] >= 0


def test_it_forgets_rates_from_before_a_loss() -> None:
    """A link falls to a quarter and loses as much as it takes: the bound follows after a round, not after 2 s."""
    records = ticks([20] * 50 + [5] * 50)
    records["lost_total_pkts"][50:] = np.arange(1, 51) * 5
    of_flow = WindowBound(2, loss=0.01)
    seen = [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records]
    assert seen[49] == 2 * 80 + 3
    assert seen[60] == seen[99] == 18 + 3
    assert bounds(2, records)[99] == 163


def test_a_long_rtt_is_a_round() -> None:
    records = ticks([10] * 60, srtt_us=200_000)
    records["lost_total_pkts"][:] = np.arange(60)
    of_flow = WindowBound(2, loss=0.01)
    seen = [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records]
    assert seen[19:21] == [403, 183]


# ---- a policy that meets it ----


def test_one_for_slow_flows_takes_the_lowest_rtt_below_their_rate() -> None:
    """Below 100 packets a second: at 90 of them 4 s of sRTT hold 360, lowest RTTs of 1 s 90, of 40 ms 3.6."""
    for delivered, min_rtt_us, slow_mbps, bound in (
        (9, 1_000_000, None, 2 * 360 + 3),
        (9, 1_000_000, 1.2, 2 * 90 + 3),
        (9, 40_000, 1.2, 10),
        (10, 40_000, 1.2, 2 * 400 + 3),
        (5, 40_000, 0.3, 2 * 200 + 3),
    ):
        records = ticks([delivered if tick % 10 == 0 else 0 for tick in range(60)], srtt_us=4_000_000)
        records["min_rtt_us"] = min_rtt_us
        of_flow = WindowBound(2, slow_mbps=slow_mbps)
        assert [int(of_flow.apply(row[None], SLOT, LOOSE, LOOSE)[0][0]) for row in records][-1] == bound


def agent_of(folder: Path, log2_ratio: float, factor: float | None) -> PolicyAgent:
    return PolicyAgent(PolicyArtefact.load(save_still_policy(folder, log2_ratio, Control(window_bound=factor))))


@given(
    delivered=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    actions=st.lists(st.floats(-2, 2), min_size=60, max_size=60),
)
def test_no_window_is_above_it_and_nothing_winds_up(delivered: list[int], actions: list[float]) -> None:
    """A kernel that obeys: whatever is asked for, the next window is that ratio of the one before."""
    fixed = Fixed(actions)
    fixed.control = Control(window_bound=2)
    agent = PolicyAgent(cast("PolicyArtefact", fixed), step=fixed.step)
    records, cwnd = ticks(delivered), 10
    limits = plainly(2, records)
    for row, limit, action in zip(records, limits, actions, strict=False):
        row["cwnd_pkts"] = before = cwnd
        cwnd, _ = agent(row)
        assert cwnd <= limit
        ratio = float(2.0 ** np.float32(action))
        assert cwnd >= min(int(before * ratio * (1 - 1e-9)), limit)
        assert cwnd <= max((before + 1) * ratio, 4)


def test_without_one_a_policy_is_what_it_was(tmp_path: Path) -> None:
    records = ticks([3] * 20)
    agent = agent_of(tmp_path / "p", 0.5, None)
    cwnd, given = 10, []
    for row in records:
        row["cwnd_pkts"] = cwnd
        cwnd, _ = agent(row)
        given.append(cwnd)
    assert given[-1] == pytest.approx(10 * 2**10, abs=1) and agent.bounding_rates(SLOT).tolist() == [0]


def test_the_lab_and_a_stock_kernel_give_the_same(tmp_path: Path) -> None:
    records = ticks([1, 5, 9, 0, 30, 22] * 40, start=2**32 - 700)
    rows = np.zeros(len(records), shared.ROW)
    for name in set(shared.ROW.names or ()) & set(wire.SAMPLE.names or ()):
        rows[name] = records[name]
    lab, stock = agent_of(tmp_path / "p", 0.25, 1.5), agent_of(tmp_path / "p", 0.25, 1.5)
    cwnd = 10
    for sample, row in zip(records, rows, strict=True):
        sample["cwnd_pkts"] = row["cwnd_pkts"] = cwnd
        order = stock(row)
        assert lab(sample) == order
        cwnd = order[0]
        # what the kernel is told bounds it as the agent does
        rate = int(stock.bounding_rates(SLOT)[0])
        assert rate == int(lab.bounding_rates(SLOT)[0]) >= 1
        assert cwnd <= bound_of(rate, int(row["srtt_us"]))


@pytest.mark.parametrize("factor", [1.3, 2])
def test_a_policy_that_floods_is_bounded(factor: float, kernel: Path, tmp_path: Path) -> None:
    folder = save_still_policy(tmp_path / "flood", 0.5, Control(window_bound=factor))
    flow = play_episode(kernel, network(12, 40, 1, duration_s=3), f"policy:{folder}").flows[0]
    assert 0.1 < flow.lost_packets / flow.sent_packets <= (factor - 1) / factor + 0.02
    assert flow.goodput_mbps > 10


def test_one_that_tightens_ends_the_flood(kernel: Path, tmp_path: Path) -> None:
    folder = save_still_policy(tmp_path / "flood", 0.5, Control(window_bound=2, window_bound_loss=0.01))
    flow = play_episode(kernel, network(12, 40, 1, duration_s=10), f"policy:{folder}").flows[0]
    assert flow.lost_packets / flow.sent_packets < 0.03
    assert flow.goodput_mbps > 10.8


def test_environments_bound_as_a_policy_is_bounded(kernel: Path, tmp_path: Path) -> None:
    """The window goes up by 2**0.5 at each tick in both, so the samples are the same."""
    link = network(12, 40, 1, duration_s=2)
    scheme = f"policy:{save_still_policy(tmp_path / 'flood', 0.5, Control(window_bound=2))}"
    played = play_episode(kernel, link, scheme, seed=3).rows
    task = LearningTask(control=Control(window_bound=2))
    with gymnasium.make("sagecc/Congestion-v0", environment=link, kernel=kernel, task=task) as environment:
        _, info = environment.reset(seed=3)
        seen, over = [info["cwnd_pkts"]], False
        while not over:
            *_, over, info = environment.step(np.array([0.5], np.float32))
            seen.append(info["cwnd_pkts"])
    assert seen == played["cwnd_pkts"].to_pylist()
    assert max(seen) < 200
    with pytest.raises(SageccError, match=r"task: control: a window's bound is 1 to 100 times"):
        LearningTask.of({"control": {"window_bound": 0.5}})
