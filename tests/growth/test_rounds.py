# SPDX-License-Identifier: Apache-2.0
"""A round's playing and joining by a policy that is there, undisturbed and killed; without TensorFlow."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sagecc.pool.checks import check_pool
from tests.helpers.growing import KILLING, arguments, grown, run
from tests.helpers.policies import save_policy

PLAY, POOL = ("--only", "play", "--round", "0"), ("--only", "pool", "--round", "0")


@pytest.fixture(scope="module")
def whole(pool: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    save_policy(folder / "mine" / "round-0" / "policy")
    for step in (PLAY, POOL):
        done = run("-m", "sagecc", *arguments(folder, pool), *step)
        assert done.returncode == 0, done.stderr
    return folder


def test_killed_in_playing_and_joining_it_goes_on_with_the_same_bytes(
    whole: Path,
    pool: Path,
    tmp_path: Path,
) -> None:
    save_policy(tmp_path / "mine" / "round-0" / "policy")
    for place, count, step in (
        ("sagecc.collector.run.store:Partition.add", 1, PLAY),
        ("", 0, PLAY),
        ("sagecc.pool.joining:_write_tables", 0, POOL),
        ("", 0, POOL),
    ):
        start = ("-c", KILLING, place, str(count)) if place else ("-m", "sagecc")
        done = run(*start, *arguments(tmp_path, pool), *step)
        assert done.returncode == (-signal.SIGKILL if place else 0), (place, done.stderr)
    assert grown(tmp_path) == grown(whole)
    assert check_pool(whole / "mine" / "round-0" / "pool", progress=False).faults == ()


def test_another_policy_s_episodes_are_played_again(whole: Path, pool: Path) -> None:
    listing = next((whole / "mine" / "round-0" / "raw").glob("set=*/scheme=*/episodes.parquet"))
    before = pq.read_table(listing, partitioning=None)
    save_policy(whole / "mine" / "round-0" / "policy", seed=3)
    done = run("-m", "sagecc", *arguments(whole, pool), *PLAY)
    assert done.returncode == 0, done.stderr
    after = pq.read_table(listing, partitioning=None)
    assert after.schema.metadata[b"sagecc.player"] != before.schema.metadata[b"sagecc.player"]
    assert after["episode_id"].to_pylist() == before["episode_id"].to_pylist()
    assert after["cwnd_mean"].to_pylist() != before["cwnd_mean"].to_pylist()
