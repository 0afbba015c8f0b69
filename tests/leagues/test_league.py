# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import sagecc.commands.league as league_command
import sagecc.sets
from sagecc.collector.run.collect import EpisodesFailedError
from sagecc.collector.run.store import SPOOL, Partition
from sagecc.common.errors import SageccError
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.leagues import table
from sagecc.leagues.league import (
    EpisodesGivenUpError,
    PlayOptions,
    Rules,
    forget_changed_policies,
    play,
    save,
    summary,
)
from sagecc.leagues.report.files import write_beside
from sagecc.policy.artefact import policy_sha256
from sagecc.schemas.environment import Environment, Flow
from sagecc.schemas.partitions import partition
from tests.helpers.league_episodes import StubLab, rows, set_one, set_two, smoke, write

pytestmark = pytest.mark.heavy

ENVIRONMENTS = (set_one(12), set_one(24, step=2), set_two(12))
SMOKE = smoke(*ENVIRONMENTS)
SCHEMES = ("cubic", "vegas")
RATES = {"cubic": ([9, 9], [40, 40]), "vegas": ([7, 7], [12, 12])}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write(tmp_path / "raw", {(e, s): rows(e, s, *RATES[s]) for e in ENVIRONMENTS for s in SCHEMES})
    return tmp_path / "raw"


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/sage").mkdir(parents=True)
    (tmp_path / "models/sage/card.json").write_text("1")
    return "policy:models/sage"


