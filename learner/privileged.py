# SPDX-License-Identifier: Apache-2.0
"""What only the recorder of a pool knows, for critics alone: the episode's network, and the place in the episode.

A critic serves in training only, so it may see what no sender sees (asymmetric actor-critic; Pinto et al., RSS 2018).
All of it is numbers of about -1 to 1 that mean the same in every network, also in one that no training had.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.common.parquet import read_parquet
from sagecc.common.tables import UNREADABLE, reading_error
from sagecc.schemas.environment import Environment, Link
from sagecc.schemas.partitions import EPISODES_FILE
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import undisturbed

States = Literal["none", "flows", "network"]
"""What critics see beside the observations: nothing, FLOWS alone, or all of NAMES."""

FLOWS = "flows"
NAMES = (FLOWS, "rate", "rtt", "queue", "rate_now", "place")
"""What they see: log2 of the number of flows at the bottleneck, halved; log2(base rate / 32 Mbps) / 5;
log2(minimum RTT / 40 ms) / 4; log2(queue in BDP) / 4, at most 1.5; log2(rate now / base rate) / 2, at least -2, and 0
for a trace; and the place in the episode, from -1 at its first row to 1 at its last."""

MOST_QUEUE = 1.5
LEAST_RATE_NOW = -2.0


def names_of(states: States) -> tuple[str, ...]:
    """Return what such states are called, in order."""
    return {"none": (), "flows": NAMES[:1], "network": NAMES}[states]


@dataclass(frozen=True)
class Recorded:
    """What is known of each of E trajectories."""

    constants: Floats
    """Its network's numbers, as the first of NAMES [E, 4]."""
    lengths: Ints
    """Its rows [E]."""
    first_ticks: Ints
    """Ticks from the episode's begin to its first row [E]."""
    networks: Ints
    """Its row of `rates` [E]."""
    rates: Floats
    """The number `rate_now` of each network at each tick since the episode began."""
    states: States = "network"
    """Which of the numbers are given."""

    def part(self, chosen: npt.NDArray[Any]) -> Self:
        """Return some of the trajectories, by a mask or by their numbers."""
        of = (self.constants, self.lengths, self.first_ticks, self.networks)
        constants, lengths, first_ticks, networks = (values[chosen] for values in of)
        return replace(self, constants=constants, lengths=lengths, first_ticks=first_ticks, networks=networks)

    def at(self, episodes: Ints, rows: Ints) -> Floats:
        """Return the numbers at some rows, float32 [T, B, G].

        Args:
            episodes: the trajectory of each window [B].
            rows: rows since the trajectory's first [T, B].
        """
        constants = np.broadcast_to(self.constants[episodes], (*rows.shape, self.constants.shape[1]))
        ticks = np.minimum(self.first_ticks[episodes] + rows, self.rates.shape[1] - 1)
        place = 2 * rows / np.maximum(self.lengths[episodes] - 1, 1) - 1
        found = (constants, self.rates[self.networks[episodes], ticks][..., None], place[..., None])
        return np.concatenate(found, axis=-1, dtype=np.float32)[..., : len(names_of(self.states))]


def recorded(pool: Path, states: States, ids: npt.NDArray[np.str_], lengths: Ints) -> Recorded:
    """Return what a pool's list of episodes says of some trajectories.

    Args:
        pool: the pool's folder.
        states: which of the numbers are to be given.
        ids: the trajectories' episodes [E].
        lengths: their rows [E].

    Raises:
        SageccError: The list cannot be read, or an episode is not in it.
    """
    path = pool / EPISODES_FILE
    try:
        columns = ["episode_id", "scheme", "environment"]
        listing = read_parquet(path, columns)
        names, schemes, texts = (listing[column].to_pylist() for column in columns)
        listed = dict(zip(names, zip(schemes, texts, strict=True), strict=True))
        networks = {text: Environment.from_json(text) for text in dict.fromkeys(texts)}
        numbers = {text: number for number, text in enumerate(networks)}
        first_ticks, which = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        for i, name in enumerate(ids.tolist()):
            scheme, text = listed[name]
            network = undisturbed(scheme)[1].environment(networks[text], name)
            first_ticks[i], which[i] = round(network.start_s / TICK_S), numbers[text]
    except (*UNREADABLE, KeyError) as error:
        raise reading_error(path, error, "derive the pool again with 'sagecc pool'") from error
    ticks = round(max(network.duration_s for network in networks.values()) / TICK_S) + 1
    rates = np.stack([_rates_now(network.bottleneck, ticks) for network in networks.values()])
    constants = np.array([_constants(network) for network in networks.values()], np.float32)
    return Recorded(constants[which], lengths, first_ticks, which, rates, states)


def _constants(network: Environment) -> tuple[float, ...]:
    return (
        np.log2(network.competitors) / 2,
        np.log2(network.bandwidth_mbps / 32) / 5,
        np.log2(network.min_rtt_ms / 40) / 4,
        min(np.log2(network.queue_bdp) / 4, MOST_QUEUE),
    )


def _rates_now(link: Link, ticks: int) -> Floats:
    """Return log2(rate / base rate) / 2 of a link at each tick from 0 on, float32 [ticks]."""
    if link.trace:
        return np.zeros(ticks, np.float32)
    begins = np.array([step.t_s for step in link.rates])
    rates = np.array([step.rate_mbps for step in link.rates]) / link.base_mbps
    numbers = np.log2(np.maximum(rates, 4.0**LEAST_RATE_NOW)) / 2
    since = np.searchsorted(begins, np.arange(ticks) * TICK_S + TICK_S / 2, side="right") - 1
    return np.asarray(numbers[since], np.float32)
