# SPDX-License-Identifier: Apache-2.0
"""What the heuristics did where policies are judged, kept in Git: to judge a policy, that policy alone plays.

A file per league has a row of leagues.scores.SCORE_SCHEMA for each scoring window of each episode, and the episode's
totals beside it. It holds for one kernel; where that, the networks or the schemes are others, the episodes are
collected, and the file is written anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.locks import locked
from sagecc.common.tables import UNREADABLE, first_line
from sagecc.leagues.league import Rules
from sagecc.leagues.scores import SCORE_SCHEMA, StoredEpisode, find_episodes, score
from sagecc.leagues.standings import mark_winners, standings
from sagecc.schemas.environment import Environment, episode_id
from sagecc.schemas.environment_set import EnvironmentSet

ARTEFACTS = Path(".cache/training")
"""What is not kept: policies, trajectories, logs."""
KEPT = Path("studies/training/heuristics")
RULES = Rules()
DECIDES = "sagecc.decides"
"""Metadata of a file: what decides its numbers."""
_VERSION = 1
_TOTALS = {"episode_mbps": pl.Float64, "sent_packets": pl.Int64, "lost_packets": pl.Int64}
"""Beside the scores: StoredEpisode's goodput over the whole episode, and its packets."""

Episodes = Mapping[tuple[str, str], StoredEpisode]
"""By (environment id, scheme)."""


@dataclass(frozen=True)
class Heuristics:
    """Heuristics' scores and episodes in some networks."""

    environments: tuple[Environment, ...]
    schemes: tuple[str, ...]
    scores: pl.DataFrame
    """Of leagues.scores.SCORE_SCHEMA."""
    episodes: Episodes
    """Of each the totals; there may be no rows on the disk."""

    def standings_with(self, scheme: str, episodes: Episodes) -> pl.DataFrame:
        """Return the standings (leagues.standings) of a league of these and one more, which has these episodes."""
        own = score(self.environments, (scheme,), episodes, RULES.alpha)
        order = {name: place for place, name in enumerate((*self.schemes, scheme))}
        networks = {environment.id: place for place, environment in enumerate(self.environments)}
        scores = pl.concat([self.scores, own]).sort(
            pl.col("environment_id").replace_strict(networks),
            "window",
            pl.col("scheme").replace_strict(order),
        )
        return standings(mark_winners(scores, RULES.margin, RULES.friendly_margin))


def heuristics(
    name: str, networks: EnvironmentSet, schemes: Sequence[str], raw: Path, kernel: Path, jobs: int
) -> Heuristics:
    """Return what schemes did in some networks: as it is kept, or collected into `raw` and kept from now on.

    Args:
        name: of the file in KEPT.
        networks: where they play.
        schemes: heuristics.
        raw: where trajectories are collected.
        kernel: the lab's kernel.
        jobs: episodes at a time.

    Raises:
        SageccError: an episode fails, or the kept file cannot be read.
    """
    path, environments = KEPT / f"{name}.parquet", networks.environments
    decides = deciding(networks, schemes, kernel)
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    with locked(ARTEFACTS / f".lock-{name}", wait_s=math.inf):
        if decided_by(path) != decides:
            collect(environments, tuple(schemes), raw, kernel, local(jobs))
            _keep(path, decides, environments, schemes, raw)
    return _kept(path, environments, schemes)


def deciding(networks: EnvironmentSet, schemes: Sequence[str], kernel: Path) -> str:
    """Return what decides the numbers of a file: its version, the kernel, schemes, networks and how they are scored."""
    ids = [environment.id for environment in networks.environments]
    return json.dumps([_VERSION, kernel_identity(kernel, schemes), list(schemes), RULES.alpha, ids])


def decided_by(path: Path) -> str | None:
    """Return what decided a file's numbers; None where there is no file.

    Raises:
        SageccError: it cannot be read.
    """
    if not path.exists():
        return None
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except UNREADABLE as error:
        raise SageccError(f"{path}: cannot be read ({first_line(error)}); remove it and start again") from error
    decides: bytes = metadata.get(DECIDES.encode(), b"")
    return decides.decode(errors="replace")


def _keep(path: Path, decides: str, environments: Sequence[Environment], schemes: Sequence[str], raw: Path) -> None:
    episodes = find_episodes([raw], environments, schemes)
    totals = pl.DataFrame(
        [
            (environment, scheme, episode.goodput_mbps, episode.sent_packets, episode.lost_packets)
            for (environment, scheme), episode in episodes.items()
        ],
        schema={"environment_id": pl.String, "scheme": pl.String, **_TOTALS},
        orient="row",
    )
    table = score(environments, schemes, episodes, RULES.alpha).join(
        totals, on=["environment_id", "scheme"], maintain_order="left"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as beside:
        table.write_parquet(beside, compression="zstd", compression_level=19, metadata={DECIDES: decides})


def _kept(path: Path, environments: Sequence[Environment], schemes: Sequence[str]) -> Heuristics:
    try:
        table = pl.from_arrow(pq.read_table(path, page_checksum_verification=True))
    except UNREADABLE as error:
        raise SageccError(f"{path}: cannot be read ({first_line(error)}); remove it and start again") from error
    assert isinstance(table, pl.DataFrame)
    by_id = {environment.id: environment for environment in environments}
    totals = table.unique(["environment_id", "scheme"], maintain_order=True).select(
        "environment_id", "scheme", "seed", *_TOTALS
    )
    episodes = {
        (network, scheme): StoredEpisode(
            id=episode_id(network, scheme, seed),
            environment=by_id[network],
            scheme=scheme,
            seed=seed,
            kernel="",
            folder=path,
            rows=0,
            goodput_mbps=mbps,
            sent_packets=sent,
            lost_packets=lost,
        )
        for network, scheme, seed, mbps, sent, lost in totals.iter_rows()
    }
    return Heuristics(tuple(environments), tuple(schemes), table.select(*SCORE_SCHEMA), episodes)
