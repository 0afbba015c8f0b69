# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.leagues.scores import SCORE_SCHEMA, find_episodes, read_rows, score
from sagecc.schemas.environment import Environment
from tests.helpers.league_episodes import rows, set_one, set_two, write


def scored(root: Path, environments: Sequence[Environment], schemes: Sequence[str], alpha: float = 2.0) -> pl.DataFrame:
    return score(environments, schemes, find_episodes([root], environments, schemes), alpha)


def row(table: pl.DataFrame, **keys: object) -> dict[str, Any]:
    return table.filter(*(pl.col(k) == v for k, v in keys.items())).to_dicts()[0]


def test_set_one_by_hand(tmp_path: Path) -> None:
    # 12 Mbps, 10 ms each way. Window 0: 6 Mbps at 20 ms one way: S_p = 6^2 / (20 + 10). Window 1: 9^2 / (40 + 10).
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 9], [20, 40])})
    table = scored(tmp_path, [env], ["reno"])
    assert dict(table.schema) == SCORE_SCHEMA
    first, second = table.to_dicts()
    assert (first["window"], first["from_s"], first["to_s"], first["status"]) == (0, 1.0, 2.0, "ok")
    assert first["goodput_mbps"] == pytest.approx(6, rel=1e-6)
    assert first["delay_ms"] == pytest.approx(30, rel=1e-6)
    assert first["score"] == pytest.approx(1.2, rel=1e-6)
    assert second["score"] == pytest.approx(81 / 50, rel=1e-6)


def test_alpha(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 9], [20, 40])})
    assert scored(tmp_path, [env], ["reno"], alpha=3)["score"].to_list() == pytest.approx(
        [216 / 30, 729 / 50], rel=1e-6
    )


def test_set_two_by_hand(tmp_path: Path) -> None:
    # Fair share of 12 Mbps between two flows: 6. The flow begins with the first window and has no tick at its edge.
    env = set_two()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [2, 7], [20, 40])})
    first, second = scored(tmp_path, [env], ["reno"]).to_dicts()
    assert first["fair_share_mbps"] == pytest.approx(6, rel=1e-6)
    assert first["goodput_mbps"] == pytest.approx(2, rel=1e-6)
    assert first["score"] == pytest.approx(4, rel=1e-6)
    assert second["score"] == pytest.approx(1, rel=1e-6)


def test_fair_share_follows_the_rate(tmp_path: Path) -> None:
    env = set_one(step=2)  # 12 Mbps until 2 s, then 24
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 9], [20, 40])})
    assert scored(tmp_path, [env], ["reno"])["capacity_mbps"].to_list() == pytest.approx([12, 24], rel=1e-6)


def test_missing_episode_loses(tmp_path: Path) -> None:
    one, two = set_one(), set_two()
    write(tmp_path, {(one, "reno"): rows(one, "reno", [6, 9], [20, 40])})
    table = scored(tmp_path, [one, two], ["reno", "cubic"])
    assert len(table) == 8
    lost = row(table, environment_id=one.id, scheme="cubic", window=0)
    assert (lost["status"], lost["score"], lost["goodput_mbps"]) == ("missing", 0.0, None)
    assert row(table, environment_id=two.id, scheme="cubic", window=1)["score"] == math.inf


@pytest.mark.parametrize("env", [set_one(), set_two()])
def test_window_without_packets_loses(tmp_path: Path, env: Environment) -> None:
    write(tmp_path, {(env, "reno"): rows(env, "reno", [5, 0], [20, 20])})
    first, second = scored(tmp_path, [env], ["reno"]).to_dicts()
    assert first["status"] == "ok"
    assert (second["status"], second["score"]) == ("silent", 0.0 if env.set == "I" else math.inf)


def test_rows_that_stop_early_lose(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 6], [20, 20], last_tick_s=3.5)})
    assert scored(tmp_path, [env], ["reno"])["status"].to_list() == ["ok", "silent"]


