# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.training.offline`: whether what a pool alone says of policies tells how they play.

Judged are the policies that lie at hand: those of a plan's results in .cache/training, or among models/, and shipped
ones that see a pool's features. A policy is judged as `sagecc judge` does (sagecc.learner.judging); how it plays is
known of all of them. What was found of a policy that is gone stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from evidence.kept import contest
from evidence.machine import KERNEL, RESULTS, earlier_result, save
from evidence.training import ARTEFACTS
from evidence.training.run import POOL_CACHE, RUNS, policy_folder, say
from evidence.training.runs import Plan, networks_of, read_plan
from evidence.training.table import read_results, results_of
from sagecc.cli import errors_in_one_line
from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.learner.judging.judge import PoolJudge, learned_share
from sagecc.policy.artefact import PolicyArtefact, policy_sha256
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

NAME, POOL = "offline", Path("datasets/kicked/pool")
PLANS = tuple(RUNS.with_name(f"{name}.yaml") for name in ("runs", "variants", "cures", "parts", "teaching", "trade"))
SHARE = 0.2
"""Of the pool's environments."""
PLACES = tuple((league, name) for league in ("small", "heldout") for name in ("I", "II"))
"""Leagues and sets: the pool's own environments, and those that no pool here has."""
SHIPPED = ("sagecc-1", "onlinerl-1")
"""Policies in no plan, whose plays are kept (evidence.kept)."""
DRAWS, SEED = 2_000, 0
"""Of the bootstrap."""
LEAST = 4
"""Fewest policies that are correlated."""

BETTER: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "action_error": lambda of: -of["action_error"],
    "negative_log_likelihood": lambda of: _less(of["negative_log_likelihood"]),
    "correlation": lambda of: of["correlation"],
    "drift_mean": lambda of: None if of["drift_mean"] is None else -abs(of["drift_mean"]),
    "at_limits": lambda of: -of["at_limits"],
    "td_error": lambda of: -of["td_error"],
    "value_scale": lambda of: -of["value_scale"],
    "value_start": lambda of: of["value_start"],
    "value_mean": lambda of: of["value_mean"],
}
"""By measure, what should be high of a policy that plays well: it less its error, drift or scale, or its value."""

Values = dict[str, Any]


def _less(value: float | None) -> float | None:
    return None if value is None else -value


def ranks(values: Doubles) -> Doubles:
    """Return ranks from 1; equal values have the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which])


def spearman(first: Doubles, second: Doubles) -> float:
    """Return the correlation of ranks; not a number where one of them never varies."""
    a, b = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else float("nan")


def with_interval(first: Doubles, second: Doubles) -> Values | None:
    """Return Spearman's `rho`, its 95 % interval (`low`, `high`) by drawing policies anew, and their number.

    None for fewer than LEAST, and where one of them never varies.
    """
    rho = spearman(first, second) if len(first) >= LEAST else float("nan")
    if np.isnan(rho):
        return None
    random = np.random.default_rng(SEED)
    drawn = random.integers(0, len(first), (DRAWS, len(first)))
    found = np.array([spearman(first[rows], second[rows]) for rows in drawn])
    low, high = np.nanpercentile(found, (2.5, 97.5)).tolist()
    return {"rho": rho, "low": low, "high": high, "policies": len(first)}


def correlations(policies: Sequence[Values]) -> list[Values]:
    """Return of each measure and place how it goes with winning rates there; None where there is nothing to tell."""
    found = []
    for measure, better in BETTER.items():
        row: Values = {"measure": measure}
        for league, name in PLACES:
            pairs = _pairs(policies, league, name, better)
            row[f"{league} {name}"] = with_interval(*pairs.T) if len(pairs) else None
        found.append(row)
    return found


def choices(policies: Sequence[Values]) -> list[Values]:
    """Return of each measure and place what it is worth to choose each recipe's seed by it.

    Returns:
        By place: `recipes` with several seeds, in how many of these it chooses one that wins most (`right`; `by_chance`
        is what drawing a seed would come to), and the mean over recipes of the chosen one's winning rate less the mean
        of all seeds' (`gain`); None without such recipes.
    """
    recipes: dict[str, list[Values]] = {}
    for policy in policies:
        recipes.setdefault(policy["recipe"], []).append(policy)
    found = []
    for measure, better in BETTER.items():
        row: Values = {"measure": measure}
        for league, name in PLACES:
            of = [pairs for seeds in recipes.values() if len(pairs := _pairs(seeds, league, name, better)) > 1]
            row[f"{league} {name}"] = _worth(of) if of else None
        found.append(row)
    return found


def _worth(recipes: Sequence[Doubles]) -> Values:
    """Return what choosing by a measure is worth, from measures and winning rates of each recipe's seeds [n, 2]."""
    chosen = [pairs[np.argmax(pairs[:, 0]), 1] for pairs in recipes]
    best = [pairs[:, 1].max() for pairs in recipes]
    return {
        "recipes": len(recipes),
        "right": sum(bool(rate == most) for rate, most in zip(chosen, best, strict=True)),
        "by_chance": float(sum((pairs[:, 1] == most).mean() for pairs, most in zip(recipes, best, strict=True))),
        "gain": float(np.mean([rate - pairs[:, 1].mean() for rate, pairs in zip(chosen, recipes, strict=True)])),
    }


