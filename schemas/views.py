# SPDX-License-Identifier: Apache-2.0
"""Opens a pool in DuckDB with the views of views.sql."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import SageccError
from schemas.pool import POOL_VERSION

VIEWS = ("transitions", "episodes", "environments", "schemes", "columns")

_SQL = Path(__file__).with_name("views.sql")


def open_pool(pool: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection, in memory, that has VIEWS over the files of `pool`.

    Raises SageccError where there is no pool, or one that cannot be read or is of another major version.
    """
    listing = pool / "episodes.parquet"
    if not listing.exists():
        raise SageccError(f"no pool at {pool}: it has no episodes.parquet; make it with 'sagecc pool'")
    try:
        meta = pq.read_schema(listing).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise SageccError(f"{listing} is truncated or corrupt: derive the pool again with 'sagecc pool'") from error
    version = meta.get(b"sagecc.pool_version", b"none").decode()
    if version.split(".")[0] != POOL_VERSION.split(".")[0]:
        raise SageccError(
            f"{listing} has pool version {version}, this program reads {POOL_VERSION}:"
            " derive the pool again with 'sagecc pool'"
        )
    connection = duckdb.connect()
    connection.execute("SET VARIABLE pool = ?", [str(pool)])
    try:
        connection.execute(_SQL.read_text())
    except duckdb.Error as error:
        connection.close()
        raise SageccError(
            f"the pool at {pool} cannot be opened ({str(error).splitlines()[0]}): derive it again with 'sagecc pool'"
        ) from error
    return connection
