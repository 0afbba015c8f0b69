# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evidence.training.run import RUNS
from evidence.training.runs import Grow, KeepBest, Plan, Run, learned_from, read_plan
from sagecc.common.errors import SageccError
from sagecc.learner.specification import load
from tests.conftest import ROOT

PLAN = """
base: tiny
pool: datasets/pool
leagues: {heldout: raw, smoke: other}
runs:
  plain:
  wide: {changes: {network: {width: 48}, algorithm: {discount: 0.95}}, seed: 3, steps: 7, pool: datasets/full/pool}
  top: {config: no-gru, changes: {data: {selection: {schemes: [vegas]}}}}
  kept: {keep_best: {league: smoke, every: 10}}
"""
GROWN = PLAN + "  grown: {grow: {profile: smoke, rounds: 2, steps: 5}}\n"
LABS = PLAN + "  labs: {config: orca, actors: 2, seed: 1, steps: 40}\n"


def plan(tmp_path: Path, text: str = PLAN) -> Plan:
    (tmp_path / "runs.yaml").write_text(text)
    return read_plan(tmp_path / "runs.yaml")


def fingerprint(run: Run, pool: str = "p", kernel: str = "k", profile: str = "smoke") -> str:
    return run.fingerprint(pool, kernel, Plan({}, {profile: Path("raw")}))


def test_a_run_is_its_configuration_and_what_differs_from_the_base(tmp_path: Path) -> None:
    runs = plan(tmp_path).runs
    assert runs["plain"] == Run("plain", "tiny", {}, load("tiny"), 0, Path("datasets/pool"))
    wide = runs["wide"]
    assert (wide.seed, wide.pool) == (3, Path("datasets/full/pool"))
    assert wide.changes == {"network": {"width": 48}, "steps": 7}
    assert wide.config == load("tiny", network={"width": 48}, steps=7)
    top = runs["top"]
    assert top.changes["network"]["gru"] == 0
    assert top.changes["network"]["width"] == 64
    assert top.changes["data"]["selection"]["schemes"] == ("vegas",)
    assert "discount" not in top.changes["algorithm"]


def test_a_run_that_learns_in_labs_has_no_pool(tmp_path: Path) -> None:
    run = plan(tmp_path, LABS).runs["labs"]
    config = load("orca", steps=40)
    assert run == Run("labs", "orca", {"steps": 40}, config, 1, None, actors=2)
    others = [replace(run, actors=1), replace(run, seed=2), replace(run, config=load("orca", steps=60))]
    assert len({fingerprint(other) for other in (run, *others)} | {fingerprint(run, pool="another task")}) == 5


def test_a_run_goes_on_from_the_policy_of_another_with_its_seed(tmp_path: Path) -> None:
    text = PLAN + "  first: {seeds: [0, 2]}\n  on: {config: onward, from: first, pool: other, seeds: [0, 2]}\n"
    run = plan(tmp_path, text).runs["on-2"]
    assert run == Run("on-2", "onward", {}, load("onward"), 2, Path("other"), start="first-2")
    assert learned_from("task", None, None) == "task"
    some = [learned_from("task", *of) for of in ((None, None), ("policy", None), (None, "pool"), ("policy", "pool"))]
    assert len(set(some)) == 4
    for old, new, told in (
        ("from: first", "from: second", "from: 'second' is no run above it"),
        ("from: first", "from: on", "from: 'on' is no run above it"),
        ("config: onward, from", "config: tiny, from", "'from' is for what learns in labs"),
        ("config: onward", "config: sagecc-10", "'pool' is for what learns from a pool"),
    ):
        with pytest.raises(SageccError, match=told):
            plan(tmp_path, text.replace(old, new))


