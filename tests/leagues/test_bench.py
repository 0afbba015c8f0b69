# SPDX-License-Identifier: Apache-2.0
"""sagecc-bench-1: frozen networks, shipped plays that are the kernel's, one number."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.grid import profile_environments
from sagecc.commands.bench import command
from sagecc.common.errors import SageccError
from sagecc.leagues import bench
from sagecc.leagues.scores import find_episodes, score
from sagecc.leagues.standings import mark_winners
from sagecc.schemas.schemes import SCHEMES

NETWORKS = profile_environments(bench.PROFILE)


def test_the_networks_are_frozen_and_no_smaller_profiles() -> None:
    assert bench.networks_digest() == "fbafe7c322b2a39050625d876525f910cdbd1dabbeb5abff5a1ae6aafc640feb"
    assert Counter(e.set for e in NETWORKS) == {"I": 40, "II": 20}
    assert len({e.id for e in NETWORKS}) == 60
    used = {e.id for profile in ("smoke", "small", "spread") for e in profile_environments(profile)}
    known = {e.id for profile in ("full", "heldout") for e in profile_environments(profile)}
    ids = {e.id for e in NETWORKS}
    assert not ids & used and ids <= known
    assert set(Counter(e.bandwidth_mbps for e in NETWORKS if e.set == "I").values()) == {3, 5, 6}


def test_the_plays_are_whole() -> None:
    plays, _ = bench.read_plays()
    assert len(plays) == len(SCHEMES) * sum(len(e.windows_s) for e in NETWORKS)
    assert set(plays["scheme"]) == set(SCHEMES)
    assert set(plays["status"]) == {"ok"} and not plays.null_count().row(0).count(1)


def test_the_plays_are_what_the_kernel_plays(kernel: Path, tmp_path: Path) -> None:
    cheapest = min(NETWORKS, key=lambda e: e.bandwidth_mbps * e.duration_s)
    collect([cheapest], ["vegas"], tmp_path, kernel, local(1), progress=False)
    own = score([cheapest], ["vegas"], find_episodes([tmp_path], [cheapest], ["vegas"]))
    plays, _ = bench.read_plays()
    stored = plays.filter(scheme="vegas", environment_id=cheapest.id)
    assert stored.sort("window").equals(own.sort("window"))


def test_a_score_is_the_mean_of_the_sets_rates_within_its_interval() -> None:
    plays, identity = bench.read_plays()
    found = bench.scored("bbr2", plays, None, identity)
    assert found.score.rate == pytest.approx(np.mean([rate.rate for rate in found.sets.values()]))
    assert found.score.low < found.score.rate < found.score.high
    assert len(found.ranking) == len(SCHEMES)
    row = found.ranking.filter(scheme="bbr2").to_dicts()[0]
    assert (row["rank"], row["winning_rate"]) == (found.rank, pytest.approx(found.score.rate))


def test_who_wins_everywhere_has_one_and_no_doubt() -> None:
    plays, _ = bench.read_plays()
    alone = mark_winners(plays.filter(scheme="cubic"))
    assert bench.mean_rate(alone) == bench.Rate(1, 1, 1)
    half = alone.with_columns(win=pl.col("environment_id").rank("dense") % 2 == 0)
    assert bench.mean_rate(half).low < 0.5 < bench.mean_rate(half).high


def test_the_command_prints_what_a_submission_holds(kernel: Path, tmp_path: Path) -> None:
    arguments = ["cubic", "--json", "--kernel", str(kernel), "--out", str(tmp_path)]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    found = json.loads(done.output)
    assert (found["benchmark"], found["scheme"], found["of"]) == ("sagecc-bench-1", "cubic", 13)
    assert found["networks"] == bench.networks_digest()
    assert 0 <= found["score"]["low"] <= found["score"]["rate"] <= found["score"]["high"] <= 1


def test_another_kernels_plays_are_refused(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plays, _ = bench.read_plays()
    monkeypatch.setattr(bench, "read_plays", lambda: (plays, "linux-of-another-day"))
    with pytest.raises(SageccError, match="played on kernel linux-of-another-day"):
        bench.run("cubic", kernel, tmp_path, jobs=1, batch=1)
