# SPDX-License-Identifier: Apache-2.0
"""Scores per scoring window, from raw trajectories (section 5.1 and appendix D of the Sage paper)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from sagecc.collector.run.store import KERNEL, read_episodes, reading
from sagecc.common.errors import SageccError
from sagecc.common.parquet import open_parquet
from sagecc.common.tables import UNREADABLE, column_fault, reading_error, select_columns
from sagecc.schemas.environment import BYTES_S_PER_MBPS, Environment
from sagecc.schemas.partitions import EPISODES_FILE, LISTINGS
from sagecc.schemas.raw import RAW_SCHEMA, TICK_S

SCORE_SCHEMA = {
    "set": pl.String,
    "environment_id": pl.String,
    "window": pl.Int32,
    "from_s": pl.Float64,
    "to_s": pl.Float64,
    "scheme": pl.String,
    "seed": pl.Int64,
    "status": pl.String,
    "metric": pl.String,
    "goodput_mbps": pl.Float64,
    "delay_ms": pl.Float64,
    "capacity_mbps": pl.Float64,
    "fair_share_mbps": pl.Float64,
    "score": pl.Float64,
}
"""One row per window, environment and scheme. `status` is `ok`, `missing` (no episode) or `silent` (no rows or no
packets in the window); `metric` is `power` (S_p, bigger is better) or `friendliness` (S_fr, smaller is better)."""

METRICS = ("power", "friendliness")
"""What a window can be scored by: the `reward` that its environment names."""

_SUMMED = ("rows", "goodput_mbps", "sent_packets", "lost_packets")
_LISTED = ("episode_id", "environment_id", "scheme", "seed", *_SUMMED)
_COUNTERS = ("received_bytes", "link_packets", "link_delay_ns", "link_capacity_bytes")
_MEASURED = ["episode_id", "t_s", *_COUNTERS]
_CLOCK_SLACK_S = 1e-6  # ticks are whole nanoseconds, window edges decimal fractions of a second
_TAIL_SLACK_S = 2 * TICK_S  # the last tick may fall just before the episode's end


@dataclass(frozen=True)
class StoredEpisode:
    """One trajectory on disk."""

    id: str
    environment: Environment
    scheme: str
    seed: int
    kernel: str
    """Identity of the kernel that it ran on."""
    folder: Path
    """Where the part files lie that hold its rows."""
    rows: int
    """How many rows it must have."""
    goodput_mbps: float
    """Over the whole episode."""
    sent_packets: int
    """Data packets that the links took or dropped."""
    lost_packets: int
    """Those that they dropped."""

    @property
    def loss_rate(self) -> float | None:
        """Ratio of dropped to sent data packets; None where none was sent."""
        return self.lost_packets / self.sent_packets if self.sent_packets else None


def find_episodes(
    roots: Iterable[Path],
    environments: Sequence[Environment],
    schemes: Sequence[str],
    seed: int | None = 0,
    seeds: Mapping[str, int] = MappingProxyType({}),
) -> dict[tuple[str, str], StoredEpisode]:
    """Look up episodes in folders of raw trajectories.

    Args:
        roots: the folders, each laid out as set=*/scheme=*; a later one's episode replaces an earlier one's.
        environments: whose episodes.
        schemes: whose episodes.
        seed: whose episodes, in environments that are not in `seeds`; None for any.
        seeds: by environment id, whose episodes there.

    Returns:
        The episodes by (environment id, scheme).

    Raises:
        SageccError: a file cannot be read or has another major version.
    """
    by_id, episodes = {e.id: e for e in environments}, {}
    for root in roots:
        for path in sorted(root.glob(LISTINGS)):
            table = read_episodes(path, list(_LISTED))
            kernel = (table.schema.metadata or {}).get(KERNEL, b"").decode(errors="replace")
            for row in table.to_pylist():
                environment = by_id.get(row["environment_id"])
                if environment is None or row["scheme"] not in schemes:
                    continue
                if seeds.get(environment.id, seed) in (None, row["seed"]):
                    episode = StoredEpisode(
                        id=row["episode_id"],
                        environment=environment,
                        scheme=row["scheme"],
                        seed=row["seed"],
                        kernel=kernel,
                        folder=path.parent,
                        **{name: row[name] for name in _SUMMED},
                    )
                    episodes[environment.id, episode.scheme] = episode
    return episodes


def read_rows(episode: StoredEpisode) -> pa.Table:
    """Return the raw rows of one episode (schemas.raw.RAW_SCHEMA), in order of time.

    Raises:
        SageccError: they cannot be read, or are not as many as they must be.
    """
    parts, filters = _parts(episode.folder), [("episode_id", "=", episode.id)]
    try:
        for part in parts:
            open_parquet(part).close()
        rows = pq.read_table(parts, filters=filters, partitioning=None, page_checksum_verification=True)
    except (*UNREADABLE, ValueError) as error:
        raise reading_error(f"{episode.folder}: episode {episode.id}", error, "collect it again") from error
    if fault := column_fault(rows.schema, RAW_SCHEMA):
        raise SageccError(f"{episode.folder}: episode {episode.id} {fault}; collect it again")
    _check_row_count(episode, len(rows))
    return rows.sort_by("step")


def _check_row_count(episode: StoredEpisode, rows: int) -> None:
    if rows != episode.rows:
        raise SageccError(
            f"{episode.folder}: episode {episode.id} has {rows} rows, {EPISODES_FILE} says {episode.rows};"
            " collect it again"
        )


def score(
    environments: Sequence[Environment],
    schemes: Sequence[str],
    episodes: Mapping[tuple[str, str], StoredEpisode],
    alpha: float = 2.0,
) -> pl.DataFrame:
    """Score every scheme in every scoring window of every environment.

    r, the goodput (Mbps): bytes the receiver got in order within the window. d, the delay (ms): mean one-way delay of
    the window's data packets at the bottleneck plus the constant delay of the return path. f, the fair share (Mbps):
    the link's capacity in the window over the number of flows.

    S_p = r^alpha / d where the environment's reward is `power`, S_fr = |f - r| where it is `friendliness`.
    A window without rows, without packets or without an episode has S_p = 0 and S_fr = infinity.

    Rows that stop before a window ends (by more than two ticks) count as no rows at all.

    Args:
        environments: of which all windows are scored.
        schemes: to score.
        episodes: by (environment id, scheme).
        alpha: weight of throughput.

    Returns:
        A table of SCORE_SCHEMA.

    Raises:
        SageccError: an episode's rows cannot be read.
    """
    plan = _plan(environments, schemes, episodes)
    by_folder: dict[Path, list[StoredEpisode]] = {}
    for episode in episodes.values():
        by_folder.setdefault(episode.folder, []).append(episode)
    bar = tqdm(sorted(by_folder.items()), desc="score", unit="partition", disable=None, leave=False)
    measures = pl.concat([_no_measures(), *(_measure(folder, in_folder, plan) for folder, in_folder in bar)])
    table = (
        plan.join(measures, on=["episode_id", "window"], how="left", maintain_order="left")
        .with_columns(
            status=pl.when(pl.col("episode_id").is_null())
            .then(pl.lit("missing"))
            .otherwise(pl.coalesce("status", pl.lit("silent")))
        )
        .with_columns(delay_ms=pl.col("delay_ms") + pl.col("return_delay_ms"))
        .with_columns(fair_share_mbps=pl.col("capacity_mbps") / pl.col("flows"))
    )
    return rescore(table, alpha).select([pl.col(name).cast(dtype) for name, dtype in SCORE_SCHEMA.items()])


def rescore(table: pl.DataFrame, alpha: float) -> pl.DataFrame:
    """Return a table of SCORE_SCHEMA with the `score` of another alpha; the rates and delays stay.

    Raises:
        SageccError: the table has another metric than METRICS.
    """
    if unknown := set(table["metric"]) - set(METRICS):
        raise SageccError(f"league: there is no score by '{min(unknown)}': it must be one of {', '.join(METRICS)}")
    r, d = pl.col("goodput_mbps"), pl.col("delay_ms")
    ok = pl.col("status") == "ok"
    return table.with_columns(
        score=pl.when(pl.col("metric") == "power")
        .then(pl.when(ok).then(r**alpha / d).otherwise(0.0))
        .otherwise(pl.when(ok).then((pl.col("fair_share_mbps") - r).abs()).otherwise(float("inf")))
    )


def _plan(
    environments: Sequence[Environment], schemes: Sequence[str], episodes: Mapping[tuple[str, str], StoredEpisode]
) -> pl.DataFrame:
    """Return one row per window, environment and scheme, with all that is known before trajectories are read."""
    rows = []
    for environment in environments:
        for window, (from_s, to_s) in enumerate(environment.windows_s):
            for scheme in schemes:
                episode = episodes.get((environment.id, scheme))
                rows.append(
                    {
                        "set": environment.set,
                        "environment_id": environment.id,
                        "window": window,
                        "from_s": from_s,
                        "to_s": to_s,
                        "scheme": scheme,
                        "seed": episode.seed if episode else None,
                        "metric": environment.reward,
                        "episode_id": episode.id if episode else None,
                        "flows": environment.competitors,
                        "return_delay_ms": environment.return_delay_ms,
                    }
                )
    schema = {name: SCORE_SCHEMA[name] for name in SCORE_SCHEMA if rows and name in rows[0]}
    extra = {"episode_id": pl.String, "flows": pl.Int64, "return_delay_ms": pl.Float64}
    if not rows:
        raise SageccError("league: there is no scoring window; the environments or the schemes are empty")
    return pl.DataFrame(rows, schema=schema | extra)


_MEASURES = {
    "episode_id": pl.String,
    "window": pl.Int32,
    "status": pl.String,
    "goodput_mbps": pl.Float64,
    "delay_ms": pl.Float64,
    "capacity_mbps": pl.Float64,
}


def _no_measures() -> pl.DataFrame:
    return pl.DataFrame(schema=_MEASURES)


def _measure(folder: Path, episodes: Sequence[StoredEpisode], plan: pl.DataFrame) -> pl.DataFrame:
    """Measure every planned window of one folder's episodes: one pass over its part files, needed columns only.

    A window's figures are differences of counters between the last tick at or before each edge. A flow that starts
    within the window has no tick at the first edge: its own counters were zero there, and the link's capacity is
    taken from its first tick on.
    """
    rows = scan(folder, episodes, _MEASURED)
    edges = plan.filter(pl.col("episode_id").is_not_null()).select("episode_id", "window", "from_s", "to_s")
    times = pl.col("t_s")
    per_window = []
    # Episodes of one grid share their windows: a handful of distinct ones, each a plain filter on the tick's time.
    for (window, from_s, to_s), group in sorted(edges.group_by("window", "from_s", "to_s")):
        before = times <= from_s + _CLOCK_SLACK_S
        inside = times <= to_s + _CLOCK_SLACK_S
        after = inside & ~before
        first, last = "_first", "_last"
        per_window.append(
            rows.filter(inside & pl.col("episode_id").is_in(group["episode_id"].to_list()))
            .group_by("episode_id")
            .agg(
                times.filter(before).max().alias("t" + first),
                times.filter(after).min().alias("t_flow"),
                times.filter(after).max().alias("t" + last),
                pl.col("link_capacity_bytes").filter(after).min().alias("capacity_flow"),
                *(pl.col(c).filter(before).max().cast(pl.Int64).alias(c + first) for c in _COUNTERS),
                *(pl.col(c).filter(after).max().cast(pl.Int64).alias(c + last) for c in _COUNTERS),
            )
            .with_columns(window=pl.lit(window, pl.Int32), from_s=pl.lit(from_s), to_s=pl.lit(to_s))
        )
    if not per_window:
        return _no_measures()
    try:
        table = pl.concat(pl.collect_all(per_window, engine="streaming"))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise reading_error(f"{folder}: a raw trajectory", error, "collect them again") from error
    return _rates(table)


def scan(folder: Path, episodes: Sequence[StoredEpisode], columns: Sequence[str]) -> pl.LazyFrame:
    """Return a lazy frame of a folder's raw rows, after checking them: Polars does not verify pages' checksums.

    Args:
        folder: of the part files.
        episodes: whose row counts are checked.
        columns: to read, `episode_id` among them.

    Raises:
        SageccError: a checksum is wrong, or an episode has not the rows that it must have.
    """
    row_counts: Counter[str] = Counter()
    for path in (parts := _parts(folder)):
        with reading(path, select_columns(RAW_SCHEMA, columns)) as file:
            for batch in file.iter_batches(columns=columns):
                runs = pc.run_end_encode(batch["episode_id"])
                lengths = np.diff(runs.run_ends.to_numpy(), prepend=0)
                for name, length in zip(runs.values.to_pylist(), lengths.tolist(), strict=True):
                    row_counts[name] += length
    for episode in episodes:
        _check_row_count(episode, row_counts[episode.id])
    return pl.scan_parquet(parts, hive_partitioning=False, glob=False).select(columns)


def _rates(table: pl.DataFrame) -> pl.DataFrame:
    def change(counter: str) -> pl.Expr:
        return pl.col(counter + "_last") - pl.col(counter + "_first").fill_null(0)

    first_s = pl.coalesce("t_first", "from_s")
    packets = change("link_packets")
    capacity_first = pl.coalesce("link_capacity_bytes_first", pl.col("capacity_flow").cast(pl.Int64))
    capacity_s = pl.col("t_last") - pl.coalesce("t_first", "t_flow")
    complete = pl.col("t_last").is_not_null() & (pl.col("t_last") >= pl.col("to_s") - _TAIL_SLACK_S - _CLOCK_SLACK_S)
    ok = complete.fill_null(False) & (packets > 0).fill_null(False) & (capacity_s > 0).fill_null(False)
    return table.select(
        "episode_id",
        "window",
        status=pl.when(ok).then(pl.lit("ok")).otherwise(pl.lit("silent")),
        goodput_mbps=pl.when(ok).then(change("received_bytes") / (pl.col("t_last") - first_s) / BYTES_S_PER_MBPS),
        delay_ms=pl.when(ok).then(change("link_delay_ns") / packets / 1e6),
        capacity_mbps=pl.when(ok).then(
            (pl.col("link_capacity_bytes_last") - capacity_first) / capacity_s / BYTES_S_PER_MBPS
        ),
    )


def _parts(folder: Path) -> list[Path]:
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise SageccError(f"{folder}: episodes.parquet lists episodes but there is no part file; collect them again")
    return parts
