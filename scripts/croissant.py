# SPDX-License-Identifier: Apache-2.0
"""datasets/croissant.json, the pool's description for machines (Croissant), from schemas/ and measured files."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any

import mlcroissant as mlc
import pyarrow as pa

from sagecc.pool.exports.about import AUTHOR, CITATION, SUMMARY, TAGS, TITLE
from sagecc.schemas.partitions import EPISODES_FILE, PARTS
from sagecc.schemas.pool import EPISODE_COLUMNS, POOL_COLUMNS, POOL_VERSION, Column
from scripts.dataset_card import FOLDER, LICENCE_URL, LIMITS, USES, measured

PAGE = FOLDER / "croissant.json"

TYPES = {
    pa.string(): mlc.DataType.TEXT,
    pa.bool_(): mlc.DataType.BOOL,
    pa.int32(): mlc.DataType.INT32,
    pa.int64(): mlc.DataType.INT64,
    pa.float32(): mlc.DataType.FLOAT32,
    pa.float64(): mlc.DataType.FLOAT64,
}
PARQUET = "application/x-parquet"


def page(pool: str = "full/pool") -> str:
    """Return the description as JSON. pool: where the pool lies, seen from the description's folder."""
    logging.getLogger("absl").setLevel(logging.ERROR)  # its warnings are recommendations: a URL, a DOI
    figures = measured()
    files = [
        mlc.FileSet(
            id="transitions-files",
            name="transitions-files",
            description="The rows; set and scheme are in the names of the folders.",
            encoding_formats=[PARQUET],
            includes=[f"{pool}/{PARTS}"],
        ),
        mlc.FileSet(
            id="episodes-files",
            name="episodes-files",
            description="The list of episodes.",
            encoding_formats=[PARQUET],
            includes=[f"{pool}/{EPISODES_FILE}"],
        ),
    ]
    records = [
        _records("episodes", "A row an episode.", ["episode_id"], EPISODE_COLUMNS),
        _records("transitions", "A row a tick of 10 ms: state, action, reward.", ["episode_id", "step"], POOL_COLUMNS),
    ]
    metadata = mlc.Metadata(
        name=TITLE,
        description=f"{SUMMARY} {figures.episodes:,} episodes, {figures.rows:,} rows.",
        version=f"{POOL_VERSION}.0",
        license=[LICENCE_URL],
        creators=[mlc.Organization(name=AUTHOR)],
        cite_as=CITATION,
        keywords=list(TAGS),
        date_published=datetime.fromisoformat(figures.date),
        distribution=files,
        record_sets=records,
        data_collection="Emulated: the Linux kernel's own TCP in virtual time; no traffic of people was recorded.",
        data_use_cases=list(USES),
        data_limitations=list(LIMITS),
        personal_sensitive_information=["None."],
    )
    return json.dumps(_plain(metadata.to_json()), indent=1, ensure_ascii=False) + "\n"


def _records(name: str, about: str, key: list[str], columns: tuple[Column, ...]) -> Any:
    return mlc.RecordSet(
        id=name,
        name=name,
        description=about,
        key=[f"{name}/{part}" for part in key],
        fields=[_field(name, column) for column in columns],
    )


def _field(name: str, column: Column) -> Any:
    unit = f" [{column.unit}]" if column.unit else ""
    references = {}
    if name == "transitions" and column.name == "episode_id":
        references = {"references": mlc.Source(field="episodes/episode_id")}
    return mlc.Field(
        id=f"{name}/{column.name}",
        name=f"{name}/{column.name}",
        description=f"{column.formula}{unit}",
        data_types=[TYPES[column.dtype]],
        source=mlc.Source(file_set=f"{name}-files", extract=mlc.Extract(column=column.name)),
        **references,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.date().isoformat() if isinstance(value, datetime) else value
