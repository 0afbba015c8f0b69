# SPDX-License-Identifier: Apache-2.0
"""Opens a pool in DuckDB with the views of views.sql, and beside it the raw trajectories and a league's scores."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from sagecc.common.errors import SageccError
from sagecc.common.inputs import check_regular
from sagecc.common.parquet import parquet_schema
from sagecc.common.paths import is_literal, literal, spelled_out
from sagecc.common.remote import Place, Remote, matching
from sagecc.common.tables import UNREADABLE, column_fault, reading_error
from sagecc.common.versions import same_major
from sagecc.pool.relabelling import COLUMNS, rewards_of
from sagecc.pool.reward import reward_of
from sagecc.pool.view_columns import computed
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import EPISODES_FILE, LISTINGS, PARTS, partition_of
from sagecc.schemas.pool import ALIGNMENT_KEY, COLUMNS_FILE, POOL_SCHEMA, REWARD_ALIGNMENTS, VERSION_KEY, check_version
from sagecc.schemas.raw import RAW_VERSION
from sagecc.schemas.schemes import is_disturbed

VIEWS = ("transitions", "episodes", "environments", "schemes", "rounds", "columns")
"""Views that every pool has, beside the table macros `episode` and `rewards`."""

RAW_VIEW, LEAGUE_VIEW, SAMPLES_VIEW = "raw", "league", "samples"
LEAGUE_FILE = "scores.parquet"
TABLE_READERS: Mapping[str, str] = MappingProxyType(
    {
        ".parquet": "read_parquet('{}', hive_partitioning = false)",
        ".csv": "read_csv('{}', hive_partitioning = false)",
        ".json": "read_json('{}', sample_size = -1, hive_partitioning = false)",
        ".jsonl": "read_json('{}', format = 'newline_delimited', sample_size = -1, hive_partitioning = false)",
    }
)
"""How DuckDB reads a table of the user's, by the file's suffix."""
_TABLE_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)

THREADS_PER_CORE = 4
"""A DuckDB thread waits while it reads: with more threads than cores the disk and the cores are both busy."""

CONFINING = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET allow_unsigned_extensions = false",
    "SET allow_persistent_secrets = false",  # they lie in the home folder
    "SET python_enable_replacements = false",  # a table's name could else be a variable's of this program
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""What `confine` sets, the lock last."""

_SQL = Path(__file__).parent
_RAW_VERSION_KEY = b"sagecc.raw_version"
_BESIDE = {"pool": (EPISODES_FILE, COLUMNS_FILE), RAW_VIEW: (), LEAGUE_VIEW: (LEAGUE_FILE,)}
"""Files of the views, besides the parts."""


def open_pool(
    pool: Place | None,
    raw: Place | None = None,
    league: Place | None = None,
    *,
    confined: bool = False,
    tables: Mapping[str, Path] = MappingProxyType({}),
) -> duckdb.DuckDBPyConnection:
    """Open a pool in DuckDB, in memory, with VIEWS over its files. Close it: it holds a function of this program.

    Args:
        pool: the pool's folder, here or in a store; None for the other views alone.
        raw: folder of raw trajectories, for the view `raw` and, with a pool, `samples`; no such views by default.
        league: folder of a league's results, for the view `league` of its scores; no such view by default.
        confined: for SQL of somebody else: `confine` it to these views' files. By default it may read and write all
            files that this program may, and load extensions.
        tables: files of TABLE_READERS, by the names of their views.

    Returns:
        The connection.

    Raises:
        SageccError: One of them is missing, cannot be read or is of another major version.
    """
    alignment = None if pool is None else _check_pool(pool)
    if raw is not None:
        _check_raw(raw)
    if league is not None and not (league / LEAGUE_FILE).exists():
        raise SageccError(f"no league at {league}: it has no {LEAGUE_FILE}; play one with 'sagecc league'")
    connection = duckdb.connect()
    try:
        for scheme in {place.scheme for place in (pool, raw, league) if isinstance(place, Remote)}:
            from sagecc.pool.objects import Objects  # a library that few need

            connection.register_filesystem(Objects(scheme))
        if connection.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (True,):
            # Where Python seems interactive it goes to stdout. In a notebook without ipywidgets there is none to set.
            connection.execute("SET enable_progress_bar = false")
        connection.execute("SET parquet_metadata_cache = true")  # a file's footer is read once, not with every query
        connection.execute(f"SET threads = {THREADS_PER_CORE * len(os.sched_getaffinity(0))}")
        connection.execute("SET VARIABLE view_columns = ?", [computed().to_pylist()])
        files: list[Place] = [
            file
            for name, folder, views in (
                ("pool", pool, "views.sql"),
                (RAW_VIEW, raw, "views_raw.sql"),
                (LEAGUE_VIEW, league, "views_league.sql"),
            )
            if folder is not None
            for file in _add(connection, name, folder, views)
        ]
        if alignment is not None:
            _add_rewards(connection, alignment)
            if raw is not None:
                connection.execute((_SQL / "views_samples.sql").read_text())
            _add_comments(connection, pool)
        files += [_add_table(connection, name, path) for name, path in tables.items()]
        if confined:
            confine(connection, files)
    except BaseException:
        connection.close()
        raise
    return connection


