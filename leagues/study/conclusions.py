# SPDX-License-Identifier: Apache-2.0
"""What the study concludes, and the papers of its schemes, as far as a number can tell whether it holds here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sagecc.leagues.claims import Claim
from sagecc.leagues.study.comparison import ABOVE, BELOW, Comparison, Side, Statement
from sagecc.leagues.study.paper_conclusions import PAPER_STATEMENTS

_SHALLOW, _ONE, _DEEP = (0.2,), (1.0,), (4.0,)
_TO_ONE, _FROM_ONE = (0.2, 1.0), (1.0, 4.0)

_MIDDLE_OF_HOPS = 2 / 3
"""Between proportional (1/3) and max-min fairness (1)."""

_STATEMENTS: Mapping[tuple[str, str, str], Sequence[Statement]] = {
    ("IV-A1, Fig. 1", "fairness", "ratio"): [
        ("Orca's goodput ratio is under 0.5 at 1 BDP", Side("Orca", _ONE), BELOW, 0.5),
        ("Orca is less fair than Cubic at 0.2 BDP", Side("Orca", _SHALLOW), BELOW, "Cubic"),
        ("Orca is less fair than Cubic at 1 BDP", Side("Orca", _ONE), BELOW, "Cubic"),
        (
            "Sage is less fair at 0.2 BDP, which it never saw, than at 1 BDP",
            Side("Sage", _SHALLOW),
            BELOW,
            Side("Sage", _ONE),
        ),
        (
            "Astraea is less fair beyond the RTTs of its training",
            Side("Astraea", rtts_ms=(160, 200)),
            BELOW,
            Side("Astraea", rtts_ms=(20, 140)),
        ),
        ("Vivace is no fairer than Cubic", Side("Vivace"), BELOW, "Cubic"),
        ("Cubic is less fair at 4 BDP than at 1", Side("Cubic", _DEEP), BELOW, Side("Cubic", _ONE)),
        ("BBRv3 is less fair at 4 BDP than at 1", Side("BBRv3", _DEEP), BELOW, Side("BBRv3", _ONE)),
    ],
    ("IV-A1, Fig. 2", "windows", "window_gap_pkts"): [
        ("Astraea's two windows are within about 50 packets", Side("Astraea"), BELOW, 50.0)
    ],
    ("IV-A1, Fig. 3", "fairness-rtt", "ratio"): [
        ("Orca is fairer than Cubic at 0.2 BDP from 60 ms on", Side("Orca", _SHALLOW, (60, 200)), ABOVE, "Cubic"),
        ("Sage is fairer than Cubic up to 100 ms", Side("Sage", rtts_ms=(20, 100)), ABOVE, "Cubic"),
        ("Sage is less fair than Cubic beyond 100 ms", Side("Sage", rtts_ms=(120, 200)), BELOW, "Cubic"),
        ("Astraea is fairer than Cubic", Side("Astraea"), ABOVE, "Cubic"),
        ("Astraea is fairer than BBRv3", Side("Astraea"), ABOVE, "BBRv3"),
        ("Cubic is least fair at 0.2 BDP", Side("Cubic", _SHALLOW), BELOW, Side("Cubic", _FROM_ONE)),
        ("BBRv3 is less fair at 1 BDP than at 0.2", Side("BBRv3", _ONE), BELOW, Side("BBRv3", _SHALLOW)),
        ("BBRv3 is fairer at 4 BDP than at 1", Side("BBRv3", _DEEP), ABOVE, Side("BBRv3", _ONE)),
    ],
    ("IV-A2, Fig. 4", "fairness-bandwidth", "ratio"): [
        ("Orca is less fair than Cubic at 0.2 and 1 BDP", Side("Orca", _TO_ONE), BELOW, "Cubic"),
        (
            "Astraea is fairer than Cubic at the bandwidths of its training",
            Side("Astraea", bandwidths_mbps=(40, 100)),
            ABOVE,
            "Cubic",
        ),
        (
            "Astraea is less fair below the bandwidths of its training",
            Side("Astraea", bandwidths_mbps=(10, 30)),
            BELOW,
            Side("Astraea", bandwidths_mbps=(40, 100)),
        ),
        (
            "Vivace is less fair at low bandwidths",
            Side("Vivace", bandwidths_mbps=(10, 30)),
            BELOW,
            Side("Vivace", bandwidths_mbps=(70, 100)),
        ),
        ("Cubic is less fair at 4 BDP than at 0.2 and 1", Side("Cubic", _DEEP), BELOW, Side("Cubic", _TO_ONE)),
        ("BBRv3 is less fair at 4 BDP than at 0.2 and 1", Side("BBRv3", _DEEP), BELOW, Side("BBRv3", _TO_ONE)),
    ],
    ("IV-A3, Fig. 5", "parking-lot", "hop_ratio"): [
        ("Orca stays below proportional fairness at 0.2 and 1 BDP", Side("Orca", _TO_ONE), BELOW, 1 / 3),
        ("Sage exceeds max-min fairness at 1 and 4 BDP up to 60 ms", Side("Sage", _FROM_ONE, (20, 60)), ABOVE, 1.0),
        ("Sage is nearer to max-min than to proportional fairness", Side("Sage"), ABOVE, _MIDDLE_OF_HOPS),
        (
            "Astraea is nearer to proportional than to max-min fairness",
            Side("Astraea", rtts_ms=(20, 140)),
            BELOW,
            _MIDDLE_OF_HOPS,
        ),
        ("Vivace stays below proportional fairness", Side("Vivace"), BELOW, 1 / 3),
        ("Cubic is nearer to proportional than to max-min fairness", Side("Cubic"), BELOW, _MIDDLE_OF_HOPS),
        ("BBRv3 is nearer to proportional than to max-min fairness", Side("BBRv3"), BELOW, _MIDDLE_OF_HOPS),
    ],
    ("IV-B1, Fig. 6", "friendliness", "tested_ratio"): [
        ("Orca takes more than Cubic at 0.2 BDP", Side("Orca", _SHALLOW), ABOVE, 1.0),
        ("Orca is friendlier at 1 BDP than at 0.2", Side("Orca", _ONE), BELOW, Side("Orca", _SHALLOW)),
        ("Orca takes less than Cubic at 4 BDP", Side("Orca", _DEEP), BELOW, 1.0),
        ("Sage takes more than Cubic at 0.2 BDP", Side("Sage", _SHALLOW), ABOVE, 1.0),
        ("Sage takes less than Cubic at 1 and 4 BDP", Side("Sage", _FROM_ONE), BELOW, 1.0),
        ("Astraea takes less than Cubic at 1 and 4 BDP", Side("Astraea", _FROM_ONE), BELOW, 1.0),
        ("Astraea yields more at 4 BDP than at 1", Side("Astraea", _DEEP), BELOW, Side("Astraea", _ONE)),
        ("Vivace takes less than Cubic", Side("Vivace"), BELOW, 1.0),
        ("BBRv3 takes more than Cubic at 0.2 and 1 BDP", Side("BBRv3", _TO_ONE), ABOVE, 1.0),
        ("BBRv3 is friendlier at 4 BDP than at 1", Side("BBRv3", _DEEP), BELOW, Side("BBRv3", _ONE)),
    ],
    ("IV-B1, Fig. 7", "dynamics", "tested_ratio"): [
        (
            "At 1 BDP Orca takes less where Cubic starts first",
            Side("Orca", _ONE, order="cubic-first"),
            BELOW,
            Side("Orca", _ONE, order="cubic-last"),
        ),
        ("Sage ends below Cubic at 1 and 4 BDP, whoever starts", Side("Sage", _FROM_ONE), BELOW, 1.0),
        ("Astraea ends below Cubic at 1 and 4 BDP, whoever starts", Side("Astraea", _FROM_ONE), BELOW, 1.0),
        ("BBRv3 dominates Cubic at 0.2 and 1 BDP, whoever starts", Side("BBRv3", _TO_ONE), ABOVE, 1.0),
    ],
    ("IV-B2, Fig. 8", "many-cubics", "tested_ratio"): [
        ("Orca starves many Cubics at 0.2 BDP", Side("Orca", _SHALLOW), ABOVE, 10.0),
        ("Orca takes less than a Cubic of many at 4 BDP", Side("Orca", _DEEP), BELOW, 1.0),
        ("Sage takes more than a Cubic of many at 0.2 BDP", Side("Sage", _SHALLOW), ABOVE, 1.0),
        ("Astraea takes at least ten times a Cubic's goodput at 0.2 BDP", Side("Astraea", _SHALLOW), ABOVE, 10.0),
        ("Astraea yields more at 4 BDP than at 1", Side("Astraea", _DEEP), BELOW, Side("Astraea", _ONE)),
        ("Vivace takes less than a Cubic of many", Side("Vivace"), BELOW, 1.0),
        ("BBRv3 takes more than a Cubic of many at 0.2 and 1 BDP", Side("BBRv3", _TO_ONE), ABOVE, 1.0),
        ("BBRv3 takes more at 4 BDP than at 0.2 and 1", Side("BBRv3", _DEEP), ABOVE, Side("BBRv3", _TO_ONE)),
    ],
    ("IV-C, Fig. 9", "efficiency", "utilisation"): [
        (
            f"{scheme} uses less of the link at 200 ms than at 20",
            Side(scheme, rtts_ms=(200, 200)),
            BELOW,
            Side(scheme, rtts_ms=(20, 20)),
        )
        for scheme in ("Orca", "Sage", "Astraea", "Vivace", "Cubic", "BBRv3")
    ],
    ("IV-C, Fig. 9", "efficiency", "rtt_ratio"): [
        ("Sage keeps the delay below Cubic's at 1 and 4 BDP", Side("Sage", _FROM_ONE), BELOW, "Cubic"),
        ("Sage keeps the delay below Orca's at 1 and 4 BDP", Side("Sage", _FROM_ONE), BELOW, "Orca"),
        ("Astraea keeps the delay below Orca's at 4 BDP", Side("Astraea", _DEEP), BELOW, "Orca"),
        ("BBRv3 keeps the delay below Cubic's at 4 BDP", Side("BBRv3", _DEEP), BELOW, "Cubic"),
    ],
    ("IV-D, Fig. 10", "responsiveness", "optimal_share"): [
        ("Cubic gets more than BBRv3 where the RTT changes", Side("Cubic"), ABOVE, "BBRv3"),
        ("Vivace gets less than BBRv3 where the RTT changes", Side("Vivace"), BELOW, "BBRv3"),
        ("Orca gets less than Cubic where the RTT changes", Side("Orca"), BELOW, "Cubic"),
        ("Astraea gets less than half of the optimum where the RTT changes", Side("Astraea"), BELOW, 0.5),
        ("Sage gets less than Orca where the RTT changes", Side("Sage"), BELOW, "Orca"),
        ("Sage gets less than Astraea where the RTT changes", Side("Sage"), BELOW, "Astraea"),
    ],
    ("IV-D, Fig. 10", "responsiveness-loss", "optimal_share"): [
        ("Cubic collapses under random loss, below a tenth of the optimum", Side("Cubic"), BELOW, 0.1),
        *(
            (f"{scheme} resists random loss better than Cubic", Side(scheme), ABOVE, "Cubic")
            for scheme in ("Orca", "Sage", "Astraea", "Vivace")
        ),
        *(
            (f"Vivace gets more than {scheme} under random loss", Side("Vivace"), ABOVE, scheme)
            for scheme in ("Orca", "Sage", "Astraea")
        ),
    ],
    ("IV-E, Fig. 12 and 13", "convergence", "jain"): [
        ("Orca's four flows share less evenly than Cubic's", Side("Orca"), BELOW, "Cubic"),
        (
            "Astraea's four flows share less evenly at 200 ms than at 20",
            Side("Astraea", rtts_ms=(200, 200)),
            BELOW,
            Side("Astraea", rtts_ms=(20, 20)),
        ),
    ],
    ("IV-E, Fig. 12 and 13", "convergence", "convergence_s"): [
        ("Cubic converges more slowly at 4 BDP than at 0.2 and 1", Side("Cubic", _DEEP), ABOVE, Side("Cubic", _TO_ONE)),
        ("BBRv3 converges more slowly at 4 BDP than at 0.2 and 1", Side("BBRv3", _DEEP), ABOVE, Side("BBRv3", _TO_ONE)),
    ],
}
"""By where it stands in the study, experiment and quantity."""


def _claim(source: str, experiment: str, quantity: str, statement: Statement) -> Claim[Comparison]:
    text, left, bounds, right = statement
    other = replace(left, scheme=right) if isinstance(right, str) else right
    return Claim(source, text, Comparison(experiment, quantity, left, other), bounds)


CONCLUSIONS = tuple(
    _claim(*key, statement)
    for key, statements in (*_STATEMENTS.items(), *PAPER_STATEMENTS.items())
    for statement in statements
)
"""In the order of the experiments."""
