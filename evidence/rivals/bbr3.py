# SPDX-License-Identifier: Apache-2.0
"""BBRv3 against its draft (draft-ietf-ccwg-bbr-06) and against the study that measured Google's own module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

from evidence.rivals.check import Number
from evidence.rivals.networks import others, path
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.leagues.claims import Bounds, Claim
from sagecc.leagues.flow_metrics import flow_series
from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.experiments import LINK_MBPS
from sagecc.leagues.study.networks import Cell, known
from sagecc.leagues.study.published import POINTS, Point
from sagecc.schemas.environment import Environment

SCHEME = "bbr3"
DRAFT = "draft-ietf-ccwg-bbr-06, section"
STUDY = "the evaluation study"
PAYLOAD = 1448 / 1500
"""Of a packet on the link, what goodput counts."""

CUBICS = (4, 10, 20)
"""Of the 2, 4, ... 20 Cubics of Fig. 8."""

MARGIN = 0.15
"""Of a number of the study, a mean of five runs; ours is one."""

JITTER_MS = 1.0
"""On the way back: ours to choose, the study says nothing of its emulator's."""

LOCKSTEP = (
    "without jitter Cubics, clocked by their ACKs, keep a full queue full, and paced packets are lost;"
    " a millisecond of jitter ends that"
)
ORDER = "without jitter, Cubic keeps its share where it starts first"
BUCKET = "likely the emulator's bucket, which passes two BDPs at once"
AN_AIM = "an aim of the draft; the study too finds BBRv3 ahead of flows that go by loss"


def episode(kernel: Path, environment: Environment) -> Episode:
    """Play the scheme in it."""
    return run_episode(kernel, environment, SCHEME)


def startup_queue(kernel: Path) -> float:
    """Return the longest queue of the first 3 s, in BDPs (400 packets)."""
    queue = episode(kernel, path(48, 100, 4, 3)).rows["link_queue_bytes"].to_numpy()
    return float(queue.max()) / (48 * 100 * 125)


def steady_share(kernel: Path) -> float:
    """Return the goodput from the first PROBE_RTT on over what the link carries of payload, over eight more."""
    rows = episode(kernel, path(48, 40, 4, 50)).rows
    t_s, received = (rows[name].to_numpy() for name in ("t_s", "received_bytes"))
    late = t_s >= 5
    return float((received[late][-1] - received[late][0]) * 8e-6 / (t_s[late][-1] - t_s[late][0]) / (48 * PAYLOAD))


def lossy_share(kernel: Path) -> float:
    """Return the goodput over what the link would carry of what is not lost, 1 % at random."""
    return episode(kernel, path(48, 40, 1, 60, loss=0.01)).flows[0].goodput_mbps / (48 * PAYLOAD * 0.99)


def beside_reno(kernel: Path) -> float:
    """Return Reno's goodput (Mbps)."""
    return episode(kernel, path(50, 30, 1, 120, cross=others("reno", 1))).flows[1].goodput_mbps


@cache
def of_study(kernel: Path, name: str, cell: Cell, jitter_ms: float) -> Mapping[str, float | None]:
    """Return what the study measures of one cell of an experiment, in its first repeat, with jitter of the ACKs."""
    study_experiment = experiment(name)
    run = study_experiment.run(cell, SCHEME)
    back = tuple(replace(link, jitter_ms=jitter_ms) for link in run.environment.return_links)
    environment = replace(run.environment, return_links=back)
    played = run_episode(kernel, environment, SCHEME, run.seed, every_flow=True)
    return study_experiment.measure(flow_series(played.every_flow, run.interval_s), environment, run.interval_s)


def in_study(name: str, quantity: str, *cells: Cell, jitter_ms: float = 0) -> Callable[[Path], float]:
    """Return what measures a quantity of an experiment, its mean over cells."""
    return lambda kernel: fmean(known(of_study(kernel, name, cell, jitter_ms)[quantity]) for cell in cells)


