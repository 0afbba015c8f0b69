# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import sagecc.commands.distance as distance_command
import sagecc.leagues.neighbours
import sagecc.leagues.transitions
import sagecc.sets
from sagecc.common.errors import SageccError
from sagecc.leagues.distance import (
    DISTANCE_SCHEMA,
    NONE,
    Query,
    cosine_distance,
    distances,
    exact_in_pool,
    exact_in_sample,
    nearest,
    summary,
)
from sagecc.leagues.neighbours import in_index, prepare
from sagecc.leagues.scores import StoredEpisode, find_episodes, read_rows
from sagecc.leagues.trajectories import query
from sagecc.leagues.transitions import SIZE, STATE, PoolTransitions, pool_rows, unit
from sagecc.pool.features import Windows
from sagecc.schemas.environment import Environment
from tests.helpers.league_episodes import set_one, set_two, smoke
from tests.helpers.lively import lively, make_pool

pytestmark = pytest.mark.heavy

ENVIRONMENTS = (set_one(12), set_one(24), set_two(12))
SCHEMES = ("cubic", "vegas")
TICKS = 300
LAB = (ENVIRONMENTS[0], "cubic")

Folders = tuple[Path, Path]
"""Of raw trajectories and of their pool."""

Vectors = list[list[float]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    games = {(e, s): lively(e, s, TICKS + 7 * i, 10 * i + j)
             for i, e in enumerate(ENVIRONMENTS) for j, s in enumerate(SCHEMES)}  # fmt: skip
    return make_pool(tmp_path_factory.mktemp("distance"), games)


@pytest.fixture(scope="module")
def pool(folders: Folders) -> PoolTransitions:
    return PoolTransitions.load(folders[1], folders[1].parent / "cache")


def episode(folders: Folders, environment: Environment, scheme: str) -> StoredEpisode:
    return find_episodes([folders[0]], ENVIRONMENTS, [scheme])[environment.id, scheme]


def test_a_trajectory_s_vectors_are_those_of_the_pool(folders: Folders, pool: PoolTransitions) -> None:
    for environment in ENVIRONMENTS:
        own = episode(folders, environment, "vegas")
        found = pool.episode_rows(own.id)
        assert found is not None
        begin, end = found
        rows = pool_rows(read_rows(own), Windows())
        assert rows.shape == (end - begin, STATE + 1)
        along = pool.space.sequence_vectors(rows)
        assert np.array_equal(along, pool.vectors(np.arange(begin, end - 1)))
        assert np.linalg.norm(along, axis=1) == pytest.approx(1, abs=1e-6)


def test_a_vector_is_state_action_state(pool: PoolTransitions) -> None:
    rows = np.fromfile(pool.pool.rows_file, np.float32).reshape(-1, STATE + 2)
    plain = PoolTransitions.load(pool.pool.folder.parent.parent / "pool", pool.pool.folder.parent, "none")
    by_hand = np.concatenate([rows[5, : STATE + 1], rows[6, :STATE]])
    assert plain.vectors(np.array([5]))[0] == pytest.approx(by_hand / np.linalg.norm(by_hand), abs=1e-6)
    assert len(by_hand) == SIZE == 139


def test_columns_have_mean_0_and_deviation_1(pool: PoolTransitions) -> None:
    rows = np.fromfile(pool.pool.rows_file, np.float32).reshape(-1, STATE + 2)
    counted = [np.arange(start, start + n, 8) for start, n in zip(pool.pool.starts, pool.pool.lengths, strict=True)]
    scaled = pool.space.scaling(rows[:, : STATE + 1])
    assert np.abs(scaled).max() <= 10
    checked = 0
    for column in range(STATE + 1):  # features' moments are of every 8th row, the action's here of all
        seen = scaled[np.concatenate(counted), column] if column < STATE else scaled[:, column]
        if seen.std() > 1e-6 and np.abs(seen).max() < 10:
            assert (seen.mean(), seen.std()) == pytest.approx((0, 1), abs=0.05), column
            checked += 1
    assert checked > 55


def test_no_transition_crosses_from_one_episode_to_the_next(pool: PoolTransitions) -> None:
    rows = np.concatenate([rows for rows, _ in pool.blocks()])
    lengths = [TICKS + 7 * i - 1 for i, _ in enumerate(ENVIRONMENTS) for _ in SCHEMES]
    assert len(rows) == pool.count == sum(length - 1 for length in lengths)
    assert set(rows) == set(pool.sample(10**9, 0))
    assert not set(rows) & set((pool.pool.starts + pool.pool.lengths - 1).tolist())


def test_blocks_are_the_rows_vectors(pool: PoolTransitions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagecc.leagues.transitions, "BLOCK_ROWS", 100)
    for rows, vectors in pool.blocks(150, 777):
        assert rows.min() >= 150
        assert rows.max() < 777
        assert np.array_equal(vectors, pool.vectors(rows))


def test_sample_is_seeded(pool: PoolTransitions) -> None:
    assert np.array_equal(pool.sample(50, 1), pool.sample(50, 1))
    assert not np.array_equal(pool.sample(50, 1), pool.sample(50, 2))
    assert len(set(pool.sample(50, 1).tolist())) == 50


def brute_force(pool: PoolTransitions, found: Query) -> npt.NDArray[np.float64]:
    """Every pair's cosine distance, by the definition, in double precision."""
    rows = pool.sample(10**9, 0)
    pairs: npt.NDArray[np.float64] = 1 - found.vectors.astype(float) @ pool.vectors(rows).astype(float).T
    if found.own_rows:
        pairs[:, (rows >= found.own_rows[0]) & (rows < found.own_rows[1])] = np.inf
    return pairs


def test_distance_is_the_smallest_of_all_pairs(folders: Folders, pool: PoolTransitions) -> None:
    own = query(pool, episode(folders, *LAB))
    assert own.own_rows == pool.episode_rows(f"{LAB[0].id}.cubic.0")
    table = distances(pool, [own], exact_in_pool(pool))
    assert dict(table.schema) == DISTANCE_SCHEMA
    assert table["distance"].to_numpy() == pytest.approx(brute_force(pool, own).min(axis=1), abs=1e-6)
    assert f"{LAB[0].id}.cubic.0" not in set(table["neighbour_episode"])
    assert table["t_s"].to_list() == read_rows(episode(folders, *LAB))["t_s"].to_pylist()[:-2]


def test_neighbours_are_named(folders: Folders, pool: PoolTransitions) -> None:
    own = query(pool, episode(folders, *LAB))
    stranger = Query("I", "e", "cubic", own.t_s, own.vectors)  # the same, but not known to be the pool's own
    table = distances(pool, [stranger], exact_in_pool(pool))
    assert table["distance"].to_numpy().max() < 1e-6
    assert set(table["neighbour_episode"]) == {f"{LAB[0].id}.cubic.0"}
    assert set(table["neighbour_scheme"]) == {"cubic"}
    assert table["neighbour_step"].to_list() == list(range(len(table)))


def test_a_sample_of_all_is_exact_and_less_is_farther(folders: Folders, pool: PoolTransitions) -> None:
    own = query(pool, episode(folders, *LAB), every=3)
    whole = distances(pool, [own], exact_in_pool(pool))
    assert distances(pool, [own], exact_in_sample(pool, 10**9, 0)).equals(whole)
    part = distances(pool, [own], exact_in_sample(pool, 300, 0))
    assert (part["distance"] >= whole["distance"] - 1e-6).all()
    assert part["distance"].to_numpy().mean() > whole["distance"].to_numpy().mean()


def test_index_finds_nearly_the_nearest_and_never_its_own(
    folders: Folders, pool: PoolTransitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sagecc.leagues.neighbours, "SHARD_ROWS", 500)
    monkeypatch.setattr(sagecc.leagues.neighbours, "CANDIDATES", 20)
    own = query(pool, episode(folders, *LAB))
    folder = prepare(pool, tmp_path)
    assert len(list(folder.glob("shard-*.faiss"))) == -(-pool.pool.rows // 500)
    table = distances(pool, [own], in_index(pool, folder))
    best = brute_force(pool, own).min(axis=1)
    found = table["distance"].to_numpy()
    assert f"{LAB[0].id}.cubic.0" not in set(table["neighbour_episode"])
    assert (found >= best - 1e-6).all()
    assert (found <= best + 1e-6).mean() > 0.9


def test_index_goes_on_where_it_was_killed(
    pool: PoolTransitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sagecc.leagues.neighbours, "SHARD_ROWS", 500)
    folder = prepare(pool, tmp_path)
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    (folder / "shard-001.faiss").unlink()
    assert prepare(pool, tmp_path) == folder
    after = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    assert {name for name in before if before[name][0] != after[name][0]} == {"shard-001.faiss"}
    assert {name: data for name, (_, data) in after.items()} == {name: data for name, (_, data) in before.items()}


def test_damaged_index_is_named(pool: PoolTransitions, tmp_path: Path) -> None:
    folder = prepare(pool, tmp_path)
    shard = folder / "shard-000.faiss"
    shard.write_bytes(shard.read_bytes()[:1000])
    with pytest.raises(SageccError, match=r"shard-000.faiss is damaged: remove it"):
        in_index(pool, folder)([Query("I", "e", "s", np.zeros(1), pool.vectors(np.array([0])))])


def test_alone_in_the_pool_there_is_nothing_near(tmp_path: Path) -> None:
    environment = set_one(12)
    raw, derived = make_pool(tmp_path, {(environment, "cubic"): lively(environment, "cubic", 50, 0)})
    pool = PoolTransitions.load(derived, tmp_path / "cache")
    own = query(pool, find_episodes([raw], [environment], ["cubic"])[environment.id, "cubic"])
    assert (exact_in_pool(pool)([own])[0] == NONE).all()
    table = distances(pool, [own], exact_in_pool(pool))
    assert table["distance"].is_infinite().all()
    assert set(table["neighbour_step"]) == {-1}


def test_cosine_distance_by_hand() -> None:
    u = np.array([[1, 0], [1, 0], [1, 0], [3, 4], [0, 0]], np.float32)
    v = np.array([[2, 0], [0, 5], [-1, 0], [4, 3], [1, 1]], np.float32)
    assert cosine_distance(u, v) == pytest.approx([0, 1, 2, 1 - 24 / 25, 1])


VECTORS = st.lists(
    st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3).filter(lambda v: sum(x * x for x in v) > 0.01),
    min_size=1,
    max_size=6,
)


@given(VECTORS, VECTORS)
def test_nearest_is_nearest_however_it_comes_in_blocks(own: Vectors, others: Vectors) -> None:
    vectors, among = unit(np.array(own, np.float32)), unit(np.array(others, np.float32))
    asked = Query("I", "e", "s", np.zeros(len(vectors)), vectors)
    rows = np.arange(len(among)) + 100
    (at_once,) = nearest([asked], [(rows, among)], len(rows))
    (one_by_one,) = nearest([asked], [(rows[i : i + 1], among[i : i + 1]) for i in range(len(rows))], len(rows))
    for found in (at_once, one_by_one):
        similarity = np.einsum("nd,nd->n", vectors, among[found - 100])
        assert similarity == pytest.approx((vectors @ among.T).max(axis=1), abs=1e-5)


def test_summary_by_hand() -> None:
    table = pl.DataFrame(
        {"environment_id": ["e"] * 4, "scheme": ["s"] * 4, "distance": [0.0, 1.0, 2.0, 3.0],
         "neighbour_scheme": ["vegas", "cubic", "vegas", "vegas"]}
    )  # fmt: skip
    (row,) = summary(table)
    assert isinstance(row["quantiles"], dict) and row["quantiles"]["0.5"] == 1.5
    assert row["mean"] == 1.5
    assert row["neighbours"] == {"vegas": 0.75, "cubic": 0.25}


@pytest.mark.parametrize("search", ["sample", "index", "pool"])
def test_command(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str) -> None:
    monkeypatch.setattr(sagecc.sets, "profile_set", lambda name: smoke(*ENVIRONMENTS))
    raw, pool = folders
    options = ["--schemes", "cubic,vegas", "--search", search, "--network", ENVIRONMENTS[1].id, "--raw", str(raw)]
    options += ["--pool", str(pool), "--cache", str(tmp_path), "--transitions", "400", "--every", "2"]
    options += ["--league", str(tmp_path / "none")]

    def run(name: str) -> dict[str, bytes]:
        out = tmp_path / name
        result = CliRunner().invoke(distance_command.command, [*options, "--out", str(out)], catch_exceptions=False)
        assert result.exit_code == 0
        return {path.name: path.read_bytes() for path in out.iterdir()}

    files = run("one")
    assert set(files) == {"distance.parquet", "distance.json", "distance.png"}
    known = json.loads(files["distance.json"])
    assert [row["transitions"] for row in known["trajectories"]] == [153, 153]
    assert known["environments"] == {ENVIRONMENTS[1].id: "Set I: 24 Mbps, 20 ms, 1 BDP"}
    assert known["searched"] == (400 if search == "sample" else known["pool_transitions"])
    assert run("two") == files


def test_command_needs_its_environment(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagecc.sets, "profile_set", lambda name: smoke(*ENVIRONMENTS))
    for options, text in ((["--network", "nowhere"], "nowhere"), ([], "does the rate rise")):
        with pytest.raises(SageccError, match=text):
            CliRunner().invoke(
                distance_command.command, ["--raw", str(folders[0]), *options], catch_exceptions=False
            )  # fmt: skip
