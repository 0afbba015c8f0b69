# SPDX-License-Identifier: Apache-2.0
"""Raw trajectories on disk: first one durable file per episode, then one sorted partition per set and scheme."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from sagecc.collector.lab.episode import Episode
from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import sync, write_atomically
from sagecc.common.inputs import check_regular
from sagecc.common.locks import lock_folder
from sagecc.common.marks import Mark, carries, remove_leftover
from sagecc.common.parquet import check_whole, open_parquet
from sagecc.common.parts import PartWriter, Runs, whole_runs
from sagecc.common.tables import UNREADABLE, column_fault, is_damage, reading_error, select_columns
from sagecc.common.versions import same_major
from sagecc.schemas.partitions import EPISODES_FILE, FAILED_FILE, FAILURES, partition
from sagecc.schemas.raw import COUNTERS, EPISODE_SCHEMA, KICK, RAW_VERSION, raw_schema
from sagecc.schemas.schemes import is_disturbed

ROW_GROUP_ROWS = 122_880
FILE_ROWS = 24 * ROW_GROUP_ROWS
"""Rows per file, of about 100 MB."""

_PARQUET_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "write_page_checksum": True,
        "use_dictionary": ["episode_id", KICK.name],
        "column_encoding": dict.fromkeys((*(name for name, *_ in COUNTERS), "step"), "DELTA_BINARY_PACKED")
        | {"t_s": "BYTE_STREAM_SPLIT"},
    }
)

_VERSION_KEY = b"sagecc.raw_version"
_FAILED_KEYS = {"raw_version", "kernel", "player", "failed"}
PARTITION_MARK = Mark(
    "a partition of 'sagecc collect'",
    rf"part-\d+\.parquet|{re.escape(EPISODES_FILE)}|{re.escape(FAILED_FILE)}",
    lambda folder: carries(folder, _VERSION_KEY) or _failed_document(folder) is not None,
)

SPOOL = ".spool"
MAX_NAME_BYTES = 200
"""Longest episode id that is a file's name: that has 255 bytes at most, with its ending and a temporary beginning."""

SUMMARY = b"sagecc.episode"
"""Metadata key of an episode's row of EPISODE_SCHEMA, as JSON."""

KERNEL = b"sagecc.kernel"
"""Metadata key of the identity of the kernel that ran the episodes (collector.kernel.identity)."""


SPOOL_MARK = Mark("a finished episode", r".+\.arrow", lambda folder: True)

PLAYER = b"sagecc.player"
"""Metadata key of what decided a driven scheme's rows beside networks and kernel, as JSON: the hash of a policy's files
and how it explored, or of a scheme's code; in partitions whose maker says so."""


def pack(episode: Episode, kernel: str, player: str = "") -> bytes:
    """Return the content of an episode's file in the spool.

    Args:
        episode: the episode.
        kernel: identity of the kernel that ran it.
        player: what PLAYER says; empty for nothing.
    """
    meta = {SUMMARY: json.dumps(episode.summary_row()).encode(), **_made_by(kernel, player)}
    table = episode.rows.replace_schema_metadata(meta)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _made_by(kernel: str, player: str) -> dict[bytes, bytes]:
    """Return the metadata of who ran episodes."""
    return {KERNEL: kernel.encode()} | ({PLAYER: player.encode()} if player else {})


