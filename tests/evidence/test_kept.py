# SPDX-License-Identifier: Apache-2.0
"""What contestants did is kept: who plays anew, and that a league from it is the one from their trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evidence import kept
from evidence.kept import Contest, contest, is_kept
from evidence.leagues.orca import RAW
from evidence.leagues.rival_leagues import CLONES, LEAGUES, RIVALS
from evidence.published import VARIABLES
from evidence.training.run import RUNS
from evidence.training.runs import networks_of, read_plan
from sagecc.common.errors import SageccError
from sagecc.leagues.harm import REFERENCE
from sagecc.leagues.scores import find_episodes, score
from sagecc.leagues.standings import mark_winners, standings
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import partition
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES, is_driven
from tests.conftest import ROOT
from tests.helpers.league_episodes import rows, set_one, set_two, smoke, write

ENVIRONMENTS = (set_one(12), set_one(24, step=2), set_two(12))
OWN = f"{POLICY_PREFIX}own"
PLAYERS = {"vegas": "vegas", "reno": "reno", "models/own": OWN, "copa": "copa"}


class Lab:
    """Notes who plays and where the trajectories go; each scheme has its rate, at 11 ms."""

    def __init__(self) -> None:
        self.played: list[tuple[str, Path]] = []
        self.mbps = {"vegas": 7.0, "reno": 5.0, OWN: 8.0, "copa": 6.0}
        self.kernels = dict.fromkeys(self.mbps, "linux")
        self.driver = "1234"

    def play(self, environments: Sequence[Environment], schemes: Sequence[str], out: Path) -> None:
        todo = [(e, s) for e in environments for s in schemes if not (out / partition(e.set, s)).exists()]
        self.played += [(scheme, out) for scheme in dict.fromkeys(scheme for _, scheme in todo)]
        write(out, {(e, s): rows(e, s, [self.mbps[s]] * 2, [11, 11]) for e, s in todo})

    def collect(self, environments: Sequence[Environment], schemes: Sequence[str], raw: Path, *_: object) -> None:
        self.play(environments, schemes, raw)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    found = Lab()
    for name, value in {
        "collect": found.collect,
        "lab_runner": lambda kernel, jobs: found.play,
        "kernel_identity": lambda kernel, schemes: found.kernels[schemes[0]],
        "driver_sha256": lambda scheme: found.driver,
    }.items():
        monkeypatch.setattr(kept, name, value)
    monkeypatch.setattr("sagecc.leagues.league.driver_sha256", lambda scheme: found.driver)
    return found


def met(*names: str, networks: Sequence[Environment] = ENVIRONMENTS, raw: str = "raw") -> Contest:
    return contest("smoke", smoke(*networks), {name: PLAYERS[name] for name in names}, Path(raw), Path("kernel"), 1)


def test_what_was_played_is_kept_and_gives_the_league_that_trajectories_give(lab: Lab) -> None:
    first, again = met("vegas", "reno", "models/own"), met("vegas", "reno", "models/own")
    place = kept.PLAYED / "smoke" / "models/own" / "raw"
    assert lab.played == [("vegas", Path("raw")), ("reno", Path("raw")), (OWN, place)]
    assert again.scores.equals(first.scores)
    assert again.episodes == first.episodes
    whole = find_episodes([Path("raw"), place], ENVIRONMENTS, ["vegas", "reno", OWN])
    scores = score(ENVIRONMENTS, ["vegas", "reno", OWN], whole)
    named = scores.with_columns(pl.col("scheme").replace(OWN, "models/own"))
    assert again.standings().equals(standings(mark_winners(named)))
    for (network, name), episode in again.episodes.items():
        own = whole[network, PLAYERS[name]]
        assert (episode.loss_rate, episode.goodput_mbps) == (own.loss_rate, own.goodput_mbps)


def test_one_more_joins_who_is_kept(lab: Lab) -> None:
    lab.play(ENVIRONMENTS, [OWN], Path("own"))
    found = met("vegas", "reno").joined_by(OWN, find_episodes([Path("own")], ENVIRONMENTS, [OWN]))
    everyone = met("vegas", "reno", "models/own")
    assert found.scores.equals(everyone.scores.with_columns(pl.col("scheme").replace("models/own", OWN)))
    assert found.episodes.keys() == {(e.id, name) for e in ENVIRONMENTS for name in ("vegas", "reno", OWN)}


@pytest.mark.parametrize("changed", ["vegas", "models/own"])
def test_only_who_changed_plays_anew(lab: Lab, changed: str) -> None:
    before, scheme = met("vegas", "reno", "models/own"), PLAYERS[changed]
    if is_driven(scheme):
        lab.driver = "5678"
    else:
        lab.kernels[scheme] = "another"
    lab.mbps[scheme] = 3.0
    lab.played.clear()
    after = met("vegas", "reno", "models/own", raw="later")
    assert [who for who, _ in lab.played] == [scheme]
    others = pl.col("scheme") != changed
    assert after.scores.filter(others).equals(before.scores.filter(others))
    assert set(after.scores.filter(~others)["goodput_mbps"]) == {3.0}
    assert after.episodes.keys() == before.episodes.keys()
    assert met("reno").scores.equals(after.scores.filter(scheme="reno"))
    assert len(lab.played) == 1


def test_a_policy_that_is_gone_is_taken_as_it_is_kept(lab: Lab) -> None:
    networks, name = smoke(*ENVIRONMENTS), "models/own"
    assert not is_kept("smoke", networks, name, Path("kernel"))
    before = met("vegas", name)
    lab.driver, lab.kernels[POLICY_PREFIX] = "5678", "linux"
    assert is_kept("smoke", networks, name, Path("kernel"))
    after = contest("smoke", networks, {"vegas": "vegas", name: None}, Path("raw"), Path("kernel"), 1)
    assert after.scores.equals(before.scores)
    assert len(lab.played) == 2
    assert not is_kept("smoke", smoke(*ENVIRONMENTS[:2]), name, Path("kernel"))
    assert not is_kept("smoke", networks, "vegas", Path("kernel"))
    lab.kernels[POLICY_PREFIX] = "another"
    assert not is_kept("smoke", networks, name, Path("kernel"))


def test_what_was_played_elsewhere_is_not_taken(lab: Lab) -> None:
    met("vegas", "reno")
    found = met("vegas", "reno", networks=ENVIRONMENTS[:2], raw="other")
    assert lab.played[2:] == [("vegas", Path("other")), ("reno", Path("other"))]
    assert set(found.scores["environment_id"]) == {environment.id for environment in ENVIRONMENTS[:2]}
    assert len(found.episodes) == 4


def test_a_pools_folder_gets_its_own_schemes_alone(lab: Lab) -> None:
    met("vegas", "copa", "models/own")
    own = kept.PLAYED / "smoke"
    assert lab.played == [("vegas", Path("raw")), ("copa", own / "copa"), (OWN, own / "models/own" / "raw")]


def test_a_damaged_file_is_one_clear_line(lab: Lab) -> None:
    met("vegas", "models/own")
    path = kept.path_of("smoke")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SageccError, match=r"smoke.parquet is damaged .*: remove it and start again"):
        met("vegas", "models/own")


def _kept_and_due(networks: str, names: Sequence[str], kernel: Path) -> list[tuple[str, Any, str]]:
    found = []
    for name in names:
        scheme = f"{POLICY_PREFIX}{name}" if name.startswith("models/") else name
        due = kept.deciding(networks_of(networks), scheme, kernel)
        found.append((name, kept.decided(ROOT / kept.path_of(networks)).get(name), due))
    return found


def test_what_is_kept_of_heuristics_is_of_the_present_networks_and_kernel(kernel: Path) -> None:
    """Whoever judges a policy from a fresh clone collects nothing."""
    plan = read_plan(ROOT / RUNS)
    for networks in (*plan.leagues, *plan.harm):
        names = tuple(SCHEMES) if networks in plan.leagues else (REFERENCE,)
        for name, decided, due in _kept_and_due(networks, names, kernel):
            assert decided == due, f"{name} in {networks}: python -m evidence.training.run"


def test_what_is_kept_of_rivals_is_of_the_present_kernel_and_their_code(kernel: Path) -> None:
    """Whoever adds a rival to the papers' leagues plays it alone; clones are trained, and play, on each machine."""
    names = {name for names in LEAGUES.values() for name in names} - {*SCHEMES, *VARIABLES, *CLONES}
    there = sorted(name for name in names if name not in RIVALS or (ROOT / name).is_dir())
    for networks in RAW:
        for name, decided, due in _kept_and_due(networks, there, kernel):
            assert decided in (due, None), f"{name} in {networks}: python -m evidence.leagues.rival_leagues"
