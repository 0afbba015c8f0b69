# SPDX-License-Identifier: Apache-2.0
"""The pool in physical units: the view `samples` as Parquet, for spreadsheets and plots. Reads the raw data too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa

from sagecc.common.errors import SageccError
from sagecc.common.markdown import literal_text
from sagecc.common.parts import PartWriter
from sagecc.common.tables import reading_error
from sagecc.pool.exports.about import SUMMARY, TITLE
from sagecc.pool.exports.episodes import PoolSource
from sagecc.pool.readme import column_table
from sagecc.pool.view_columns import OF_EPISODES, OF_SAMPLES
from sagecc.pool.views import has_raw, open_pool
from sagecc.schemas.partitions import EPISODES_FILE, partition
from sagecc.schemas.pool import EPISODE_COLUMNS, Column, schema_of

GROUP_ROWS = 100_000

EPISODES = "CREATE TABLE listed AS SELECT * FROM episodes WHERE episode_id IN (SELECT unnest(?)) ORDER BY ALL"
SAMPLES = """
FROM samples WHERE "set" = ? AND scheme = ? AND episode_id IN (SELECT episode_id FROM listed) ORDER BY episode_id, step
"""


def write(folder: Path, source: PoolSource, advance: Callable[[int], object]) -> str:
    """Write the samples, the episodes and a README.

    Args:
        folder: where to write them.
        source: the episodes; the raw trajectories lie beside their pool.
        advance: called with the number of rows after each batch.

    Returns:
        Code that reads the result, with `{path}` for its folder.
    """
    raw = source.pool.parent / "raw"
    if not has_raw(raw):
        raise SageccError(f"{raw} holds no raw trajectories: windows and packets of the samples are counted there")
    schema = schema_of(OF_SAMPLES)
    with open_pool(source.pool, raw) as connection:
        connection.execute(EPISODES, [[row["episode_id"] for row in source.listing]])
        for key in source.partitions:
            with PartWriter(folder / partition(*key), schema, GROUP_ROWS, {}) as out:
                try:
                    for batch in pa.RecordBatchReader.from_stream(connection.sql(SAMPLES, params=list(key))):
                        out.write(pa.table(batch))
                        advance(batch.num_rows)
                except duckdb.Error as error:
                    raise reading_error(source.pool, error, "look with 'sagecc pool check'") from error
        connection.execute(f"COPY listed TO '{_quoted(folder / EPISODES_FILE)}' (FORMAT parquet, COMPRESSION zstd)")
    (folder / "README.md").write_text(readme(source))
    return "polars.read_parquet('{path}/set=*/**/*.parquet')"


def readme(source: PoolSource) -> str:
    """Return what lies beside the files."""
    schemes = ", ".join(literal_text(name) for name in dict.fromkeys(row["scheme"] for row in source.listing))
    return f"""# {TITLE}: samples in physical units

{SUMMARY}

{len(source.listing):,} episodes, {source.rows:,} rows, one each 10 ms. Schemes: {schemes}.

## Samples: `set=*/scheme=*/part-*.parquet`

{_table(OF_SAMPLES)}

## Episodes: `{EPISODES_FILE}`

{_table([*map(_as_in_the_view, EPISODE_COLUMNS), *OF_EPISODES])}
"""


def _as_in_the_view(column: Column) -> Column:
    return replace(column, name="capacity_step") if column.name == "step" else column


def _table(columns: Iterable[Column]) -> str:
    return column_table((column.name, column.unit, column.formula) for column in columns)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
