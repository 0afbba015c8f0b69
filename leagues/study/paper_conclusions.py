# SPDX-License-Identifier: Apache-2.0
"""What the papers of Sage, Orca and Astraea say of their figures; a bound that no text gives is ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sagecc.leagues.study.comparison import ABOVE, BELOW, Side, Statement
from sagecc.leagues.study.paper_networks import DISCIPLINES
from sagecc.leagues.study.papers import BESIDE_CUBIC, DEEP, DOUBLES, HALVES, LARGE, SHALLOW

_FULL = 0.9
"""Utilisation of a link that is called full."""
_FAIR = 0.95
"""Jain's index that is called fair; Astraea's, section 5.1.3."""
_LEAST, _MOST = 0.5, 2.0
"""Goodputs over a Cubic's between which a flow is called friendly."""
_STARVED = 0.1
"""Goodput over a Cubic's below which a flow is called starved."""

PAPER_STATEMENTS: Mapping[tuple[str, str, str], Sequence[Statement]] = {
    ("Sage, 7.6, Fig. 17", "sage-17", "utilisation"): [
        ("Sage fills a link whose rate doubles", Side("Sage", case=DOUBLES), ABOVE, _FULL),
        ("Sage fills a link whose rate halves", Side("Sage", case=HALVES), ABOVE, _FULL),
    ],
    ("Sage, 7.6, Fig. 17", "sage-17", "goodput_mbps"): [
        ("Sage competes with a Cubic for half of 24 Mbps", Side("Sage", case=BESIDE_CUBIC), ABOVE, 12 * _LEAST)
    ],
    ("Sage, 7.7, Fig. 18", "sage-18", "jain"): [("Sage is fair to its own flows", Side("Sage"), ABOVE, _FAIR)],
    ("Sage, 7.7, Fig. 19", "sage-19", "tested_ratio"): [
        ("Sage gets at least half a Cubic's share of three and seven", Side("Sage"), ABOVE, _LEAST),
        ("Sage takes at most twice a Cubic's share of three and seven", Side("Sage"), BELOW, _MOST),
    ],
    ("Sage, E.1, Fig. 22", "sage-22", "utilisation"): [
        ("Sage fills a link with a shallow buffer", Side("Sage", (SHALLOW,)), ABOVE, _FULL),
        ("Sage fills a link with a deep buffer", Side("Sage", (DEEP,)), ABOVE, _FULL),
    ],
    ("Sage, E.1, Fig. 22", "sage-22", "rtt_ms"): [
        ("Sage's delay in a deep buffer is below Cubic's", Side("Sage", (DEEP,)), BELOW, "Cubic")
    ],
    ("Sage, E.2, Fig. 23", "sage-23", "utilisation"): [
        (f"Sage fills the link under {each}", Side("Sage", case=each), ABOVE, _FULL) for each in DISCIPLINES
    ],
    ("Sage, E.2, Fig. 23", "sage-23", "rtt_ms"): [
        (
            "Cubic's delay depends on the discipline",
            Side("Cubic", case="tail-drop"),
            ABOVE,
            Side("Cubic", case="codel"),
        ),
        ("Sage's delay under tail-drop is below Cubic's", Side("Sage", case="tail-drop"), BELOW, "Cubic"),
    ],
    ("Sage, F.1, Fig. 24", "sage-24", "goodput_ratio"): [
        ("Sage gets at least half of a Cubic's goodput in small and large buffers", Side("Sage"), ABOVE, _LEAST),
        ("Sage takes at most twice a Cubic's goodput in small and large buffers", Side("Sage"), BELOW, _MOST),
        ("Orca starves next to a Cubic in a large buffer", Side("Orca", (LARGE,)), BELOW, _STARVED),
    ],
    ("Orca, 1.2, Fig. 1", "orca-1", "utilisation"): [
        ("Orca uses more of a link in steps than Vivace", Side("Orca"), ABOVE, "Vivace")
    ],
    ("Orca, 5.2, Fig. 9", "orca-9", "rtt_ms"): [
        ("Orca keeps the delay below Cubic's where the rate halves", Side("Orca", case=HALVES), BELOW, "Cubic")
    ],
    ("Orca, 5.2, Fig. 9", "orca-9", "utilisation"): [
        ("Orca fills a link whose rate doubles", Side("Orca", case=DOUBLES), ABOVE, _FULL)
    ],
    ("Orca, 5.4, Fig. 12", "orca-12", "power_ratio"): [
        ("Orca has more power than Cubic on one link", Side("Orca"), ABOVE, 1.0),
        (
            "Orca has twice Cubic's power at a tenth of its period",
            Side("Orca", rtts_ms=(2, 2)),
            ABOVE,
            2.0,
        ),
        ("Orca's power over Cubic's is larger at 4 BDP than at 0.5", Side("Orca", (4.0,)), ABOVE, Side("Orca", (0.5,))),
    ],
    ("Orca, 5.5, Fig. 13", "orca-13", "jain"): [("Orca is fair to its own flows", Side("Orca"), ABOVE, _FAIR)],
    ("Orca, 5.6, Fig. 14", "orca-14", "goodput_ratio"): [
        ("Orca gets at least half of a Cubic's goodput", Side("Orca"), ABOVE, _LEAST),
        ("Orca takes at most twice a Cubic's goodput", Side("Orca"), BELOW, _MOST),
    ],
    ("Orca, 5.7, Fig. 16", "orca-16", "utilisation"): [
        (f"Orca fills the link under {each}", Side("Orca", case=each), ABOVE, _FULL) for each in DISCIPLINES
    ],
    ("Orca, 5.7, Fig. 16", "orca-16", "rtt_ms"): [
        (
            "Cubic's delay depends on the discipline, with a long queue",
            Side("Cubic", case="tail-drop"),
            ABOVE,
            Side("Cubic", case="codel"),
        ),
    ],
    ("Astraea, 5.1.1, Fig. 7", "astraea-7", "jain"): [
        ("Astraea shares more evenly than Orca while flows come and go", Side("Astraea"), ABOVE, "Orca"),
        ("Astraea shares more evenly than Cubic while flows come and go", Side("Astraea"), ABOVE, "Cubic"),
    ],
    ("Astraea, 5.2, Fig. 12", "astraea-6", "convergence_s"): [
        ("Astraea converges faster than Orca", Side("Astraea"), BELOW, "Orca"),
        ("Astraea converges faster than Vivace", Side("Astraea"), BELOW, "Vivace"),
    ],
    ("Astraea, 5.2, Fig. 12", "astraea-6", "stability_mbps"): [
        ("Astraea is steadier than Orca once it has converged", Side("Astraea"), BELOW, "Orca"),
        ("Astraea is steadier than Vivace once it has converged", Side("Astraea"), BELOW, "Vivace"),
    ],
    ("Astraea, 5.1.2, Fig. 8", "astraea-8", "jain"): [
        ("Astraea shares more evenly than Orca over unlike RTTs", Side("Astraea"), ABOVE, "Orca"),
        ("Astraea shares more evenly than Cubic over unlike RTTs", Side("Astraea"), ABOVE, "Cubic"),
    ],
    ("Astraea, 5.1.3, Fig. 9", "astraea-9", "jain"): [
        ("Astraea's Jain index is above 0.95 over networks", Side("Astraea"), ABOVE, _FAIR)
    ],
    ("Astraea, 5.1.3, Fig. 10", "astraea-10", "jain"): [
        ("Astraea is fair among 10 to 50 flows", Side("Astraea"), ABOVE, _FAIR)
    ],
    ("Astraea, 5.1.4, Fig. 11", "astraea-11", "long_mbps"): [
        (
            "Astraea's flows over both links get nearly 10 Mbps each while fewer than 8 share the first",
            Side("Astraea", flows=(2, 6)),
            ABOVE,
            10 * _FULL,
        )
    ],
    ("Astraea, 5.3.1, Fig. 14", "astraea-14", "goodput_ratio"): [
        ("Astraea gets at least half of a Cubic's goodput, of 1 to 16", Side("Astraea"), ABOVE, _LEAST),
        ("Astraea takes at most twice a Cubic's goodput, of 1 to 16", Side("Astraea"), BELOW, _MOST),
        ("Vivace gets less than a Cubic, of 1 to 16", Side("Vivace"), BELOW, 1.0),
    ],
    ("Astraea, B.1, Fig. 19", "astraea-19", "utilisation"): [
        (
            "Astraea nearly fills the link with more than 0.1 BDP of queue",
            Side("Astraea", (0.2, 0.4, 0.8, 1.6, 4.0, 8.0, 16.0)),
            ABOVE,
            _FULL,
        ),
        (
            "Orca uses less of the link below 0.8 BDP of queue",
            Side("Orca", (0.05, 0.1, 0.2, 0.4)),
            BELOW,
            Side("Orca", (0.8, 1.6, 4.0, 8.0, 16.0)),
        ),
    ],
    ("Astraea, B.1, Fig. 19", "astraea-19", "loss_rate"): [
        (
            "Orca loses more than Cubic with less than 4 BDP of queue",
            Side("Orca", (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)),
            ABOVE,
            "Cubic",
        )
    ],
    ("Astraea, B.2, Fig. 20", "astraea-20", "goodput_mbps"): [
        ("Astraea gets more than Cubic on the satellite link", Side("Astraea"), ABOVE, "Cubic"),
        ("Orca gets less than Astraea on the satellite link", Side("Orca"), BELOW, "Astraea"),
    ],
    ("Astraea, B.4, Fig. 22", "astraea-22", "goodput_mbps"): [
        ("Astraea gets more than Orca at 10 Gbps", Side("Astraea"), ABOVE, "Orca"),
        ("Astraea gets more than Vivace at 10 Gbps", Side("Astraea"), ABOVE, "Vivace"),
    ],
}
"""By where it stands in which paper, experiment and quantity."""
