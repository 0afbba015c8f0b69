# SPDX-License-Identifier: Apache-2.0
"""Online learners in real labs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sagecc.collector.run.grid import profile_environments
from sagecc.execution.environments.networks import agents, candidates, draw, networks, room
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.learner.online.actor import Actor
from sagecc.learner.online.lab_source import LabExperience
from sagecc.learner.online.replay import Layout, Ring
from sagecc.learner.reader import merged
from sagecc.learner.specification import load, shipped
from sagecc.online import online_task
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.environment import Environment
from sagecc.schemas.network_distribution import NetworkDistribution
from tests.conftest import ROOT

pytestmark = pytest.mark.tensorflow

NETWORKS = {"rate_mbps": 12, "rtt_ms": {"uniform": [20, 40]}, "queue_bdp": 1, "duration_s": 2}
SMALL = {
    "steps": 4,
    "batch": 8,
    "labs": {"count": 2, "replay": 2000, "warm_up": 40, "round_steps": 2, "round_decisions": 30},
}


IN_LABS = [name for name in shipped() if load(name).task is not None]

RECIPES = ROOT / "evidence" / "training" / "recipes"

FLOODS = {"give_up_share": 0.05, "give_up_time_s": 0.5}
"""Some of the episodes of random policies are given up by this."""


def changed(name: str, **changes: Any) -> dict[str, Any]:
    """A shipped configuration on small, short networks."""
    networks = {**NETWORKS, **({"flows": 2, "gap_s": 0.3} if name == "astraea" else {})}
    return {"base": name, **SMALL, "task": {"networks": networks}, **changes}


def test_recipes_differ_in_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"base: {RECIPES}/sagecc-4.yaml\nsteps: 600")
    assert load(str(tmp_path / "mine.yaml")) == load(f"{RECIPES}/sagecc-4.yaml", steps=600)
    three, four = (load(f"{RECIPES}/{name}.yaml") for name in ("sagecc-3", "sagecc-4"))
    assert three.labs and four.labs
    assert (four.round_steps, four.steps) == (3 * three.round_steps, 3 * three.steps)
    assert abs(four.batch * (four.window - 1) - three.batch) < four.window  # as many transitions in an update
    assert four.labs.replay * (four.window - 1) == three.labs.replay  # and in the replay
    eight, ten = load(f"{RECIPES}/sagecc-8.yaml"), load("sagecc-10")
    assert load("labs-tiny", task={"networks": ["full", "training-wide"]}).task == eight.task
    assert ten.changed(algorithm={"drop_every": 400}, control={"window_bound": 1.5}) == eight
    assert load("sagecc-11", steps=ten.steps) == ten


@pytest.mark.parametrize("name", ["astraea", "indigo", "orca"])
def test_an_actor_in_labs_is_restored_bit_for_bit(kernel: Path, tmp_path: Path, name: str) -> None:
    """A lab cannot be saved: the episodes under way are played again."""
    values = changed(name)
    config = load(values.pop("base"), **merged(values, {"labs": FLOODS}))
    task = online_task(config, kernel)
    layout, sizes = Layout(2, len(task.observations), task.states), config.network.sizes(len(task.observations))
    random = np.random.default_rng(0)
    weights = {key: random.normal(0, 0.1, shape).astype(np.float32) for key, shape in sizes.shapes().items()}

    def actor(path: Path) -> tuple[Actor, Any, Ring]:
        labs, ring = task.make_labs(labs=2), Ring(path, layout.size, 2000)
        scaling = LabExperience(config, task, 1).scaling
        made = Actor(labs, 2, sizes, scaling, config.algorithm.exploring(40), layout, ring, seed=1)
        made.weights = weights
        return made, labs, ring

    whole, its_labs, kept = actor(tmp_path / "whole")
    whole.begin()
    whole.play(250)
    state = whole.state()
    whole.play(150)
    its_labs.close()
    again, labs, ring = actor(tmp_path / "again")
    again.restore(state)
    ring.write(0, kept.read(np.arange(again.written)))
    again.play(150)
    labs.close()
    assert again.written == whole.written > 300
    assert again.episodes == whole.episodes > 0
    assert again.given_up == whole.given_up > 0
    positions = np.arange(whole.written)
    assert ring.read(positions).tobytes() == kept.read(positions).tobytes()
    records = kept.read(positions).reshape(-1, 2, layout.row)
    assert np.isfinite(records).all()
    assert len(np.unique(records[:, 0, layout.observations + layout.states + 1])) > 10  # rewards


@pytest.mark.parametrize("name", IN_LABS)
def test_a_shipped_configuration_is_a_task(kernel: Path, name: str) -> None:
    """The papers' inputs: Aurora's 30, Orca's 70, Sage's 69, Indigo's 9; onward's are `offline`'s."""
    task, config = online_task(load(name), kernel), load(name)
    assert task.control.limits == (-1, 1)
    others = {"astraea": 50, "aurora": 30, "indigo": 9, "onward": 68, "orca": 70, "orcav2": 70}
    assert len(task.observations) == config.network.sizes(len(task.observations)).inputs == others.get(name, 69)


