# SPDX-License-Identifier: Apache-2.0
"""Which of the kept results are of their runs as they are now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evidence.training.current import fingerprints
from evidence.training.run import RUNS
from evidence.training.runs import Plan, read_plan
from evidence.training.table import RESULTS, read_results
from sagecc.common import versions
from sagecc.learner.algorithms.crr import CrrConfig
from tests.conftest import ROOT

OTHERS = {
    *("bc", "bc-top", "bc-top3", "bcv2"),  # whose clones play in leagues of their own, and have no result
    *("early", "early-1", "early-2", "less-vegas"),  # judged without slow start and bound
    "labs-third-2",  # not trained yet
    *("sagecc-9", "sagecc-9-1", "sagecc-9-2", "sagecc-9-3"),  # judged without a bound at the end
}


def stale(plan: Plan, kernel: Path) -> set[str]:
    found = fingerprints(plan, read_results(ROOT / RESULTS), kernel)
    return {name for name, (kept, now) in found.items() if not kept or kept != now}


def test_all_results_but_these_are_of_their_runs_as_they_are(kernel: Path) -> None:
    assert stale(read_plan(ROOT / RUNS), kernel) == OTHERS


@pytest.mark.parametrize(
    ("place", "version", "names"), [(CrrConfig, "version", {"small", "grown"}), (versions, "GROWTH", {"grown"})]
)
def test_a_raised_version_leaves_the_results_of_others(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, place: object, version: str, names: set[str]
) -> None:
    plan = read_plan(ROOT / RUNS)
    some = replace(plan, runs={name: plan.runs[name] for name in ("small", "grown", "labs-small")})
    assert not stale(some, kernel)
    monkeypatch.setattr(place, version, 2)
    assert stale(some, kernel) == names
