# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sagecc.collector.lab.spec import episode_spec
from sagecc.leagues.study.catalogue import EXPERIMENTS, experiment
from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.testbed import PREDECESSOR, Conventions

CELL = Cell(queue_bdp=1.0, bandwidth_mbps=100.0, rtt_ms=40.0)


def fairness(conventions: Conventions) -> StudyRun:
    return conventions.run(experiment("fairness").run(CELL, "cubic"))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_defaults_are_the_study_s_networks_here(name: str) -> None:
    for run in experiment(name).runs(("vegas",), quick=True):
        assert Conventions().run(run) == run


def test_each_convention_changes_what_it_names() -> None:
    ours = fairness(Conventions()).environment
    assert fairness(Conventions(mbit_bits=2**20)).environment.queue_bytes == 524_288  # 500,000 bytes and 4.9 %
    framed = fairness(Conventions(header_bytes=14)).environment
    assert framed.bandwidth_mbps == pytest.approx(100 * 1500 / 1514)
    assert framed.queue_bytes == 495_376  # as many packets as 500,000 bytes of frames
    assert fairness(Conventions(measured_rtts=(1375, 1500))).environment.windows_s == ((55.0, 60.0),)
    assert [link.jitter_ms for link in fairness(Conventions(jitter_ms=0.05)).environment.return_links] == [0.05]
    delay, bottleneck = fairness(Conventions(delay_first=True)).environment.links
    assert (delay.delay_ms, delay.limited, bottleneck.delay_ms) == (40.0, False, 0.0)
    assert bottleneck.rates == ours.bottleneck.rates
    assert fairness(Conventions(delay_first=True)).environment.min_rtt_ms == ours.min_rtt_ms == 40


def test_noise_is_behind_every_bottleneck_and_nowhere_else() -> None:
    links = [link.jitter_ms for link in fairness(PREDECESSOR).environment.return_links]
    assert links == [0.0, 0.05]  # the first one only delays
    hops = experiment("parking-lot").runs(("cubic",), quick=True)[0]
    assert [link.jitter_ms for link in PREDECESSOR.run(hops).environment.return_links] == [0.05] * 3


def test_what_hangs_on_no_bdp_and_no_rtt_keeps_its_queue_and_its_times() -> None:
    run = experiment("responsiveness").run(Cell(schedule=1), "cubic")
    testbed = PREDECESSOR.run(run).environment
    assert testbed.queue_bytes == 655_360 * 1500 // 1514
    assert testbed.windows_s == run.environment.windows_s
    many = experiment("many-cubics").run(Cell(queue_bdp=1.0, bandwidth_mbps=100.0, rtt_ms=30.0, cubics=2), "cubic")
    assert PREDECESSOR.run(many).environment.windows_s == ((45.0, 59.0),)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_is_a_network_that_the_lab_knows(name: str) -> None:
    for run in experiment(name).runs(("cubic",), quick=True):
        testbed = PREDECESSOR.run(run)
        assert testbed.environment.flow_count == run.environment.flow_count
        assert episode_spec(testbed.environment, testbed.scheme, testbed.seed).memory_mb < 4096
