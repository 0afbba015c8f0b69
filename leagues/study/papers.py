# SPDX-License-Identifier: Apache-2.0
"""The multi-flow figures of Sage (SIGCOMM 2023), Orca (SIGCOMM 2020) and Astraea (EuroSys 2024), as experiments.

What a paper leaves open is chosen here and said in `chosen`. Not rebuilt, for want of it: the Internet paths behind
Sage's and Orca's Fig. 18 and 13 (an emulated one stands for them), more than 64 flows of Astraea's Fig. 10, and the
schemes that have no module here (Copa, Sprout, Indigo, Aurora, Vivace, Remy; a policy may stand for one by --as).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType

from sagecc.common.errors import SageccError
from sagecc.leagues.study import measures
from sagecc.leagues.study.experiments import FINE_S, Experiment
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.paper_networks import (
    DISCIPLINES,
    Alone,
    BesideCubics,
    Crowd,
    Joining,
    Scenarios,
    TwoBottlenecks,
    UnlikeRtts,
    no_traces,
)
from sagecc.schemas.environment import RateStep
from sagecc.schemas.trace_file import among, no_trace, read_trace

DOUBLES, HALVES, BESIDE_CUBIC, STEPS = "rate doubles", "rate halves", "beside Cubic", "steps"

SHALLOW, DEEP = 0.5, 16.0
"""Queues (BDP) of Sage's Fig. 22."""
SMALL, LARGE = 1.0, 16.0
"""Of Sage's Fig. 24 and 25."""

INTERNET = Cell(queue_bdp=1.0, bandwidth_mbps=48.0, rtt_ms=40.0, flows=4)
"""Stands for the path to a GENI server."""
INTERNET_CHOSEN = (
    "The paper's path is the Internet's, to a GENI server, which cannot be rebuilt: here 48 Mbps, 40 ms, a queue of "
    "1 BDP, four flows."
)

CELLULAR_RTT_MS, CELLULAR_QUEUE_BYTES, CELLULAR_S = 40.0, 15_000_000, 60.0


def _steps(every_s: float, *rates_mbps: float) -> tuple[RateStep, ...]:
    return tuple(RateStep(number * every_s, rate_mbps) for number, rate_mbps in enumerate(rates_mbps))


_ASTRAEA_LINK = Cell(queue_bdp=1.0, bandwidth_mbps=100.0, rtt_ms=30.0, flows=3)
_ASTRAEA_FLOWS = Joining(every_s=40.0, life_s=120.0)

_UNDER_DISCIPLINES = tuple(Cell(bandwidth_mbps=48.0, rtt_ms=20.0, case=each) for each in DISCIPLINES)