def test_a_run_with_a_growing_pool(tmp_path: Path) -> None:
    run = plan(tmp_path, GROWN).runs["grown"]
    assert run == Run("grown", "tiny", {}, load("tiny"), 0, Path("datasets/pool"), grow=Grow("smoke", 2, 5))
    others = [replace(run, grow=grow) for grow in (None, Grow("smoke", 1, 5), Grow("smoke", 2, 6), Grow("small", 2, 5))]
    assert len({fingerprint(other) for other in (run, *others)}) == 5


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("rounds: 2, ", "", "run 'grown': grow: 'rounds' is missing"),
        ("rounds: 2", "rounds: 0", "run 'grown': grow: rounds: at least 1, not 0"),
        ("steps: 5", "steps: yes", "run 'grown': grow: 'steps' must be of type int"),
        ("profile: smoke", "profile: large", "run 'grown': grow: unknown profile 'large'"),
        ("grow: {", "keep_best: {league: smoke, every: 10}, grow: {", "run 'grown': 'grow' and 'keep_best'"),
        ("grow: {", "config: orca, grow: {", "run 'grown': 'grow' is for what learns from a pool"),
    ],
)
def test_a_bad_growth_is_one_line(tmp_path: Path, old: str, new: str, text: str) -> None:
    line = GROWN.splitlines()[-1]
    assert old in line
    with pytest.raises(SageccError, match=text) as error:
        plan(tmp_path, GROWN.replace(line, line.replace(old, new)))
    assert "\n" not in str(error.value)


def test_a_recipe_with_seeds_is_a_run_for_each(tmp_path: Path) -> None:
    runs = plan(tmp_path, PLAN + "  several: {changes: {network: {width: 16}}, seeds: [0, 2]}\n").runs
    assert [(run.name, run.seed, run.config) for run in (runs["several"], runs["several-2"])] == [
        ("several", 0, load("tiny", network={"width": 16})),
        ("several-2", 2, load("tiny", network={"width": 16})),
    ]


def test_chosen_runs(tmp_path: Path) -> None:
    found = plan(tmp_path)
    assert [run.name for run in found.chosen(())] == ["plain", "wide", "top", "kept"]
    assert [run.name for run in found.chosen(("top",))] == ["top"]
    with pytest.raises(SageccError, match=r"'tall'.*plain, wide, top, kept"):
        found.chosen(("tall",))


def test_a_fingerprint_is_what_decides_the_result_and_nothing_else(tmp_path: Path) -> None:
    run, other = plan(tmp_path).runs["plain"], plan(tmp_path).runs["wide"]
    same = Run("renamed", "small", {"x": 1}, load("tiny", algorithm={"discount": 0.95}), 0, Path("elsewhere"))
    assert fingerprint(run) == fingerprint(same)
    reseeded = Run("plain", "tiny", {}, load("tiny"), 1, Path("datasets/pool"))
    others = {
        fingerprint(other),
        fingerprint(reseeded),
        fingerprint(run, pool="q"),
        fingerprint(run, kernel="q"),
        fingerprint(run, profile="heldout"),
        run.fingerprint("p", "k", Plan({}, {"smoke": Path("raw")}, {"lossy": Path("raw")})),
        fingerprint(plan(tmp_path).runs["kept"]),
        fingerprint(replace(run, keep_best=KeepBest("smoke", 20))),
        fingerprint(replace(run, keep_best=KeepBest("smoke", 10, "smoke"))),
    }
    assert len(others - {fingerprint(run)}) == 9


