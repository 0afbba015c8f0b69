# SPDX-License-Identifier: Apache-2.0
"""The pool's card and its Croissant description are up to date and true: libraries find by them what the files have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
import yaml

from sagecc.pool.derivation import build_pool
from sagecc.schemas.partitions import EPISODES_FILE, PARTS
from sagecc.schemas.pool import EPISODE_COLUMNS, POOL_COLUMNS
from scripts import croissant, dataset_card
from tests.conftest import ROOT
from tests.helpers.raw_episodes import write_partition


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `datasets` is, with its card and description and a small pool in both places."""
    found = tmp_path_factory.mktemp("datasets")
    write_partition(found / "raw", "I", "cubic", rows=(120, 90))
    write_partition(found / "raw", "II", "vegas", rows=(100,))
    for pool in (found / "pool", found / "full" / "pool"):
        build_pool(found / "raw", pool, progress=False)
    for page in (dataset_card.PAGE, croissant.PAGE):
        (found / page.name).write_bytes(page.read_bytes())
    return found


def test_links_of_the_card_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", dataset_card.PAGE.read_text())
    assert links
    for target in links:
        assert (dataset_card.FOLDER / target).exists(), target


def test_the_figures_are_those_of_the_stages() -> None:
    figures = dataset_card.measured()
    lock = yaml.safe_load((ROOT / "datasets" / "full" / "dvc.lock").read_text())["stages"]
    assert figures.pool_bytes == lock["pool"]["outs"][0]["size"]
    assert figures.raw_rows - figures.rows == figures.episodes == 13 * sum(figures.environments.values())
    assert f"| {figures.rows:,} |" in dataset_card.PAGE.read_text()


@pytest.mark.parametrize(
    ("config", "files"), [("transitions", PARTS), ("small-transitions", PARTS), ("episodes", EPISODES_FILE)]
)
def test_hugging_face_reads_the_folder_by_its_card(folder: Path, tmp_path: Path, config: str, files: str) -> None:
    datasets = pytest.importorskip("datasets")
    found = datasets.load_dataset(str(folder), config, split="train", cache_dir=str(tmp_path))
    pool = folder / "pool" if config.startswith("small") else folder / "full" / "pool"
    expected = pl.concat([pl.read_parquet(path, hive_partitioning=False) for path in sorted(pool.glob(files))])
    columns = [name for name in found.column_names if name in expected.columns]
    assert columns == expected.columns
    keys = columns[:2] if "step" in columns[:2] else columns[:1]
    read = pl.DataFrame(pl.from_arrow(found.data.table))
    assert read.select(columns).sort(keys).equals(expected.sort(keys))


def test_croissant_is_valid_and_its_records_are_the_rows(folder: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant")
    dataset = mlcroissant.Dataset(jsonld=folder / croissant.PAGE.name)
    assert not dataset.metadata.ctx.issues.errors
    pool = folder / "full" / "pool"
    for name, files, columns in (
        ("transitions", PARTS, POOL_COLUMNS),
        ("episodes", EPISODES_FILE, EPISODE_COLUMNS),
    ):
        keys = ["episode_id", "step"] if name == "transitions" else ["episode_id"]
        expected = pl.concat([pl.read_parquet(path, hive_partitioning=False) for path in pool.glob(files)]).sort(keys)
        records = [
            {
                key.removeprefix(f"{name}/"): value.decode() if isinstance(value, bytes) else value
                for key, value in record.items()
            }
            for record in dataset.records(name)
        ]
        assert [column.name for column in columns] == list(records[0])
        found = pl.DataFrame(records, schema=expected.schema).sort(keys)
        assert found.equals(expected)


def test_croissant_names_types_and_units() -> None:
    described = json.loads(croissant.PAGE.read_text())
    fields = {field["name"]: field for records in described["recordSet"] for field in records["field"]}
    assert len(fields) == len(POOL_COLUMNS) + len(EPISODE_COLUMNS)
    assert fields["transitions/srtt"]["dataType"] == "cr:Float32"
    assert fields["transitions/srtt"]["description"] == "sRTT / 100 ms [100 ms]"
    assert fields["transitions/episode_id"]["references"] == {"field": {"@id": "episodes/episode_id"}}
