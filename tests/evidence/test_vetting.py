# SPDX-License-Identifier: Apache-2.0
"""What is said of conditions was measured."""

from __future__ import annotations

from evidence.leagues.vetting import RECIPES
from evidence.machine import RESULTS, read_json
from sagecc.common.shipped import SAFEST_POLICY
from sagecc.leagues.vetting.conditions import CONDITIONS


def test_every_condition_was_measured() -> None:
    measured = read_json(RESULTS / "vetting.json")["result"]["conditions"]
    assert [each["name"] for each in measured] == list(CONDITIONS)
    assert [each["limit"] for each in measured] == [each.limit for each in CONDITIONS.values()]
    assert [each["networks"] for each in measured] == [len(each.networks) for each in CONDITIONS.values()]


def test_the_first_seed_of_the_safest_recipe_is_what_ships() -> None:
    result = read_json(RESULTS / "vetting.json")["result"]
    shipped = {row["condition"]: row["value"] for row in result["rows"] if row["scheme"] == f"models/{SAFEST_POLICY}"}
    first = {row["condition"]: row["value"] for row in result["seeds"] if row["scheme"] == SAFEST_POLICY}
    assert shipped == first and shipped.keys() == set(CONDITIONS)
    assert [len({row["scheme"] for row in result["seeds"] if row["recipe"] == name}) for name in RECIPES] == [5, 5]