def test_a_profiles_networks_are_those_of_both_sets(kernel: Path) -> None:
    """Beside Cubic only the flow under test decides, and earns what the network names."""
    task = online_task(load("orcav2", task={"networks": "smoke"}), kernel)
    labs: Any = task.make_labs(labs=3)
    assert labs.per_lab == 1
    try:
        rows = labs.reset([0, 1, 2], [0, 1, 2])
        drawn = [environment for environment, _ in labs.episodes.values()]
        assert {environment.set for environment in drawn} == {"I", "II"}
        assert rows.flows.tolist() == [0, 0, 0]
        beside = next(lab for lab, environment in enumerate(drawn) if environment.set == "II")
        assert rows.samples["t_ns"][beside] > 5e9
        for _ in range(20):
            rows = labs.step(np.zeros(len(rows.labs)), renew=False)
        assert ((rows.rewards > 0) & (rows.rewards <= 25)).all()
        link = rows.samples[beside]
        assert 0 < link["link_bytes"] < 0.5 * link["link_capacity_bytes"]  # the other flow has had its 5 s
    finally:
        labs.close()
    assert online_task(load("orcav2", task={"networks": "heldout"}), kernel).identity != task.identity


def test_a_network_of_two_sets_is_drawn_twice_as_often() -> None:
    task = LearningTask.of({"networks": ["full", "training-wide"]})
    assert task.networks is not None
    found = candidates(task.networks)
    assert isinstance(found, tuple)
    drawn = Counter(replace(one, set="custom") for one in found if isinstance(one, Environment))
    of_both = {replace(environment, set="custom") for environment in profile_environments("full")}
    assert {drawn[network] for network in of_both} == {2}
    assert {count for network, count in drawn.items() if network not in of_both} == {1}


def test_a_distribution_among_networks_is_drawn_as_often_as_it_counts() -> None:
    """sagecc-5's: 80 of its own kind beside the networks of three sets."""
    task = LearningTask.of(load(f"{RECIPES}/sagecc-5.yaml").task or {})
    assert task.networks is not None
    found = candidates(task.networks)
    assert isinstance(found, tuple)
    drawn = [one for one in found if isinstance(one, NetworkDistribution)]
    assert (len(drawn), len(set(drawn)), len(found)) == (80, 1, 1099 + 1666 + 80 + 80)
    assert (room(found, "own"), room(found, None), room(found, (0, 2))) == (3, 6, 3)
    random = np.random.default_rng(0)
    sets = Counter(draw(found, None, random)[0].set for _ in range(3000))
    assert sets["custom"] / 3000 == pytest.approx(80 / len(found), abs=0.01)
    own = next(one for one, _ in (draw((drawn[0],), None, random) for _ in range(99)) if one.flow_count > 2)
    assert agents(own, "own") == tuple(range(own.flow_count))


def test_nobody_learns_in_the_networks_that_judge() -> None:
    """None of `heldout`, nor at the rate that the evaluation study has beside several Cubics."""
    company = networks("training-company")
    judged = {(e.bandwidth_mbps, e.min_rtt_ms, e.queue_bytes) for e in profile_environments("heldout")}
    assert not judged & {(e.bandwidth_mbps, e.min_rtt_ms, e.queue_bytes) for e in company}
    assert 100 not in {e.bandwidth_mbps for e in company}


def test_a_configuration_gives_episodes_up_unless_told(kernel: Path) -> None:
    """What it says is the labs' rule; by default that of leagues and growing."""
    rules = [
        online_task(load("orca", labs=changes), kernel).make_labs.keywords["give_up"]  # type: ignore[attr-defined]
        for changes in ({}, {"give_up_share": 0.5, "give_up_time_s": 2.0}, {"give_up_share": 0.0})
    ]
    assert rules == [GiveUp(), GiveUp(0.5, 2.0), None]


@pytest.mark.parametrize("name", ["astraea", "indigo", "orca"])
def test_a_policy_trained_in_labs_says_how_it_is_run(kernel: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(changed(name)))
    words = ["train", "--config", "small.yaml", "--out", "policy", "--logs", "logs", "--kernel", str(kernel)]
    call = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sagecc.cli import main; main()"]
    done = subprocess.run([*call, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 steps in")
    policy = PolicyArtefact.load(tmp_path / "policy")
    task = online_task(load(name), kernel)
    assert (policy.source, policy.observations, policy.control) == (task.source, task.observations, task.control)
    assert policy.sizes.kind == {"indigo": "choice"}.get(name, "mlp")
    assert policy.card["training"]["steps"] == 4
