# SPDX-License-Identifier: Apache-2.0
"""What the page shows: a league's tables and trajectories, its policies' training, and the analyses of its schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.tables import reading_error
from sagecc.leagues.report.checks import curves_fault
from sagecc.leagues.scores import StoredEpisode
from sagecc.leagues.standings import Ranked, by_rank, sets
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX

CURVES = "curves.csv"
CURVE_TITLES = {
    "critic_loss": "critic's loss",
    "policy_loss": "policy's loss",
    "q_mean": "mean Q (discounted return)",
}
"""The columns of a policy's CURVES that are drawn."""


@dataclass(frozen=True)
class Analysis:
    """What `sagecc distance`, `similarity` or `tsne` wrote."""

    table: pl.DataFrame
    summary: Mapping[str, Any]
    """The JSON file's content."""


@dataclass(frozen=True)
class Contents:
    """A league as the page needs it."""

    summary: Mapping[str, Any]
    """The content of league.json."""
    wins: pl.DataFrame
    """The table of leagues.standings.mark_winners."""
    classes: pl.DataFrame
    """The table of leagues.standings.breakdown."""
    environments: Sequence[Environment]
    """Those of which the page shows trajectories: the networks as planned, no repeats."""
    episodes: Mapping[tuple[str, str], StoredEpisode]
    """Trajectories by (environment id, scheme); a missing one is not drawn."""
    tags: pl.DataFrame | None = None
    """The table of leagues.standings.tag_breakdown; None without tags."""
    curves: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Training curves by policy (the learner's curves.csv)."""
    analyses: Mapping[str, Analysis] = field(default_factory=dict)
    """By the name of the command that made them."""

    @property
    def schemes(self) -> list[str]:
        """The schemes in order of rank."""
        return [row["scheme"] for row in self.summary["ranking"]]

    @property
    def sets(self) -> list[str]:
        """The sets' names in the usual order."""
        return sets(self.wins)

    def rows(self) -> list[Ranked]:
        """Return (rank, scheme, {set: its row of the standings}) in order of rank."""
        return by_rank(self.summary["ranking"], self.summary["standings"])


def in_order(environments: Sequence[Environment]) -> list[Environment]:
    """Sort environments by set, bandwidth, rate change, RTT and queue, as the page lists them."""
    return sorted(environments, key=lambda e: (e.set, e.bandwidth_mbps, e.step, e.min_rtt_ms, e.queue_bdp, e.id))


def training_curves(policies: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Return the curves of those policies (`policy:PATH`) that have a file of them.

    Raises:
        SageccError: a file is damaged or cannot be read.
    """
    paths = {policy: shipped.policy(policy.removeprefix(POLICY_PREFIX)) / CURVES for policy in policies}
    return {policy: _read_curves(path) for policy, path in paths.items() if path.is_file()}


def _read_curves(path: Path) -> pl.DataFrame:
    without = "without it, the report goes without its curves"
    try:
        curves = pl.read_csv(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise reading_error(path, error, without) from error
    if fault := curves_fault(curves, tuple(CURVE_TITLES)):
        raise SageccError(f"{path} {fault}; {without}")
    return curves