def test_last_tick_just_before_the_end_is_whole(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 6], [20, 20], last_tick_s=3.99)})
    table = scored(tmp_path, [env], ["reno"])
    assert table["status"].to_list() == ["ok", "ok"]
    assert table["goodput_mbps"].to_list() == pytest.approx([6, 6], rel=1e-6)


def test_flow_that_starts_after_a_window_lost_it(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 6], [20, 20], first_tick_s=2.5)})
    assert scored(tmp_path, [env], ["reno"])["status"].to_list() == ["silent", "ok"]


def test_many_episodes_in_several_parts(tmp_path: Path) -> None:
    envs = [set_one(mbps) for mbps in (12, 24, 48)]
    write(tmp_path, {(e, s): rows(e, s, [i + 1, i + 2], [20, 20]) for i, e in enumerate(envs) for s in ("reno", "bic")})
    table = scored(tmp_path, envs, ["reno", "bic"])
    for i, env in enumerate(envs):
        for scheme in ("reno", "bic"):
            own = table.filter((pl.col("environment_id") == env.id) & (pl.col("scheme") == scheme))
            assert own["goodput_mbps"].to_list() == pytest.approx([i + 1, i + 2], rel=1e-4)


def test_read_rows_gives_one_episode(tmp_path: Path) -> None:
    envs = [set_one(12), set_one(24)]
    write(tmp_path, {(e, "reno"): rows(e, "reno", [6, 6], [20, 20]) for e in envs})
    episode = find_episodes([tmp_path], envs, ["reno"])[envs[1].id, "reno"]
    table = read_rows(episode)
    assert set(table["episode_id"].to_pylist()) == {f"{envs[1].id}.reno.0"}
    assert table["step"].to_pylist() == list(range(table.num_rows))


def test_policy_with_a_path_is_found(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "policy:models/sage"): rows(env, "policy:models/sage", [6, 9], [20, 40])})
    assert scored(tmp_path, [env], ["policy:models/sage"])["status"].to_list() == ["ok", "ok"]


@settings(max_examples=20)
@given(
    mbps=st.lists(st.floats(1, 100), min_size=2, max_size=2),
    delay=st.lists(st.floats(5, 500), min_size=2, max_size=2),
    alpha=st.floats(0.5, 3),
)
def test_score_is_the_formula(mbps: list[float], delay: list[float], alpha: float) -> None:
    env = set_one(96.0)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {(env, "reno"): rows(env, "reno", mbps, delay)})
        table = scored(Path(folder), [env], ["reno"], alpha)
    # whole packets and bytes: the written counters are off by up to one of each in a window
    expected = [r**alpha / (d + 10) for r, d in zip(mbps, delay, strict=True)]
    assert table["score"].to_list() == pytest.approx(expected, rel=0.05)
    assert table["goodput_mbps"].to_list() == pytest.approx(mbps, rel=1e-4)


def test_corrupt_part_is_named(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 9], [20, 40])})
    part = next(tmp_path.rglob("part-000.parquet"))
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(SageccError, match="scheme=reno"):
        scored(tmp_path, [env], ["reno"])


def test_lost_part_is_named(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 9], [20, 40])})
    next(tmp_path.rglob("part-000.parquet")).unlink()
    with pytest.raises(SageccError, match="no part file"):
        scored(tmp_path, [env], ["reno"])


def test_other_major_version_is_refused(tmp_path: Path) -> None:
    env = set_one()
    write(tmp_path, {(env, "reno"): rows(env, "reno", [6, 9], [20, 40])})
    path = next(tmp_path.rglob("episodes.parquet"))
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.replace_schema_metadata({b"sagecc.raw_version": b"2.0"}), path)
    with pytest.raises(SageccError, match="version"):
        find_episodes([tmp_path], [env], ["reno"])


def test_nothing_to_score() -> None:
    with pytest.raises(SageccError, match="no scoring window"):
        score([], ["reno"], {})
