# SPDX-License-Identifier: Apache-2.0
"""Rewards computed from what a pool keeps: those that it has, and those that it could have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.answers import Asked, run_query
from sagecc.collector.lab.episode import run_episode
from sagecc.common.errors import SageccError
from sagecc.pool.derivation import PoolOptions, build_pool
from sagecc.pool.features import RAW_NEEDED, derive
from sagecc.pool.relabelling import COLUMNS, capacities, flows_up, rewards_of
from sagecc.pool.reward import REWARDS, Measured, Ticks, friendliness, graded, of_networks, reward_of
from sagecc.pool.views import open_pool
from sagecc.schemas.environment import CrossFlow, Environment, Flow, Link, RateStep, Trace, dumbbell
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.networks import network
from tests.helpers.raw_episodes import write_partition

BURSTS = Trace("bursts", tuple(np.repeat(np.arange(0.0, 700, 7), 5).tolist()))


def beside(link: Link, **rest: Any) -> Environment:
    return dumbbell("custom", link, 20, 4, ((0, 4),), **rest)


STEPS = (RateStep(0, 12), RateStep(1.5, 3.3), RateStep(2, 0), RateStep(2.2, 24))
ENVIRONMENTS = {
    "flat": network(24, 20, duration_s=4),
    "steps and an outage": beside(Link(STEPS, 10, 40_000), start_s=0.5),
    "trace": beside(Link(trace=BURSTS, delay_ms=10, queue_packets=60)),
    "beside others": replace(
        network(24, 20, duration_s=4, cross=("cubic", "cubic")), reward="friendliness", flow=Flow(start_s=1)
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_a_pool_keeps_gives_the_rewards_that_it_has(kernel: Path, name: str) -> None:
    """Of an episode of the kernel's, R1 and R2 from raw counters are those from features and the environment."""
    environment = ENVIRONMENTS[name]
    rows = run_episode(kernel, environment, "cubic").rows
    columns = {column: rows[column].to_numpy() for column in ("t_s", *RAW_NEEDED)}
    first = np.arange(rows.num_rows) == 0
    features, (rate, loss, capacity, rtt_rate) = derive(columns, first)
    t_ns = np.rint(columns["t_s"] * 1e9).astype(np.int64)
    past_s = (t_ns - t_ns[np.maximum(np.arange(len(t_ns)) - 100, 0)]) / 1e9
    assert (np.abs(capacities(environment, t_ns) - capacity) * past_s).max() < 1.01  # the kernel's time has other bits

    measured = Measured(rate, loss, capacity, rtt_rate, np.full(len(t_ns), float(environment.competitors)))
    stored = of_networks([environment.reward], np.zeros(len(t_ns), np.int64), measured)
    ticks = Ticks(measured, flows_up(environment, t_ns), stored)
    kept = {column: features[FEATURE_NAMES.index(column)][:-1] for column in ("dr", "loss_db", "rtt_rate")}
    kept |= {"t_s": columns["t_s"][:-1], "reward": stored[1:].astype(np.float32)}
    for reward in REWARDS.values():
        found = rewards_of(reward, kept, environment)
        expected = reward.function(ticks)[1:]
        np.testing.assert_allclose(found[:-1], expected[:-1], rtol=1e-3, atol=1e-3, err_msg=reward.name)
        np.testing.assert_allclose(found[100:-1], expected[100:-1], rtol=2e-5, atol=1e-5, err_msg=reward.name)
        assert found.dtype == np.float32
        if reward.name in ("pool", "graded", environment.reward):  # all that they are made of is there
            assert found[-1] == pytest.approx(expected[-1], rel=1e-6)


def test_the_last_rows_reward_of_another_kind_is_that_of_its_own_tick() -> None:
    columns = {"t_s": np.array([0.01, 0.02]), "dr": np.array([0, 0.04]), "loss_db": np.zeros(2)}
    columns |= {"rtt_rate": np.ones(2), "reward": np.ones(2, np.float32)}
    environment = network(8, 20, cross=("cubic",))
    expected = friendliness(np.array([0.04 * 12.5e6] * 2), np.full(2, 1e6), np.full(2, 2.0))
    np.testing.assert_allclose(rewards_of(REWARDS["friendliness"], columns, environment), expected, rtol=1e-5)
    at_once = rewards_of(REWARDS["friendliness"], columns, environment, "public")
    assert at_once[1] == pytest.approx(expected[1], rel=1e-5) and at_once[0] < expected[0]


def test_the_pools_own_reward_is_what_it_has() -> None:
    environment = network(8, 20)
    stored = np.array([3.0, -4, 25], np.float32)
    columns: dict[str, npt.NDArray[Any]] = {**dict.fromkeys(COLUMNS, np.arange(3.0)), "reward": stored}
    np.testing.assert_array_equal(rewards_of(REWARDS["pool"], columns, environment), stored)
    np.testing.assert_array_equal(rewards_of(REWARDS["power"], columns, environment), stored)
    np.testing.assert_allclose(rewards_of(reward_of("pool-log"), columns, environment), graded(stored), rtol=1e-6)


def test_flows_are_up_from_their_start_to_their_end() -> None:
    others = (CrossFlow("cubic", Flow(start_s=2, stop_s=6)), CrossFlow("cubic", Flow(start_s=4)))
    environment = replace(network(8, 20, duration_s=10), cross=others)
    assert flows_up(environment, np.array([1, 2, 5, 6]) * 10**9).tolist() == [1, 2, 3, 2]


@pytest.mark.parametrize("alignment", ["after", "public"])
def test_sql_has_any_reward_of_any_row(tmp_path: Path, alignment: str) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(300, 200))
    write_partition(tmp_path / "raw", "II", "vegas", rows=(250,))
    build_pool(tmp_path / "raw", tmp_path / "pool", PoolOptions(alignment=alignment), progress=False)
    with open_pool(tmp_path / "pool", confined=True) as connection:
        for name, scheme in (("power", "cubic"), ("friendliness", "vegas"), ("pool", "cubic")):
            (count, off) = connection.execute(
                f"SELECT count(*), max(abs(r.reward - t.reward)) FROM rewards('{name}') r"
                " JOIN transitions t USING (episode_id, step) WHERE t.scheme = $scheme",
                {"scheme": scheme},
            ).fetchall()[0]
            assert (count, off) == ({"cubic": 498, "vegas": 249}[scheme], 0)
        episode = connection.sql("SELECT * FROM episodes WHERE scheme = 'vegas'").to_arrow_table().to_pylist()[0]
        rows = connection.sql("FROM episode($id)", params={"id": episode["episode_id"]}).to_arrow_table()
        expected = rewards_of(
            REWARDS["power"],
            {column: rows[column].to_numpy() for column in COLUMNS},
            Environment.from_json(episode["environment"]),
            alignment,
        )
        found = connection.execute(
            "SELECT reward FROM rewards('power') WHERE scheme = 'vegas' ORDER BY step"
        ).fetchall()
        np.testing.assert_array_equal(np.array(found)[:, 0], expected)


def test_a_reward_that_sql_does_not_have_is_one_line(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(100,))
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    with (
        open_pool(tmp_path / "pool") as connection,
        pytest.raises(SageccError, match=r"^there is no reward 'kindness': it must be one of power, "),
    ):
        run_query(Asked(connection), "FROM rewards('kindness')")
