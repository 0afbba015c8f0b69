# SPDX-License-Identifier: Apache-2.0
"""datasets/croissant.json, the pool's description for machines (Croissant), from schemas/ and measured files."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from types import MappingProxyType
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


def page() -> str:
    """Return the description of datasets/, of the full grid's pool, as JSON."""
    figures = measured()
    text = f"{SUMMARY} {figures.episodes:,} episodes, {figures.rows:,} rows."
    return _text(text, _parts("full/pool"), datetime.fromisoformat(figures.date))


def release(pools: Sequence[str]) -> str:
    """Return the description of a folder with several pools (scripts.dataset_release) as JSON.

    Args:
        pools: names of the pools and of their folders.
    """
    files, records = zip(*(_parts(pool, f"{pool}-") for pool in pools), strict=True)
    return _text(SUMMARY, (chain.from_iterable(files), chain.from_iterable(records)))


def _parts(pool: str, prefix: str = "") -> tuple[Iterable[Any], Iterable[Any]]:
    """Return a pool's file sets and record sets.

    Args:
        pool: where it lies, seen from the description's folder.
        prefix: of their names.
    """
    episodes, transitions = f"{prefix}episodes", f"{prefix}transitions"
    files = (
        (transitions, "The rows; set and scheme are in the names of the folders.", PARTS),
        (episodes, "The list of episodes.", EPISODES_FILE),
    )
    file_sets = [
        mlc.FileSet(
            id=f"{name}-files",
            name=f"{name}-files",
            description=about,
            encoding_formats=[PARQUET],
            includes=[f"{pool}/{pattern}"],
        )
        for name, about, pattern in files
    ]
    records = [
        _records(episodes, "A row an episode.", ["episode_id"], EPISODE_COLUMNS),
        _records(
            transitions,
            "A row a tick of 10 ms: state, action, reward.",
            ["episode_id", "step"],
            POOL_COLUMNS,
            {"episode_id": f"{episodes}/episode_id"},
        ),
    ]
    return file_sets, records


def _text(about: str, parts: tuple[Iterable[Any], ...], published: datetime | None = None) -> str:
    logging.getLogger("absl").setLevel(logging.ERROR)  # its warnings are recommendations: a URL, a DOI
    files, records = map(list, parts)
    metadata = mlc.Metadata(
        name=TITLE,
        description=about,
        version=f"{POOL_VERSION}.0",
        license=[LICENCE_URL],
        creators=[mlc.Organization(name=AUTHOR)],
        cite_as=CITATION,
        keywords=list(TAGS),
        date_published=published,
        distribution=files,
        record_sets=records,
        data_collection="Emulated: the Linux kernel's own TCP in virtual time; no traffic of people was recorded.",
        data_use_cases=list(USES),
        data_limitations=list(LIMITS),
        personal_sensitive_information=["None."],
    )
    return json.dumps(_plain(metadata.to_json()), indent=1, ensure_ascii=False) + "\n"


def _records(
    name: str,
    about: str,
    key: list[str],
    columns: tuple[Column, ...],
    references: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    return mlc.RecordSet(
        id=name,
        name=name,
        description=about,
        key=[f"{name}/{part}" for part in key],
        fields=[_field(name, column, references.get(column.name)) for column in columns],
    )


def _field(name: str, column: Column, reference: str | None) -> Any:
    unit = f" [{column.unit}]" if column.unit else ""
    references = {"references": mlc.Source(field=reference)} if reference else {}
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
