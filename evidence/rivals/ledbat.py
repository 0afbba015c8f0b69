# SPDX-License-Identifier: Apache-2.0
"""LEDBAT against RFC 6817 and the studies of it, LEDBAT++ against its draft (draft-irtf-iccrg-ledbat-plus-plus)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evidence.rivals.check import Number
from evidence.rivals.networks import others, path, run, settled
from sagecc.leagues.claims import Bounds, Claim
from sagecc.schemas.environment import MTU_BYTES, Environment

RATE_MBPS = 10.0
CAPACITY_MBPS = RATE_MBPS * 1448 / MTU_BYTES
LATE_S = 20.0
RFC = "LEDBAT (RFC 6817), "
DRAFT = "LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus), "
FAIRNESS = "The quest for LEDBAT fairness (Carofiglio et al., arXiv 1006.3018), abstract"


def network(duration_s: float, others_scheme: str = "", count: int = 0, gap_s: float = 0) -> Environment:
    """Return 10 Mbps, 40 ms and 500 ms of queue, with other flows."""
    return path(RATE_MBPS, 40, 12.5, duration_s, cross=others(others_scheme, count, gap_s))


def queueing(kernel: Path, scheme: str) -> float:
    """Return the median wait of a settled flow (ms)."""
    rows = run(kernel, network(60), scheme).rows
    late = rows["t_s"].to_numpy() >= 30
    return float(np.median(rows["link_queue_bytes"].to_numpy()[late])) * 8e-3 / RATE_MBPS


def use(kernel: Path, scheme: str) -> float:
    """Return a settled flow's goodput over the link's."""
    return settled(kernel, network(60), scheme, 30).goodputs_mbps[0] / CAPACITY_MBPS


def beside_cubic(kernel: Path, scheme: str) -> float:
    """Return the part of all goodput that it takes beside one Cubic flow."""
    return settled(kernel, network(60, "cubic", 1), scheme, 10).share / 2


def latecomer(kernel: Path, scheme: str) -> float:
    """Return the part of all goodput that a second flow takes once it is settled."""
    return 1 - settled(kernel, network(120, scheme, 1, LATE_S), scheme, 70).share / 2


def slowed(kernel: Path) -> float:
    """Return the part of the time that periodic slowdowns take, from one's beginning to the next one's."""
    rows = run(kernel, network(60), "ledbatpp").rows
    t_s, cwnd, ssthresh = (rows[name].to_numpy() for name in ("t_s", "cwnd_pkts", "ssthresh_pkts"))
    starts = np.flatnonzero((cwnd[1:] == 2) & (cwnd[:-1] > 10))[1:] + 1
    ends = np.array([start + np.flatnonzero(cwnd[start:] >= ssthresh[start])[0] for start in starts[:-1]])
    return float((t_s[ends] - t_s[starts[:-1]]).sum() / (t_s[starts[-1]] - t_s[starts[0]]))


CHECKS = (
    Claim(
        RFC + "section 2.5",
        "The queueing that it holds, TARGET; 10 Mbps, 40 ms, 500 ms of queue",
        Number("ledbat", "ms", 100, lambda kernel: queueing(kernel, "ledbat")),
        Bounds(95, 105),
    ),
    Claim(
        RFC + "section 1.2",
        "It uses the link when nobody else does: goodput over capacity",
        Number("ledbat", "", 1, lambda kernel: use(kernel, "ledbat")),
        Bounds(0.97, 1.01),
    ),
    Claim(
        RFC + "section 1.2",
        "It yields: the part of all goodput that it takes beside one Cubic flow",
        Number("ledbat", "", 0, lambda kernel: beside_cubic(kernel, "ledbat")),
        Bounds(0, 0.05),
    ),
    Claim(
        FAIRNESS,
        "The last flow to arrive takes over: its part of all goodput, of two",
        Number("ledbat", "", 1, lambda kernel: latecomer(kernel, "ledbat")),
        Bounds(0.8, 1),
    ),
    Claim(
        DRAFT + "section 4",
        "The queueing that it holds between slowdowns, at its target; 10 Mbps, 40 ms, 500 ms of queue",
        Number("ledbatpp", "ms", 60, lambda kernel: queueing(kernel, "ledbatpp")),
        Bounds(54, 64),
    ),
    Claim(
        DRAFT + "section 4",
        "Periodic slowdowns: a tenth of the time",
        Number("ledbatpp", "", 0.1, slowed),
        Bounds(0.09, 0.11),
    ),
    Claim(
        DRAFT + "section 4",
        "So at most a tenth of the link is lost: goodput over capacity",
        Number("ledbatpp", "", 0.9, lambda kernel: use(kernel, "ledbatpp")),
        Bounds(0.9, 1.01),
    ),
    Claim(
        DRAFT + "section 4",
        "No advantage of the latecomer: its part of all goodput, of two",
        Number("ledbatpp", "", 0.5, lambda kernel: latecomer(kernel, "ledbatpp")),
        Bounds(0.4, 0.6),
    ),
    Claim(
        DRAFT + "section 1",
        "It yields: the part of all goodput that it takes beside one Cubic flow",
        Number("ledbatpp", "", 0, lambda kernel: beside_cubic(kernel, "ledbatpp")),
        Bounds(0, 0.05),
    ),
)
