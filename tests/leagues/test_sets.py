# SPDX-License-Identifier: Apache-2.0
"""Leagues over sets of one's own, and over repeats, by hand; the commands that take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

import sagecc.commands.collect as collect_command
import sagecc.commands.league as league_command
from sagecc.cli import cli
from sagecc.collector.run.set_file import load_set
from sagecc.common.errors import SageccError
from sagecc.leagues import table
from sagecc.leagues.intervals import student_t
from sagecc.leagues.league import play, save, summary
from sagecc.leagues.report.files import write_beside
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_set import EnvironmentSet, repeated
from tests.helpers.league_episodes import StubLab, rows, set_one, smoke, write

pytestmark = pytest.mark.heavy

SET = """
name: mine
grids:
  - bandwidth_mbps: [12]
    rtt_ms: [20]
    queue_bdp: [1]
    cross: [[], [{scheme: cubic}]]
    duration_s: 4
    windows_s: [[1, 2], [2, 4]]
    tags: {place: here}
"""
SCHEMES = ("cubic", "vegas")
RATES = {"cubic": ([9, 9], [40, 40]), "vegas": ([7, 7], [12, 12])}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentSet:
    """The set, and its heuristics' trajectories where they lie by default."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(SET)
    networks = load_set("mine.yaml")
    write(Path("datasets/sets/mine"), {(e, s): rows(e, s, *RATES[s]) for e in networks.environments for s in SCHEMES})
    return networks


