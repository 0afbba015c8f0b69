# SPDX-License-Identifier: Apache-2.0
"""What the page shows, read from the folders that `sagecc league` and the analyses wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from sagecc.collector.kernel.identity import join_identities
from sagecc.collector.run.store import read_episodes
from sagecc.common import shipped
from sagecc.common.document import DocumentError, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.inputs import check_regular
from sagecc.common.manifest import digest
from sagecc.common.parquet import MAX_TABLE_BYTES, check_parquet
from sagecc.common.tables import UNREADABLE, reading_error
from sagecc.common.versions import same_major
from sagecc.leagues.analysis import ANALYSIS_VERSION
from sagecc.leagues.league import LEAGUE_VERSION
from sagecc.leagues.report.checks import analysis_fault, league_fault, table_fault, tables_fault
from sagecc.leagues.report.contents import Analysis, Contents, in_order, training_curves
from sagecc.leagues.report.page import ANALYSES
from sagecc.leagues.scores import StoredEpisode, find_episodes
from sagecc.leagues.standings import REPEAT
from sagecc.policy.artefact import policy_sha256
from sagecc.policy.folder import CARD
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import LISTINGS
from sagecc.schemas.schemes import POLICY_PREFIX

TABLES = ("scores", "breakdown")
TAGS = "tags.parquet"
"""Of a league over a set with tags."""


def load(league: Path, raw: Path, analysis: Path | None = None) -> Contents:
    """Read what the page shows. Curves are those of policies whose files are still the ones that played.

    Args:
        league: folder of the league; policies' trajectories lie in league/raw.
        raw: folder of the heuristics' trajectories.
        analysis: folder of the analyses, each in a folder of its command's name.

    Raises:
        SageccError: there is no league, a file cannot be read or is of another major version, or `raw` is of another
            kernel.
    """
    remedy = _again(league)
    summary = read_summary(league)
    _check_hashes(league, summary, remedy)
    wins, classes = (_table(league / f"{name}.parquet", remedy) for name in TABLES)
    tags = _table(league / TAGS, remedy) if TAGS in summary.get("files", {}) else None
    if fault := tables_fault(summary, wins, classes, *([] if tags is None else [tags])):
        raise SageccError(f"{league}: {fault}; {remedy}")
    roots = (raw, league / "raw")
    plan_wins = wins.filter(pl.col(REPEAT) == 0) if REPEAT in wins.columns else wins
    environments = _environments(roots, set(plan_wins["environment_id"]))
    schemes = [row["scheme"] for row in summary["ranking"]]
    seed = plan_wins["seed"].drop_nulls().first()
    episodes = find_episodes(roots, environments, schemes, int(seed) if isinstance(seed, int) else 0)
    _check_kernel(episodes.values(), summary["kernel"], raw)
    return Contents(
        summary=summary,
        wins=wins,
        classes=classes,
        environments=in_order(environments),
        episodes=episodes,
        tags=tags,
        curves=training_curves([policy for policy, sha in summary["policies"].items() if _unchanged(policy, sha)]),
        analyses={name: result for name in ANALYSES if analysis and (result := _analysis(analysis / name, name))},
    )


def read_summary(league: Path) -> dict[str, Any]:
    """Return league.json's content; SageccError where there is none, or it is of another major version."""
    remedy = _again(league)
    path = league / "league.json"
    summary = _json(path, f"there is no league; {remedy}")
    _check(path, summary, LEAGUE_VERSION, remedy)
    if not {"ranking", "standings", "robustness", "lost", "rules", "terms"} <= summary.keys():
        raise SageccError(f"{path}: parts of the league are missing; {remedy}")
    if fault := league_fault(summary):
        raise SageccError(f"{path}: {fault}; {remedy}")
    return summary


def _again(league: Path) -> str:
    return f"play it with 'sagecc league --out {league}'"


def _environments(roots: Iterable[Path], ids: set[str]) -> list[Environment]:
    """Return the environments of these ids that have an episode under one of the roots."""
    environments: dict[str, Environment] = {}
    for root in roots:
        for path in sorted(root.glob(LISTINGS)):
            table = read_episodes(path, ["environment_id", "environment"])
            for row in table.to_pylist():
                if row["environment_id"] in ids and row["environment_id"] not in environments:
                    try:
                        environments[row["environment_id"]] = Environment.from_json(row["environment"])
                    except SageccError as error:
                        raise SageccError(f"{path}: {error}; remove its folder and collect it again") from error
    return list(environments.values())


def _analysis(folder: Path, name: str) -> Analysis | None:
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    remedy = f"run 'sagecc {name}' again, or remove {folder}"
    summary = _json(path, remedy)
    _check(path, summary, ANALYSIS_VERSION, remedy)
    table = _table(folder / f"{name}.parquet", remedy)
    if fault := analysis_fault(name, summary, table):
        raise SageccError(f"{path}: {fault}; {remedy}")
    return Analysis(table, summary)


def _json(path: Path, advice: str) -> dict[str, Any]:
    try:
        content = read_document(path)
    except (FileNotFoundError, NotADirectoryError):
        raise SageccError(f"{path}: {advice}") from None
    except DocumentError as error:
        raise SageccError(f"{error}; {advice}") from error
    if not isinstance(content, dict):
        raise SageccError(f"{path}: is no object; {advice}")
    return content


def _check(path: Path, summary: Mapping[str, Any], supported: str, advice: str) -> None:
    """Raise SageccError where a file is of another major version than the supported one."""
    version, major = str(summary.get("version", "unknown")), supported.partition(".")[0]
    if not same_major(version, supported):
        raise SageccError(f"{path}: its version is {version}, this program reads {major}.x; {advice}")


def _check_hashes(league: Path, summary: Mapping[str, Any], advice: str) -> None:
    """Check that league.json and the tables are as they were written, together; before 1.2 there are no hashes."""
    if summary["version"] in ("1.0", "1.1"):
        return
    path = league / "league.json"
    if summary.get("sha256") != digest({name: value for name, value in summary.items() if name != "sha256"}):
        raise SageccError(f"{path}: is damaged (its own hash does not hold); {advice}")
    names = (*(f"{name}.parquet" for name in TABLES), *({TAGS} & summary.get("files", {}).keys()))
    for table in (league / name for name in names):
        if table.is_file():
            check_regular(table, MAX_TABLE_BYTES)
        if not table.is_file() or sha256_file(table) != summary.get("files", {}).get(table.name):
            raise SageccError(f"{table}: is not the file that {path} describes; {advice}")


def _table(path: Path, advice: str) -> pl.DataFrame:
    try:
        check_parquet(path)
        table = pl.read_parquet(path, hive_partitioning=False, glob=False)
    except (*UNREADABLE, pl.exceptions.PolarsError) as error:
        raise reading_error(path, error, advice) from error
    if fault := table_fault(path.stem, table):
        raise SageccError(f"{path} {fault}; {advice}")
    return table


def _check_kernel(episodes: Iterable[StoredEpisode], kernel: str, raw: Path) -> None:
    """Check that the trajectories are those that were scored, as far as their kernel tells."""
    kernels = {episode.kernel for episode in episodes}
    try:
        if not kernels or join_identities(kernels) == kernel:
            return
    except SageccError:
        pass  # of different kernels: not the league's either
    raise SageccError(f"{raw}: its trajectories are not of the kernel that the league was played on; play it again")


def _unchanged(policy: str, sha256: str) -> bool:
    card = shipped.policy(policy.removeprefix(POLICY_PREFIX)) / CARD
    return card.is_file() and policy_sha256(policy) == sha256