def confine(connection: duckdb.DuckDBPyConnection, files: Sequence[Place]) -> None:
    """Let a connection read nothing but these files and what it spills itself, load no extension, change no setting.

    They can still be overwritten: whoever runs SQL of somebody else refuses COPY (sagecc.answers.run_query).
    """
    connection.execute("SET allowed_paths = ?", [[str(file) for file in files]])
    for setting in CONFINING:
        connection.execute(setting)


def has_pool(folder: Place) -> bool:
    """Tell whether a folder holds a pool."""
    return (folder / EPISODES_FILE).exists()


def has_raw(folder: Place) -> bool:
    """Tell whether a folder holds raw trajectories."""
    return any(folder.glob(PARTS)) and any(folder.glob(LISTINGS))


def has_league(folder: Place) -> bool:
    """Tell whether a folder holds a league's scores."""
    return (folder / LEAGUE_FILE).exists()


def _add(connection: duckdb.DuckDBPyConnection, name: str, folder: Place, views: str) -> list[Place]:
    """Add a folder's views; return the files that they read."""
    what = {"pool": "pool", RAW_VIEW: "raw trajectories", LEAGUE_VIEW: "league's scores"}[name]
    again = {"pool": "derive it again with 'sagecc pool'", RAW_VIEW: "collect again", LEAGUE_VIEW: "play it again"}[
        name
    ]
    place = _literal(folder)
    parts = [] if name == LEAGUE_VIEW else matching(place, PARTS)
    for names in (str(part).removeprefix(f"{place}/") for part in parts):
        if not all(is_literal(each.partition("=")[2] or each) for each in names.split("/")):
            raise SageccError(f"{folder / names}: DuckDB takes such a name for a pattern; {again}")
    files = [*parts, *(place / file for file in _BESIDE[name])]
    for file in files:
        if isinstance(file, Path) and file.exists():  # DuckDB says what is missing
            check_regular(Path(spelled_out(str(file))))
    connection.execute(f"SET VARIABLE {name} = ?", [str(place)])
    if parts:
        connection.execute(f"SET VARIABLE {name}_parts = ?", [[str(part) for part in parts]])
        disturbed = any(is_disturbed(partition_of(part)[1]) for part in parts)
        connection.execute(f"SET VARIABLE {name}_disturbed = ?", [disturbed])
    try:
        connection.execute((_SQL / views).read_text())
    except duckdb.Error as error:
        raise SageccError(spelled_out(str(reading_error(f"the {what} at {folder}", error, again)))) from error
    return files


def _literal(folder: Place) -> Place:
    """Return a name of a folder that DuckDB takes for what it says; raises SageccError where a store's has none."""
    if isinstance(folder, Path):
        return literal(folder)
    if not is_literal(str(folder)):
        raise SageccError(f"{folder}: DuckDB takes such a name for a pattern; copy what is there to another folder")
    return folder


def _add_rewards(connection: duckdb.DuckDBPyConnection, alignment: str) -> None:
    """Add the table macro `rewards` and the function behind it."""

    def rewards_of_rows(names: pa.Array, environments: pa.Array, episodes: pa.Array) -> pa.Array:
        rows_of_episodes = zip(names.to_pylist(), environments.to_pylist(), episodes, strict=True)
        rewards = [
            rewards_of(
                reward_of(name),
                {column: rows.values.field(column).to_numpy() for column in COLUMNS},
                Environment.from_json(environment),
                alignment,
            )
            for name, environment, rows in rows_of_episodes
        ]
        return pa.array(rewards, pa.list_(pa.float32()))

    ticks = "STRUCT(step INTEGER, t_s DOUBLE, dr FLOAT, loss_db FLOAT, rtt_rate FLOAT, reward FLOAT)[]"
    connection.create_function(
        "rewards_of_rows",
        rewards_of_rows,
        [duckdb.sqltype("VARCHAR"), duckdb.sqltype("VARCHAR"), duckdb.sqltype(ticks)],
        duckdb.sqltype("FLOAT[]"),
        type=PythonUDFType.ARROW,
    )
    connection.execute((_SQL / "views_rewards.sql").read_text())


