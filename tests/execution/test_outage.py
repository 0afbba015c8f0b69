# SPDX-License-Identifier: Apache-2.0
"""Outages: a flow paced by the RTT of before and given back its window, the same wherever a policy works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sagecc.execution.environments  # noqa: F401 - registers the environment
from sagecc.common import shipped
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.flow.outage import FRESH_PKTS, NO_LIMIT, PROBE_PKTS, TCP_CA_LOSS, Outages
from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.stock import shared
from sagecc.policy.artefact import Control, PolicyArtefact
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment, RateStep
from tests.helpers.networks import network
from tests.helpers.policies import save_still_policy

SLOT = np.zeros(1, np.int64)
DOWN_S = 10
"""When a link goes down."""

Rows = npt.NDArray[np.void]


def outage_network(down_s: float, queue_packets: int = 100, mbps: float = 12, rest_s: float = 4) -> Environment:
    """Return a link of 40 ms that sends nothing from DOWN_S on, for so long."""
    up = network(mbps, 40, 1, duration_s=DOWN_S + down_s + rest_s)
    rates = (RateStep(0, mbps), RateStep(DOWN_S, 0), RateStep(DOWN_S + down_s, mbps))
    return replace(up, links=(replace(up.links[0], rates=rates, queue_bytes=None, queue_packets=queue_packets),))


def ticks(count: int, **values: object) -> Rows:
    """Return samples of a flow that has its window in flight and gets nothing back."""
    records = np.zeros(count, wire.SAMPLE)
    records["t_ns"] = (np.arange(count) + 1) * 10_000_000
    records["srtt_us"], records["mss_bytes"], records["cwnd_pkts"], records["unacked_pkts"] = 40_000, 1448, 50, 50
    for name, value in values.items():
        records[name] = value
    return records


def an_outage() -> Rows:
    """Return a flow that delivers for 0.1 s, then nothing for 2 s, then 10 packets a tick, the first ones late."""
    records = ticks(250)
    silent, back = slice(10, 210), slice(210, 250)
    records["delivered_pkts"][:10] = 10 * np.arange(10)
    records["delivered_pkts"][silent] = 90
    records["delivered_pkts"][back] = 90 + 10 * np.arange(1, 41)
    records["ca_state"][silent], records["cwnd_pkts"][silent] = TCP_CA_LOSS, 4
    records["srtt_us"][back] = 2_000_000
    return records


Seen = tuple[int, int, int, bool]
"""A flow's RTT to pace by, its least and largest window, and whether an outage is over."""


def seen(outages: Outages, samples: Rows, slots: npt.NDArray[np.int64] = SLOT) -> list[Seen]:
    """Return what holds for flows at their next tick."""
    after = outages.step(samples, slots)
    if after is None:
        return [(int(srtt_us), 0, NO_LIMIT, False) for srtt_us in samples["srtt_us"]]
    columns = after.samples["srtt_us"], after.least, after.most, after.over
    return list(zip(*(column.tolist() for column in columns), strict=True))


def steps(records: Rows) -> list[Seen]:
    """Return what holds for a flow after each sample."""
    outages = Outages()
    return [seen(outages, row[None])[0] for row in records]


