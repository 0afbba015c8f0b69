# SPDX-License-Identifier: Apache-2.0
"""sagecc-bench-1: one number for a scheme, from 60 networks against what the 13 heuristics of the pool did there.

The heuristics' rates and delays ship with sagecc (PLAYS), so that only the contestant plays. `make bench-heuristics`
writes them; they hold for one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.manifest import digest
from sagecc.common.parquet import read_parquet
from sagecc.leagues.harm import harm
from sagecc.leagues.league import Gathered, PlayOptions, Rules, gather, lab_runner
from sagecc.leagues.scores import SCORE_SCHEMA, rescore, score
from sagecc.leagues.standings import bounds, drawn_rates, mark_winners, overall, standings
from sagecc.schemas.schemes import SCHEMES, is_driven

NAME, PROFILE = "sagecc-bench-1", "bench-1"
PLAYS = Path(__file__).with_name("bench-1.parquet")
KERNEL = b"sagecc.kernel"
"""In the metadata of PLAYS: the identity of the kernel that the heuristics ran on."""
RULES = Rules()


@dataclass(frozen=True)
class Rate:
    """A winning rate, 0 to 1, with its 95 % interval over networks."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class BenchScore:
    """What the benchmark says of a scheme."""

    scheme: str
    score: Rate
    """Mean of the winning rates of Set I and Set II."""
    sets: Mapping[str, Rate]
    """By set."""
    rank: int
    """Among the heuristics and this scheme."""
    ranking: pl.DataFrame
    """Of leagues.standings.overall."""
    harm: Mapping[str, Any] | None
    """Row of leagues.harm.harm; None for a heuristic, whose plays come with sagecc."""
    failures: Mapping[str, str]
    """Why an episode failed, by environment id; its windows are lost."""
    kernel: str
    """Identity of the kernel."""
    sha256: str | None
    """Of the files of a policy or a scheme in user space."""

    def document(self) -> dict[str, Any]:
        """Return what a submission holds, as JSON values."""
        return {
            "benchmark": NAME,
            "scheme": self.scheme,
            "score": vars(self.score),
            "sets": {name: vars(rate) for name, rate in self.sets.items()},
            "rank": self.rank,
            "of": len(self.ranking),
            "harm": self.harm,
            "failures": dict(self.failures),
            "networks": networks_digest(),
            "kernel": self.kernel,
            "sha256": self.sha256,
        }


@cache
def networks_digest() -> str:
    """Return a hash of the networks, which says that two scores are of the same ones."""
    return digest({"networks": [environment.to_json() for environment in profile_set(PROFILE).environments]})


def run(scheme: str, kernel: Path, out: Path, jobs: int, batch: int, progress: bool = True) -> BenchScore:
    """Let a scheme play and score it.

    Args:
        scheme: a kernel's scheme, a policy or a scheme in user space.
        kernel: the lab's kernel.
        out: folder of its trajectories; finished ones are not played again.
        jobs: processes.
        batch: guests that share an inference, in each.
        progress: tell on stderr how far it is.

    Raises:
        SageccError: the heuristics' plays are of another kernel, or all episodes failed.
    """
    plays, recorded = read_plays()
    identity = kernel_identity(kernel, SCHEMES)
    if recorded != identity:
        raise SageccError(
            f"{PLAYS.name}: the heuristics played on kernel {recorded[:60]}..., this one is {identity[:60]}...: use the"
            " kernel that comes with this version of sagecc ('sagecc kernel')"
        )
    if scheme in SCHEMES:
        return scored(scheme, plays, None, identity)
    material = _played(scheme, kernel, out, jobs, batch, progress)
    return scored(scheme, plays, material, identity)


