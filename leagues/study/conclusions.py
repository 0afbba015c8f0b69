# SPDX-License-Identifier: Apache-2.0
"""What the study and other papers conclude, as far as a number can tell whether it holds here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sagecc.leagues.study.networks import Cell, Order

Relation = Literal["above", "below"]


def _within(ends: tuple[float, float] | None, value: float | None) -> bool:
    return ends is None or (value is not None and ends[0] <= value <= ends[1])


@dataclass(frozen=True)
class Side:
    """What is averaged over: cells of one experiment, of one scheme. Empty means all."""

    scheme: str
    """As the study names it."""
    queues_bdp: tuple[float, ...] = ()
    rtts_ms: tuple[float, float] | None = None
    """Smallest and largest base RTT."""
    bandwidths_mbps: tuple[float, float] | None = None
    order: Order | None = None

    def has(self, cell: Cell) -> bool:
        """Tell whether it averages over this cell."""
        return (
            (not self.queues_bdp or cell.queue_bdp in self.queues_bdp)
            and _within(self.rtts_ms, cell.rtt_ms)
            and _within(self.bandwidths_mbps, cell.bandwidth_mbps)
            and self.order in (None, cell.order)
        )


@dataclass(frozen=True)
class Conclusion:
    """One statement: `left` lies above or below `right`."""

    text: str
    source: str
    """Where it stands: in the study, unless a paper is named."""
    experiment: str
    quantity: str
    left: Side
    relation: Relation
    right: Side | float


Statement = tuple[str, Side, Relation, Side | float]

_SHALLOW, _ONE, _DEEP = (0.2,), (1.0,), (4.0,)
_TO_ONE, _FROM_ONE = (0.2, 1.0), (1.0, 4.0)

_MIDDLE_OF_HOPS = 2 / 3
"""Between proportional (1/3) and max-min fairness (1)."""


def _of(source: str, experiment: str, quantity: str, statements: Sequence[Statement]) -> list[Conclusion]:
    return [
        Conclusion(text, source, experiment, quantity, left, relation, right)
        for text, left, relation, right in statements
    ]


CONCLUSIONS: tuple[Conclusion, ...] = (
    *_of(
        "IV-A1, Fig. 1",
        "fairness",
        "ratio",
        [
            ("Orca's goodput ratio is under 0.5 at 1 BDP", Side("Orca", _ONE), "below", 0.5),
            ("Orca is less fair than Cubic at 0.2 BDP", Side("Orca", _SHALLOW), "below", Side("Cubic", _SHALLOW)),
            ("Orca is less fair than Cubic at 1 BDP", Side("Orca", _ONE), "below", Side("Cubic", _ONE)),
            (
                "Sage is less fair at 0.2 BDP, which it never saw, than at 1 BDP",
                Side("Sage", _SHALLOW),
                "below",
                Side("Sage", _ONE),
            ),
            (
                "Astraea is less fair beyond the RTTs of its training",
                Side("Astraea", rtts_ms=(160, 200)),
                "below",
                Side("Astraea", rtts_ms=(20, 140)),
            ),
            ("Vivace is no fairer than Cubic", Side("Vivace"), "below", Side("Cubic")),
            ("Cubic is less fair at 4 BDP than at 1", Side("Cubic", _DEEP), "below", Side("Cubic", _ONE)),
            ("BBRv3 is less fair at 4 BDP than at 1", Side("BBRv3", _DEEP), "below", Side("BBRv3", _ONE)),
        ],
    ),
    *_of(
        "IV-A1, Fig. 2",
        "windows",
        "window_gap_pkts",
        [
            ("Astraea's two windows are within about 50 packets", Side("Astraea"), "below", 50.0),
        ],
    ),
    *_of(
        "IV-A1, Fig. 3",
        "fairness-rtt",
        "ratio",
        [
            (
                "Orca is fairer than Cubic at 0.2 BDP from 60 ms on",
                Side("Orca", _SHALLOW, (60, 200)),
                "above",
                Side("Cubic", _SHALLOW, (60, 200)),
            ),
            (
                "Sage is fairer than Cubic up to 100 ms",
                Side("Sage", rtts_ms=(20, 100)),
                "above",
                Side("Cubic", rtts_ms=(20, 100)),
            ),
            (
                "Sage is less fair than Cubic beyond 100 ms",
                Side("Sage", rtts_ms=(120, 200)),
                "below",
                Side("Cubic", rtts_ms=(120, 200)),
            ),
            ("Astraea is fairer than Cubic", Side("Astraea"), "above", Side("Cubic")),
            ("Astraea is fairer than BBRv3", Side("Astraea"), "above", Side("BBRv3")),
            ("Cubic is least fair at 0.2 BDP", Side("Cubic", _SHALLOW), "below", Side("Cubic", _FROM_ONE)),
            ("BBRv3 is less fair at 1 BDP than at 0.2", Side("BBRv3", _ONE), "below", Side("BBRv3", _SHALLOW)),
            ("BBRv3 is fairer at 4 BDP than at 1", Side("BBRv3", _DEEP), "above", Side("BBRv3", _ONE)),
        ],
    ),
    *_of(
        "IV-A2, Fig. 4",
        "fairness-bandwidth",
        "ratio",
        [
            ("Orca is less fair than Cubic at 0.2 and 1 BDP", Side("Orca", _TO_ONE), "below", Side("Cubic", _TO_ONE)),
            (
                "Astraea is fairer than Cubic at the bandwidths of its training",
                Side("Astraea", bandwidths_mbps=(40, 100)),
                "above",
                Side("Cubic", bandwidths_mbps=(40, 100)),
            ),
            (
                "Astraea is less fair below the bandwidths of its training",
                Side("Astraea", bandwidths_mbps=(10, 30)),
                "below",
                Side("Astraea", bandwidths_mbps=(40, 100)),
            ),
            (
                "Vivace is less fair at low bandwidths",
                Side("Vivace", bandwidths_mbps=(10, 30)),
                "below",
                Side("Vivace", bandwidths_mbps=(70, 100)),
            ),
            ("Cubic is less fair at 4 BDP than at 0.2 and 1", Side("Cubic", _DEEP), "below", Side("Cubic", _TO_ONE)),
            ("BBRv3 is less fair at 4 BDP than at 0.2 and 1", Side("BBRv3", _DEEP), "below", Side("BBRv3", _TO_ONE)),
        ],
    ),
    *_of(
        "IV-A3, Fig. 5",
        "parking-lot",
        "hop_ratio",
        [
            ("Orca stays below proportional fairness at 0.2 and 1 BDP", Side("Orca", _TO_ONE), "below", 1 / 3),
            (
                "Sage exceeds max-min fairness at 1 and 4 BDP up to 60 ms",
                Side("Sage", _FROM_ONE, (20, 60)),
                "above",
                1.0,
            ),
            ("Sage is nearer to max-min than to proportional fairness", Side("Sage"), "above", _MIDDLE_OF_HOPS),
            (
                "Astraea is nearer to proportional than to max-min fairness",
                Side("Astraea", rtts_ms=(20, 140)),
                "below",
                _MIDDLE_OF_HOPS,
            ),
            ("Vivace stays below proportional fairness", Side("Vivace"), "below", 1 / 3),
            ("Cubic is nearer to proportional than to max-min fairness", Side("Cubic"), "below", _MIDDLE_OF_HOPS),
            ("BBRv3 is nearer to proportional than to max-min fairness", Side("BBRv3"), "below", _MIDDLE_OF_HOPS),
        ],
    ),
    *_of(
        "IV-B1, Fig. 6",
        "friendliness",
        "tested_ratio",
        [
            ("Orca takes more than Cubic at 0.2 BDP", Side("Orca", _SHALLOW), "above", 1.0),
            ("Orca is friendlier at 1 BDP than at 0.2", Side("Orca", _ONE), "below", Side("Orca", _SHALLOW)),
            ("Orca takes less than Cubic at 4 BDP", Side("Orca", _DEEP), "below", 1.0),
            ("Sage takes more than Cubic at 0.2 BDP", Side("Sage", _SHALLOW), "above", 1.0),
            ("Sage takes less than Cubic at 1 and 4 BDP", Side("Sage", _FROM_ONE), "below", 1.0),
            ("Astraea takes less than Cubic at 1 and 4 BDP", Side("Astraea", _FROM_ONE), "below", 1.0),
            ("Astraea yields more at 4 BDP than at 1", Side("Astraea", _DEEP), "below", Side("Astraea", _ONE)),
            ("Vivace takes less than Cubic", Side("Vivace"), "below", 1.0),
            ("BBRv3 takes more than Cubic at 0.2 and 1 BDP", Side("BBRv3", _TO_ONE), "above", 1.0),
            ("BBRv3 is friendlier at 4 BDP than at 1", Side("BBRv3", _DEEP), "below", Side("BBRv3", _ONE)),
        ],
    ),
    *_of(
        "IV-B1, Fig. 7",
        "dynamics",
        "tested_ratio",
        [
            (
                "At 1 BDP Orca takes less where Cubic starts first",
                Side("Orca", _ONE, order="cubic-first"),
                "below",
                Side("Orca", _ONE, order="cubic-last"),
            ),
            ("Sage ends below Cubic at 1 and 4 BDP, whoever starts", Side("Sage", _FROM_ONE), "below", 1.0),
            ("Astraea ends below Cubic at 1 and 4 BDP, whoever starts", Side("Astraea", _FROM_ONE), "below", 1.0),
            ("BBRv3 dominates Cubic at 0.2 and 1 BDP, whoever starts", Side("BBRv3", _TO_ONE), "above", 1.0),
        ],
    ),
    *_of(
        "IV-B2, Fig. 8",
        "many-cubics",
        "tested_ratio",
        [
            ("Orca starves many Cubics at 0.2 BDP", Side("Orca", _SHALLOW), "above", 10.0),
            ("Orca takes less than a Cubic of many at 4 BDP", Side("Orca", _DEEP), "below", 1.0),
            ("Sage takes more than a Cubic of many at 0.2 BDP", Side("Sage", _SHALLOW), "above", 1.0),
            ("Astraea takes at least ten times a Cubic's goodput at 0.2 BDP", Side("Astraea", _SHALLOW), "above", 10.0),
            ("Astraea yields more at 4 BDP than at 1", Side("Astraea", _DEEP), "below", Side("Astraea", _ONE)),
            ("Vivace takes less than a Cubic of many", Side("Vivace"), "below", 1.0),
            ("BBRv3 takes more than a Cubic of many at 0.2 and 1 BDP", Side("BBRv3", _TO_ONE), "above", 1.0),
            ("BBRv3 takes more at 4 BDP than at 0.2 and 1", Side("BBRv3", _DEEP), "above", Side("BBRv3", _TO_ONE)),
        ],
    ),
    *_of(
        "IV-C, Fig. 9",
        "efficiency",
        "utilisation",
        [
            *(
                (
                    f"{scheme} uses less of the link at 200 ms than at 20",
                    Side(scheme, rtts_ms=(200, 200)),
                    "below",
                    Side(scheme, rtts_ms=(20, 20)),
                )
                for scheme in ("Orca", "Sage", "Astraea", "Vivace", "Cubic", "BBRv3")
            ),
        ],
    ),
    *_of(
        "IV-C, Fig. 9",
        "efficiency",
        "rtt_ratio",
        [
            (
                "Sage keeps the delay below Cubic's at 1 and 4 BDP",
                Side("Sage", _FROM_ONE),
                "below",
                Side("Cubic", _FROM_ONE),
            ),
            (
                "Sage keeps the delay below Orca's at 1 and 4 BDP",
                Side("Sage", _FROM_ONE),
                "below",
                Side("Orca", _FROM_ONE),
            ),
            ("Astraea keeps the delay below Orca's at 4 BDP", Side("Astraea", _DEEP), "below", Side("Orca", _DEEP)),
            ("BBRv3 keeps the delay below Cubic's at 4 BDP", Side("BBRv3", _DEEP), "below", Side("Cubic", _DEEP)),
        ],
    ),
    *_of(
        "IV-D, Fig. 10",
        "responsiveness",
        "optimal_share",
        [
            ("Cubic gets more than BBRv3 where the RTT changes", Side("Cubic"), "above", Side("BBRv3")),
            ("Vivace gets less than BBRv3 where the RTT changes", Side("Vivace"), "below", Side("BBRv3")),
            ("Orca gets less than Cubic where the RTT changes", Side("Orca"), "below", Side("Cubic")),
            ("Astraea gets less than half of the optimum where the RTT changes", Side("Astraea"), "below", 0.5),
            ("Sage gets less than Orca where the RTT changes", Side("Sage"), "below", Side("Orca")),
            ("Sage gets less than Astraea where the RTT changes", Side("Sage"), "below", Side("Astraea")),
        ],
    ),
    *_of(
        "IV-D, Fig. 10",
        "responsiveness-loss",
        "optimal_share",
        [
            ("Cubic collapses under random loss, below a tenth of the optimum", Side("Cubic"), "below", 0.1),
            *(
                (f"{scheme} resists random loss better than Cubic", Side(scheme), "above", Side("Cubic"))
                for scheme in ("Orca", "Sage", "Astraea", "Vivace")
            ),
            *(
                (f"Vivace gets more than {scheme} under random loss", Side("Vivace"), "above", Side(scheme))
                for scheme in ("Orca", "Sage", "Astraea")
            ),
        ],
    ),
    *_of(
        "IV-E, Fig. 12 and 13",
        "convergence",
        "jain",
        [
            ("Orca's four flows share less evenly than Cubic's", Side("Orca"), "below", Side("Cubic")),
            (
                "Astraea's four flows share less evenly at 200 ms than at 20",
                Side("Astraea", rtts_ms=(200, 200)),
                "below",
                Side("Astraea", rtts_ms=(20, 20)),
            ),
        ],
    ),
    *_of(
        "IV-E, Fig. 12 and 13",
        "convergence",
        "convergence_s",
        [
            (
                "Cubic converges more slowly at 4 BDP than at 0.2 and 1",
                Side("Cubic", _DEEP),
                "above",
                Side("Cubic", _TO_ONE),
            ),
            (
                "BBRv3 converges more slowly at 4 BDP than at 0.2 and 1",
                Side("BBRv3", _DEEP),
                "above",
                Side("BBRv3", _TO_ONE),
            ),
        ],
    ),
    *_of(
        "Orca, 5.4, Fig. 12",
        "orca-12",
        "power_ratio",
        [("Orca has more power than Cubic on one link", Side("Orca"), "above", 1.0)],
    ),
    *_of(
        "Astraea, 5.1.1, Fig. 7",
        "astraea-7",
        "jain",
        [
            ("Astraea shares more evenly than Orca while flows come and go", Side("Astraea"), "above", Side("Orca")),
            ("Astraea shares more evenly than Cubic while flows come and go", Side("Astraea"), "above", Side("Cubic")),
        ],
    ),
    *_of(
        "Astraea, 5.2, Fig. 12",
        "astraea-6",
        "convergence_s",
        [
            ("Astraea converges faster than Orca", Side("Astraea"), "below", Side("Orca")),
            ("Astraea converges faster than Vivace", Side("Astraea"), "below", Side("Vivace")),
        ],
    ),
    *_of(
        "Astraea, 5.2, Fig. 12",
        "astraea-6",
        "stability_mbps",
        [
            ("Astraea is steadier than Orca once it has converged", Side("Astraea"), "below", Side("Orca")),
            ("Astraea is steadier than Vivace once it has converged", Side("Astraea"), "below", Side("Vivace")),
        ],
    ),
    *_of(
        "Astraea, 5.1.3, Fig. 9",
        "astraea-9",
        "jain",
        [("Astraea's Jain index is above 0.95 over networks", Side("Astraea"), "above", 0.95)],
    ),
    *_of(
        "Astraea, B.1, Fig. 19",
        "astraea-19",
        "utilisation",
        [
            (
                "Astraea nearly fills the link with more than 0.1 BDP of queue",
                Side("Astraea", (0.2, 0.4, 0.8, 1.6, 4.0, 8.0, 16.0)),
                "above",
                0.9,
            ),
        ],
    ),
    *_of(
        "Astraea, B.1, Fig. 19",
        "astraea-19",
        "loss_rate",
        [
            (
                "Orca loses more than Cubic with less than 4 BDP of queue",
                Side("Orca", (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)),
                "above",
                Side("Cubic", (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)),
            ),
        ],
    ),
    *_of(
        "Astraea, B.2, Fig. 20",
        "astraea-20",
        "goodput_mbps",
        [
            ("Astraea gets more than Cubic on the satellite link", Side("Astraea"), "above", Side("Cubic")),
            ("Orca gets less than Astraea on the satellite link", Side("Orca"), "below", Side("Astraea")),
        ],
    ),
)
"""In the order of the experiments."""
