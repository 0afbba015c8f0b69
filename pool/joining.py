# SPDX-License-Identifier: Apache-2.0
"""Several pools joined into one, which has the bytes of a pool derived from all of their raw trajectories at once.

Partitions are linked, not copied, where the file system allows: a pool that grew by a few partitions takes the room of
these alone. They are never written to in place, so that a link stays what it was.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sagecc.common.errors import SageccError
from sagecc.common.files import sync, write_atomically
from sagecc.common.manifest import FileEntry, Manifest
from sagecc.common.marks import remove_leftover
from sagecc.common.parquet import read_parquet
from sagecc.common.tables import UNREADABLE, reading_error
from sagecc.pool.derivation import POOL_MARK, PoolOptions
from sagecc.pool.readme import README_FILE, is_ours, write_readme
from sagecc.schemas.partitions import EPISODES_FILE, partition
from sagecc.schemas.pool import COLUMNS_FILE, INPUT_KEY, dictionary, episode_schema, nullable_columns
from sagecc.schemas.schemes import is_disturbed

_TABLES = (EPISODES_FILE, COLUMNS_FILE)
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}


def join_pools(pools: Sequence[Path], out: Path) -> Manifest:
    """Join pools; nothing is done where `out` is their join already.

    Args:
        pools: folders of pools with the same options, no two of which have the same partition.
        out: folder of the joined pool; one that is there is replaced as a whole.

    Returns:
        Its manifest.

    Raises:
        SageccError: A pool is missing, damaged or of other options, or two have the same partition.
    """
    manifests = [Manifest.read(pool) for pool in pools]
    for pool, manifest in zip(pools, manifests, strict=True):
        if manifest.about != manifests[0].about:
            raise SageccError(f"{pool} was derived with other options than {pools[0]}: derive one of them again")
    entries: dict[str, tuple[Path, FileEntry]] = {}
    for pool, manifest in zip(pools, manifests, strict=True):
        for name, entry in manifest.files.items():
            if name in _TABLES:
                continue
            if name in entries:
                raise SageccError(f"{pool} and {entries[name][0]} both have {name}: join pools of different schemes")
            entries[name] = pool, entry
    identities = {Path(name).parent: entry.input_sha256 for name, (_, entry) in entries.items()}
    identity = hashlib.sha256("".join(identities[folder] for folder in sorted(identities)).encode()).hexdigest()
    with suppress(SageccError):
        old_manifest = Manifest.read(out)
        rows = {name: entry for name, entry in old_manifest.files.items() if name not in _TABLES}
        if rows == {name: entry for name, (_, entry) in entries.items()} and old_manifest.about == manifests[0].about:
            return old_manifest
    fresh = out.with_name(f".tmp-{out.name}")
    described = f"|{re.escape(README_FILE)}" if is_ours(out / README_FILE) else ""
    mark = replace(POOL_MARK, names=f"{POOL_MARK.names}|set=.+{described}")
    mark.check_whole(out)
    remove_leftover(fresh)
    fresh.mkdir(parents=True)
    try:
        for name, (pool, entry) in entries.items():
            _link(pool / name, fresh / name, entry)
        tables = _write_tables(pools, fresh, identity, PoolOptions.of(manifests[0].about))
        manifest = Manifest(manifests[0].about, tables | {name: entry for name, (_, entry) in entries.items()})
        manifest.write(fresh)
        write_readme(fresh)
        mark.remove(out)
        fresh.rename(out)
        sync(out.parent)
    finally:
        remove_leftover(fresh)
    return manifest


def _link(source: Path, target: Path, entry: FileEntry) -> None:
    if not source.exists() or source.stat().st_size != entry.bytes:
        raise SageccError(f"{source} is not the file of its pool's manifest: derive that pool again with 'sagecc pool'")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def _write_tables(pools: Sequence[Path], out: Path, identity: str, options: PoolOptions) -> dict[str, FileEntry]:
    """Write the episodes of all pools and their data dictionary; return their entries."""
    listings = [_read(pool / EPISODES_FILE) for pool in pools]
    rows: list[dict[str, Any]] = [row for listing in listings for row in listing.to_pylist()]
    rows.sort(key=lambda row: (Path(partition(row["set"], row["scheme"])), row["episode_id"]))
    meta = {**(listings[0].schema.metadata or {}), INPUT_KEY: identity.encode()}
    columns, schema = _read(pools[0] / COLUMNS_FILE), listings[0].schema
    nullable = frozenset[str]().union(*(nullable_columns(listing.schema) for listing in listings))
    disturbed = any(is_disturbed(row["scheme"]) for row in rows)
    if disturbed or nullable != nullable_columns(schema):
        columns = dictionary(options.windows.ticks, options.effective, nullable, disturbed)
        schema = episode_schema(nullable)
    tables = {
        COLUMNS_FILE: columns.replace_schema_metadata(meta),
        EPISODES_FILE: pa.Table.from_pylist(rows, schema=schema.with_metadata(meta)),
    }
    for name, table in tables.items():
        with write_atomically(out / name) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
    return {name: FileEntry.from_file(out / name, table.num_rows, identity) for name, table in tables.items()}


def _read(path: Path) -> pa.Table:
    try:
        return read_parquet(path)
    except UNREADABLE as error:
        raise reading_error(path, error, "derive its pool again") from error
