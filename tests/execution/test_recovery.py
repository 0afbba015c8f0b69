# SPDX-License-Identifier: Apache-2.0
"""The floor under windows while losses are repaired."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sagecc.execution.agent.recovery import RecoveryFloor
from sagecc.execution.lab.controllers import play_episode
from sagecc.policy.artefact import PolicyArtefact, write_with_control
from sagecc.schemas import wire
from tests.helpers.networks import network

OPEN, RECOVERY, LOSS = 0, 3, 4
SLOTS = np.zeros(1, np.int64)


def sample(ca_state: int, rate_mbps: float, srtt_ms: float) -> npt.NDArray[np.void]:
    """Return one sample, with packets of 1000 bytes."""
    row = np.zeros(1, wire.SAMPLE)
    row["ca_state"], row["mss_bytes"], row["srtt_us"] = ca_state, 1000, srtt_ms * 1000
    row["delivery_rate_bytes_s"] = rate_mbps * 125_000
    return row


def windows(share: float, order: int, *rows: npt.NDArray[np.void]) -> list[int]:
    floor = RecoveryFloor(share)
    return [int(floor.apply(row, SLOTS, np.array([order]), np.array([1]))[0][0]) for row in rows]


def test_a_recovery_keeps_its_share_of_what_was_delivered_as_it_began() -> None:
    """8 Mbps are 1000 packets a second, 80 of them in 80 ms."""
    begins, goes_on = sample(RECOVERY, 8, 80), sample(RECOVERY, 0.8, 40)
    assert windows(0.5, 4, sample(OPEN, 8, 80), begins, goes_on, sample(OPEN, 8, 80)) == [4, 40, 40, 4]
    assert windows(0.25, 4, begins) == [20]
    assert windows(0.5, 60, begins, goes_on) == [60, 60]  # above it nothing changes
    assert windows(0.5, 0, begins) == [0]  # left to the underlying scheme
    assert windows(0.5, 4, begins, sample(LOSS, 8, 80), goes_on) == [40, 4, 4]  # a timeout ends it
    assert windows(0.5, 4, sample(RECOVERY, 8, 0)) == [4]  # no RTT yet


def test_a_raised_window_has_its_rate() -> None:
    floor = RecoveryFloor(0.5)
    cwnd, pacing = floor.apply(sample(RECOVERY, 8, 80), SLOTS, np.array([4]), np.array([50_000]))
    assert (int(cwnd[0]), int(pacing[0])) == (40, 500_000)
    _, unpaced = floor.apply(sample(RECOVERY, 8, 80), SLOTS, np.array([4]), np.array([0]))
    assert int(unpaced[0]) == 0


def test_flows_do_not_touch_one_another_and_a_slot_serves_again() -> None:
    floor, both = RecoveryFloor(0.5, 2), np.arange(2)
    rows = np.concatenate([sample(RECOVERY, 8, 80), sample(OPEN, 8, 80)])
    assert floor.apply(rows, both, np.array([4, 4]), np.array([1, 1]))[0].tolist() == [40, 4]
    floor.reset(0)
    rows["delivery_rate_bytes_s"] //= 2
    assert floor.apply(rows, both, np.array([4, 4]), np.array([1, 1]))[0].tolist() == [20, 4]


def test_a_burst_of_losses_on_a_long_path_is_repaired_in_seconds(kernel: Path, tmp_path: Path) -> None:
    """The shipped policy overshoots behind 1 s of RTT, and shuts its window: without a floor it repairs 4 per RTT."""
    shipped, last_5_s = PolicyArtefact.load("sagecc-10"), {}
    for floor in (None, 0.5):
        policy = tmp_path / str(floor)
        write_with_control(shipped, policy, replace(shipped.control, recovery_floor=floor))
        rows = play_episode(kernel, network(48, 1000, 1, 40), f"policy:{policy}").rows
        last_5_s[floor] = np.asarray(rows["ca_state"])[-500:].tolist().count(RECOVERY)
        assert np.asarray(rows["lost_total_pkts"])[-1] > 1000
    assert last_5_s == {None: 500, 0.5: 0}
