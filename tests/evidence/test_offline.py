# SPDX-License-Identifier: Apache-2.0
"""Whether judging tells who wins: ranks, intervals and choices worked out by hand, and the page."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evidence.training import offline
from evidence.training.offline import BETTER, choices, correlations, of_runs, ranks, spearman, with_interval
from evidence.training.run import RUNS
from evidence.training.runs import read_plan
from sagecc.learner.judging.judge import Measures
from sagecc.policy.artefact import policy_sha256
from scripts.templates import ROOT, texts

PLACE = "heldout I"


def policy(recipe: str, value: float, rate: float, **of: Any) -> dict[str, Any]:
    measures = {**{field.name: 0.1 for field in fields(Measures)}, "value_start": value, **of}
    return {
        "name": recipe,
        "recipe": recipe,
        "from_pool": True,
        "sets": {"I": measures},
        "rates": {"heldout": {"I": rate}},
    }


def test_equal_values_share_their_ranks() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]


def test_rank_correlations_by_hand() -> None:
    """1 - 6 sum d^2 / (n (n^2 - 1)) where no values are equal: d is 1, -1, 0, 1, -1."""
    a = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert spearman(a, np.array([20.0, 10.0, 30.0, 50.0, 40.0])) == pytest.approx(1 - 6 * 4 / 120)
    assert spearman(a, np.exp(a)) == pytest.approx(1) and spearman(a, -a) == pytest.approx(-1)
    assert np.isnan(spearman(a, np.ones(5)))


def test_an_interval_holds_what_it_is_of_and_few_policies_have_none() -> None:
    a = np.arange(12.0)
    found = with_interval(a, np.where(a % 3 == 0, 11 - a, a))
    assert found is not None and found["policies"] == 12
    assert -1 <= found["low"] < found["rho"] < found["high"] <= 1
    one = pytest.approx(1)
    assert with_interval(a, a) == {"rho": one, "low": one, "high": one, "policies": 12}
    assert with_interval(a[:3], a[:3]) is None and with_interval(a, 0 * a) is None


def test_small_errors_are_good_and_so_are_high_values() -> None:
    assert set(BETTER) <= {field.name for field in fields(Measures)}
    rates = [0.1, 0.2, 0.3, 0.4]
    drifts = [-0.9, 0.8, -0.7, 0.6]
    policies = [
        policy(str(r), r, r, action_error=1 - r, drift_mean=drift) for r, drift in zip(rates, drifts, strict=True)
    ]
    found = {of["measure"]: of[PLACE] for of in correlations(policies)}
    for measure in ("value_start", "action_error", "drift_mean"):
        assert found[measure]["rho"] == pytest.approx(1), measure
    assert found["td_error"] is None
    assert all(of["heldout II"] is None and of["small I"] is None for of in correlations(policies))


def test_what_a_choice_is_worth_by_hand() -> None:
    seeds = [policy("a", 1.0, 0.2), policy("a", 3.0, 0.5), policy("a", 2.0, 0.2)]
    seeds += [policy("b", 1.0, 0.4), policy("b", 0.0, 0.6), policy("alone", 9.0, 0.9)]
    found = {of["measure"]: of[PLACE] for of in choices(seeds)}["value_start"]
    # of `a` the best, 0.5 for 0.3 on the mean; of `b` the worse, 0.4 for 0.5
    assert found == {"recipes": 2, "right": 1, "by_chance": pytest.approx(1 / 3 + 1 / 2), "gain": pytest.approx(0.05)}
    assert choices([policy("alone", 9.0, 0.9)])[0][PLACE] is None


def test_policies_that_are_not_what_played_are_not_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(offline, "ARTEFACTS", tmp_path)
    played = {"leagues": {"small": {"I": {"policy": {"winning_rate": 0.9}}}}, "seed": 0}
    digest = policy_sha256("policy:models/sagecc-10")
    results = {"sagecc-10": {"policy_sha256": digest, **played}, "sagecc-1": {"policy_sha256": digest, **played}}
    (found,) = of_runs(read_plan(ROOT / RUNS), results)
    assert (found.name, found.recipe, found.folder) == ("sagecc-10", "sagecc-10", Path("models/sagecc-10"))
    assert found.rates == {"small": {"I": 0.9}}


def test_the_page() -> None:
    policies = [policy("a", rate, rate) | {"name": f"a-{rate}"} for rate in (0.1, 0.2, 0.3, 0.4)]
    for each in policies:
        each["sets"]["II"], each["rates"]["heldout"]["II"] = each["sets"]["I"], 0.0
    result = {
        "share": 0.2,
        "policies": policies,
        "correlations": correlations(policies),
        "with_labs": correlations([*policies, policy("labs", 0, 0.5)]),
        "choices": choices(policies),
    }
    machine = {"cpu": "Z80", "cores": 1, "memory_gib": 0.1, "kernel": "6.12", "date": "2026-01-01"}
    found = texts(ROOT / "evidence" / "training" / "offline.md.j2", {"result": result, "machine": machine})["offline"]
    assert found.splitlines() == [
        "| measure, 4 policies | `heldout` I | its best seeds | `heldout` II | its best seeds |",
        "|---|---:|---:|---:|---:|",
        "| `value_start` | +1.00 [+1.00, +1.00] | 1 of 1 | - | 1 of 1 |",
    ]
