# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.collector.lab.boot import Recording
from sagecc.collector.lab.episode import ReceiverCounts, episode_from_recording, shared_jain_index
from sagecc.collector.lab.spec import episode_spec
from sagecc.common.fairness import jain_index
from sagecc.schemas import wire
from sagecc.schemas.environment import CrossFlow, Environment, Flow
from tests.helpers.networks import network


def steady(mbps: float, start_s: float, stop_s: float) -> ReceiverCounts:
    """What a flow of one rate has received, every 10 ms of its life."""
    t_s = np.arange(round(start_s * 100) + 1, round(stop_s * 100) + 1) / 100
    return ReceiverCounts((t_s * 1e9).round().astype(np.uint64), ((t_s - start_s) * mbps * 125_000).astype(np.uint64))


def beside(*flows: Flow, own: Flow | None = None) -> Environment:
    cross = tuple(CrossFlow("cubic", flow) for flow in flows)
    return replace(network(duration_s=30), cross=cross, flow=own or Flow())


def test_jain_index_by_hand() -> None:
    assert jain_index([4, 4, 4]) == 1
    assert jain_index([6, 0, 0]) == pytest.approx(1 / 3)
    assert jain_index([1, 3]) == pytest.approx(16 / 20)
    assert jain_index([0, 0]) is None
    assert jain_index([]) is None


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=64).filter(lambda rates: max(rates) > 1e-3))
def test_jain_index_lies_between_one_nth_and_one(rates: list[float]) -> None:
    found = jain_index(rates)
    assert found is not None
    assert 1 / len(rates) - 1e-9 <= found <= 1 + 1e-9


def test_fairness_counts_while_all_run() -> None:
    """The first has 40 Mbps alone until 10 s and 30 then; the other 10 from 10 to 20 s: 30 and 10 for ten seconds."""
    environment = beside(Flow(10, 20))
    alone, then = steady(40, 0, 10), steady(30, 10, 30)
    first = ReceiverCounts(
        np.concatenate([alone.t_ns, then.t_ns]),
        np.concatenate([alone.received_bytes, then.received_bytes + alone.received_bytes[-1]]),
    )
    assert shared_jain_index(environment, [first, steady(10, 10, 20)]) == pytest.approx(1600 / (2 * 1000))


def test_only_flows_of_the_same_path_count() -> None:
    base = beside(Flow(extra_rtt_ms=20), Flow(links=(0, 0)))
    two = Environment("custom", base.links * 2, base.return_links * 2, 30, (), cross=base.cross)
    received = [steady(10, 0, 30), steady(10, 0, 30), steady(1, 0, 30)]
    assert shared_jain_index(two, received) == 1


def test_no_fairness_of_flows_that_never_meet() -> None:
    assert shared_jain_index(beside(), [steady(10, 0, 30)]) is None
    apart = beside(Flow(20, 30), own=Flow(0, 20))
    assert shared_jain_index(apart, [steady(10, 0, 20), steady(10, 20, 30)]) is None
    silent = ReceiverCounts(np.array([], np.uint64), np.array([], np.uint64))
    assert shared_jain_index(beside(Flow()), [silent, silent]) is None
    assert shared_jain_index(beside(Flow()), [silent, steady(5, 0, 30)]) == pytest.approx(0.5)


def test_a_flow_whose_packets_were_all_lost_says_so() -> None:
    """Its window and its losses are known, its delay is not; a raw file has a 0 for that."""
    samples = np.zeros(3, wire.SAMPLE)
    samples["t_ns"], samples["cwnd_pkts"], samples["link_drops"] = [1e9, 2e9, 3e9], 10, [0, 5, 9]
    environment = network(duration_s=30)
    spec = episode_spec(environment, "cubic", 0)
    episode = episode_from_recording(environment, "cubic", 0, spec, Recording(samples, np.zeros(0, wire.PACKET)))
    (flow,) = episode.flows
    assert np.isnan([flow.delay_mean_ms, flow.delay_p95_ms]).all()
    assert (flow.goodput_mbps, flow.sent_packets, flow.lost_packets, flow.loss_rate, flow.cwnd_mean) == (0, 9, 9, 1, 10)
    row = episode.summary_row()
    assert (row["delay_mean_ms"], row["delay_p95_ms"]) == (0, 0)
