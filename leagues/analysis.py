# SPDX-License-Identifier: Apache-2.0
"""The files that `sagecc distance`, `similarity` and `tsne` write: a table, and its summary as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from sagecc.common.files import write_atomically
from sagecc.common.marks import parquet_mark

ANALYSIS_VERSION = "1.0"
"""Of both files."""

_VERSION_KEY = b"sagecc.analysis_version"


def save(out: Path, name: str, table: pl.DataFrame, summary: Mapping[str, object]) -> None:
    """Write out/name.parquet and .json, each whole or not at all.

    Args:
        out: folder, made where there is none.
        name: the files' stem.
        table: the .parquet file's content.
        summary: the .json file's content, less its version.

    Raises:
        SageccError: the folder holds files of these names that are no analysis's.
    """
    with parquet_mark("an analysis's", rf"{name}\.(parquet|json|png)", _VERSION_KEY).filling(out):
        with write_atomically(out / f"{name}.parquet") as temporary:
            table.write_parquet(temporary, compression="zstd", metadata={_VERSION_KEY.decode(): ANALYSIS_VERSION})
        with write_atomically(out / f"{name}.json") as temporary:
            temporary.write_text(json.dumps({"version": ANALYSIS_VERSION, **summary}, indent=2) + "\n")