def no_lab(environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
    raise AssertionError("a league of heuristics needs no lab")


def test_league_by_hand(raw: Path, tmp_path: Path) -> None:
    # Set I: 81/50 against 49/22: vegas alone wins. Set II (share 6): |6 - 9| against |6 - 7|: vegas alone wins.
    league = play(SMOKE, SCHEMES, raw, tmp_path / "out", no_lab)
    table = {(r["set"], r["scheme"]): (r["wins"], r["windows"]) for r in league.standings.to_dicts()}
    assert table == {("I", "cubic"): (0, 4), ("I", "vegas"): (4, 4), ("II", "cubic"): (0, 2), ("II", "vegas"): (2, 2)}
    assert league.ranking.rows() == [(1, "vegas", 1.0), (2, "cubic", 0.0)]


def test_policy_plays_in_the_lab_and_wins(raw: Path, tmp_path: Path, policy: str) -> None:
    lab = StubLab()
    league = play(SMOKE, (*SCHEMES, policy), raw, tmp_path / "out", lab)
    assert lab.calls == [(policy,)]
    # 64 / 21 = 3.05 in Set I, more than 49/22; in Set II |6 - 8| = 2 is worse than 1
    assert league.standings.filter(pl.col("scheme") == policy)["wins"].to_list() == [4, 0]
    assert league.policies == {policy: policy_sha256(policy)}


def test_retrained_policy_is_run_again(raw: Path, tmp_path: Path, policy: str) -> None:
    lab, better = StubLab(), StubLab(mbps=6)
    games = (SMOKE, (*SCHEMES, policy), raw, tmp_path / "out")
    play(*games, lab)
    kept = play(*games, better)
    assert kept.standings.filter(pl.col("scheme") == policy)["wins"].to_list() == [4, 0]
    (tmp_path / "models/sage/card.json").write_text("2")
    fresh = play(*games, better)
    assert fresh.standings.filter(pl.col("scheme") == policy)["wins"].to_list()[1] == 2


def test_changed_policies_and_those_not_asked_for_are_forgotten(tmp_path: Path) -> None:
    def left(before: dict[str, str], policies: dict[str, str]) -> list[str]:
        (tmp_path / "policies.json").write_text(json.dumps(before))
        for name in ("policy:a", "policy:b", "policy:c"):
            (tmp_path / partition("I", name)).mkdir(parents=True, exist_ok=True)
            (tmp_path / SPOOL / partition("I", name)).mkdir(parents=True, exist_ok=True)
        forget_changed_policies(tmp_path, policies)
        assert json.loads((tmp_path / "policies.json").read_text()) == policies
        return sorted(path.name for path in tmp_path.rglob("scheme=*"))

    first = {"policy:a": "1", "policy:b": "1", "policy:c": "1"}
    assert left(first, {"policy:a": "2", "policy:b": "1"}) == ["scheme=policy:b"] * 2
    assert left(first, {"policy:d": "1"}) == []


def test_other_terms_are_other_trajectories(raw: Path, tmp_path: Path, policy: str) -> None:
    games = (SMOKE, (*SCHEMES, policy), raw, tmp_path / "out")
    won = []
    for options, mbps in (
        (PlayOptions(), 8),
        (PlayOptions(5), 6),
        (PlayOptions(5), 8),
        (PlayOptions(5, sample=True), 8),
        (PlayOptions(), 6),
    ):
        league = play(*games, StubLab(mbps), options=options)
        won.append(league.standings.filter(pl.col("scheme") == policy)["wins"].to_list()[1])
        assert league.policies == {policy: policy_sha256(policy)}
    assert won == [0, 2, 2, 0, 2]  # the third found the second's, no other found one
    save(play(*games, StubLab(), options=PlayOptions(2.5)), tmp_path / "out")
    assert "takes effect 2.5 ms after its sample" in write_beside(tmp_path / "out", raw).read_text()
    summary = json.loads((tmp_path / "out/league.json").read_text())
    assert summary["terms"] == {"decision_latency_ms": 2.5, "sample": False}


def test_missing_policy(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"no policy at .*nowhere"):
        play(SMOKE, (*SCHEMES, f"policy:{tmp_path}/nowhere"), raw, tmp_path / "out", StubLab())


def test_missing_heuristic_says_what_to_do(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"3 of 9.*sagecc collect --profile smoke --schemes bic"):
        play(SMOKE, (*SCHEMES, "bic"), raw, tmp_path / "out", no_lab)


def test_missing_heuristic_can_count_as_lost(raw: Path, tmp_path: Path) -> None:
    shutil.rmtree(raw / partition("II", "vegas"))
    league = play(SMOKE, SCHEMES, raw, tmp_path / "out", no_lab, allow_missing=True)
    assert league.missing == {"vegas": [ENVIRONMENTS[2].id]}
    lost = league.standings.filter((pl.col("set") == "II") & (pl.col("scheme") == "vegas")).to_dicts()[0]
    assert (lost["wins"], lost["windows"], lost["missing"]) == (0, 2, 1)
    save(league, tmp_path / "out")
    assert "Lost without being played" in write_beside(tmp_path / "out", raw).read_text()


def test_a_heuristic_that_failed_in_its_collection_says_why(raw: Path, tmp_path: Path) -> None:
    shutil.rmtree(raw / partition("II", "vegas"))
    with Partition(raw, "II", "vegas", "any") as target:
        target.assemble([], {f"{ENVIRONMENTS[2].id}.vegas.0": "no sample"})
    with pytest.raises(SageccError, match=r"1 of 6 episodes .* vegas in II-.* \(it failed: no sample\)"):
        play(SMOKE, SCHEMES, raw, tmp_path / "out", no_lab)
    league = play(SMOKE, SCHEMES, raw, tmp_path / "out", no_lab, allow_missing=True)
    assert league.failures == {(ENVIRONMENTS[2].id, "vegas"): "no sample"}
    assert f"vegas in 1 environments, such as {ENVIRONMENTS[2].id}: no sample" in table.text(summary(league))


class FailingLab(StubLab):
    """A lab in which some of the policy's episodes fail; the others are put in place."""

    def __init__(self, failing: Sequence[Environment]) -> None:
        super().__init__()
        self.failing = {environment.id for environment in failing}

    def __call__(self, environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
        failures = {f"{e.id}.{p}.0": f"{e.id}: nan" for e in environments for p in policies if e.id in self.failing}
        super().__call__([e for e in environments if e.id not in self.failing], policies, out)
        if failures:
            raise EpisodesFailedError(failures)


def test_a_policy_that_fails_loses_there_and_is_listed(raw: Path, tmp_path: Path, policy: str) -> None:
    lab = FailingLab(ENVIRONMENTS[1:2])
    league = play(SMOKE, (*SCHEMES, policy), raw, tmp_path / "out", lab)
    own = league.standings.filter(pl.col("scheme") == policy).to_dicts()
    assert [(row["wins"], row["windows"], row["missing"]) for row in own] == [(2, 4, 1), (0, 2, 0)]
    failed = ENVIRONMENTS[1].id
    assert league.missing == {policy: [failed]}
    save(league, tmp_path / "out")
    listed = json.loads((tmp_path / "out/league.json").read_text())["lost"]
    assert listed == [
        {
            "set": "I",
            "environment_id": failed,
            "scheme": policy,
            "status": "missing",
            "windows": 2,
            "reason": f"{failed}: nan",
        }
    ]
    assert f"lost unplayed: {policy} in 1 environments, such as {failed}: {failed}: nan" in table.text(summary(league))


def test_a_policy_that_fails_everywhere_is_an_error(raw: Path, tmp_path: Path, policy: str) -> None:
    with pytest.raises(EpisodesFailedError, match=r"nan \(and 2 more\)"):
        play(SMOKE, (*SCHEMES, policy), raw, tmp_path / "out", FailingLab(ENVIRONMENTS))


class FloodedLab(FailingLab):
    """A lab in which those episodes are given up."""

    def __call__(self, environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
        try:
            super().__call__(environments, policies, out)
        except EpisodesFailedError as error:
            raise EpisodesGivenUpError(error.failures, error.failures.keys()) from None


def test_a_policy_that_is_given_up_everywhere_has_lost_everywhere(raw: Path, tmp_path: Path, policy: str) -> None:
    options = PlayOptions(give_up=GiveUp(0.3, 2))
    games = (SMOKE, (*SCHEMES, policy), raw, tmp_path / "out")
    league = play(*games, FloodedLab(ENVIRONMENTS), options=options)
    own = league.standings.filter(pl.col("scheme") == policy).to_dicts()
    assert [(row["wins"], row["windows"], row["missing"]) for row in own] == [(0, 4, 2), (0, 2, 1)]
    about = summary(league)
    assert about["terms"] == {
        "decision_latency_ms": 0.0,
        "sample": False,
        "give_up": {"share": 0.3, "time_s": 2},
    }
    lost = about["lost"]
    assert isinstance(lost, list) and [row["reason"] for row in lost] == [f"{e.id}: nan" for e in ENVIRONMENTS]
    save(league, tmp_path / "out")
    assert "an episode with more than 30 % lost in 2 s is given up" in write_beside(tmp_path / "out", raw).read_text()


def test_episodes_that_may_be_given_up_are_others(raw: Path, tmp_path: Path, policy: str) -> None:
    games = (SMOKE, (*SCHEMES, policy), raw, tmp_path / "out")
    first, second = StubLab(), StubLab()
    play(*games, first)
    play(*games, second, options=PlayOptions(give_up=GiveUp()))
    known = json.loads((tmp_path / "out/raw/policies.json").read_text())
    assert known == {policy: f"{policy_sha256(policy)} given up at more than 20 % lost in 5 s"}


def test_two_kernels_are_refused(raw: Path, tmp_path: Path) -> None:
    write(raw, {(e, "bic"): rows(e, "bic", [5, 5], [20, 20]) for e in ENVIRONMENTS}, kernel="cd" * 32)
    with pytest.raises(SageccError, match=r"different kernels \(cubic on abab.*bic on cdcd"):
        play(SMOKE, (*SCHEMES, "bic"), raw, tmp_path / "out", no_lab)


@pytest.mark.parametrize(
    "rules",
    [{"alpha": 0}, {"alpha": -1}, {"alpha": float("inf")}, {"alpha": float("nan")}, {"margin": 1}, {"margin": -0.1}],
)
def test_bad_rules(rules: dict[str, Any]) -> None:
    with pytest.raises(SageccError):
        Rules(**rules)


def test_a_tested_flow_that_is_a_transfer_is_refused(raw: Path, tmp_path: Path) -> None:
    finite = smoke(set_one(12), replace(set_one(24), flow=Flow(size_bytes=10**6)))
    with pytest.raises(
        SageccError, match="the tested flow is a finite transfer, which no league scores: take 'size_bytes'"
    ):
        play(finite, SCHEMES, raw, tmp_path / "out", no_lab)
    assert not (tmp_path / "out").exists()


def test_saved_files(raw: Path, tmp_path: Path, policy: str) -> None:
    out = tmp_path / "out"
    league = play(SMOKE, (*SCHEMES, policy), raw, out, StubLab())
    save(league, out)
    files = {p.name for p in out.iterdir() if p.is_file()}
    tables = {
        "scores.parquet",
        "breakdown.parquet",
        "robustness.parquet",
        "league.json",
        "metrics.json",
        "standings.csv",
    }
    assert files == tables
    report = write_beside(out, raw)
    assert report == out / "report.html"
    files = {p.name for p in out.iterdir() if p.is_file()}
    assert files == tables | {"standings.png", "plane.png", "example-I.png", "example-II.png", "report.html"}
    before = {name: (out / name).read_bytes() for name in files}
    save(play(SMOKE, (*SCHEMES, policy), raw, out, StubLab()), out)
    write_beside(out, raw)
    assert {name: (out / name).read_bytes() for name in files} == before
    summary = json.loads((out / "league.json").read_text())
    assert summary["environments"] == {"I": 2, "II": 1}
    assert summary["windows"] == {"I": 4, "II": 2}
    assert summary["kernel"] == "ab" * 32
    assert summary["lost"] == []
    assert pl.read_parquet(out / "robustness.parquet").to_dicts() == summary["robustness"]
    own = [row for row in summary["robustness"] if (row["alpha"], row["margin"]) == (2.0, 0.1)]
    assert [row["winning_rate"] for row in own] == [row["winning_rate"] for row in summary["standings"]]
    assert json.loads((out / "metrics.json").read_text()) == {
        "models/sage": {"set_I": {"rank": 1, "winning_rate": 1.0}, "set_II": {"rank": 2, "winning_rate": 0.0}},
        "best_heuristic": {"set_I": {"winning_rate": 0.0}, "set_II": {"winning_rate": 1.0}},
    }
    scores = pl.read_parquet(out / "scores.parquet")
    assert len(scores) == 18
    assert scores.filter("win")["scheme"].value_counts().sort("scheme").rows() == [(policy, 4), ("vegas", 2)]


def test_no_set_two(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    save(play(SMOKE, SCHEMES, raw, out, no_lab), out)
    write_beside(out, raw)
    assert (out / "example-II.png").exists()
    only = play(smoke(*ENVIRONMENTS[:2]), SCHEMES, raw, out, no_lab)
    save(only, out)
    text = write_beside(out, raw).read_text()
    assert "Set II:" not in text
    assert (out / "example-I.png").exists()
    assert not (out / "example-II.png").exists()


def test_command(raw: Path, tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagecc.sets, "profile_set", lambda name: SMOKE)
    monkeypatch.setattr(league_command, "lab_runner", lambda *_: StubLab())
    options = [
        "--schemes",
        "cubic,vegas",
        "--policy",
        "models/sage/",
        "--raw",
        str(raw),
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(league_command.command, options, catch_exceptions=False)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["rank", "scheme", "Set", "I", "Set", "II"]
    assert lines[1].split()[:4] == ["1", "policy:models/sage", "100.0", "%"]
    assert [line.split()[1] for line in lines[2:4]] == ["vegas", "cubic"]
    assert lines[-1] == f"report: {tmp_path / 'out/report.html'}"
    (tmp_path / "out/report.html").unlink()
    result = CliRunner().invoke(league_command.command, [*options, "--no-report"], catch_exceptions=False)
    assert result.output.splitlines() == lines[:-1]
    assert not (tmp_path / "out/report.html").exists()
    result = CliRunner().invoke(league_command.command, [*options, "--json"], catch_exceptions=False)
    written = json.loads((tmp_path / "out/league.json").read_text())
    assert json.loads(result.stdout).items() <= written.items()
    assert result.stderr == f"{lines[-1]}\n"