def scored(scheme: str, plays: pl.DataFrame, material: Gathered | None, kernel: str) -> BenchScore:
    """Return the score of a scheme.

    Args:
        scheme: its name.
        plays: what the heuristics did, of leagues.scores.SCORE_SCHEMA.
        material: the scheme's episodes; None for a heuristic.
        kernel: identity of the kernel.
    """
    scores = plays
    if material is not None:
        own = score(profile_set(PROFILE).environments, [scheme], material.episodes, RULES.alpha)
        scores = pl.concat([plays, own])
    wins = mark_winners(scores, RULES.margin, RULES.friendly_margin)
    table = standings(wins)
    ranking = overall(table)
    own_wins = wins.filter(pl.col("scheme") == scheme)
    return BenchScore(
        scheme=scheme,
        score=mean_rate(own_wins),
        sets={
            row["set"]: Rate(row["winning_rate"], row["low"], row["high"])
            for row in table.filter(pl.col("scheme") == scheme).to_dicts()
        },
        rank=int(ranking.filter(pl.col("scheme") == scheme)["rank"][0]),
        ranking=ranking,
        harm=None if material is None else harm(material.episodes, own_wins).to_dicts()[0],
        failures={} if material is None else {network: why for (network, _), why in material.failures.items()},
        kernel=kernel,
        sha256=None if material is None else material.policies.get(scheme),
    )


def mean_rate(wins: pl.DataFrame) -> Rate:
    """Return the mean over sets of a scheme's winning rates; each draw of the bootstrap draws networks in each set.

    Args:
        wins: its rows of leagues.standings.mark_winners.
    """
    random, rates, drawn = np.random.default_rng(0), [], []
    for _, part in sorted(wins.group_by("set")):
        counts = part.group_by("environment_id").agg(wins=pl.col("win").sum(), windows=pl.len()).sort("environment_id")
        won, windows = (counts[name].cast(pl.Int64).to_numpy() for name in ("wins", "windows"))
        rates.append(won.sum() / windows.sum())
        drawn.append(drawn_rates(random, won, windows))
    low, high = bounds(np.mean(drawn, axis=0))
    return Rate(float(np.mean(rates)), float(low), float(high))


def read_plays() -> tuple[pl.DataFrame, str]:
    """Return what the heuristics did (leagues.scores.SCORE_SCHEMA), and the identity of the kernel they ran on."""
    table = read_parquet(PLAYS)
    frame = pl.DataFrame(pl.from_arrow(table.replace_schema_metadata(None))).with_columns(score=pl.lit(0.0))
    frame = rescore(frame, RULES.alpha).select([pl.col(name).cast(kind) for name, kind in SCORE_SCHEMA.items()])
    return frame, (table.schema.metadata or {})[KERNEL].decode()


def write_plays(kernel: Path, raw: Path, jobs: int) -> None:
    """Collect the heuristics' episodes into `raw` and write PLAYS.

    Raises:
        SageccError: an episode failed.
    """
    networks = profile_set(PROFILE)
    collect(networks.environments, tuple(SCHEMES), raw, kernel, local(jobs))
    material = gather(networks, tuple(SCHEMES), raw, raw.parent, lab_runner(kernel, jobs))
    table = score(networks.environments, tuple(SCHEMES), material.episodes, RULES.alpha).drop("score").to_arrow()
    metadata = {KERNEL: kernel_identity(kernel, SCHEMES).encode()}
    strings = [field.name for field in table.schema if pa.types.is_large_string(field.type)]
    with write_atomically(PLAYS) as temporary:
        pq.write_table(
            table.replace_schema_metadata(metadata),
            temporary,
            compression="zstd",
            use_dictionary=strings,
            use_byte_stream_split=["goodput_mbps", "delay_ms", "capacity_mbps", "fair_share_mbps"],
        )


def _played(scheme: str, kernel: Path, out: Path, jobs: int, batch: int, progress: bool) -> Gathered:
    networks, heuristics = profile_set(PROFILE), out / "kernel"
    if not is_driven(scheme):
        collect(networks.environments, [scheme], heuristics, kernel, local(jobs), progress=progress)
    options = PlayOptions()
    runner = lab_runner(kernel, jobs, batch=batch, options=options, progress=progress)
    return gather(networks, [scheme], heuristics, out, runner, options=options)
