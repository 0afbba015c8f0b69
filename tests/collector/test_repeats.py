# SPDX-License-Identifier: Apache-2.0
"""Repeats in the lab: the first is the network as planned, byte for byte; the others differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.grid import bottleneck
from sagecc.schemas.environment import CrossFlow, Environment, dumbbell
from sagecc.schemas.environment_set import EnvironmentSet, repeated

LOSSY = dumbbell("mine", replace(bottleneck(12, 1, 20, 1, 3), loss=0.01), 10, 3, ((0, 3),))
BESIDE = dumbbell("mine", bottleneck(12, 1, 40, 1, 3), 20, 3, ((1, 3),), cross=(CrossFlow("cubic"),), start_s=1)
MINE = EnvironmentSet("mine", "--environments mine.yaml", (LOSSY, BESIDE))
COUNTERS = ("cwnd_pkts", "received_bytes", "link_drops", "link_queue_bytes")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, kernel: Path) -> tuple[Path, Path]:
    once, often = tmp_path_factory.mktemp("once"), tmp_path_factory.mktemp("often")
    three = repeated(MINE, 3)
    collect(MINE.environments, ("cubic",), once, kernel, local(2), progress=False)
    collect(three.environments, ("cubic",), often, kernel, local(2), progress=False, seeds=three.seeds(0))
    return once, often


def rows(folder: Path) -> dict[str, pl.DataFrame]:
    table = pl.read_parquet(folder / "set=mine/scheme=cubic/part-000.parquet", hive_partitioning=False)
    return {str(name[0]): part for name, part in table.group_by("episode_id")}


def test_the_first_is_the_network_as_planned(folders: tuple[Path, Path]) -> None:
    once, often = map(rows, folders)
    assert len(often) == 6
    for name, planned in once.items():
        assert often[name].equals(planned)


@pytest.mark.parametrize("planned", [LOSSY, BESIDE], ids=["lossy", "beside-cubic"])
def test_the_others_differ(folders: tuple[Path, Path], planned: Environment) -> None:
    three = repeated(MINE, 3)
    seeds, found = three.seeds(0), rows(folders[1])
    of_network = [
        found[f"{each.id}.cubic.{seeds.get(each.id, 0)}"]
        for each in three.environments
        if each == planned or (each.id in three.repeats and three.repeats[each.id].network == planned.id)
    ]
    assert len(of_network) == 3
    courses = {part.sort("step").select(COUNTERS).write_csv() for part in of_network}
    assert len(courses) == 3
