# SPDX-License-Identifier: Apache-2.0
"""Points that the study, its predecessor and other papers published, as far as they stand in text or tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sagecc.common.errors import SageccError
from sagecc.leagues.study.experiments import LINK_MBPS, QUEUES_BDP, RTTS_MS
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.papers import PAPERS

PREDECESSOR = "Giacomoni and Parisis, INFOCOM 2024, RTTs 1375 to 1500"
PREDECESSOR_SCHEDULES = "Giacomoni and Parisis, INFOCOM 2024, other schedules than today's code draws"
AUTHORS_TABLE = "the study's authors, table of March 2025"
ASTRAEA = "Astraea, EuroSys 2024, sections 1 and 5.2"

STUDY_NAMES: Mapping[str, str] = {"cubic": "Cubic", "bbr3": "BBRv3", "vivace": "Vivace"}
"""Our schemes that the study has too, by the study's name; a policy's is given by whoever knows it."""


@dataclass(frozen=True)
class Point:
    """One published number."""

    experiment: str
    cell: Cell
    scheme: str
    """As the study names it."""
    quantity: str
    """A key of measures.MEANINGS."""
    value: float
    source: str


@dataclass(frozen=True)
class Quantiles:
    """A published distribution: its 10 %, 50 % and 90 % quantiles."""

    experiment: str
    scheme: str
    quantity: str
    values: tuple[float, float, float]
    source: str


_FAIRNESS = {
    ("Cubic", 0.2): ".85 .85 .69 .85 .83 .85 .93 .91 .95 .94",
    ("Cubic", 1.0): ".59 .58 .74 .67 .72 .84 .86 .82 .87 .84",
    ("Cubic", 4.0): ".54 .42 .50 .50 .62 .65 .65 .66 .65 .70",
    ("Orca", 0.2): ".40 .17 .14 .22 .16 .26 .22 .04 .09 .13",
    ("Orca", 1.0): ".35 .48 .40 .24 .15 .18 .18 .19 .28 .31",
    ("Orca", 4.0): ".37 .72 .76 .94 .73 .65 .44 .47 .40 .39",
}
"""Ratio of goodputs at each base RTT from 20 to 200 ms."""

_FRIENDLINESS = {
    ("Orca", 0.2): ".02 .01",
    ("Orca", 1.0): ".29 .61 .73 .58 .29 .11 .63 .69 .37 .32",
    ("Cubic", 1.0): ".72 .66 .88 .85 .86 .90 .94 .86 .91 .91",
}
"""(min + 1) / (max + 1) at each base RTT from 20 ms on, which does not say who had more."""

_EFFICIENCY = {
    "Cubic": "94.6/1.09 90.8/1.06 95.1/1.86 92.2/1.69 95.1/4.51 92.3/3.86",
    "BBRv3": "94.6/1.11 90.4/1.09 94.5/1.62 90.2/1.58 94.8/2.83 90.5/2.09",
    "Orca": "94.3/1.15 90.4/1.13 94.3/1.66 91.5/1.69 94.3/2.96 91.5/3.18",
    "Sage": "91.2/1.15 82.8/1.13 91.6/1.33 89.1/1.40 91.8/1.33 87.7/1.67",
    "Astraea": "93.4/1.18 90.0/1.08 93.4/1.76 87.9/1.11 93.4/1.83 88.2/1.10",
}
"""Utilisation (%) over 0 to 100 s / smoothed over base RTT over each flow's life: by queue, at 20 and at 200 ms."""

QUANTILES = (
    Quantiles("responsiveness", "Cubic", "goodput_mbps", (34.5, 39.6, 47.2), PREDECESSOR_SCHEDULES),
    Quantiles("responsiveness", "Orca", "goodput_mbps", (8.2, 20.8, 31.9), PREDECESSOR_SCHEDULES),
    Quantiles("responsiveness-loss", "Cubic", "goodput_mbps", (0.7, 0.9, 1.2), PREDECESSOR_SCHEDULES),
    Quantiles("responsiveness-loss", "Orca", "goodput_mbps", (16.1, 21.2, 26.9), PREDECESSOR_SCHEDULES),
)

_ASTRAEA = (
    ("astraea-6", "convergence_s", {"Astraea": 0.408, "Orca": 1.497, "Vivace": 3.438}),
    ("astraea-6", "stability_mbps", {"Astraea": 2.124, "Orca": 5.519, "Vivace": 6.016}),
    ("astraea-7", "jain", {"Astraea": 0.991}),
)
"""Of three flows on 100 Mbps, 30 ms and 1 BDP."""


def _points() -> Iterator[Point]:
    for experiment, quantity, table in (
        ("fairness", "ratio", _FAIRNESS),
        ("friendliness", "symmetric_ratio", _FRIENDLINESS),
    ):
        for (scheme, queue), text in table.items():
            for rtt_ms, value in zip(RTTS_MS, map(float, text.split()), strict=False):  # some begin and break off
                cell = Cell(queue_bdp=queue, bandwidth_mbps=LINK_MBPS, rtt_ms=rtt_ms)
                yield Point(experiment, cell, scheme, quantity, value, PREDECESSOR)
    places = [(queue, rtt_ms) for queue in QUEUES_BDP for rtt_ms in (20.0, 200.0)]
    for scheme, text in _EFFICIENCY.items():
        for (queue, rtt_ms), pair in zip(places, text.split(), strict=True):
            percent, rtt_ratio = map(float, pair.split("/"))
            cell = Cell(queue_bdp=queue, bandwidth_mbps=LINK_MBPS, rtt_ms=rtt_ms)
            yield Point("efficiency", cell, scheme, "utilisation_0_100", round(percent / 100, 6), AUTHORS_TABLE)
            yield Point("efficiency", cell, scheme, "rtt_ratio_life", rtt_ratio, AUTHORS_TABLE)
    for experiment, quantity, by_scheme in _ASTRAEA:
        for scheme, value in by_scheme.items():
            yield Point(experiment, PAPERS[experiment].grid[0], scheme, quantity, value, ASTRAEA)


POINTS = tuple(_points())

PUBLISHED_SCHEMES = tuple(dict.fromkeys(each.scheme for each in POINTS))
"""As the study names them."""


def study_names(renamed: Sequence[str], schemes: Collection[str]) -> dict[str, str]:
    """Return by scheme of ours the study's name for it.

    Args:
        renamed: SCHEME=NAME each, beside STUDY_NAMES.
        schemes: those that take part.

    Raises:
        SageccError: One is no SCHEME=NAME, or its scheme does not take part, or nothing is published of its name, or
            two schemes have one name.
    """
    names = {scheme: name for scheme, name in STUDY_NAMES.items() if scheme in schemes}
    for text in renamed:
        scheme, equals, name = text.rpartition("=")
        if not (scheme and equals and name):
            raise SageccError(f"--as {text}: takes SCHEME=NAME, such as policy:models/orca=Orca")
        if scheme not in schemes:
            raise SageccError(f"--as {text}: '{scheme}' does not take part; there are {', '.join(schemes)}")
        if name not in PUBLISHED_SCHEMES:
            raise SageccError(
                f"--as {text}: nothing is published of '{name}'; there are {', '.join(PUBLISHED_SCHEMES)}"
            )
        others = [other for other, held in names.items() if held == name and other != scheme]
        if others:
            raise SageccError(f"--as {text}: {others[0]} stands for {name} already")
        names[scheme] = name
    return names
