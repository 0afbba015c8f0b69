# SPDX-License-Identifier: Apache-2.0
"""The data set's folder for a hub: libraries read each configuration by its card and description."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sagecc.common.errors import SageccError
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.schemas.partitions import EPISODES_FILE, PARTS
from scripts.dataset_release import publish
from tests.helpers.raw_episodes import write_partition


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, scheme in (("small", "cubic"), ("full", "vegas")):
        folder = tmp_path_factory.mktemp(name)
        write_partition(folder / "raw", "I", scheme, rows=(120, 90))
        write_partition(folder / "raw", "II", scheme, rows=(100,))
        build_pool(folder / "raw", folder / "pool", progress=False)
        found[name] = folder / "pool"
    return found


@pytest.fixture(scope="module")
def folder(pools: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "dataset"
    publish(pools, out)
    return out


@pytest.mark.parametrize("config", ["small", "full-episodes"])
def test_load_dataset_reads_a_configuration(
    folder: Path, pools: dict[str, Path], tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    found = datasets.load_dataset(str(folder), config, split="train", cache_dir=str(tmp_path))
    name, _, listing = config.partition("-")
    files = [pools[name] / EPISODES_FILE] if listing else sorted(pools[name].glob(PARTS))
    expected = pl.concat([pl.read_parquet(path, hive_partitioning=False) for path in files])
    keys = ["episode_id", "step"] if not listing else ["episode_id"]
    read = pl.DataFrame(pl.from_arrow(found.data.table)).select(expected.columns)
    assert read.sort(keys).equals(expected.sort(keys))


def test_each_configuration_is_a_pool_that_passes_its_check(folder: Path, pools: dict[str, Path]) -> None:
    for name, pool in pools.items():
        assert not check_pool(folder / name, None, 1, progress=False).faults
        assert (folder / name / "manifest.json").read_bytes() == (pool / "manifest.json").read_bytes()


def test_croissant_is_valid_and_has_each_configurations_rows(folder: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant")
    dataset = mlcroissant.Dataset(jsonld=folder / "croissant.json")
    assert not dataset.metadata.ctx.issues.errors
    for name in ("small", "full"):
        assert len(list(dataset.records(f"{name}-transitions"))) == 119 + 89 + 99
        assert len(list(dataset.records(f"{name}-episodes"))) == 3


def test_the_card_says_what_is_there(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    assert "| `small`, `small-episodes` | 1 | 3 | 3 | 307 |" in card
    assert "kicked`," not in card and "address to be filled in" in card


def test_a_damaged_or_mixed_pool_is_refused(pools: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="there is no pool"):
        publish({}, tmp_path / "out")
    write_partition(tmp_path / "raw", "I", "cubic", rows=(30,))
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    part = next((tmp_path / "pool").glob(PARTS))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(SageccError, match=r"part-000.parquet is not as manifest.json says"):
        publish({"small": tmp_path / "pool"}, tmp_path / "out")
    assert not (tmp_path / "out").exists()
