# SPDX-License-Identifier: Apache-2.0
"""Every shipped configuration on a small pool of 13 schemes and all sets that one names."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.core import Batch
from sagecc.learner.data import ALL, WindowSampler
from sagecc.learner.pool_source import PoolWindows
from sagecc.learner.specification import load, shipped
from tests.conftest import ROOT
from tests.helpers.specifications import learner, varied
from tests.learner.conftest import episode, scores, write_part

pytestmark = pytest.mark.tensorflow

SCHEMES = tuple(yaml.safe_load((ROOT / "params.yaml").read_text())["schemes"])
EVERYTHING = {(set_, scheme) for set_ in ("I", "II") for scheme in SCHEMES} | {("together", "reno"), ("mates", "reno")}
WINNERS = {("I", "cubic"), ("II", "vegas"), ("II", "reno")}


def both_sets(*schemes: str) -> set[tuple[str, str]]:
    return {(set_, scheme) for set_ in ("I", "II") for scheme in schemes}


TOP4_I, TOP4_II = ("vegas", "bbr2", "yeah", "illinois"), ("cubic", "htcp", "bic", "highspeed")
SUBSETS = {
    "top": both_sets("vegas", "cubic"),
    "bc-top": both_sets("vegas", "cubic"),
    "bc-top3": both_sets(*TOP4_I[:3], *TOP4_II[:3]),
    "top4": both_sets(*TOP4_I, *TOP4_II),
    "bcv2": WINNERS,
}
"""The (set, scheme) of the trajectories that each learns from; all others learn from all."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled pool of an environment a set, and a league's results where `bcv2` looks for them."""
    folder = tmp_path_factory.mktemp("configs")
    for i, (set_, scheme) in enumerate(sorted(EVERYTHING)):
        path = folder / "datasets/pool" / f"set={set_}" / f"scheme={scheme}" / "part-000.parquet"
        write_part(path, [episode(f"{set_}-one.{scheme}.0", 60, i)])
    losers = [(f"{set_}-one", scheme, 1 if scheme == "bbr2" else 0, 4) for set_, scheme in EVERYTHING - WINNERS]
    winners = [(f"{set_}-one", scheme, 3, 4) for set_, scheme in WINNERS]
    scores(folder / "leagues/results/scores.parquet", losers + winners)
    compile_pool(folder / "datasets/pool", folder / "cache")
    return folder


@pytest.fixture
def pool(place: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledPool:
    monkeypatch.chdir(place)
    return compile_pool(Path("datasets/pool"), Path("cache"))


POOL = [name for name in shipped() if load(name).data]


@pytest.mark.parametrize("name", [*POOL, "paper+top4", "paper+bcv2"])
def test_learns_from_the_trajectories_it_names(pool: CompiledPool, name: str) -> None:
    data = load(name).data
    assert data
    chosen = pool.select(data.selection).trajectories
    expected = SUBSETS.get(name.removeprefix("paper+"), EVERYTHING)
    assert set(zip(chosen.sets.tolist(), chosen.schemes.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", POOL)
def test_trains(pool: CompiledPool, eagerly: None, name: str) -> None:
    """Its own algorithm, inputs and data; fewer neurons and rows."""
    whole = load(name)
    smaller = {"hidden": [8, 8]} if whole.network.kind == "mlp" else {"width": 8, "gru": 0 if "no-gru" in name else 8}
    config = varied(whole, **smaller, batch=4, window=min(whole.window, 12))
    data, network = config.data, config.network
    assert data
    chosen = pool.select(data.selection)
    scaling = chosen.moments.scaling(network.input_transform, network.input_limit)
    value_range = config.algorithm.return_range(chosen.value_range)
    made = learner(config, len(data.observations), states=len(data.state_names), value_range=value_range)
    before = {weight: variable.numpy() for weight, variable in made.exported().items()}
    first = next(iter(before))
    assert before[first].shape == (len(data.observations), 8)
    sampler = WindowSampler(chosen, scaling, config.batch, config.window, seed=0, action_base=data.action_base)
    with PoolWindows(sampler, data, ALL, range(3)) as source:
        batches = [Batch(*map(tf.constant, source.next(dict))) for _ in range(3)]
    flows = np.zeros((config.window, config.batch, len(data.state_names)), np.float32)
    flows[:, ::2] = 1  # the made-up pool has no list of networks
    batches = [batch._replace(states=tf.constant(flows)) for batch in batches]
    steps = [dict(zip(made.metrics, made.update(batch).metrics.numpy().tolist(), strict=True)) for batch in batches]
    assert all(math.isfinite(value) for step in steps for value in step.values())
    if "filter_weight_mean" in made.metrics:
        assert all(step["filter_weight_mean"] == 1 for step in steps) == (
            vars(config.algorithm).get("filter") == "identity"
        )
    assert not np.array_equal(before[first], made.exported()[first])


@pytest.mark.parametrize("name", sorted(SUBSETS))
def test_a_subset_changes_the_data_and_cloning_the_filter(name: str) -> None:
    small, found = load("small").record(), load(name).record()
    assert found.pop("data")["selection"] != small.pop("data")["selection"]
    small["algorithm"]["filter"] = "identity" if name.startswith("bc") else "exp"
    assert found == small


def test_the_stage_trains_any_of_them() -> None:
    """`dvc exp run -S train.config=NAME` puts NAME where a person would."""
    stage = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["train"]
    assert stage["cmd"].startswith("sagecc train --config ${train.config} ")
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["train"]["config"] in shipped()
