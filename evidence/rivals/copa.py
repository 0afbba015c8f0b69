# SPDX-License-Identifier: Apache-2.0
"""Copa against its paper (V. Arun, H. Balakrishnan, NSDI 2018), delta = 0.5 in default mode."""

from __future__ import annotations

from pathlib import Path

from evidence.rivals.check import Number
from evidence.rivals.networks import others, path, settled
from sagecc.leagues.claims import Bounds, Claim
from sagecc.schemas.environment import MTU_BYTES

PAYLOAD = 1448 / MTU_BYTES
COPA = "Copa (NSDI 2018), "


def mean_queue(kernel: Path, flows: int) -> float:
    """Return the mean queue of flows that start together (packets)."""
    network = path(48, 40, 4, 30, cross=others("copa", flows - 1))
    return settled(kernel, network, "copa", 10).queue_packets


def arriving(kernel: Path, queue_bdp: float) -> float:
    """Return the mean queue of ten flows that arrive a second apart (packets)."""
    return settled(kernel, path(100, 40, queue_bdp, 30, cross=others("copa", 9, 1)), "copa", 15).queue_packets


def fairness(kernel: Path) -> float:
    """Return Jain's index of ten flows once the last has been there for five seconds."""
    return settled(kernel, path(100, 40, 1, 30, cross=others("copa", 9, 1)), "copa", 15).jain


def beside_cubic(kernel: Path, queue_bdp: float) -> float:
    """Return the share beside one Cubic flow."""
    return settled(kernel, path(48, 40, queue_bdp, 60, cross=others("cubic", 1)), "copa", 10).share


def lossy(kernel: Path, loss: float) -> float:
    """Return the goodput over all that 12 Mbps behind the losses can carry."""
    return settled(kernel, path(12, 50, 1, 60, loss=loss), "copa", 5).goodputs_mbps[0] / (12 * PAYLOAD)


CHECKS = (
    Claim(
        COPA + "section 3",
        "One flow's queue swings from 0 to 2.5 / delta: its mean; 48 Mbps, 40 ms, 4 BDP",
        Number("copa", "packets", 2.5, lambda kernel: mean_queue(kernel, 1)),
        Bounds(2, 3),
    ),
    Claim(
        COPA + "section 3",
        "Five flows' queue: five times one's, for each has 1 / delta as its target; the same path",
        Number("copa", "packets", 12.5, lambda kernel: mean_queue(kernel, 5)),
        Bounds(10, 15),
    ),
    Claim(
        COPA + "section 5, dynamic behaviour",
        "Ten flows that arrive a second apart stay in default mode: their queue; 100 Mbps, 40 ms, 1 BDP",
        Number("copa", "packets", 25, lambda kernel: arriving(kernel, 1)),
        Bounds(20, 30),
    ),
    Claim(
        COPA + "section 5, dynamic behaviour",
        "The same ten flows share alike: Jain's index once all are there",
        Number("copa", "", 1, fairness),
        Bounds(0.95, 1),
    ),
    Claim(
        COPA + "section 2.2",
        "The ten flows with 4 BDP of queue, where no loss undoes a wrong competitive mode",
        Number(
            "copa",
            "packets",
            25,
            lambda kernel: arriving(kernel, 4),
            "an arrival keeps the queue from emptying for five RTTs; 1 / delta of all then grows until a loss",
        ),
        Bounds(20, 30),
    ),
    Claim(
        COPA + "section 5, beside buffer-filling schemes",
        "Competitive mode: the share beside one Cubic flow, of an equal one; 48 Mbps, 40 ms, 1 BDP",
        Number("copa", "", 1, lambda kernel: beside_cubic(kernel, 1)),
        Bounds(0.7, 1.3),
    ),
    Claim(
        COPA + "section 5, beside buffer-filling schemes",
        "The same with 4 BDP of queue",
        Number(
            "copa",
            "",
            1,
            lambda kernel: beside_cubic(kernel, 4),
            "1 / delta grows by a packet an RTT, too slowly between two losses of Cubic",
        ),
        Bounds(0.7, 1.3),
    ),
    Claim(
        COPA + "section 5, robustness to packet loss",
        "Random loss of 5 % before the bottleneck: goodput over its capacity; 12 Mbps, 50 ms, 1 BDP",
        Number("copa", "", 1, lambda kernel: lossy(kernel, 0.05)),
        Bounds(0.9, 1.01),
    ),
)
