# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import sagecc.leagues.candidate
from sagecc.collector.run.engines import Engine
from sagecc.common.errors import SageccError
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.leagues.candidate import CandidateLeague
from sagecc.leagues.league import PlayOptions, RunPolicies
from sagecc.schemas.environment import Environment
from tests.helpers.league_episodes import rows, set_one, set_two, smoke, write

ENVIRONMENTS = (set_one(12), set_one(24, step=2), set_two(12))
RATES = {"cubic": ([9, 9], [40, 40]), "vegas": ([7, 7], [12, 12])}


class StubCollector:
    """Stands in for collector and lab: notes what was collected and who played."""

    def __init__(self) -> None:
        self.collected: list[Path] = []
        self.played: list[str] = []

    def collect(
        self, environments: Sequence[Environment], schemes: Sequence[str], out: Path, kernel: Path, engine: Engine
    ) -> None:
        self.collected.append(out)
        write(out, {(e, s): rows(e, s, *RATES[s]) for e in environments for s in schemes})

    def runner(self, kernel: Path, jobs: int, *, options: PlayOptions) -> RunPolicies:
        assert options.give_up == GiveUp()

        def run(environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
            self.played += policies
            write(out, {(e, p): rows(e, p, [8, 8], [11, 11]) for e in environments for p in policies})

        return run


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> StubCollector:
    lab = StubCollector()
    monkeypatch.setattr(sagecc.leagues.candidate, "collect", lab.collect)
    monkeypatch.setattr(sagecc.leagues.candidate, "lab_runner", lab.runner)
    monkeypatch.setattr(sagecc.leagues.candidate, "kernel_identity", lambda kernel, schemes: " ".join(sorted(schemes)))
    return lab


def league(folder: Path, schemes: Sequence[str] = ("cubic", "vegas")) -> CandidateLeague:
    return CandidateLeague(
        smoke(*ENVIRONMENTS), schemes, folder / "kernel", folder / "heuristics", folder / "logs" / "league", 2
    )


def test_winning_rates_by_hand(lab: StubCollector, tmp_path: Path) -> None:
    """Set I: 64/21 = 3.05 beats 49/22 and 81/50. Set II, fair share 6: |6 - 8| loses to |6 - 7|."""
    policy = tmp_path / "step-500"
    policy.mkdir()
    (policy / "card.json").write_text("{}")
    played = league(tmp_path)
    played.prepare()
    assert played(policy, 500) == {"winning_rate": 0.5, "set_I": 1.0, "set_II": 0.0}
    assert lab.collected == [tmp_path / "heuristics"]
    assert lab.played == [f"policy:{policy}"]


def test_what_decides_the_scores_is_told(lab: StubCollector, tmp_path: Path) -> None:
    assert league(tmp_path).identity == league(tmp_path / "elsewhere").identity
    assert league(tmp_path).identity != league(tmp_path, ("cubic",)).identity
    assert all(environment.id in league(tmp_path).identity for environment in ENVIRONMENTS)
    assert "cubic policy: vegas" in league(tmp_path).identity


def test_without_a_kernel_there_is_no_league(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="kernel"):
        CandidateLeague(smoke(*ENVIRONMENTS), ("cubic",), tmp_path / "none", tmp_path, tmp_path, 1)