def _makers(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
    """Return what a file's metadata says of who ran its episodes."""
    return {key: metadata[key] for key in (KERNEL, PLAYER) if key in metadata} if metadata else {}


class Partition:
    """The episodes of one set and scheme, all run by kernels of one identity, locked by one collector at a time.

    Args:
        out: folder of raw trajectories.
        set_name: the set.
        scheme: the scheme under test.
        kernel: identity of the kernel; episodes of another are discarded.
        player: what PLAYER says; episodes of another are discarded.
    """

    def __init__(self, out: Path, set_name: str, scheme: str, kernel: str, player: str = "") -> None:
        self._folder = out / partition(set_name, scheme)
        self._spool = out / SPOOL / self._folder.relative_to(out)
        self._new_folder = self._folder.with_name(f".tmp-{self._folder.name}")
        self._schema = raw_schema(is_disturbed(scheme))
        self._made_by = _made_by(kernel, player)
        self._about = {"raw_version": RAW_VERSION, "kernel": kernel, "player": player}
        self._lock = -1

    def __enter__(self) -> Partition:
        PARTITION_MARK.check_whole(self._folder)
        self._lock = self._locked_spool()
        return self

    def _locked_spool(self) -> int:
        try:
            return lock_folder(self._spool)
        except BlockingIOError:
            raise SageccError(f"{self._folder}: another 'sagecc collect' fills it; wait for it or end it") from None

    def __exit__(self, *_: object) -> None:
        for folder in (self._spool, self._spool.parent, self._spool.parent.parent):
            with suppress(OSError):  # not empty
                folder.rmdir()
        os.close(self._lock)

    @cached_property
    def _stored(self) -> dict[str, dict[str, Any]]:
        """Summaries in the partition's files by episode id; none if another kernel or player ran them."""
        if not self._folder.exists() and (self._new_folder / EPISODES_FILE).exists():
            self._new_folder.rename(self._folder)  # killed between the two renames of assemble()
        path = self._folder / EPISODES_FILE
        if not path.exists():
            return {}
        table = read_table(path)
        if _makers(table.schema.metadata) != self._made_by or "spec_sha256" not in table.column_names:
            return {}
        return {row["episode_id"]: row for row in checked_episodes(path, table).to_pylist()}

    def stored(self) -> dict[str, str]:
        """Return spec_sha256 by id of the episodes in the partition's files; none if another kernel ran them."""
        return {episode_id: row["spec_sha256"] for episode_id, row in self._stored.items()}

    def spooled(self) -> dict[str, str]:
        """Return spec_sha256 by id of the finished episodes that are not assembled yet.

        Files of another kernel or player and damaged ones are removed: their episodes are run again.
        """
        spooled = {}
        for path in self._spool.glob("[!.]*.arrow"):
            check_regular(path)
            try:
                with pa.memory_map(str(path)) as source:
                    table = pa.ipc.open_file(source).read_all()
                summary = json.loads(table.schema.metadata[SUMMARY])
                is_valid = _makers(table.schema.metadata) == self._made_by and len(table) == summary["rows"]
                episode_id, spec_sha256 = summary["episode_id"], summary["spec_sha256"]
            except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
                if not is_damage(error):
                    raise reading_error(path, error, "") from error
                is_valid = False
            if is_valid:
                spooled[episode_id] = spec_sha256
            else:
                path.unlink()
        return spooled

    def failed(self) -> dict[str, str]:
        """Return by id why episodes failed when they were last run; none if another kernel or player ran them."""
        document = _failed_document(self._folder) or {}
        return document["failed"] if document.items() >= self._about.items() else {}

    def kept(self) -> dict[str, str]:
        """Return spec_sha256 by id of every episode that need not be run again."""
        return self.stored() | self.spooled()

    def _spool_file(self, episode_id: str) -> Path:
        name = episode_id.replace("/", "_")
        if len(name.encode()) > MAX_NAME_BYTES:
            name = hashlib.sha256(episode_id.encode()).hexdigest()
        return self._spool / f"{name}.arrow"

    def add(self, episode_id: str, packed: bytes) -> None:
        """Make a finished episode durable; `packed` is from `pack`."""
        self._spool.mkdir(parents=True, exist_ok=True)
        with write_atomically(self._spool_file(episode_id)) as file:
            file.write_bytes(packed)

    def assemble(self, episode_ids: Iterable[str], failed: Mapping[str, str] = MappingProxyType({})) -> None:
        """Write the partition's files with exactly these episodes, in order of their ids.

        The list of episodes is written last: without it the partition counts as empty.

        Args:
            episode_ids: episodes that are stored or spooled.
            failed: by id, why others have failed, of which FAILED_FILE then tells.

        Raises:
            SageccError: the rows of a stored episode are missing.
        """
        ids = sorted(episode_ids)
        if set(ids) == self._stored.keys() and not any(self._spool.glob("*.arrow")):
            self._write_failed(self._folder, failed)
            return
        remove_leftover(self._new_folder)
        try:
            self._write_failed(self._new_folder, failed)
            self._write(ids)
        except BaseException:
            remove_leftover(self._new_folder)
            raise
        previous = self._folder.with_name(f".old-{self._folder.name}")
        remove_leftover(previous)
        PARTITION_MARK.check_whole(self._folder)
        if self._folder.exists():
            self._folder.rename(previous)
        self._new_folder.rename(self._folder)
        sync(self._folder.parent)
        remove_leftover(previous)
        SPOOL_MARK.remove_own(self._spool)
        del self._stored

    def _write(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        self._new_folder.mkdir(parents=True, exist_ok=True)
        old = _old_rows(self._folder, self._schema) if self._stored else iter(())
        summaries = []
        meta = {**self._made_by, _VERSION_KEY: RAW_VERSION.encode()}
        with PartWriter(
            self._new_folder, self._schema.with_metadata(meta), ROW_GROUP_ROWS, _PARQUET_OPTIONS, carry=False
        ) as parts:
            for episode_id in ids:
                summary, rows = self._read_spooled(episode_id) or (
                    self._stored.get(episode_id),
                    self._stored_rows(old, episode_id),
                )
                summaries.append(summary)
                if parts.rows + rows.num_rows > FILE_ROWS:  # an episode never spans two files
                    parts.end_file()
                parts.write(rows)
        schema = EPISODE_SCHEMA.with_metadata(meta)
        with write_atomically(self._new_folder / EPISODES_FILE) as file:
            summary = pa.Table.from_pylist(summaries, schema=schema)
            pq.write_table(summary, file, compression="zstd", write_page_checksum=True)

    def _write_failed(self, folder: Path, failed: Mapping[str, str]) -> None:
        if not failed:
            (folder / FAILED_FILE).unlink(missing_ok=True)
        elif self.failed() != failed or folder != self._folder:
            folder.mkdir(parents=True, exist_ok=True)
            with write_atomically(folder / FAILED_FILE) as file:
                file.write_text(json.dumps(self._about | {"failed": dict(failed)}, indent=1, sort_keys=True) + "\n")

    def _read_spooled(self, episode_id: str) -> tuple[dict[str, Any], pa.Table] | None:
        path = self._spool_file(episode_id)
        if not path.exists():
            return None
        with pa.OSFile(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        return json.loads(table.schema.metadata[SUMMARY]), table.replace_schema_metadata(self._schema.metadata)

    def _stored_rows(self, old: Iterator[tuple[str, pa.Table]], episode_id: str) -> pa.Table:
        """Return a stored episode's rows from `old`, which is consumed up to them: calls go in the order of ids."""
        for stored_id, rows in old:
            if stored_id == episode_id and len(rows) == self._stored[episode_id]["rows"]:
                return rows
        raise SageccError(
            f"{self._folder}: the rows of episode {episode_id} are gone; remove the folder and collect again"
        )


def read_failed(raw: Path) -> dict[str, str]:
    """Return by id why episodes failed in their last collection, of all partitions in a folder of raw trajectories.

    Raises:
        SageccError: a partition's FAILED_FILE cannot be read.
    """
    failures: dict[str, str] = {}
    for path in sorted(raw.glob(FAILURES)):
        document = _failed_document(path.parent)
        if document is None:
            raise SageccError(f"{path} is not what 'sagecc collect' writes: remove it and collect again")
        failures |= document["failed"]
    return failures


def _failed_document(folder: Path) -> dict[str, Any] | None:
    """Return the content of a partition's FAILED_FILE; None without one, or if it is none."""
    try:
        document = read_document(folder / FAILED_FILE)
    except (FileNotFoundError, NotADirectoryError, SageccError):
        return None
    if not isinstance(document, dict) or document.keys() != _FAILED_KEYS:
        return None
    failures = document["failed"]
    is_sound = isinstance(failures, dict) and all(isinstance(reason, str) for reason in failures.values())
    return document if is_sound else None


def _old_rows(folder: Path, schema: pa.Schema) -> Iterator[tuple[str, pa.Table]]:
    """Yield id and rows of each episode in a partition's files, with at most two row groups in memory."""
    for path in sorted(folder.glob("part-*.parquet")):
        with reading(path, schema) as file:
            groups = (file.read_row_group(index, schema.names).cast(schema) for index in range(file.num_row_groups))
            for rows in whole_runs(groups, "episode_id"):
                yield from Runs(rows["episode_id"]).slices(rows)


def read_episodes(path: Path, columns: Sequence[str] = EPISODE_SCHEMA.names) -> pa.Table:
    """Read a partition's EPISODES_FILE.

    Args:
        path: the file.
        columns: the columns to read.

    Raises:
        SageccError: the file is damaged, or lacks a column or a value; the message names it.
    """
    with reading(path, select_columns(EPISODE_SCHEMA, columns)) as file:
        check_whole(path, file)
        return checked_episodes(path, file.read(columns), columns)


def checked_episodes(path: Path, table: pa.Table, columns: Sequence[str] = EPISODE_SCHEMA.names) -> pa.Table:
    """Return the table of an EPISODES_FILE after checking it.

    Args:
        path: the file, for the message.
        table: its content.
        columns: columns that it must have, without nulls.

    Raises:
        SageccError: it lacks a column or a value.
    """
    fault = column_fault(table.schema, select_columns(EPISODE_SCHEMA, columns))
    fault = fault or next((f"misses values of '{name}'" for name in columns if table[name].null_count), None)
    if fault:
        raise SageccError(f"{path} {fault}: remove its folder and collect it again")
    return table


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a raw Parquet file.

    Args:
        path: the file.
        columns: the columns to read; None for all.

    Raises:
        SageccError: the file is damaged or of another major version; the message names it.
    """
    with reading(path) as file:
        check_whole(path, file)
        return file.read(columns=columns)


@contextmanager
def reading(path: Path, required: pa.Schema | None = None) -> Iterator[pq.ParquetFile]:
    """Open a raw Parquet file, whose pages' checksums are verified.

    Args:
        path: the file.
        required: columns that it must have.

    Raises:
        SageccError: the file is damaged, lacks a column or is of another major version; also raised for errors of
            reading within this context. The message names the file.
    """
    try:
        with open_parquet(path) as file:
            version = (file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"none").decode(errors="replace")
            if not same_major(version, RAW_VERSION):
                raise SageccError(f"{path} has raw version {version}, this program reads {RAW_VERSION}: collect again")
            if fault := required and column_fault(file.schema_arrow, required):
                raise SageccError(f"{path} {fault}: remove its folder and collect it again")
            yield file
    except UNREADABLE as error:
        raise reading_error(path, error, "remove its folder and collect it again") from error
