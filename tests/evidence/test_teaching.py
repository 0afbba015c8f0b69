# SPDX-License-Identifier: Apache-2.0
"""What a pool must show: the rows of the picture, of results that are worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evidence.leagues.teaching import FOLLOWS, IMITATES, MINUTE_S, PLAYERS, POOLS, rates, windows_figure
from sagecc.common.errors import SageccError


def results(recipe: str, first: float) -> dict[str, Any]:
    """Three seeds' results of a recipe: winning rates 0.1 apart around `first` in Set I, half of that in Set II."""
    found = {}
    for seed, rate in enumerate((first - 0.1, first, first + 0.1)):
        place = {
            name: {who: {"winning_rate": rate * share, "rank": 1} for who in ("policy", "best_heuristic", "reno")}
            for name, share in (("I", 1.0), ("II", 0.5))
        }
        name = f"{recipe}-{seed}" if seed else recipe
        found[name] = {"name": name, "base": recipe, "changes": {}, "seed": seed, "leagues": {"heldout": place}}
    return found


CLONED = {name: one for pool in POOLS if pool.clone for name, one in results(pool.clone, 0.2).items()}
RESULTS = CLONED | {name: one for pool in POOLS for name, one in results(pool.recipe, 0.6).items()}


def test_each_pool_has_the_mean_of_its_clones_and_of_its_learner() -> None:
    rows = rates(RESULTS)
    assert [row["title"] for row in rows] == [pool.title for pool in POOLS]
    for row, pool in zip(rows, POOLS, strict=True):
        assert row["leagues"].keys() == ({IMITATES, FOLLOWS} if pool.clone else {FOLLOWS})
        assert row["leagues"][FOLLOWS]["II"]["winning_rate"] == pytest.approx(0.3)
        assert sorted(row["leagues"][FOLLOWS]["I"]["rates"]) == pytest.approx([0.5, 0.6, 0.7])


def test_a_recipe_without_a_result_is_named() -> None:
    lacking = {name: one for name, one in RESULTS.items() if one["base"] != "offline-small"}
    with pytest.raises(SageccError, match="the runs 'offline-small' have no result"):
        rates(lacking)


def test_windows_are_drawn_over_the_first_minute() -> None:
    times_s = [0.5 * number for number in range(200)]
    rows = {title: pa.table({"t_s": times_s, "cwnd_pkts": range(200)}) for title in PLAYERS}
    (axes,) = windows_figure(rows).axes
    assert [line.get_label() for line in axes.lines] == list(PLAYERS)
    assert {np.max(line.get_xdata()) for line in axes.lines} == {MINUTE_S}
