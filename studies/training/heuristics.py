# SPDX-License-Identifier: Apache-2.0
"""What the heuristics did where policies are judged, kept in Git: to judge a policy, that policy alone plays.

A file per league has a row of leagues.scores.SCORE_SCHEMA for each scoring window of each episode, and the episode's
totals beside it. A scheme's rows hold for its identity in one kernel, and for some networks; where either is another,
the scheme's episodes are collected, and its rows are written anew.
"""

from __future__ import annotations

import hashlib
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
"""Metadata of a file: JSON, of each scheme what decides its numbers."""
_VERSION = 2
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
        decided = decided_by(path)
        if missing := tuple(scheme for scheme in schemes if decided.get(scheme) != decides[scheme]):
            collect(environments, missing, raw, kernel, local(jobs))
            found = [_collected(environments, missing, raw)]
            if good := [scheme for scheme in schemes if scheme not in missing]:
                found.append(_read(path).filter(pl.col("scheme").is_in(good)))
            _keep(path, decides, pl.concat(found))
    return _kept(path, environments, schemes)


def deciding(networks: EnvironmentSet, schemes: Sequence[str], kernel: Path) -> dict[str, str]:
    """Return what decides each scheme's numbers: a file's version, the kernel, the networks and how they are scored."""
    ids = hashlib.sha256(json.dumps([environment.id for environment in networks.environments]).encode()).hexdigest()
    return {
        scheme: f"{_VERSION} {kernel_identity(kernel, [scheme])} alpha={RULES.alpha} networks={ids}"
        for scheme in schemes
    }


def decided_by(path: Path) -> dict[str, str]:
    """Return what decided the numbers of each scheme in a file; none where there is no file, or one of another version.

    Raises:
        SageccError: it cannot be read.
    """
    if not path.exists():
        return {}
    try:
        decided = json.loads((pq.read_metadata(path).metadata or {}).get(DECIDES.encode(), b"{}"))
    except (*UNREADABLE, ValueError) as error:
        raise SageccError(f"{path}: cannot be read ({first_line(error)}); remove it and start again") from error
    return decided if isinstance(decided, dict) else {}


def _collected(environments: Sequence[Environment], schemes: Sequence[str], raw: Path) -> pl.DataFrame:
    episodes = find_episodes([raw], environments, schemes)
    totals = pl.DataFrame(
        [
            (environment, scheme, episode.goodput_mbps, episode.sent_packets, episode.lost_packets)
            for (environment, scheme), episode in episodes.items()
        ],
        schema={"environment_id": pl.String, "scheme": pl.String, **_TOTALS},
        orient="row",
    )
    return score(environments, schemes, episodes, RULES.alpha).join(
        totals, on=["environment_id", "scheme"], maintain_order="left"
    )


def _keep(path: Path, decides: Mapping[str, str], table: pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as beside:
        table.sort("environment_id", "window", "scheme").write_parquet(
            beside, compression="zstd", compression_level=19, metadata={DECIDES: json.dumps(decides)}
        )


def _read(path: Path) -> pl.DataFrame:
    try:
        table = pl.from_arrow(pq.read_table(path, page_checksum_verification=True))
    except UNREADABLE as error:
        raise SageccError(f"{path}: cannot be read ({first_line(error)}); remove it and start again") from error
    assert isinstance(table, pl.DataFrame)
    return table


def _kept(path: Path, environments: Sequence[Environment], schemes: Sequence[str]) -> Heuristics:
    table = _read(path).filter(pl.col("scheme").is_in(list(schemes)))
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
