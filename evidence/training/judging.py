# SPDX-License-Identifier: Apache-2.0
"""How good a policy is while it trains: it plays leagues beside the heuristics, whose plays are kept (evidence.kept).

With one process that plays, evaluations do not change what is learned.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from evidence.kept import contest
from evidence.training.meter import Meter
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.grid import profile_set
from sagecc.leagues.candidate import MEAN_RATE, OPTIONS
from sagecc.leagues.league import Rules, gather, lab_runner
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

CPU_H, POLICY = "cpu_h", "policy"

Rates = Mapping[str, Mapping[str, float]]
"""Winning rates by set and contestant; the policy's is called POLICY."""


@dataclass(frozen=True)
class Judge:
    """Plays a policy in training; called as learner.evaluation.Score.

    Its scores are the training's CPU time so far, `cpu_h`; in `best` the mean over the sets of the policy's winning
    rates, `winning_rate`; in `curve` everybody's winning rates, `SET/SCHEME`.
    """

    leagues: Mapping[str, Path]
    """By profile, where the heuristics' trajectories are collected if what they did is not kept."""
    kernel: Path
    out: Path
    """Where the trajectories of the last policy lie, by league."""
    jobs: int
    meter: Meter
    """The training's; it stands still meanwhile."""
    best: str = ""
    """The league by which the best policy is known; none if empty."""
    curve: str = ""
    """The league of the learning curve; none if empty."""

    @property
    def identity(self) -> str:
        """What decides the scores beside the policy: networks, schemes, lab, rules."""
        kernel = kernel_identity(self.kernel, (*SCHEMES, POLICY_PREFIX))
        networks = [[e.id for e in profile_set(name).environments] for name in (self.best, self.curve) if name]
        return f"best={self.best} curve={self.curve} {kernel} {networks} {Rules()} {OPTIONS}"

    def __call__(self, policy: Path, step: int) -> dict[str, float]:
        """Return a policy's scores."""
        with self.meter.paused():
            scores = {CPU_H: self.meter.cpu_s / 3600}
            rates = {name: self._rates(name, policy) for name in dict.fromkeys((self.best, self.curve)) if name}
        if self.best:
            scores[MEAN_RATE] = fmean(of_set[POLICY] for of_set in rates[self.best].values())
        if self.curve:
            of_curve = rates[self.curve].items()
            scores |= {f"{name}/{who}": rate for name, of in sorted(of_curve) for who, rate in sorted(of.items())}
        return scores

    def _rates(self, league: str, policy: Path) -> Rates:
        networks, raw, scheme = profile_set(league), self.leagues[league], f"{POLICY_PREFIX}{policy}"
        known = contest(league, networks, {each: each for each in SCHEMES}, raw, self.kernel, self.jobs)
        runner = lab_runner(self.kernel, self.jobs, options=OPTIONS)
        played = gather(networks, (scheme,), raw, self.out / league, runner, options=OPTIONS)
        rates: dict[str, dict[str, float]] = {}
        for row in known.joined_by(scheme, played.episodes).standings().to_dicts():
            who = POLICY if row["scheme"] == scheme else row["scheme"]
            rates.setdefault(row["set"], {})[who] = row["winning_rate"]
        return rates


def read_points(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a training with a curve, from the table beside its policy (learner.runs.SCORES).

    Returns:
        One of each: `step`, `cpu_h`, and `rates`, by set and scheme.
    """
    with path.open(newline="") as file:
        return [_point(row) for row in csv.DictReader(file)]


def _point(row: Mapping[str, str]) -> dict[str, Any]:
    rates: dict[str, dict[str, float]] = {}
    for name, value in row.items():
        set_name, slash, scheme = name.partition("/")
        if slash:
            rates.setdefault(set_name, {})[scheme] = float(value)
    return {"step": int(row["step"]), CPU_H: float(row[CPU_H]), "rates": rates}
