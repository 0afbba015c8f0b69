# SPDX-License-Identifier: Apache-2.0
"""What critics alone see of a pool's episodes, and actions in units of a base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.data import WindowSampler
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.privileged import NAMES, names_of, recorded
from sagecc.learner.selection import Selection
from sagecc.learner.specification import from_dict
from sagecc.policy.artefact import SPREAD_MAP
from sagecc.policy.scaling import Scaling
from sagecc.schemas.environment import CrossFlow, Environment, Link, RateStep, Trace, dumbbell
from sagecc.schemas.partitions import EPISODES_FILE, partition
from tests.helpers.specifications import placed
from tests.learner.conftest import episode, write_part

AS_IS = Scaling("none", np.zeros(69, np.float32), np.ones(69, np.float32), 0.0)

STEPPED = dumbbell(
    "I", Link((RateStep(0, 64), RateStep(1.5, 256), RateStep(2, 0)), 10, queue_bytes=40_000), 10, 30.0, ((0, 30),)
)
"""BDP: 64 Mbps of 20 ms are 160,000 bytes."""
SHARED = dumbbell(
    "II", Link((RateStep(0, 32),), 40, queue_bytes=640_000), 40, 30.0, ((0, 30),), cross=[CrossFlow("cubic")]
)
TRACED = dumbbell("I", Link(trace=Trace("t", (1.0, 2.0)), delay_ms=20), 20, 30.0, ((0, 30),))
EPISODES = (
    ("a.cubic.0", "cubic", STEPPED, 201),
    ("b.cubic+starts:1.0", "cubic+starts:1", STEPPED, 120),
    ("c.vegas.0", "vegas", SHARED, 101),
    ("d.vegas.0", "vegas", TRACED, 90),
)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    folder = tmp_path / "pool"
    for scheme in sorted({scheme for _, scheme, *_ in EPISODES}):
        tables = [episode(name, rows, 0) for name, of, _, rows in EPISODES if of == scheme]
        write_part(folder / partition("I", scheme) / "part-000.parquet", tables)
    write_listing(folder, [(name, scheme, network) for name, scheme, network, _ in EPISODES])
    return folder


def write_listing(folder: Path, rows: list[tuple[str, str, Environment]]) -> None:
    names, schemes, networks = zip(*rows, strict=True)
    texts = [network.to_json() for network in networks]
    pq.write_table(pa.table({"episode_id": names, "scheme": schemes, "environment": texts}), folder / EPISODES_FILE)


def known(pool: Path, cache: Path) -> CompiledPool:
    compiled = compile_pool(pool, cache)
    return replace(compiled, recorded=recorded(pool, "network", compiled.trajectories.ids, compiled.lengths))


def test_numbers_of_a_network_are_worked_out_by_hand(pool: Path, tmp_path: Path) -> None:
    compiled = known(pool, tmp_path / "cache")
    names = compiled.trajectories.ids.tolist()
    episodes = np.array([names.index(name) for name, *_ in EPISODES])
    assert compiled.recorded
    rows = np.array([[0, 0, 0, 0], [149, 30, 50, 30], [150, 60, 100, 60], [200, 119, 100, 89]])
    found = dict(zip(NAMES, np.moveaxis(compiled.recorded.at(episodes, rows), -1, 0), strict=True))
    np.testing.assert_allclose(found["flows"][0], [0, 0, 0.5, 0])
    np.testing.assert_allclose(found["rate"][0], [0.2, 0.2, 0, np.log2(12 / 32) / 5], rtol=1e-6)
    np.testing.assert_allclose(found["rtt"][0], [-0.25, -0.25, 0.25, 0], atol=1e-7)
    np.testing.assert_allclose(found["queue"][0], [-0.5, -0.5, 0.25, 1.5], atol=1e-7)
    np.testing.assert_allclose(found["rate_now"][:, 0], [0, 0, 1, -2])
    np.testing.assert_array_equal(found["rate_now"][:, 2:], 0)
    np.testing.assert_allclose(found["place"][:, 0], [-1, 0.49, 0.5, 1], rtol=1e-6)
    np.testing.assert_allclose(found["place"][:, 2], [-1, 0, 1, 1])


def test_an_episode_that_starts_later_meets_its_networks_rates_then(pool: Path, tmp_path: Path) -> None:
    compiled = known(pool, tmp_path / "cache")
    (late,) = np.flatnonzero(compiled.trajectories.schemes == "cubic+starts:1")
    assert compiled.recorded
    begin = int(compiled.recorded.first_ticks[late])
    assert 0 < begin <= 100
    rows = np.arange(120)[:, None]
    rates = compiled.recorded.at(np.array([late]), rows)[:, 0, NAMES.index("rate_now")]
    np.testing.assert_array_equal(rates == 1, begin + rows[:, 0] >= 150)


def test_windows_carry_what_is_known_of_their_decisions(pool: Path, tmp_path: Path) -> None:
    compiled = known(pool, tmp_path / "cache").select(Selection(schemes=("vegas", "cubic")))
    with WindowSampler(compiled, AS_IS, 40, 6, seed=0, period=5) as sampler:
        (episodes, first), batch, part = sampler.windows(2), sampler.batch(2), sampler.batch(2, slice(7, 20))
    assert compiled.recorded
    rows = first - compiled.starts[episodes] + 5 * np.arange(6)[:, None]
    np.testing.assert_array_equal(batch.states, compiled.recorded.at(episodes, rows))
    np.testing.assert_array_equal(part.states, batch.states[:, 7:20])
    assert batch.states.shape == (6, 40, len(NAMES))
    assert batch.states.dtype == np.float32
    with WindowSampler(replace(compiled, recorded=None), AS_IS, 40, 6, seed=0) as sampler:
        assert sampler.batch(0).states.shape == (6, 40, 0)


def test_a_pool_without_an_episodes_network_is_one_clear_line(pool: Path, tmp_path: Path) -> None:
    write_listing(pool, [(name, scheme, network) for name, scheme, network, _ in EPISODES[1:]])
    with pytest.raises(SageccError, match=r"episodes\.parquet.*'a\.cubic\.0'.*derive the pool again"):
        known(pool, tmp_path / "cache")
    (pool / EPISODES_FILE).unlink()
    with pytest.raises(SageccError, match=r"episodes\.parquet"):
        known(pool, tmp_path / "cache")


@pytest.mark.parametrize("base", [1.0718, 2.0])
def test_actions_are_in_units_of_their_base_and_end_at_one(pool: Path, tmp_path: Path, base: float) -> None:
    """The made-up actions are log2 ratios of a half, so that five of them are -2.5 to 2.5."""
    compiled = compile_pool(pool, tmp_path / "cache")
    rows = np.fromfile(compiled.rows_file, "<f4").reshape(-1, 71)
    with WindowSampler(compiled, AS_IS, 30, 4, seed=1, period=5, action_base=base) as sampler:
        first, actions = sampler.first_rows(0), sampler.batch(0).actions
    sums = rows[first[None, :, None] + 5 * np.arange(4)[:, None, None] + np.arange(5), 69].sum(axis=-1)
    np.testing.assert_allclose(actions, np.clip(sums / np.log2(base), -1, 1), rtol=1e-6)
    assert set(np.unique(np.abs(actions))) == ({1.0} if base < 2 else {0.5, 1.0})


DENSE = {
    "steps": 3,
    "batch": 4,
    "window": 3,
    "data": {"period_ms": 50, "action_base": 1.5, "states": "network"},
    "network": {"kind": "mlp", "hidden": [8]},
    "algorithm": {"name": "bc", "policy_rate": 1e-3},
    "control": {"slow_start": "acked", "window_bound": 1.4, "window_bound_loss": 0.01, "window_bound_drains": True},
}


def test_a_policys_card_says_what_its_actions_do(pool: Path, tmp_path: Path) -> None:
    specification = from_dict(DENSE)
    experience = PoolExperience(specification, pool, tmp_path / "cache", 0)
    control = specification.control.around(experience.control)
    assert (control.base, control.limits, control.period_ms, control.map) == (1.5, (-1.0, 1.0), 50.0, SPREAD_MAP)
    assert (control.slow_start, control.window_bound, control.window_bound_drains) == ("acked", 1.4, True)
    assert experience.states == len(names_of("network"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_base": 1}, "action_base must be null or above 1"),
        ({"states": "all"}, "states must be one of none, flows, network"),
        ({"action_base": None}, "kind mlp has actions from -1 to 1: give data.action_base"),
        ({"window_bound_loss": None}, "window_bound_drains needs a window_bound_loss"),
    ],
)
def test_bad_fields_are_one_clear_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SageccError, match=message):
        from_dict(placed(DENSE, changes))