def _pairs(policies: Sequence[Values], league: str, name: str, better: Callable[[Values], float | None]) -> Doubles:
    """Return what a measure says of each policy in a set, and its winning rate there, if it played [n, 2]."""
    known = [(better(of["sets"][name]), of["rates"].get(league, {}).get(name)) for of in policies if name in of["sets"]]
    return np.array([pair for pair in known if None not in pair], np.float64).reshape(-1, 2)


@dataclass(frozen=True)
class AtHand:
    """A policy to be judged."""

    name: str
    """The run's, or its own."""
    recipe: str
    """What its seeds have in common."""
    folder: Path
    """Where it lies."""
    rates: Mapping[str, Mapping[str, float]]
    """Its winning rates by league and set."""


def of_runs(plan: Plan, trainings: Mapping[str, Values]) -> list[AtHand]:
    """Return the policies of results that lie here as they were when they played."""
    found = []
    for name, training in trainings.items():
        places = [policy_folder(plan.runs[name], ARTEFACTS / name)] if name in plan.runs else []
        for folder in (*places, Path("models") / name):
            if folder.is_dir() and policy_sha256(f"{POLICY_PREFIX}{folder}") == training.get("policy_sha256"):
                rates = {league: rates_of(of) for league, of in training["leagues"].items()}
                found.append(AtHand(name, name.removesuffix(f"-{training['seed']}"), folder, rates))
                break
    return found


def shipped(plan: Plan) -> list[AtHand]:
    """Return SHIPPED; where their plays are not kept they play."""
    found = []
    for name in SHIPPED:
        who, rates = f"models/{name}", {}
        for league, raw in plan.leagues.items():
            contestants: dict[str, str | None] = {**{each: each for each in SCHEMES}, who: f"{POLICY_PREFIX}{who}"}
            known = contest(league, networks_of(league), contestants, raw, KERNEL, usable_cores())
            rows = known.standings().filter(pl.col("scheme") == who)
            rates[league] = dict(zip(rows["set"], rows["winning_rate"], strict=True))
        found.append(AtHand(name, name, Path(who), rates))
    return found


def rates_of(standings: Mapping[str, Values]) -> dict[str, float]:
    """Return a policy's winning rates by set."""
    return {name: of["policy"]["winning_rate"] for name, of in standings.items()}


def keep(policies: Iterable[Values], identity: str) -> None:
    """Write the result of these policies, judged by what has this identity.

    Seeds are chosen among policies that learned from a pool; what learned in labs acts as none of its schemes does.
    """
    rows = sorted(policies, key=lambda of: str(of["name"]))
    alone = [of for of in rows if of["from_pool"]]
    found = {"correlations": correlations(alone), "with_labs": correlations(rows), "choices": choices(alone)}
    save(NAME, {"identity": identity, "share": SHARE, "policies": rows, **found})


def main() -> None:
    """Judge what is not judged yet, and save, a policy at a time."""
    from sagecc.common.tensorflow_runtime import configure  # it takes seconds to load

    judge = PoolJudge(POOL, POOL_CACHE, SHARE)
    path = RESULTS / f"{NAME}.json"
    known = {of["policy_sha256"]: of for of in earlier_result(path, judge.identity).get("policies", ())}
    configure(SEED)
    at_hand = [each for plan in PLANS for each in of_runs(read_plan(plan), read_results(results_of(plan)))]
    for each in (*at_hand, *shipped(read_plan(RUNS))):
        digest = policy_sha256(f"{POLICY_PREFIX}{each.folder}")
        if digest not in known:
            say(f"{each.name}: judging")
            policy = PolicyArtefact.load(each.folder)
            try:
                sets = judge.judge(policy).record()["sets"]
            except SageccError as error:
                say(f"{each.name}: {error}")
                continue
            known[digest] = {
                "name": each.name,
                "recipe": each.recipe,
                "policy_sha256": digest,
                "from_pool": learned_share(policy) is not None,
                "sets": sets,
                "rates": each.rates,
            }
            keep(known.values(), judge.identity)


if __name__ == "__main__":
    with errors_in_one_line("evidence.training.offline"):
        main()
