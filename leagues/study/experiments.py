# SPDX-License-Identifier: Apache-2.0
"""What an experiment is, and those of the study as values: each one's grid, network, measure and place in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import Literal

from sagecc.leagues.study import measures, networks
from sagecc.leagues.study.measures import RELATIVE, Measure
from sagecc.leagues.study.networks import Cell, Network
from sagecc.schemas.environment import Environment

REPEATS = 5
"""Runs of each cell and scheme in the study."""

SCHEDULES = 50
"""Runs of each responsiveness experiment, each with changes of its own."""

QUICK_PART, QUICK_FIRST = 5, 2
"""Quick variants take every fifth cell of a grid, from the third on: its middle rather than its edge; of two, one."""

QUEUES_BDP = (0.2, 1.0, 4.0)
RTTS_MS = tuple(float(rtt_ms) for rtt_ms in range(20, 201, 20))
BANDWIDTHS_MBPS = tuple(float(rate_mbps) for rate_mbps in range(10, 101, 10))
CUBICS = tuple(range(2, 21, 2))
LINK_MBPS = 100.0

FINE_S = 0.1
"""Interval of what is looked at more closely than second by second (s)."""

Axis = Literal["rtt_ms", "bandwidth_mbps", "cubics", "flows", "queue_bdp", "case", "schedule"]
Competitor = Literal["itself", "cubic", "none"]
Picture = Literal[
    "cells", "flows", "windows", "efficiency", "schedules",
    "behaviour", "plane", "slots", "paths", "sets", "numbers", "schemes",
]  # fmt: skip
"""How an experiment is drawn: the first row by figures.py, the second by paper_figures.py."""


@dataclass(frozen=True)
class Experiment:
    """One experiment: of the study, or what a figure of a paper shows."""

    name: str
    title: str
    figure: str
    """Where it is published."""
    grid: tuple[Cell, ...]
    network: Network
    measure: Measure
    quantity: str
    """The number of the measure that the figure shows (a key of measures.MEANINGS)."""
    axis: Axis = "rtt_ms"
    """What the cells of one panel differ by."""
    panel: Axis = "queue_bdp"
    """What the figure's panels differ by."""
    picture: Picture = "cells"
    competitor: Competitor = "itself"
    """What the tested flow's competitors run."""
    chosen: str = ""
    """What the paper leaves open and is chosen here, and what of its figure cannot be rebuilt; for the page."""
    traced: bool = False
    """Whether its cells are the traces of a folder that the user gives."""
    interval_s: float = 1.0
    """Interval of the series kept of each run (s)."""
    shared_with: str = ""
    """The experiment whose runs the study shows here again."""
    shared: frozenset[Cell] = field(default=frozenset())
    """The cells whose runs these are."""
    in_study: bool = True
    """False for a variant of ours, outside the study's own count."""
    repeats: int = REPEATS
    """Runs of a cell: one where the cells themselves are repeats."""

    def cells(self, quick: bool = False) -> tuple[Cell, ...]:
        """Return the grid, or a fifth of it."""
        return self.grid[QUICK_FIRST::QUICK_PART] or self.grid[:1] if quick else self.grid

    def run(self, cell: Cell, scheme: str, repeat: int = 0) -> StudyRun:
        """Return one run of a cell with a scheme under test."""
        environment = self.network(cell, scheme, repeat)
        seed = repeat if cell.schedule is None else cell.schedule
        return StudyRun(self.name, cell, scheme, repeat, seed, environment, self.interval_s, self.competitor)

    def runs(self, schemes: Iterable[str], repeats: int | None = None, quick: bool = False) -> list[StudyRun]:
        """Return every run of the experiment.

        Args:
            schemes: those under test: kernel schemes, or `policy:PATH`. The one that the quantity is held against
                (measures.RELATIVE) takes part beside them.
            repeats: of each cell, and one at most where cells are repeats; where None the study's own number, or one if
                quick.
            quick: a fifth of the grid.
        """
        own = 1 if quick else self.repeats
        count = own if repeats is None or self.repeats == 1 else repeats
        against = [RELATIVE[self.quantity].scheme] if self.quantity in RELATIVE else []
        return [
            self.run(cell, scheme, repeat)
            for cell in self.cells(quick)
            for scheme in dict.fromkeys([*schemes, *against])
            for repeat in range(count)
        ]


