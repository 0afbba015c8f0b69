# SPDX-License-Identifier: Apache-2.0
"""What contestants did in the networks of our leagues, kept in Git: a new one plays alone.

A file of some networks has a row of leagues.scores.SCORE_SCHEMA for each contestant and scoring window of an episode,
and the episode's totals beside it; `sagecc sql --table plays=evidence/plays/heldout.parquet "FROM plays"` opens it.
What it has of a contestant holds for what drove its flows, its identity in one kernel, and the networks; where one of
them is another, the contestant plays, and its rows are written anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
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
from sagecc.common.tables import UNREADABLE, reading_error
from sagecc.execution.schemes.registry import driver_sha256
from sagecc.leagues.league import Rules, gather, lab_runner
from sagecc.leagues.scores import SCORE_SCHEMA, StoredEpisode, score
from sagecc.leagues.standings import mark_winners, standings
from sagecc.schemas.environment import Environment, episode_id
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES, is_driven

KEPT = Path("evidence/plays")
"""Files by the networks' name."""
PLAYED = Path(".cache/kept")
"""Trajectories, which are not kept."""
RULES = Rules()
DECIDES = "sagecc.decides"
"""Metadata of a file: by contestant what decides its numbers, as JSON."""
_VERSION = 2
_TOTALS = {"episode_mbps": pl.Float64, "sent_packets": pl.Int64, "lost_packets": pl.Int64}
"""Beside the scores: StoredEpisode's goodput over the whole episode, and its packets."""

Episodes = Mapping[tuple[str, str], StoredEpisode]
"""By (environment id, contestant)."""


@dataclass(frozen=True)
class Contest:
    """Contestants' scores and episodes in some networks."""

    environments: tuple[Environment, ...]
    names: tuple[str, ...]
    """The contestants."""
    scores: pl.DataFrame
    """Of leagues.scores.SCORE_SCHEMA, by network, window and contestant, each in its order here; `scheme` is a name."""
    episodes: Episodes
    """Of each the totals; there may be no rows on the disk."""

    def joined_by(self, name: str, episodes: Episodes) -> Contest:
        """Return the contest of these and one more, which has these episodes; their rows are on the disk."""
        own = score(self.environments, (name,), episodes, RULES.alpha)
        names = (*self.names, name)
        scores = _in_order(pl.concat([self.scores, own]), self.environments, names)
        return Contest(self.environments, names, scores, {**self.episodes, **episodes})

    def wins(self) -> pl.DataFrame:
        """Return the scores with who wins each window (leagues.standings.mark_winners)."""
        return mark_winners(self.scores, RULES.margin, RULES.friendly_margin)

    def standings(self) -> pl.DataFrame:
        """Return one row per set and contestant (leagues.standings.standings)."""
        return standings(self.wins())


def contest(
    name: str, networks: EnvironmentSet, contestants: Mapping[str, str | None], raw: Path, kernel: Path, jobs: int
) -> Contest:
    """Return what contestants did in some networks: as it is kept, or played now and kept from now on.

    Args:
        name: of the networks.
        networks: where they play.
        contestants: by name what the lab calls them: kernel schemes, `policy:PATH`, schemes in user space; None for a
            policy that is taken as it is kept (`is_kept`).
        raw: where trajectories of the pool's schemes are collected; others' go to PLAYED.
        kernel: the lab's kernel.
        jobs: episodes at a time.

    Raises:
        SageccError: an episode of a kernel scheme fails, all of another contestant, or a kept file cannot be read.
    """
    environments, path = networks.environments, path_of(name)
    PLAYED.mkdir(parents=True, exist_ok=True)
    with locked(PLAYED / f".lock-{name}", wait_s=math.inf):
        for who, scheme in contestants.items():
            if scheme is None:
                continue
            decides, known = deciding(networks, scheme, kernel), decided(path)
            if known.get(who) != decides:
                place = raw if scheme in SCHEMES else PLAYED / name / who  # a pool's folder has its own schemes alone
                table = played(networks, who, scheme, place, kernel, jobs)
                keep(path, who, table, {DECIDES: json.dumps({**known, who: decides}, sort_keys=True)})
        return _kept(path, tuple(contestants), environments)


def path_of(name: str) -> Path:
    """Return the file of networks by their name."""
    return KEPT / f"{name}.parquet"