def test_a_plan_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs.yaml").write_bytes(PLAN.encode() + b"\xff")
    with pytest.raises(SageccError, match=r"runs\.yaml: cannot be read"):
        read_plan(tmp_path / "runs.yaml")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("base: tiny", "base: huge", "run 'plain': no training configuration 'huge'"),
        ("base: tiny", "bass: tiny", "'bass'.*base, pool, leagues, harm, runs"),
        ("base: tiny\n", "", "'base' is missing or empty"),
        ("heldout: raw", "large: raw", "unknown profile 'large'"),
        ("heldout: raw", "heldout: [raw]", "leagues: 'heldout' needs the folder"),
        ("runs:", "harm: {lossy: 3}\nruns:", "harm: 'lossy' needs the folder"),
        ("runs:", "harm: {lossless: raw}\nruns:", "harm: .*lossless"),
        ("width: 48", "widht: 48", "run 'wide': .*unknown field widht"),
        ("seed: 3", "seed: -3", "'wide'.*seed.* 0"),
        ("seed: 3", "seed: true", "'wide'.*'seed'.*int.*True"),
        ("seed: 3", "sead: 3", "run 'wide': unknown field 'sead'"),
        ("seed: 3", "seeds: []", "run 'wide': 'seeds' must be a list of whole numbers"),
        ("seed: 3", "seeds: [1, yes]", "run 'wide': 'seeds' must be a list"),
        ("seed: 3", "seed: 3, seeds: [1]", "run 'wide': 'seed' and 'seeds'"),
        ("seed: 3", "seeds: [4, 4]", "run 'wide': there are two runs 'wide-4'"),
        ("  plain:", "  Plain Run:", "a run's name has small letters"),
        ("runs:", "runs: [", "no YAML"),
        ("league: smoke", "league: small", "'kept'.*keep_best: 'small'"),
        ("every: 10", "each: 10", "run 'kept': keep_best: unknown field 'each'"),
        (", every: 10", "", "'kept'.*keep_best: 'every'"),
        ("every: 10", "every: 10, curve: small", "'kept'.*keep_best: 'small'"),
        ("every: 10", "every: -1", "'kept'.*keep_best: .*-1"),
        ("seed: 3", "actors: 2", "'wide': 'actors' is for what learns in labs"),
        ("plain:\n", "plain: {pool: raw, config: orca}\n", "'plain': 'pool' is for what learns from a pool"),
    ],
)
def test_bad_plans_are_one_line(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in PLAN
    with pytest.raises(SageccError, match=text) as error:
        plan(tmp_path, PLAN.replace(old, new))
    assert str(tmp_path / "runs.yaml") in str(error.value) or "profile" in text
    assert "\n" not in str(error.value)


def test_no_plan(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"none.yaml: there is no such file of runs"):
        read_plan(tmp_path / "none.yaml")


def test_the_projects_own_plan_is_sound() -> None:
    found = read_plan(ROOT / RUNS)
    assert next(iter(found.leagues)) == "heldout"
    configurations = [
        (run.config, run.seed, run.pool, run.actors, run.keep_best, run.grow) for run in found.runs.values()
    ]
    assert all(configurations.count(one) == 1 for one in configurations), "two runs are the same"


def test_a_recipes_seeds_are_the_runs_of_its_configuration() -> None:
    found = read_plan(ROOT / RUNS)
    assert found.of_configuration("sagecc-11") == ["sagecc-11", *(f"sagecc-11-{seed}" for seed in range(1, 5))]
    assert found.of_configuration("none") == []


@pytest.mark.parametrize(
    ("plan", "whole"), [("parts.yaml", "offline-wander"), ("cures.yaml", "offline"), ("variants.yaml", "sagecc-12")]
)
def test_each_part_of_the_recipe_is_tried_with_three_seeds(plan: str, whole: str) -> None:
    runs = read_plan(ROOT / RUNS.with_name(plan)).runs
    assert {run.seed for run in runs.values()} == {0, 1, 2}
    base = read_plan(ROOT / RUNS).runs[whole]
    assert all((run.config, run.pool) != (base.config, base.pool) for run in runs.values())
    assert {run.base for run in runs.values()} == {whole}


def test_other_rules_at_work_are_another_run_and_the_same_training() -> None:
    plan = read_plan(ROOT / RUNS)
    run = plan.runs["offline"]
    careful = replace(run, config=run.config.changed(control={"window_bound": 1.3}))
    longer = replace(run, config=run.config.changed(steps=run.config.steps + 1))
    assert careful.training("pool") == run.training("pool") != longer.training("pool")
    assert careful.fingerprint("pool", "kernel", plan) != run.fingerprint("pool", "kernel", plan)
    assert run.training("another") != run.training("pool") != replace(run, seed=1).training("pool")


def test_seeds_are_of_one_recipe() -> None:
    first = read_plan(ROOT / RUNS).runs["offline-wander"]
    seeds = [
        replace(first, name=name, seed=seed) for name, seed in (("offline-wander-1", 1), ("offline-wander-12", 12))
    ]
    assert {run.recipe for run in (first, *seeds)} == {"offline-wander"}