def beside_cubics(queue_bdp: float, jitter_ms: float) -> Claim[Number]:
    """Return the check of Fig. 8 for one queue."""
    cells = (Cell(queue_bdp=queue_bdp, bandwidth_mbps=LINK_MBPS, rtt_ms=30, cubics=cubics) for cubics in CUBICS)
    return Claim(
        f"{STUDY}, on Fig. 8",
        "goodput over the mean of 4, 10 and 20 Cubics': about 2 to 3; "
        f"100 Mbps, 30 ms, {queue_bdp:g} BDP, {jitter_ms:g} ms of jitter on the way back",
        Number(
            SCHEME,
            "",
            2.5,
            in_study("many-cubics", "tested_ratio", *cells, jitter_ms=jitter_ms),
            "" if jitter_ms else LOCKSTEP,
        ),
        Bounds(round(2 * (1 - MARGIN), 3), round(3 * (1 + MARGIN), 3)),
    )


def beside_one_cubic(jitter_ms: float) -> Claim[Number]:
    """Return the check of Fig. 7's deep queue, where shares are to become fair."""
    cell = Cell(queue_bdp=4.0, bandwidth_mbps=LINK_MBPS, rtt_ms=100.0, order="cubic-first")
    return Claim(
        f"{STUDY}, on Fig. 7",
        "goodput over that of one Cubic which came before, at the end: converges to a fair share; "
        f"100 Mbps, 100 ms, 4 BDP, {jitter_ms:g} ms of jitter on the way back",
        Number(
            SCHEME, "", 1.0, in_study("dynamics", "tested_ratio", cell, jitter_ms=jitter_ms), "" if jitter_ms else ORDER
        ),
        Bounds(0.5, 2.0),
    )


def efficiency(point: Point) -> Claim[Number]:
    """Return the check of one number of the study's table of Fig. 9."""
    share = point.quantity == "utilisation_0_100"
    margin = 0.03 if share else MARGIN * point.value
    what = "use of the link over 100 s" if share else "smoothed over base RTT"
    cell = point.cell
    return Claim(
        point.source,
        f"{what}, four flows that join each 25 s, 100 Mbps, {cell.rtt_ms:g} ms, {cell.queue_bdp:g} BDP",
        Number(
            SCHEME,
            "",
            point.value,
            in_study(point.experiment, point.quantity, cell),
            BUCKET if not share and (cell.queue_bdp, cell.rtt_ms) == (4.0, 20.0) else "",
        ),
        Bounds(round(point.value - margin, 3), round(point.value + margin, 3)),
    )


CHECKS = (
    Claim(
        f"{DRAFT} 5.3.1.1",
        "longest queue of STARTUP, in BDPs: (cwnd_gain - 1), 48 Mbps, 100 ms, 4 BDP",
        Number(SCHEME, "BDP", 1.0, startup_queue),
        Bounds(0.9, 1.1),
    ),
    Claim(
        f"{DRAFT}s 5.3.4.2 and 5.6.2",
        "share of the link with PROBE_RTT (0.98) and pacing margin (0.99), 48 Mbps, 40 ms, 4 BDP",
        Number(SCHEME, "", 0.97, steady_share),
        Bounds(0.95, 0.99),
    ),
    Claim(
        f"{DRAFT} 5.3.3.8.3",
        "share of the link at 1 % random loss, 48 Mbps, 40 ms: mean of 0.99^n over the 62 rounds between two probes",
        Number(SCHEME, "", 0.75, lossy_share),
        Bounds(0.65, 0.85),
    ),
    Claim(
        f"{DRAFT} 5.3.3.8.3",
        "goodput of a Reno beside it, 50 Mbps, 30 ms, 1 BDP: is to get the 25 Mbps of a 4K video",
        Number(SCHEME, "Mbps", 25.0, beside_reno, AN_AIM),
        Bounds(20.0, 30.0),
    ),
    *(beside_cubics(queue_bdp, jitter_ms) for queue_bdp in (0.2, 1.0) for jitter_ms in (0, JITTER_MS)),
    *(beside_one_cubic(jitter_ms) for jitter_ms in (0, JITTER_MS)),
    *(efficiency(point) for point in POINTS if point.scheme == "BBRv3" and point.experiment == "efficiency"),
)