def keep(path: Path, who: str, table: pl.DataFrame, metadata: Mapping[str, str] | None = None) -> None:
    """Write a contestant's rows to a kept file, in place of those it has of them; other contestants' stay.

    Who writes holds a lock meanwhile.
    """
    others = [read_kept(path).filter(pl.col("scheme") != who)] if path.exists() else []
    whole = pl.concat([*(other.select(table.columns) for other in others), table]).sort("scheme", maintain_order=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as temporary:
        whole.write_parquet(temporary, compression="zstd", compression_level=19, metadata=dict(metadata or {}))


def deciding(networks: EnvironmentSet, scheme: str, kernel: Path) -> str:
    """Return what decides a contestant's numbers: the kernel, what drives its flows, the networks, how it scores."""
    return _deciding(networks, scheme, kernel, driver_sha256(scheme) if is_driven(scheme) else "")


def is_kept(name: str, networks: EnvironmentSet, who: str, kernel: Path) -> bool:
    """Tell whether there are a policy's numbers for this kernel and these networks, whatever its files were."""
    decides = decided(path_of(name)).get(who, "")
    driver = re.search(r" driver=(\S+)", decides)
    return driver is not None and decides == _deciding(networks, POLICY_PREFIX, kernel, driver[1])


def _deciding(networks: EnvironmentSet, scheme: str, kernel: Path, driver: str) -> str:
    ids = hashlib.sha256(json.dumps([environment.id for environment in networks.environments]).encode()).hexdigest()
    suffix = f" driver={driver}" if driver else ""
    return f"{_VERSION} {kernel_identity(kernel, [scheme])}{suffix} alpha={RULES.alpha} networks={ids}"


def decided(path: Path) -> dict[str, str]:
    """Return by contestant what decided its numbers in a file; none where there is no file.

    Raises:
        SageccError: it cannot be read.
    """
    if not path.exists():
        return {}
    try:
        digests: dict[str, str] = json.loads((pq.read_metadata(path).metadata or {}).get(DECIDES.encode(), b"{}"))
    except (*UNREADABLE, ValueError) as error:
        raise _unreadable(path, error) from error
    return digests


def played(networks: EnvironmentSet, who: str, scheme: str, place: Path, kernel: Path, jobs: int) -> pl.DataFrame:
    """Return a contestant's rows as they are kept, of its episodes in `place`; those that are not there play now.

    Args:
        networks: where it plays.
        who: its name.
        scheme: what the lab calls it.
        place: folder of raw trajectories.
        kernel: the lab's kernel.
        jobs: episodes at a time.

    Raises:
        SageccError: an episode of a kernel scheme fails, or all of another contestant.
    """
    if not is_driven(scheme):
        collect(networks.environments, (scheme,), place, kernel, local(jobs))
    episodes = gather(networks, (scheme,), place, place, lab_runner(kernel, jobs)).episodes
    return _table(networks.environments, who, scheme, episodes)


def _table(environments: Sequence[Environment], name: str, scheme: str, episodes: Episodes) -> pl.DataFrame:
    totals = pl.DataFrame(
        [(id_, of.goodput_mbps, of.sent_packets, of.lost_packets) for (id_, _), of in episodes.items()],
        schema={"environment_id": pl.String, **_TOTALS},
        orient="row",
    )
    table = score(environments, (scheme,), episodes, RULES.alpha).with_columns(scheme=pl.lit(name))
    return table.join(totals, on="environment_id", how="left", maintain_order="left")


def _kept(path: Path, names: tuple[str, ...], environments: Sequence[Environment]) -> Contest:
    table, by_id = read_kept(path).filter(pl.col("scheme").is_in(names)), {each.id: each for each in environments}
    if missing := sorted(set(names) - set(table["scheme"])):
        raise SageccError(f"{path} has nothing of {', '.join(missing)}: let it play first")
    totals = table.unique(["environment_id", "scheme"], maintain_order=True).drop_nulls("sent_packets")
    episodes = {
        (network, who): StoredEpisode(
            id=episode_id(network, who, seed),
            environment=by_id[network],
            scheme=who,
            seed=seed,
            kernel="",
            folder=path,
            rows=0,
            goodput_mbps=mbps,
            sent_packets=sent,
            lost_packets=lost,
        )
        for network, who, seed, mbps, sent, lost in totals.select(
            "environment_id", "scheme", "seed", *_TOTALS
        ).iter_rows()
    }
    scores = _in_order(table.select(*SCORE_SCHEMA), environments, names)
    return Contest(tuple(environments), names, scores, episodes)


def _in_order(scores: pl.DataFrame, environments: Sequence[Environment], names: Sequence[str]) -> pl.DataFrame:
    networks = {environment.id: place for place, environment in enumerate(environments)}
    return scores.sort(
        pl.col("environment_id").replace_strict(networks),
        "window",
        pl.col("scheme").replace_strict({name: place for place, name in enumerate(names)}),
    )


def read_kept(path: Path) -> pl.DataFrame:
    """Read a kept table; raises SageccError, naming it, where it cannot be read."""
    try:
        table = pl.from_arrow(pq.read_table(path, partitioning=None, page_checksum_verification=True))
    except UNREADABLE as error:
        raise _unreadable(path, error) from error
    assert isinstance(table, pl.DataFrame)
    return table


def _unreadable(path: Path, error: BaseException) -> SageccError:
    return reading_error(path, error, "remove it and start again")
