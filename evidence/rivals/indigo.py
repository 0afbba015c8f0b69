# SPDX-License-Identifier: Apache-2.0
"""Indigo, trained here, held against what its own paper imitates and what Orca's prints of its authors' model."""

from __future__ import annotations

from pathlib import Path

from evidence.rivals.check import Number
from evidence.rivals.networks import others, path, run, settled
from sagecc.leagues.claims import Bounds, Claim
from sagecc.schemas.environment import MTU_BYTES, queue_bytes

NAME = "indigo-1"
SCHEME = f"policy:models/{NAME}"
RATE_MBPS, RTT_MS, SECONDS = 48.0, 40.0, 60.0
SETTLED_S = 10.0


def window_over_bdp(kernel: Path) -> float:
    """Return a lone flow's mean window, in BDPs."""
    rows = run(kernel, path(RATE_MBPS, RTT_MS, 4, SECONDS), SCHEME).rows
    windows = rows["cwnd_pkts"].to_numpy()[rows["t_s"].to_numpy() >= SETTLED_S]
    return float(windows.mean() / (queue_bytes(RATE_MBPS, RTT_MS, 1) / MTU_BYTES))


def shared(kernel: Path) -> float:
    """Return Jain's index of five flows that come 10 s apart, once all are there."""
    network = path(RATE_MBPS, RTT_MS, 1, 100, cross=others(SCHEME, 4, 10))
    return settled(kernel, network, SCHEME, 60).jain


CHECKS = (
    Claim(
        "Indigo (USENIX ATC 2018), section 5: its expert's window is the BDP",
        f"Mean window of one flow over the BDP, {RATE_MBPS:g} Mbps, {RTT_MS:g} ms, 4 BDP",
        Number(NAME, "", 1.0, window_over_bdp),
        Bounds(0.85, 1.15),
    ),
    Claim(
        "Orca (SIGCOMM 2020), section 5.5, Fig. 13: appropriate fairness, as most but Aurora",
        f"Jain's index of five flows that come 10 s apart, {RATE_MBPS:g} Mbps, {RTT_MS:g} ms, 1 BDP, from 60 s on",
        Number(NAME, "", 1.0, shared),
        Bounds(0.9, 1.0),
    ),
)
