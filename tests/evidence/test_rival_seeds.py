# SPDX-License-Identifier: Apache-2.0
"""Seeds in the league of learned schemes: places on made-up scores, what must have played, and the kept result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evidence import kept
from evidence.leagues.rival_seeds import OWN, RECIPES, RIVALS, places, rivals, together
from evidence.machine import RESULTS
from sagecc.common.errors import SageccError
from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY
from scripts.templates import ROOT, texts
from tests.evidence.test_rival_leagues import scores


def test_a_place_is_among_the_rivals_without_the_policy_that_comes_along() -> None:
    found = places(scores({"orca": 1.0, "vivace": 0.5, "own": 0.99, OWN[0]: 5.0}), "own")
    assert found["I"] == {
        "rank": 1, "winning_rate": 1.0, "low": 1.0, "high": 1.0, "players": 3,
        "best": {"scheme": "orca", "winning_rate": 1.0},
    }  # fmt: skip
    behind = places(scores({"orca": 1.0, "vivace": 0.5, "own": 0.7}), "own")["I"]
    assert (behind["rank"], behind["winning_rate"], behind["best"]["scheme"]) == (2, 0.0, "orca")


def test_a_rival_that_has_not_played_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", tmp_path)
    with pytest.raises(SageccError, match=f"{RIVALS[0]}: has not played small yet; run make bench-rival-leagues"):
        rivals("small")


def test_the_mean_over_seeds_has_an_interval() -> None:
    """Student's t of one degree of freedom, 12.706, times half of what two differ by."""
    runs = [{"profiles": {"small": {"I": {"winning_rate": rate}}}} for rate in (0.5, 0.52)]
    of = together(runs)["small"]["I"]
    assert of["winning_rate"] == pytest.approx(0.51)
    assert (of["low"], of["high"]) == pytest.approx((0.51 - 12.706 * 0.01, 0.51 + 12.706 * 0.01), abs=1e-4)


@pytest.mark.kernel
def test_the_seed_that_ships_stands_as_its_kept_plays_have_it() -> None:
    """Its file is that of the recipe's first seed, so two studies that play it say the same."""
    saved = json.loads((RESULTS / "rival_seeds.json").read_text())
    recipes = {of["recipe"]: of for of in saved["result"]["recipes"]}
    for recipe in (SAFEST_POLICY, BEST_POLICY):
        own = f"models/{recipe}"
        for profile, sets in recipes[recipe]["runs"][0]["profiles"].items():
            found = places(rivals(profile, [*RIVALS, own]).scores, own)
            for name, of in sets.items():
                assert (of["rank"], of["winning_rate"]) == (found[name]["rank"], found[name]["winning_rate"])
    page = texts(ROOT / "evidence" / "leagues" / "rival_seeds.md.j2", saved)["rival_seeds"]
    recipe = saved["result"]["recipes"][0]
    ranks = ", ".join(map(str, sorted(run["profiles"]["small"]["I"]["rank"] for run in recipe["runs"])))
    assert f"| {100 * recipe['over_seeds']['small']['I']['winning_rate']:.1f} % [" in page
    assert f"] | {ranks} |" in page


def test_every_seed_is_first_in_heldout_as_the_pages_say() -> None:
    saved = json.loads((RESULTS / "rival_seeds.json").read_text())["result"]["recipes"]
    assert [of["recipe"] for of in saved] == list(RECIPES)
    ranks = {of["rank"] for recipe in saved for run in recipe["runs"] for of in run["profiles"]["heldout"].values()}
    assert ranks == {1}