@dataclass(frozen=True)
class StudyRun:
    """One run of an experiment."""

    experiment: str
    cell: Cell
    scheme: str
    """The tested scheme: a kernel scheme, or `policy:PATH`."""
    repeat: int
    """0 starts every flow as planned; others delay each by a drawn fraction of the RTT."""
    seed: int
    """Of the lab's random numbers."""
    environment: Environment
    interval_s: float
    """Interval of the series that is kept of it (s)."""
    competitor: Competitor
    """What the tested flow's competitors run."""
    latency_us: int = 0
    """From a sample to when a driven flow's action takes effect."""

    @property
    def id(self) -> str:
        """Its name, for messages."""
        return f"{self.experiment}, {self.environment.id}, {self.scheme}, repeat {self.repeat}"

    @property
    def schemes(self) -> tuple[str, ...]:
        """The scheme of every flow, the tested one first."""
        return (self.scheme, *(cross.scheme for cross in self.environment.cross))

    @property
    def tested(self) -> tuple[int, ...]:
        """The numbers of the flows that stand for the tested scheme."""
        return tuple(range(self.environment.flow_count)) if self.competitor == "itself" else (0,)

    @property
    def network(self) -> tuple[Environment, str, int, float, int]:
        """What the run is: two runs that agree in this are one."""
        return self.environment, self.scheme, self.seed, self.interval_s, self.latency_us


def _grid(axis: Axis, values: Sequence[float], **fixed: float) -> tuple[Cell, ...]:
    return tuple(Cell(queue_bdp=queue, **{axis: value}, **fixed) for queue, value in product(QUEUES_BDP, values))  # type: ignore[arg-type]


_RTT_GRID = _grid("rtt_ms", RTTS_MS, bandwidth_mbps=LINK_MBPS)
_WINDOWS_GRID = _grid("rtt_ms", (80.0,), bandwidth_mbps=LINK_MBPS)
_STAGGERED_GRID = tuple(
    Cell(queue_bdp=queue, bandwidth_mbps=LINK_MBPS, rtt_ms=rtt) for rtt, queue in product((20.0, 200.0), QUEUES_BDP)
)
_ORDERS: tuple[networks.Order, ...] = ("cubic-first", "cubic-last")
_DYNAMICS_GRID = tuple(
    Cell(queue_bdp=queue, bandwidth_mbps=LINK_MBPS, rtt_ms=100.0, order=order)
    for order, queue in product(_ORDERS, QUEUES_BDP)
)
_SCHEDULES = tuple(Cell(schedule=number) for number in range(1, SCHEDULES + 1))

