# SPDX-License-Identifier: Apache-2.0
"""Fig. 12, 14 and 15: variants of a recipe, each with several seeds, as evidence/runs.jsonl has their runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evidence.paper import BASE, CLONE, SEEDS, VARIANTS
from evidence.training.runs import seed_name
from sagecc.leagues.intervals import interval

Values = dict[str, Any]

ALL = "all of it"
"""Title of the recipe that its variants are held against."""


def run_names(figure: str) -> tuple[str, ...]:
    """Return the runs that a figure needs, the recipe's own first."""
    return tuple(seed_name(recipe, seed) for recipe in (BASE, *VARIANTS[figure]) for seed in SEEDS)


def own_runs() -> frozenset[str]:
    """Return the runs that are there for the figures alone."""
    recipes = {CLONE, *(recipe for recipes in VARIANTS.values() for recipe in recipes)}
    return frozenset(seed_name(recipe, seed) for recipe in recipes for seed in SEEDS)


def compared(recipes: Mapping[str, str], known: Mapping[str, Values], base: str = BASE) -> Values:
    """Return what a figure's runs came to.

    Args:
        recipes: the variants and what the paper calls them.
        known: the runs' results by name.
        base: the recipe whose variants they are.

    Returns:
        `rows`, one for each recipe with a result, `base` first: `recipe`, `title`, `seeds`, `cpu_h` of a training, and
        `leagues`, by league and set its winning rates by seed (`rates`) with their mean and interval
        (leagues.intervals; None with one seed). `missing`: the names of the runs that have no result. `failed`: why
        others have none.
    """
    rows, missing, failed = [], [], []
    for recipe, title in ((base, ALL), *recipes.items()):
        results = []
        for seed in SEEDS:
            name = seed_name(recipe, seed)
            result = known.get(name)
            if result is None:
                missing.append(name)
            elif "failure" in result:
                failed.append({"name": name, "failure": result["failure"]})
            else:
                results.append(result)
        if results:
            rows.append(_row(recipe, title, results))
    return {"rows": rows, "missing": missing, "failed": failed}


def _row(recipe: str, title: str, results: list[Values]) -> Values:
    leagues = {
        league: {
            name: over_seeds([result["leagues"][league][name]["policy"]["winning_rate"] for result in results])
            for name in of_sets
        }
        for league, of_sets in results[0]["leagues"].items()
    }
    return {
        "recipe": recipe,
        "title": title,
        "seeds": [result["seed"] for result in results],
        "cpu_h": float(np.mean([result["training"]["cpu_h"] for result in results])),
        "leagues": leagues,
    }


def over_seeds(rates: list[float]) -> Values:
    """Return winning rates by seed with their mean and its interval (leagues.intervals), which ends at 0 and 1."""
    of = interval(np.array(rates))
    cut = [None if bound is None else min(max(bound, 0.0), 1.0) for bound in (of.low, of.high)]
    return {"rates": rates, "winning_rate": of.mean, "low": cut[0], "high": cut[1]}