def test_by_hand() -> None:
    found = steps(an_outage())
    rounds = (50 + FRESH_PKTS) // 10 + 1  # ticks until what was in flight and the fresh packets are delivered
    assert found[:59] == [(40_000, 0, NO_LIMIT, False)] * 59
    assert found[59:210] == [(40_000, 0, 1, False)] * 151
    assert found[210 : 210 + rounds] == [(40_000, 50 + PROBE_PKTS, NO_LIMIT, False)] * rounds
    assert found[210 + rounds] == (2_000_000, 0, NO_LIMIT, True)
    assert found[211 + rounds :] == [(2_000_000, 0, NO_LIMIT, False)] * (39 - rounds)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(1, 10**8), st.integers(0, 3)), min_size=1),
    st.integers(0, 2**32 - 1),
)
def test_without_a_timeout_nothing_changes(rows: list[tuple[int, int, int, int]], start: int) -> None:
    records = ticks(len(rows))
    records["t_ns"] = np.cumsum([1 + 700_000_000 * gap for *_, gap in rows])
    records["delivered_pkts"] = (start + np.cumsum([packets // 100 for _, packets, *_ in rows])).astype(np.uint32)
    records["ca_state"], records["srtt_us"] = [row[0] for row in rows], [row[2] for row in rows]
    outages = Outages()
    assert all(outages.step(row[None], SLOT) is None for row in records)


def test_a_timeout_alone_is_no_outage() -> None:
    records = an_outage()
    records["t_ns"] = records["t_ns"] * 2 // 10  # 0.4 s without a delivery
    outages = Outages()
    assert all(outages.step(row[None], SLOT) is None for row in records)


def test_a_slow_link_has_no_outage() -> None:
    records = ticks(3000, ca_state=TCP_CA_LOSS)
    records["delivered_pkts"] = np.arange(3000) // 60  # 0.02 Mbps: a packet takes 0.6 s
    outages = Outages()
    assert all(outages.step(row[None], SLOT) is None for row in records)


def test_nothing_in_flight_is_no_outage() -> None:
    records = ticks(300, unacked_pkts=0, ca_state=TCP_CA_LOSS)
    outages = Outages()
    assert all(outages.step(row[None], SLOT) is None for row in records)


def test_while_the_kernel_repairs_the_window_is_the_policys() -> None:
    records = an_outage()
    records["ca_state"][210:] = TCP_CA_LOSS
    assert {row[1:3] for row in steps(records)[210:]} == {(0, NO_LIMIT)}


def test_probes_are_beyond_what_is_in_flight_but_do_not_add_up() -> None:
    records = an_outage()
    records["unacked_pkts"][210:] = 400
    records["unacked_pkts"][215:] = 403
    assert {row[1] for row in steps(records)[210:225]} == {400 + PROBE_PKTS}


def test_flows_do_not_touch_one_another_and_a_slot_serves_again() -> None:
    records, still = an_outage(), ticks(250, delivered_pkts=np.arange(250))
    alone = steps(records)
    outages, slots = Outages(2), np.array([1, 0])
    for _ in range(2):
        for row, other, expected in zip(records, still, alone, strict=True):
            both = seen(outages, np.array([row, other]), slots)
            assert both == [expected, (40_000, 0, NO_LIMIT, False)]
        outages.reset(1)
        outages.reset(0)


def test_the_lab_and_a_stock_kernel_give_the_same(tmp_path: Path) -> None:
    records = an_outage()
    rows = np.zeros(len(records), shared.ROW)
    for name in set(shared.ROW.names or ()) & set(wire.SAMPLE.names or ()):
        rows[name] = records[name]
    folder = save_still_policy(tmp_path / "p", 0, Control(window_bound=1.5))
    lab, stock = (PolicyAgent(PolicyArtefact.load(folder)) for _ in range(2))
    orders = [lab(sample) for sample in records]
    assert orders == [stock(row) for row in rows]
    assert orders[212] == (50 + PROBE_PKTS, (50 + PROBE_PKTS) * 1448 * 1_000_000 // 40_000)


def test_labs_for_learning_recover_as_a_policy_does(kernel: Path, tmp_path: Path) -> None:
    """The window is multiplied by 1 at each tick in both, so the samples are the same."""
    link = outage_network(2, rest_s=1)
    played = play_episode(kernel, link, f"policy:{save_still_policy(tmp_path / 'p', 0, Control())}", seed=3).rows
    with gymnasium.make("sagecc/Congestion-v0", environment=link, kernel=kernel, task=LearningTask()) as environment:
        _, info = environment.reset(seed=3)
        seen, over = [info["cwnd_pkts"]], False
        while not over:
            *_, over, info = environment.step(np.zeros(1, np.float32))
            seen.append(info["cwnd_pkts"])
    assert seen == played["cwnd_pkts"].to_pylist()
    assert seen[1150] == 1
    assert seen[-1] == seen[900] == 10


@pytest.mark.parametrize("queue_packets", [20, 100])
@pytest.mark.parametrize("down_s", [5, 10])
@pytest.mark.parametrize("name", shipped.SHIPPED)
def test_a_policy_recovers_within_3_s(name: str, down_s: float, queue_packets: int, kernel: Path) -> None:
    rows = play_episode(kernel, outage_network(down_s, queue_packets), f"policy:{shipped.POLICIES / name}").rows
    received = rows["received_bytes"].to_numpy()[100 * (round(DOWN_S + down_s) + 3) :]
    assert (received[-1] - received[0]) * 8e-6 / (len(received) / 100) > 0.8 * 11.6