STUDY: Mapping[str, Experiment] = MappingProxyType(
    {
        each.name: each
        for each in (
            Experiment(
                name="fairness",
                title="Two flows with the same RTT",
                figure="Fig. 1",
                grid=_RTT_GRID,
                network=networks.two_flows,
                measure=measures.fairness,
                quantity="ratio",
            ),
            Experiment(
                name="windows",
                title="Congestion windows of two flows",
                figure="Fig. 2",
                grid=_WINDOWS_GRID,
                picture="windows",
                network=networks.two_flows,
                measure=measures.windows,
                quantity="window_gap_pkts",
                shared_with="fairness",
                shared=frozenset(_WINDOWS_GRID),
            ),
            Experiment(
                name="fairness-rtt",
                title="Two flows with unlike RTTs",
                figure="Fig. 3",
                grid=_RTT_GRID,
                network=networks.two_flows_of_unlike_rtts,
                measure=measures.fairness,
                quantity="ratio",
            ),
            Experiment(
                name="fairness-rtt-long-queue",
                title="Two flows with unlike RTTs, queue in BDPs of the longer",
                figure="Fig. 3, as the public code has it",
                grid=_RTT_GRID,
                network=networks.two_flows_of_unlike_rtts_long_queue,
                measure=measures.fairness,
                quantity="ratio",
                in_study=False,
            ),
            Experiment(
                name="fairness-bandwidth",
                title="Two flows and the bandwidth",
                figure="Fig. 4",
                grid=_grid("bandwidth_mbps", BANDWIDTHS_MBPS, rtt_ms=40.0),
                network=networks.two_flows,
                measure=measures.fairness,
                quantity="ratio",
                axis="bandwidth_mbps",
            ),
            Experiment(
                name="parking-lot",
                title="A flow over three bottlenecks",
                figure="Fig. 5",
                grid=_RTT_GRID,
                network=networks.parking_lot,
                measure=measures.parking_lot,
                quantity="hop_ratio",
                interval_s=FINE_S,
            ),
            Experiment(
                name="friendliness",
                title="Beside one Cubic",
                figure="Fig. 6",
                grid=_RTT_GRID,
                network=networks.beside_cubic,
                measure=measures.friendliness,
                quantity="tested_ratio",
                competitor="cubic",
            ),
            Experiment(
                name="dynamics",
                title="Beside one Cubic over time",
                figure="Fig. 7",
                grid=_DYNAMICS_GRID,
                picture="flows",
                network=networks.beside_cubic,
                measure=measures.friendliness,
                quantity="tested_ratio",
                competitor="cubic",
                shared_with="friendliness",
                shared=frozenset(cell for cell in _DYNAMICS_GRID if cell.order == "cubic-first"),
            ),
            Experiment(
                name="many-cubics",
                title="Beside many Cubics",
                figure="Fig. 8",
                grid=_grid("cubics", CUBICS, bandwidth_mbps=LINK_MBPS, rtt_ms=30.0),
                network=networks.beside_many_cubics,
                measure=measures.friendliness,
                quantity="tested_ratio",
                axis="cubics",
                competitor="cubic",
            ),
            Experiment(
                name="efficiency",
                title="Use and delay of the link, four flows",
                figure="Fig. 9",
                grid=_STAGGERED_GRID,
                picture="efficiency",
                network=networks.staggered_flows,
                measure=measures.efficiency,
                quantity="utilisation",
                interval_s=FINE_S,
            ),
            Experiment(
                name="responsiveness",
                title="Bandwidth and RTT that change",
                figure="Fig. 10 and 11",
                grid=_SCHEDULES,
                picture="schedules",
                network=networks.changing_rtt,
                measure=measures.responsiveness,
                quantity="goodput_mbps",
                axis="schedule",
                competitor="none",
                repeats=1,
            ),
            Experiment(
                name="responsiveness-loss",
                title="Bandwidth and random loss that change",
                figure="Fig. 10",
                grid=_SCHEDULES,
                picture="schedules",
                network=networks.changing_loss,
                measure=measures.responsiveness,
                quantity="goodput_mbps",
                axis="schedule",
                competitor="none",
                repeats=1,
            ),
            Experiment(
                name="convergence",
                title="Four flows over time",
                figure="Fig. 12 and 13",
                grid=_STAGGERED_GRID,
                picture="flows",
                network=networks.staggered_flows,
                measure=measures.staggered_convergence,
                quantity="convergence_s",
                interval_s=FINE_S,
                shared_with="efficiency",
                shared=frozenset(_STAGGERED_GRID),
            ),
        )
    }
)
"""By name, in the study's order."""


def distinct(runs: Iterable[StudyRun]) -> list[StudyRun]:
    """Return the first run of each network, scheme, seed, interval and latency."""
    first: dict[tuple[Environment, str, int, float, int], StudyRun] = {}
    for run in runs:
        first.setdefault(run.network, run)
    return list(first.values())


def study_runs(schemes: Sequence[str]) -> list[StudyRun]:
    """Return the runs as the study counts them: its own grids, without those it shows a second time."""
    own = (each for each in STUDY.values() if each.in_study)
    return [run for each in own for run in each.runs(schemes) if run.cell not in each.shared]