def no_lab(environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
    raise AssertionError("a league of heuristics needs no lab")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_each_network_by_its_own_rule(mine: EnvironmentSet) -> None:
    """Alone 49/22 beats 81/50; beside Cubic, |6 - 7| beats |6 - 9|; of 6 Mbps, 9 x 1500/1448 leave 2.68."""
    league = play(mine, SCHEMES, Path("datasets/sets/mine"), Path("out"), no_lab)
    assert set(league.wins["metric"]) == {"power", "friendliness"}
    assert league.standings.select("set", "scheme", "wins", "windows", "environments").rows() == [
        ("mine", "vegas", 4, 4, 2),
        ("mine", "cubic", 0, 4, 2),
    ]
    told = summary(league)
    assert (told["profile"], told["environments"], told["windows"]) == ("mine", {"mine": 2}, {"mine": 4})
    assert "repeats" not in told
    cubic = {row["scheme"]: row for row in told["harm"]}["cubic"]  # type: ignore[attr-defined]
    assert (cubic["beside"], cubic["taken_mean"]) == (1, pytest.approx(1 - (12 - 9 * 1500 / 1448) / 6, abs=1e-3))


def test_tags_break_it_down(mine: EnvironmentSet) -> None:
    out = Path("out")
    save(play(mine, SCHEMES, Path("datasets/sets/mine"), out, no_lab), out)
    found = pl.read_parquet(out / "tags.parquet").select("class", "value", "scheme", "wins", "windows").rows()
    assert found == [
        (name, value, scheme, wins, windows)
        for name, value, windows in (("beside", "cubic", 2), ("beside", "none", 2), ("place", "here", 4))
        for scheme, wins in (("cubic", 0), ("vegas", windows))
    ]
    page = write_beside(out, Path("datasets/sets/mine")).read_text()
    assert "Set <b>mine</b>: 2 environments (4 scoring windows) in Set mine." in page
    assert "Set mine, by beside" in page
    assert "20 ms, queue 1 BDP, beside cubic, place here</option>" in page
    assert "competitors lost, mean" in page
    assert json.loads((out / "league.json").read_text())["files"].keys() >= {"tags.parquet"}
    (out / "tags.parquet").write_bytes(b"")
    with pytest.raises(SageccError, match=r"tags\.parquet: is not the file that"):
        write_beside(out, Path("datasets/sets/mine"))


def test_what_another_league_left_is_removed(mine: EnvironmentSet) -> None:
    out, raw = Path("out"), Path("datasets/sets/mine")
    save(play(mine, SCHEMES, raw, out, no_lab), out)
    assert (out / "tags.parquet").exists()
    save(play(smoke(*mine.environments), SCHEMES, raw, out, no_lab), out)
    assert not (out / "tags.parquet").exists()


def of_three(tmp_path: Path) -> EnvironmentSet:
    """One network three times: vegas wins both windows of the first two repeats and, too slow, none of the last."""
    networks = repeated(smoke(set_one(12)), 3)
    seeds, slow = networks.seeds(0), ([2, 2], [12, 12])
    write(
        tmp_path / "raw",
        {
            (each, scheme): rows(each, scheme, *figures, seed=seeds.get(each.id, 0))
            for number, each in enumerate(networks.environments)
            for scheme, figures in {**RATES, "vegas": slow if number == 2 else RATES["vegas"]}.items()
        },
    )
    return networks


def test_repeats_by_hand(tmp_path: Path) -> None:
    networks = of_three(tmp_path)
    league = play(networks, SCHEMES, tmp_path / "raw", tmp_path / "out", no_lab)
    assert sorted(set(league.wins["seed"])) == [0, 1, 2]
    standings = {row["scheme"]: row for row in league.standings.to_dicts()}
    assert (standings["vegas"]["wins"], standings["vegas"]["windows"], standings["vegas"]["environments"]) == (4, 6, 1)
    # One network alone can be drawn: its repeats are no networks of their own.
    assert (standings["vegas"]["low"], standings["vegas"]["high"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert league.repeats is not None
    of_all = league.repeats.filter((pl.col("class") == "all") & (pl.col("quantity") == "winning_rate"))
    (vegas,) = of_all.filter(pl.col("scheme") == "vegas").to_dicts()
    assert (vegas["set"], vegas["repeats"], vegas["mean"]) == ("I", 3, pytest.approx(2 / 3))
    assert vegas["deviation"] == pytest.approx(3**-0.5)  # of 1, 1 and 0
    assert (vegas["low"], vegas["high"]) == (0, 1)  # 2/3 +- 4.303 / 3, cut where a share ends
    assert student_t(2) * 3**-0.5 / 3**0.5 > 2 / 3
    by_rtt = league.repeats.filter((pl.col("class") == "min_rtt_ms") & (pl.col("scheme") == "vegas"))
    assert by_rtt.select("value", "mean").rows() == [("20.0", pytest.approx(2 / 3))]
    losses = league.repeats.filter((pl.col("quantity") == "loss_mean") & (pl.col("scheme") == "vegas"))
    assert losses.select("set", "mean", "deviation").rows() == [("", 0, 0)]


def test_repeats_are_told_in_every_form(tmp_path: Path) -> None:
    networks, out = of_three(tmp_path), tmp_path / "out"
    league = play(networks, SCHEMES, tmp_path / "raw", out, no_lab)
    assert league.repeats is not None
    save(league, out)
    told = summary(league)
    assert (told["environments"], told["windows"], told["episodes"]) == ({"I": 1}, {"I": 2}, 6)
    text = table.text(told).splitlines()
    (start,) = [index for index, line in enumerate(text) if line.startswith("over 3 repeats")]
    assert text[start + 1].startswith("vegas           66.7 % +- 57.7 [0.0, 100.0]")
    assert table.repeats({**told, "repeats": []}) == []
    assert pl.read_parquet(out / "repeats.parquet").equals(league.repeats)
    page = write_beside(out, tmp_path / "raw").read_text()
    assert "in Set I, each 3 times." in page
    assert "Over repeats" in page
    assert page.count("12 Mbps, 20 ms, queue 1 BDP</option>") == 1  # of the network as planned


def test_beside_a_policy_heuristics_play_in_the_league_too(mine: EnvironmentSet, tmp_path: Path) -> None:
    """A collection has nothing to run the policy with; where it changes, all that it flew beside is run again."""
    card = tmp_path / "models/rival/card.json"
    card.parent.mkdir(parents=True)
    card.write_text("1")
    Path("mine.yaml").write_text(SET.replace("scheme: cubic", "scheme: policy:models/rival"))
    networks, lab, raw, out = load_set("mine.yaml"), StubLab(mbps=6), Path("datasets/sets/mine"), Path("out")
    league = play(networks, SCHEMES, raw, out, lab)
    assert lab.calls == [SCHEMES]
    alone, beside = networks.environments
    goodputs = {(row["environment_id"], row["scheme"]): row["goodput_mbps"] for row in league.wins.to_dicts()}
    assert goodputs[alone.id, "vegas"] == pytest.approx(7)  # as it was collected
    assert goodputs[beside.id, "vegas"] == pytest.approx(6)
    assert league.policies.keys() == {"policy:models/rival"}
    card.write_text("2")
    again = play(networks, SCHEMES, raw, out, StubLab(mbps=5))
    assert again.wins.filter(pl.col("environment_id") == beside.id)["goodput_mbps"].to_list() == pytest.approx([5] * 4)


def test_a_collection_leaves_networks_beside_policies_out(
    mine: EnvironmentSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[Environment] = []
    monkeypatch.setattr(collect_command, "collect", lambda environments, *_, **__: collected.extend(environments))
    Path("mine.yaml").write_text(SET.replace("scheme: cubic", "scheme: policy:models/rival"))
    said = run("collect", "--environments", "mine.yaml", "--schemes", "cubic").output.splitlines()
    assert said == [
        "left out: 1 networks beside what the host drives, in which 'sagecc league' lets all play",
        "1 episodes of 1 schemes in datasets/sets/mine",
    ]
    assert [environment.cross for environment in collected] == [()]


def test_commands_take_a_set(mine: EnvironmentSet, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = run("environments", "--environments", "mine.yaml", "--count")
    assert listed.output == "2\n"
    played = run("league", "--environments", "mine.yaml", "--schemes", "cubic,vegas")
    assert played.output.splitlines()[-1] == "report: leagues/sets/mine/report.html"
    assert played.output.splitlines()[0].split() == ["rank", "scheme", "Set", "mine"]
    assert run("report", "--environments", "mine.yaml").output.startswith("report: leagues/sets/mine/report.html")
    monkeypatch.setattr(league_command, "lab_runner", lambda *_: StubLab())
    with pytest.raises(SageccError, match=r"8 of 12 episodes are missing.*--environments mine\.yaml --repeats 3"):
        run("league", "--environments", "mine.yaml", "--repeats", "3", "--schemes", "cubic,vegas")


def test_a_policy_that_cannot_drive(mine: EnvironmentSet, tmp_path: Path) -> None:
    """Beside the tested flow as under test: one line that names it, before anything is written."""
    Path("mine.yaml").write_text(SET.replace("scheme: cubic", "scheme: policy:models/nowhere"))
    with pytest.raises(SageccError, match=r"models/nowhere"):
        play(load_set("mine.yaml"), SCHEMES, Path("datasets/sets/mine"), Path("out"), StubLab())
    (tmp_path / "models/broken").mkdir(parents=True)
    (tmp_path / "models/broken/card.json").write_text("{")
    Path("mine.yaml").write_text(SET.replace("scheme: cubic", "scheme: policy:models/broken"))
    with pytest.raises(SageccError, match=r"models/broken"):
        run("league", "--environments", "mine.yaml", "--schemes", "cubic", "--kernel", "none")
    assert not list(Path("leagues").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("collect", "--profile", "small"), "a profile and a set are both asked for: leave one of them out"),
        (("collect", "--set", "I"), "--set goes with --profile: leave it out"),
        (("league", "--repeats", "0"), "--repeats must be 1 or more, not 0"),
        (("pool", "check", "--profile", "small"), "a profile and a set are both asked for"),
        (("distance", "--network", "nowhere"), "--network nowhere: there is no network of that id"),
    ],
)
def test_what_does_not_go_together(mine: EnvironmentSet, arguments: tuple[str, ...], message: str) -> None:
    before = sorted(Path().rglob("*"))
    with pytest.raises(SageccError, match=message):
        run(*arguments, "--environments", "mine.yaml")
    assert sorted(Path().rglob("*")) == before
