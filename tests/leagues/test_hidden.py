# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import sagecc.analysis
import sagecc.commands.tsne as tsne_command
import sagecc.sets
from sagecc.collector.lab.episode import run_episode
from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.shipped import BEST_POLICY
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab.controllers import policy_controller
from sagecc.leagues.hidden import HEADS, MAP_SCHEMA, HiddenLayer, _samples, draw_map, last_hidden
from sagecc.policy import artefact
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.residual import NetworkSizes
from tests.conftest import ROOT
from tests.helpers.league_episodes import set_two, smoke, write
from tests.helpers.lively import lively
from tests.helpers.networks import network

POLICY = ROOT / "models" / "sagecc-1"


def test_the_policy_decides_again_what_it_decided(kernel: Path) -> None:
    scheme = f"policy:{POLICY}"
    environment = network(duration_s=6)
    raw = run_episode(kernel, environment, scheme, 0, policy_controller(environment, scheme, 0)).rows
    t_s, values, windows = last_hidden(POLICY, raw)
    recorded = raw["cwnd_pkts"].to_numpy()
    assert np.array_equal(windows[:-1], recorded[1:])
    assert len(set(recorded.tolist())) > 10
    period_s = PolicyArtefact.load(POLICY).control.period_ms / 1000
    assert np.diff(t_s) == pytest.approx(period_s, abs=1e-6)
    assert len(t_s) == -(-raw.num_rows // round(period_s * 100))
    sizes = PolicyArtefact.load(POLICY).sizes
    assert isinstance(sizes, NetworkSizes)
    assert values.shape == (len(t_s), sizes.width)


def test_a_policy_behind_a_slow_start_decides_again_too(kernel: Path, tmp_path: Path) -> None:
    """It reads columns that no feature needs."""
    of = PolicyArtefact.load(POLICY)
    control = replace(of.control, slow_start="acked", window_bound=2.0)
    path = tmp_path / "started"
    artefact.write(path, of.weights, of.sizes, of.scaling, of.observations, {}, control=control)
    scheme, environment = f"policy:{path}", network(duration_s=6)
    raw = run_episode(kernel, environment, scheme, 0, policy_controller(environment, scheme, 0)).rows
    t_s, _, windows = last_hidden(path, raw)
    assert np.array_equal(windows[:-1], raw["cwnd_pkts"].to_numpy()[1:])
    assert t_s[0] > raw["t_s"][0].as_py()


def test_it_is_what_the_head_turns_into_the_answer() -> None:
    """With the layer's output in place of everything before it, the network answers the same."""
    policy = PolicyArtefact.load(POLICY)
    raw = lively(set_two(), f"policy:{POLICY}", 200, 0)
    _, values, _ = last_hidden(POLICY, raw)
    answers: list[tuple[Floats, Floats]] = []

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        answer = policy.step(observation, hidden)
        answers.append(answer[:2])
        return answer

    agent = PolicyAgent(policy, step=step)
    for sample in _samples(raw):
        agent(sample)
    for i, part in enumerate(("logits", "loc")):
        by_hand = values @ policy.weights[f"head.{part}.w"] + policy.weights[f"head.{part}.b"]
        np.testing.assert_allclose(by_hand, [answer[i][0] for answer in answers], atol=1e-3)


@pytest.mark.parametrize("name", [BEST_POLICY, "indigo-1"])
def test_other_kinds_of_networks_have_one_too(kernel: Path, name: str) -> None:
    """A network that learned in labs decides again what it decided; its layer tells one window from another."""
    path = ROOT / "models" / name
    scheme, environment = f"policy:{path}", network(duration_s=6)
    raw = run_episode(kernel, environment, scheme, 0, policy_controller(environment, scheme, 0)).rows
    t_s, values, windows = last_hidden(path, raw)
    assert np.array_equal(windows[:-1], raw["cwnd_pkts"].to_numpy()[1:])
    policy = PolicyArtefact.load(path)
    assert values.shape == (len(t_s), len(policy.weights[HEADS[policy.sizes.kind]]))
    assert len(np.unique(values, axis=0)) > 10


def test_every_kind_has_a_head() -> None:
    assert HEADS.keys() == artefact.NETWORKS.keys()


def layer(name: str, centre: float, count: int, seed: int) -> HiddenLayer:
    values = np.random.default_rng(seed).normal(centre, 1, (count, 5)).astype(np.float32)
    return HiddenLayer("II", name, np.arange(count, dtype=np.float64) * np.float64(0.05), values)


def test_layers_that_tell_networks_apart_and_such_as_do_not() -> None:
    table, known = draw_map("policy:p", [layer("a", 0, 80, 0), layer("b", 50, 120, 1)], 60, 0)
    assert dict(table.schema) == MAP_SCHEMA
    assert table["environment_id"].to_list() == ["a"] * 60 + ["b"] * 60
    assert (table["t_s"][0], table["t_s"][59]) == (0.0, 79 * 0.05)
    assert known["apart"] == 1.0
    assert known["by_chance"] == pytest.approx(59 / 119)
    a, b = (table.filter(pl.col("environment_id") == name).select("x", "y").to_numpy() for name in "ab")
    assert np.linalg.norm(a.mean(axis=0) - b.mean(axis=0)) > 2 * max(a.std(), b.std())
    _, mixed = draw_map("policy:p", [layer("a", 0, 60, 0), layer("b", 0, 60, 1)], 60, 0)
    assert mixed["apart"] == pytest.approx(0.5, abs=0.1)


def test_same_seed_same_map() -> None:
    layers = [layer("a", 0, 40, 0), layer("b", 3, 40, 1)]
    assert draw_map("p", layers, 40, 3)[0].equals(draw_map("p", layers, 40, 3)[0])


def test_a_map_needs_points() -> None:
    with pytest.raises(SageccError, match="1 decisions make no map"):
        draw_map("p", [layer("a", 0, 1, 0)], 10, 0)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments = (set_two(12), set_two(24))
    scheme = f"policy:{POLICY}"

    def lab(kernel: Path, jobs: int) -> object:
        def run(wanted: object, policies: object, out: Path) -> None:
            write(out, {(e, scheme): lively(e, scheme, 400, i) for i, e in enumerate(environments)})

        return run

    monkeypatch.setattr(sagecc.sets, "profile_set", lambda name: smoke(*environments))
    monkeypatch.setattr(sagecc.analysis, "lab_runner", lab)
    options = ["--policy", str(POLICY), "--points", "20", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(
        tsne_command.command, [*options, "--league", str(tmp_path / "none")], catch_exceptions=False
    )
    assert result.exit_code == 0
    files = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert files == {"tsne.parquet", "tsne.json", "tsne.png"}
    known = json.loads((tmp_path / "out/tsne.json").read_text())
    assert known["maps"][0]["points"] == 40
    assert set(pl.read_parquet(tmp_path / "out/tsne.parquet")["environment_id"]) == {e.id for e in environments}
