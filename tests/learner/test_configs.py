# SPDX-License-Identifier: Apache-2.0
"""Every shipped configuration on a small pool of 13 schemes and both sets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.config import Config, load, shipped
from sagecc.learner.crr import METRICS, Crr
from sagecc.learner.data import WindowSampler
from sagecc.learner.loop import _selecting
from tests.conftest import ROOT
from tests.learner.conftest import episode, scores, write_part

pytestmark = pytest.mark.tensorflow

SCHEMES = tuple(yaml.safe_load((ROOT / "params.yaml").read_text())["schemes"])
EVERYTHING = {(set_, scheme) for set_ in ("I", "II") for scheme in SCHEMES}
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


@pytest.fixture
def eagerly() -> Iterator[None]:
    """Without graphs, which take seconds to build."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize("name", [*shipped(), "paper+top4", "paper+bcv2"])
def test_learns_from_the_trajectories_it_names(pool: CompiledPool, name: str) -> None:
    chosen = pool.select(load(name).data).trajectories
    expected = SUBSETS.get(name.removeprefix("paper+"), EVERYTHING)
    assert set(zip(chosen.sets.tolist(), chosen.schemes.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", shipped())
def test_trains(pool: CompiledPool, eagerly: None, name: str) -> None:
    """Its own algorithm, inputs and data; fewer neurons and rows."""
    config = load(name)
    config = replace(config, width=8, gru=min(config.gru, 8), batch=4, window=6, atoms=11, target_period=1)
    chosen = pool.select(config.data)
    scaling = chosen.moments.scaling(config.input_transform, config.input_limit)
    crr = Crr(config, len(config.observations), chosen.value_range(config.discount), 0)
    before = {weight: variable.numpy() for weight, variable in crr.exported().items()}
    assert before["encoder.w"].shape == (len(config.observations), 8)
    with WindowSampler(chosen, scaling, config.batch, config.window, seed=0) as sampler:
        batch = _selecting(sampler, config)
        steps = [dict(zip(METRICS, crr.step(*batch(i)).numpy().tolist(), strict=True)) for i in range(3)]
    assert all(math.isfinite(value) for step in steps for value in step.values())
    assert all(step["filter_weight_mean"] == 1 for step in steps) == (config.filter == "identity")
    assert not np.array_equal(before["encoder.w"], crr.exported()["encoder.w"])


@pytest.mark.parametrize("name", sorted(SUBSETS))
def test_a_subset_changes_the_data_and_cloning_the_filter(name: str) -> None:
    small: Config = load("small")
    changed = replace(load(name), data=small.data)
    assert changed == (replace(small, filter="identity") if name.startswith("bc") else small)


def test_the_stage_trains_any_of_them() -> None:
    """`dvc exp run -S train.config=NAME` puts NAME where a person would."""
    stage = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["train"]
    assert stage["cmd"].startswith("sagecc train --config ${train.config} ")
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["train"]["config"] in shipped()