def _add_comments(connection: duckdb.DuckDBPyConnection, pool: Place | None) -> None:
    """Say in DuckDB's catalogue what the views' columns mean: formula and unit."""
    try:
        rows = connection.execute('SELECT "table", name, formula, unit FROM columns').fetchall()
    except duckdb.Error as error:
        raise reading_error(f"{pool}/{COLUMNS_FILE}", error, "derive the pool again with 'sagecc pool'") from error
    meanings = {(table, name): f"{formula} [{unit}]" if unit else formula for table, name, formula, unit in rows}
    views = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal"
    for view, name in connection.execute(views).fetchall():
        if meaning := meanings.get((view, name)) or meanings.get(("episodes", name)):
            quoted_name, quoted = name.replace('"', '""'), meaning.replace("'", "''")
            connection.execute(f"COMMENT ON COLUMN {view}.\"{quoted_name}\" IS '{quoted}'")


def _add_table(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> Path:
    """Add a view of one file; return the file."""
    if not _TABLE_NAME.fullmatch(name) or name in (*VIEWS, RAW_VIEW, LEAGUE_VIEW, SAMPLES_VIEW):
        raise SageccError(f"'{name}' can be no table's name: use letters, digits and _, and no view's name")
    if path.suffix not in TABLE_READERS:
        raise SageccError(f"{path}: a table is a file of {', '.join(TABLE_READERS)}")
    if not is_literal(str(path)):
        raise SageccError(f"{path}: DuckDB takes such a name for a pattern; rename it")
    check_regular(path)
    quoted = str(path).replace("'", "''")
    try:
        connection.execute(f"CREATE VIEW {name} AS FROM {TABLE_READERS[path.suffix].format(quoted)}")
    except duckdb.Error as error:
        raise reading_error(path, error, "name another file") from error
    return path


def _check_pool(pool: Place) -> str:
    """Return when a pool's rewards are measured; raises SageccError where there is no pool that can be read."""
    listing, again = pool / EPISODES_FILE, "derive the pool again with 'sagecc pool'"
    if not listing.exists():
        raise SageccError(f"no pool at {pool}: it has no episodes.parquet; make it with 'sagecc pool'")
    check_version(listing, _metadata(listing, again).get(VERSION_KEY, b"").decode(errors="replace"))
    return _check_first(pool)


def _check_first(pool: Place) -> str:
    """Return when a pool's rewards are measured, by its first file.

    Raises:
        SageccError: that file lacks a column: DuckDB takes the columns of all from it.
    """
    parts = matching(pool, PARTS)
    if not parts:
        return REWARD_ALIGNMENTS[0]  # DuckDB says so
    path = parts[0]
    again = "derive the pool again with 'sagecc pool'"
    try:
        schema = _schema(path)
        fault = column_fault(schema, POOL_SCHEMA)
    except UNREADABLE as error:
        raise reading_error(path, error, again) from error
    if fault:
        raise SageccError(f"{path} {fault}: {again}")
    metadata: dict[bytes, bytes] = schema.metadata or {}
    return metadata.get(ALIGNMENT_KEY, REWARD_ALIGNMENTS[0].encode()).decode(errors="replace")


def _check_raw(raw: Place) -> None:
    listings = matching(raw, LISTINGS)
    if not listings or not has_raw(raw):
        raise SageccError(f"no raw trajectories at {raw}: make them with 'sagecc collect'")
    for path in listings:
        version = _metadata(path, "collect again").get(_RAW_VERSION_KEY, b"none").decode(errors="replace")
        if not same_major(version, RAW_VERSION):
            raise SageccError(f"{path} has raw version {version}, this program reads {RAW_VERSION}: collect it again")


def _metadata(path: Place, again: str) -> dict[bytes, bytes]:
    try:
        return dict(_schema(path).metadata or {})
    except UNREADABLE as error:
        raise reading_error(path, error, again) from error


def _schema(path: Place) -> pa.Schema:
    return parquet_schema(path)
