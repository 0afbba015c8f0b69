# SPDX-License-Identifier: Apache-2.0
"""Aurora, trained here, held against what later papers print of its authors' model: its own has few numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

from evidence.rivals.check import Number
from evidence.rivals.networks import others, path, settled
from sagecc.leagues.claims import Bounds, Claim

NAME = "aurora-1"
SCHEME = f"policy:models/{NAME}"
SECONDS = 60.0


def lesser_part(kernel: Path) -> float:
    """Return what the lesser of two flows has of the link from 10 s after the second one's start on."""
    network = path(80, 60, 8, SECONDS, cross=others(SCHEME, 1, 20))
    return min(settled(kernel, network, SCHEME, 30).goodputs_mbps) / 80


def beside_cubics(
    kernel: Path, rate_mbps: float, rtt_ms: float, count: int, together: Callable[[list[float]], float]
) -> float:
    """Return its goodput over what so many Cubics have, taken `together`, behind a queue of 1 BDP."""
    network = path(rate_mbps, rtt_ms, 1, SECONDS, cross=others("cubic", count))
    own, *cubics = settled(kernel, network, SCHEME, 10).goodputs_mbps
    return own / together(cubics)


def on_a_satellite(kernel: Path) -> float:
    """Return its part of a satellite's link from 30 s on."""
    return settled(kernel, path(42, 800, 1, 100, loss=0.0074), SCHEME, 30).goodputs_mbps[0] / 42


CHECKS = (
    Claim(
        "Astraea (EuroSys 2024), section 2, Fig. 1a: it would not allow other flows to get any share",
        "Two flows, the second 20 s later, on 80 Mbps, 60 ms, 4.8 MB: the lesser's part of the link, 10 s later on",
        Number(NAME, "", 0.0, lesser_part),
        Bounds(0.0, 0.1),
    ),
    *(
        Claim(
            "Astraea (EuroSys 2024), section 5.3.1: with BBR the worst, 10 to 60 times Cubic's throughput",
            f"Goodput over the mean of {count} Cubic{'s' if count > 1 else ''}, 100 Mbps, 30 ms, 1 BDP",
            Number(
                NAME,
                "",
                35.0,
                partial(beside_cubics, rate_mbps=100, rtt_ms=30, count=count, together=fmean),
                "Cubic gets nothing. It learned alone, on links that lose up to 5 % at random, and gives way to no"
                " loss",
            ),
            Bounds(10.0, 60.0),
        )
        for count in (1, 4)
    ),
    Claim(
        "Orca (SIGCOMM 2020), section 5.6, Fig. 15: more than all other competing flows combined",
        "Goodput over that of 3 Cubics together, 48 Mbps, 40 ms, 1 BDP",
        Number(NAME, "", 1.0, partial(beside_cubics, rate_mbps=48, rtt_ms=40, count=3, together=sum)),
        Bounds(1.0, 1000.0),
    ),
    Claim(
        "Astraea (EuroSys 2024), appendix B.2, Fig. 20: does not respond to packet loss, high throughput",
        "Part of a satellite's link, 42 Mbps, 800 ms, 1 BDP, 0.74 % lost at random",
        Number(NAME, "", 1.0, on_a_satellite),
        Bounds(0.8, 1.0),
    ),
)
