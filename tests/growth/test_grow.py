# SPDX-License-Identifier: Apache-2.0
"""A pool that grows by a whole round in short networks, undisturbed and killed in every phase."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sagecc.commands import distance
from sagecc.common.manifest import Manifest
from sagecc.learner.compiled import compile_pool
from sagecc.learner.continuation import Continuation
from sagecc.learner.specification import load
from sagecc.policy.artefact import policy_sha256
from sagecc.pool.checks import check_pool
from sagecc.pool.views import open_pool
from tests.helpers.growing import KILLING, arguments, grown, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tensorflow,
]  # two trainings: 40 s of CPU time; test_rounds.py has what needs none


@pytest.fixture(scope="module")
def whole(pool: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what an undisturbed run made."""
    folder = tmp_path_factory.mktemp("whole")
    done = run("-m", "sagecc", *arguments(folder, pool))
    assert done.returncode == 0, done.stderr
    assert [line.split()[:3] for line in done.stdout.splitlines()[:4]] == [
        ["round", "0", "train"],
        ["round", "0", "play"],
        ["round", "0", "pool"],
        ["round", "1", "train"],
    ]
    return folder


def test_the_policy_s_episodes_are_in_the_pool_and_say_who_played_them(whole: Path, pool: Path) -> None:
    mine = whole / "mine"
    joined = mine / "round-0" / "pool"
    assert check_pool(joined, progress=False).faults == ()
    own = {name for name in Manifest.read(joined).files if "policy" in name}
    assert {Path(name).parent.name for name in own} == {"scheme=policy:mine@0"}
    assert Manifest.read(joined).files.keys() - own == Manifest.read(pool).files.keys()
    for part in (*(joined / name for name in own), *mine.glob("round-0/raw/set=*/scheme=*/*.parquet")):
        player = json.loads(pq.read_schema(part).metadata[b"sagecc.player"])
        assert player["policy_sha256"] == policy_sha256(f"policy:{mine / 'round-0' / 'policy'}")
        assert player["exploration"] == {"sample": True, "noise": 0.05, "seed": 0}
        assert player["give_up"] == {"share": 0.2, "time_s": 5.0}
    with open_pool(joined) as connection:
        assert connection.sql("SELECT policy, round, episodes FROM rounds").fetchall() == [("mine", 0, 2)]
        assert [row[0] for row in connection.sql("SELECT scheme FROM schemes").fetchall()] == [
            "cubic",
            "policy:mine@0",
            "vegas",
        ]


def test_a_round_goes_on_from_where_the_last_one_stopped(whole: Path) -> None:
    first, second = (
        Continuation.load(whole / f"mine/round-{n}/policy", whole / f"mine/round-{n}/state.safetensors") for n in (0, 1)
    )
    assert (first.steps, second.steps) == (20, 35)
    card = second.policy.card
    assert card["started_from"] == {"steps": 20, "identity": first.identity}
    assert card["training"]["data"]["selection"]["shares"] == {"policy:mine@0": 0.3}
    np.testing.assert_array_equal(first.policy.scaling.shift, second.policy.scaling.shift)
    np.testing.assert_array_equal(first.policy.scaling.scale, second.policy.scaling.scale)
    assert first.value_range == second.value_range
    lines = (whole / "mine/round-1/logs/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(21, 36))
    moved = [name for name, value in first.state.items() if not np.array_equal(value, second.state[name])]
    assert any(name.startswith("policy_adam_m/") for name in moved)


def test_own_episodes_are_drawn_in_their_share(whole: Path, tmp_path: Path) -> None:
    compiled = compile_pool(whole / "mine/round-0/pool", tmp_path)
    data = load(str(whole / "own.yaml"), data={"selection": {"shares": {"policy:mine@0": 0.3}}}).data
    assert data
    chosen = compiled.select(data.selection)
    drawn = chosen.drawn(chosen.lengths - 7)
    assert drawn[chosen.trajectories.schemes == "policy:mine@0"].sum() / drawn.sum() == pytest.approx(0.3)


def test_distance_compares_a_round_with_the_pool_without_it(whole: Path, tmp_path: Path) -> None:
    name = next(str(row["environment_id"]) for row in _episodes(whole) if row["scheme"] == "policy:mine@0")
    command = ["--grown", str(whole / "mine"), "--schemes", "policy:mine@0", "--environment", name]
    places = {"--pool": "mine/round-0/pool", "--environments": "short.yaml"}
    command += [str(text) for option, path in places.items() for text in (option, whole / path)]
    command += ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out"), "--search", "pool"]
    done = CliRunner().invoke(distance.command, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = pq.read_table(tmp_path / "out" / "distance.parquet").to_pylist()
    assert {row["scheme"] for row in rows} == {"policy:mine@0"}
    assert f"{name}.policy:mine@0.0" not in {row["neighbour_episode"] for row in rows}


def test_killed_in_every_phase_it_goes_on_with_the_same_bytes(whole: Path, pool: Path, tmp_path: Path) -> None:
    phases = (
        ("sagecc.learner.journal:TrainingJournal.add", 7),
        ("sagecc.growth.training:keep_state", 0),
        ("sagecc.collector.run.store:Partition.add", 1),
        ("sagecc.growth.pooling:join_pools", 0),
        ("sagecc.pool.joining:_write_tables", 0),
        ("sagecc.learner.journal:TrainingJournal.save", 4),
    )
    for place, count in phases:
        killed = run("-c", KILLING, place, str(count), *arguments(tmp_path, pool))
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
    done = run("-m", "sagecc", *arguments(tmp_path, pool))
    assert done.returncode == 0, done.stderr
    assert grown(tmp_path) == grown(whole)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    again = run("-m", "sagecc", *arguments(tmp_path, pool))
    assert again.returncode == 0, again.stderr
    assert "round 1  train  0 steps" in again.stdout
    now = {path: path.stat().st_mtime_ns for path in stamps if path.exists()}
    assert {path for path in stamps if stamps[path] != now.get(path)} <= {tmp_path / "mine" / ".lock"}


def _episodes(whole: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(whole / "mine/round-0/pool/episodes.parquet").to_pylist()
    return rows