PAPERS: Mapping[str, Experiment] = MappingProxyType(
    {
        each.name: each
        for each in (
            Experiment(
                name="sage-17",
                title="Sage: three sample scenarios",
                figure="Sage, section 7.6, Fig. 17",
                grid=(
                    Cell(rtt_ms=20.0, case=DOUBLES),
                    Cell(rtt_ms=20.0, case=HALVES),
                    Cell(rtt_ms=20.0, case=BESIDE_CUBIC, bandwidth_mbps=24.0),
                ),
                network=Scenarios(
                    Alone(60.0, 450_000, rates={DOUBLES: _steps(30.0, 24.0, 48.0), HALVES: _steps(30.0, 48.0, 24.0)}),
                    BesideCubics(60.0, 450_000),
                ),
                measure=measures.tested_flow,
                quantity="goodput_mbps",
                axis="case",
                panel="case",
                picture="behaviour",
                competitor="cubic",
                interval_s=FINE_S,
                chosen="The paper gives the change's time (30 s), not the length: 60 s. Cubic starts with the tested "
                "flow. The delay is the smoothed RTT, the paper's one-way.",
            ),
            Experiment(
                name="sage-18",
                title="Sage: fairness to itself",
                figure="Sage, section 7.7, Fig. 18 and 27",
                grid=(INTERNET,),
                network=Joining(every_s=25.0, end_s=120.0),
                measure=measures.jain_in_slots,
                quantity="jain",
                panel="flows",
                picture="flows",
                interval_s=FINE_S,
                chosen=INTERNET_CHOSEN,
            ),
            Experiment(
                name="sage-19",
                title="Sage: beside three and seven Cubics",
                figure="Sage, section 7.7, Fig. 19 and 28",
                grid=tuple(Cell(queue_bdp=1.0, bandwidth_mbps=48.0, rtt_ms=40.0, cubics=cubics) for cubics in (3, 7)),
                network=BesideCubics(120.0),
                measure=measures.friendliness,
                quantity="tested_ratio",
                axis="cubics",
                panel="cubics",
                picture="flows",
                competitor="cubic",
                chosen="All flows start together.",
            ),
            Experiment(
                name="sage-22",
                title="Sage: shallow and deep buffers",
                figure="Sage, appendix E.1, Fig. 22",
                grid=tuple(Cell(queue_bdp=queue, bandwidth_mbps=48.0, rtt_ms=40.0) for queue in (SHALLOW, DEEP)),
                network=Alone(60.0),
                measure=measures.tested_flow,
                quantity="utilisation",
                axis="queue_bdp",
                picture="plane",
                competitor="none",
                chosen="The text gives no numbers: 48 Mbps, 40 ms, queues of 0.5 and 16 BDP, 60 s.",
            ),
            Experiment(
                name="sage-23",
                title="Sage: queue disciplines",
                figure="Sage, appendix E.2, Fig. 23",
                grid=_UNDER_DISCIPLINES,
                network=Alone(60.0, 240_000),
                measure=measures.tested_flow,
                quantity="goodput_mbps",
                axis="case",
                panel="case",
                picture="plane",
                competitor="none",
                chosen="Targets of the disciplines: CoDel 5 ms, PIE 15 ms (their RFCs), BoDe 20 ms. The delay is the "
                "smoothed RTT, the paper's one-way.",
            ),
            Experiment(
                name="sage-24",
                title="Sage: samples of Set II",
                figure="Sage, appendices F.1 and F.2, Fig. 24 and 25",
                grid=tuple(Cell(queue_bdp=queue, bandwidth_mbps=24.0, rtt_ms=40.0) for queue in (SMALL, LARGE)),
                network=BesideCubics(125.0, own_start_s=5.0),
                measure=measures.friendliness_of_means,
                quantity="goodput_ratio",
                axis="queue_bdp",
                picture="flows",
                competitor="cubic",
                chosen="The tested flow starts 5 s after Cubic and is measured for 120 s, as in Set II.",
            ),
            Experiment(
                name="orca-1",
                title="Orca: the step scenario",
                figure="Orca, section 1.2, Fig. 1",
                grid=(Cell(rtt_ms=20.0, case=STEPS),),
                network=Alone(60.0, 1_500_000, rates={STEPS: _steps(10.0, 24.0, 48.0, 96.0, 24.0, 48.0, 12.0)}),
                measure=measures.tested_flow,
                quantity="utilisation",
                axis="case",
                panel="case",
                picture="behaviour",
                competitor="none",
                interval_s=FINE_S,
                chosen="The text gives a change every 10 s, not the rates: 24, 48, 96, 24, 48 and 12 Mbps.",
            ),
            Experiment(
                name="orca-9",
                title="Orca: the rate halves and doubles",
                figure="Orca, section 5.2, Fig. 9",
                grid=(Cell(rtt_ms=20.0, case=HALVES), Cell(rtt_ms=20.0, case=DOUBLES)),
                network=Alone(
                    20.0, 1_500_000, rates={HALVES: _steps(10.0, 48.0, 24.0), DOUBLES: _steps(10.0, 24.0, 48.0)}
                ),
                measure=measures.tested_flow,
                quantity="goodput_mbps",
                axis="case",
                panel="case",
                picture="behaviour",
                competitor="none",
                interval_s=FINE_S,
                chosen="The text gives no numbers: 48 and 24 Mbps, the change after 10 of 20 s, 20 ms and 1.5 MB as in "
                "Fig. 1. What the agent and its underlying scheme each did to the window is not told apart.",
            ),
            Experiment(
                name="orca-12",
                title="Orca: power over Cubic's",
                figure="Orca, section 5.4, Fig. 12",
                grid=tuple(
                    Cell(queue_bdp=queue, bandwidth_mbps=48.0, rtt_ms=rtt_ms)
                    for queue, rtt_ms in product((0.5, 1.0, 4.0), (2.0, 5.0, 10.0, 20.0, 50.0, 100.0))
                ),
                network=Alone(120.0),
                measure=measures.tested_flow,
                quantity="power_ratio",
                competitor="none",
                chosen="The text gives 48 Mbps and 120 s, and RTTs down to a tenth of Orca's 20 ms; the others and the "
                "queues are ours. Power is goodput over smoothed RTT.",
            ),
            Experiment(
                name="orca-13",
                title="Orca: flows that join",
                figure="Orca, section 5.5, Fig. 13",
                grid=(INTERNET,),
                network=Joining(every_s=25.0, end_s=100.0),
                measure=measures.jain_in_slots,
                quantity="jain",
                panel="flows",
                picture="flows",
                interval_s=FINE_S,
                chosen=INTERNET_CHOSEN,
            ),
            Experiment(
                name="orca-14",
                title="Orca: friendliness over RTTs",
                figure="Orca, section 5.6, Fig. 14",
                grid=tuple(
                    Cell(queue_bdp=1.0, bandwidth_mbps=48.0, rtt_ms=rtt_ms)
                    for rtt_ms in (10.0, 20.0, 40.0, 60.0, 80.0, 100.0)
                ),
                network=BesideCubics(120.0),
                measure=measures.friendliness_of_means,
                quantity="goodput_ratio",
                competitor="cubic",
                chosen="The text gives neither RTTs nor length: 10 to 100 ms, 120 s; both flows start together.",
            ),
            Experiment(
                name="orca-16",
                title="Orca: queue disciplines",
                figure="Orca, section 5.7, Fig. 16",
                grid=_UNDER_DISCIPLINES,
                network=Alone(60.0, 1_500_000),
                measure=measures.tested_flow,
                quantity="goodput_mbps",
                axis="case",
                panel="case",
                picture="plane",
                competitor="none",
                chosen="The text gives neither RTT nor queue: 20 ms and 1.5 MB as in Fig. 1. Targets and delay as in "
                "Sage's Fig. 23.",
            ),
            Experiment(
                name="astraea-6",
                title="Astraea: three flows that come and go",
                figure="Astraea, section 5.1.1, Fig. 6; numbers of section 5.2, Fig. 12",
                grid=(_ASTRAEA_LINK,),
                network=_ASTRAEA_FLOWS,
                measure=measures.convergence_of_events,
                quantity="convergence_s",
                panel="flows",
                picture="flows",
                interval_s=FINE_S,
                chosen="Goodput of half seconds, within 10 % of the fair share for a second; a flow that is not there "
                "by the next event counts with the time until it.",
            ),
            Experiment(
                name="astraea-7",
                title="Astraea: Jain's index over time slots",
                figure="Astraea, section 5.1.1, Fig. 7",
                grid=(_ASTRAEA_LINK,),
                network=_ASTRAEA_FLOWS,
                measure=measures.jain_in_slots,
                quantity="jain",
                panel="flows",
                picture="slots",
                interval_s=FINE_S,
                chosen="Slots of half a second with at least two flows.",
            ),
            Experiment(
                name="astraea-8",
                title="Astraea: five flows with unlike RTTs",
                figure="Astraea, section 5.1.2, Fig. 8",
                grid=(Cell(queue_bdp=1.0, bandwidth_mbps=100.0),),
                network=UnlikeRtts(measures.PATH_RTTS_MS, 200.0, (100.0, 200.0)),
                measure=measures.goodput_by_rtt,
                quantity="jain",
                picture="paths",
                chosen="The text gives no length: 200 s, measured over the second half.",
            ),
            Experiment(
                name="astraea-9",
                title="Astraea: Jain's index over networks",
                figure="Astraea, section 5.1.3, Fig. 9",
                grid=tuple(
                    Cell(queue_bdp=1.0, bandwidth_mbps=rate_mbps, rtt_ms=rtt_ms, flows=8)
                    for rate_mbps, rtt_ms in product((20.0, 50.0, 100.0, 200.0), (30.0, 60.0, 100.0, 150.0, 200.0))
                ),
                network=Joining(every_s=20.0, least_flows=2),
                measure=measures.jain_in_slots,
                quantity="jain",
                panel="bandwidth_mbps",
                interval_s=FINE_S,
                chosen="The text gives the ends of the ranges; the grid between them and the queue of 1 BDP are ours. "
                "Each repeat draws 2 to 8 flows; each lives 20 s times their number.",
            ),
            Experiment(
                name="astraea-10",
                title="Astraea: many flows",
                figure="Astraea, section 5.1.3, Fig. 10",
                grid=tuple(
                    Cell(queue_bdp=1.0, bandwidth_mbps=600.0, rtt_ms=20.0, flows=flows)
                    for flows in (10, 20, 30, 40, 50)
                ),
                network=Crowd(duration_s=30.0, within_s=1.0),
                measure=measures.jain_in_slots,
                quantity="jain",
                axis="flows",
                panel="bandwidth_mbps",
                interval_s=FINE_S,
                chosen="The text gives no length: 30 s; all start within the first second; queue 1 BDP. Up to 1,000 "
                "flows in its second part: the lab has 64 at most.",
            ),
            Experiment(
                name="astraea-11",
                title="Astraea: two bottlenecks",
                figure="Astraea, section 5.1.4, Fig. 11",
                grid=tuple(Cell(bandwidth_mbps=100.0, rtt_ms=30.0, flows=flows) for flows in (2, 4, 6, 8, 10, 12)),
                network=TwoBottlenecks(20.0, 2, 375_000, 120.0, (40.0, 120.0)),
                measure=measures.flow_sets,
                quantity="long_mbps",
                axis="flows",
                panel="bandwidth_mbps",
                picture="sets",
                chosen="The text gives no length and 'adequate' buffers: 120 s, measured from 40 s on; 375 kB, a BDP "
                "of link 1. Any flow's base RTT is 30 ms, whichever links it crosses.",
            ),
            Experiment(
                name="astraea-14",
                title="Astraea: next to Cubics",
                figure="Astraea, section 5.3.1, Fig. 14",
                grid=tuple(
                    Cell(queue_bdp=1.0, bandwidth_mbps=100.0, rtt_ms=30.0, cubics=cubics) for cubics in (1, 2, 4, 8, 16)
                ),
                network=BesideCubics(60.0),
                measure=measures.friendliness_of_means,
                quantity="goodput_ratio",
                axis="cubics",
                panel="bandwidth_mbps",
                competitor="cubic",
                chosen="The text gives neither how many Cubics nor the length: 1 to 16, 60 s. All start together.",
            ),
            Experiment(
                name="astraea-18",
                title="Astraea: the weight of fairness in the reward",
                figure="Astraea, appendix A, Fig. 18",
                grid=(_ASTRAEA_LINK,),
                network=_ASTRAEA_FLOWS,
                measure=measures.jain_in_slots,
                quantity="jain",
                panel="flows",
                picture="schemes",
                interval_s=FINE_S,
                chosen="The network of Fig. 7. The paper's policies are not published: those trained with other "
                "weights are the user's, one --policy each.",
            ),
            Experiment(
                name="astraea-19",
                title="Astraea: the queue's length",
                figure="Astraea, appendix B.1, Fig. 19",
                grid=tuple(
                    Cell(queue_bdp=queue, bandwidth_mbps=100.0, rtt_ms=30.0)
                    for queue in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 4.0, 8.0, 16.0)
                ),
                network=Alone(60.0),
                measure=measures.tested_flow,
                quantity="utilisation",
                axis="queue_bdp",
                panel="bandwidth_mbps",
                picture="numbers",
                competitor="none",
                chosen="The text gives neither length nor queues: 60 s, 0.05 to 16 BDP.",
            ),
            Experiment(
                name="astraea-20",
                title="Astraea: a satellite link",
                figure="Astraea, appendix B.2, Fig. 20",
                grid=(Cell(queue_bdp=1.0, bandwidth_mbps=42.0, rtt_ms=800.0),),
                network=Alone(100.0, loss=0.0074),
                measure=measures.tested_flow,
                quantity="goodput_mbps",
                picture="plane",
                competitor="none",
                chosen="The delay is the smoothed RTT, the paper's one-way.",
            ),
            Experiment(
                name="astraea-21",
                title="Astraea: cellular links",
                figure="Astraea, section 5.2 and appendix B.3, Fig. 13 and 21",
                grid=(),
                network=no_traces,
                measure=measures.tested_flow,
                quantity="goodput_mbps",
                axis="case",
                panel="case",
                picture="plane",
                competitor="none",
                chosen="The paper's trace is Verizon's LTE; here each of the folder given by --traces. A queue of 15 "
                "MB for 'very deep', 60 s.",
                traced=True,
            ),
            Experiment(
                name="astraea-22",
                title="Astraea: a WAN of 10 Gbps",
                figure="Astraea, appendix B.4, Fig. 22",
                grid=(Cell(queue_bdp=1.0, bandwidth_mbps=10_000.0, rtt_ms=10.0),),
                network=Alone(10.0),
                measure=measures.tested_flow,
                quantity="goodput_mbps",
                picture="plane",
                competitor="none",
                chosen="The text gives neither queue nor length: 1 BDP, 10 s.",
            ),
        )
    }
)
"""By name, in the papers' order."""


def with_traces(experiment: Experiment, folder: Path) -> Experiment:
    """Return a traced experiment over the traces of a folder, a cell each, in the order of their names.

    What lies there beside traces (schemas.trace_file.is_trace) is left alone.

    Raises:
        SageccError: The folder is missing, or has no trace, or one of them is damaged.
    """
    if not folder.is_dir():
        raise SageccError(f"--traces {folder}: no such folder; give one with Mahimahi's traces")
    paths, others = among(sorted(path for path in folder.iterdir() if path.is_file()))
    if not paths:
        raise SageccError(f"--traces {folder}: {no_trace(folder, others)}")
    traces = {path.name: read_trace(path) for path in paths}
    grid = tuple(Cell(rtt_ms=CELLULAR_RTT_MS, case=name) for name in traces)
    return replace(experiment, grid=grid, network=Alone(CELLULAR_S, CELLULAR_QUEUE_BYTES, traces=traces))
