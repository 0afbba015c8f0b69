# SPDX-License-Identifier: Apache-2.0
"""Raw trajectories on disk: one durable file a finished episode, then one sorted partition a set and scheme."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from collector.episode import Episode
from schemas.errors import SageccError
from schemas.files import naming, sync, write_atomically
from schemas.raw import COUNTERS, EPISODE_SCHEMA, RAW_SCHEMA, RAW_VERSION

ROW_GROUP_ROWS = 122_880
FILE_ROWS = 24 * ROW_GROUP_ROWS
"""Near 100 MB a file."""

SPOOL = ".spool"
EPISODES = "episodes.parquet"
SUMMARY = b"sagecc.episode"
KERNEL = b"sagecc.kernel_sha256"


def partition(out: Path, set_name: str, scheme: str) -> Path:
    """Return the folder of one set and scheme; a policy's path becomes one plain name."""
    return out / f"set={set_name}" / f"scheme={scheme.replace('/', '_')}"


class Partition:
    """The episodes of one set and scheme, all run by one kernel."""

    def __init__(self, out: Path, set_name: str, scheme: str, kernel_sha256: str) -> None:
        self._folder = partition(out, set_name, scheme)
        self._spool = out / SPOOL / self._folder.relative_to(out)
        self._fresh = self._folder.with_name(f".tmp-{self._folder.name}")
        self._kernel = kernel_sha256.encode()

    def stored(self) -> dict[str, str]:
        """Return id -> spec_sha256 of the episodes in the partition's files; none if another kernel ran them."""
        if not self._folder.exists() and (self._fresh / EPISODES).exists():
            self._fresh.rename(self._folder)  # killed between the two renames of assemble()
        path = self._folder / EPISODES
        if not path.exists():
            return {}
        table = read_table(path)
        if (table.schema.metadata or {}).get(KERNEL) != self._kernel or "spec_sha256" not in table.column_names:
            return {}
        return dict(zip(table["episode_id"].to_pylist(), table["spec_sha256"].to_pylist(), strict=True))

    def spooled(self) -> dict[str, str]:
        """Return id -> spec_sha256 of finished episodes that wait to be assembled; drop those of another kernel."""
        found = {}
        for path in self._spool.glob("[!.]*.arrow"):
            with pa.memory_map(str(path)) as source:
                meta = pa.ipc.open_file(source).schema.metadata or {}
            if meta.get(KERNEL) == self._kernel:
                summary = json.loads(meta[SUMMARY])
                found[summary["episode_id"]] = summary["spec_sha256"]
            else:
                path.unlink()
        return found

    def _spool_file(self, name: str) -> Path:
        return self._spool / f"{name.replace('/', '_')}.arrow"

    def add(self, episode: Episode) -> None:
        """Make a finished episode durable."""
        self._spool.mkdir(parents=True, exist_ok=True)
        meta = {SUMMARY: json.dumps(episode.summary_row()).encode(), KERNEL: self._kernel}
        table = episode.rows.replace_schema_metadata(meta)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            write_atomically(self._spool_file(episode.id)) as beside,
            pa.ipc.new_file(str(beside), table.schema, options=options) as writer,
        ):
            writer.write_table(table)

    def assemble(self, wanted: Iterable[str]) -> None:
        """Write the partition's files with exactly the wanted episodes, in order of their ids.

        Every wanted episode must be stored or spooled. The summary is written last: without it the
        partition counts as empty.
        """
        ids = sorted(wanted)
        stored = self.stored()
        if set(ids) == stored.keys() and not any(self._spool.glob("*.arrow")):
            return
        shutil.rmtree(self._fresh, ignore_errors=True)
        try:
            self._write(ids)
        except BaseException:
            shutil.rmtree(self._fresh, ignore_errors=True)
            raise
        previous = self._folder.with_name(f".old-{self._folder.name}")
        shutil.rmtree(previous, ignore_errors=True)
        if self._folder.exists():
            self._folder.rename(previous)
        self._fresh.rename(self._folder)
        shutil.rmtree(previous, ignore_errors=True)
        shutil.rmtree(self._spool, ignore_errors=True)

    def _write(self, ids: Sequence[str]) -> None:
        self._fresh.mkdir(parents=True)
        old = _OldRows(self._folder)
        summaries = []
        with _Parts(self._fresh, self._kernel) as parts:
            for name in ids:
                summary, rows = self._read_spooled(name) or old.episode(name)
                summaries.append(summary)
                parts.write(rows)
        schema = EPISODE_SCHEMA.with_metadata({KERNEL: self._kernel, b"sagecc.raw_version": RAW_VERSION.encode()})
        with write_atomically(self._fresh / EPISODES) as beside:
            summary = pa.Table.from_pylist(summaries, schema=schema)
            pq.write_table(summary, beside, compression="zstd", write_page_checksum=True)

    def _read_spooled(self, name: str) -> tuple[dict[str, object], pa.Table] | None:
        path = self._spool_file(name)
        if not path.exists():
            return None
        with pa.OSFile(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        return json.loads(table.schema.metadata[SUMMARY]), table.replace_schema_metadata(RAW_SCHEMA.metadata)


class _OldRows:
    """Episodes of the partition as it was, read file by file as they are asked for (in sorted order)."""

    def __init__(self, folder: Path) -> None:
        path = folder / EPISODES
        rows = read_table(path).to_pylist() if path.exists() else []
        self._summaries: dict[str, dict[str, object]] = {row["episode_id"]: row for row in rows}
        self._rows = self._each(folder)

    @staticmethod
    def _each(folder: Path) -> Iterator[tuple[str, pa.Table]]:
        for path in sorted(folder.glob("part-*.parquet")):
            table = read_table(path)
            names = table["episode_id"].combine_chunks().dictionary_encode()
            start = 0
            for run in names.value_counts():
                count = run["counts"].as_py()
                yield run["values"].as_py(), table.slice(start, count)
                start += count

    def episode(self, name: str) -> tuple[dict[str, object], pa.Table]:
        for found, rows in self._rows:
            if found == name:
                return self._summaries[name], rows.cast(RAW_SCHEMA)
        raise SageccError(f"episode {name}: its rows are gone from the partition; collect again")


class _Parts:
    """Writes rows into part-NNN.parquet files of full row groups."""

    def __init__(self, folder: Path, kernel: bytes) -> None:
        meta = {KERNEL: kernel, b"sagecc.raw_version": RAW_VERSION.encode()}
        self._folder, self._schema = folder, RAW_SCHEMA.with_metadata(meta)
        self._pending: list[pa.Table] = []
        self._rows = 0
        self._in_file = 0
        self._writer: pq.ParquetWriter | None = None
        self._files = 0
        self._path = folder

    def __enter__(self) -> _Parts:
        return self

    def write(self, rows: pa.Table) -> None:
        """Append one episode; an episode never spans two files."""
        if self._in_file + rows.num_rows > FILE_ROWS:
            self._close()
        self._pending.append(rows)
        self._rows += rows.num_rows
        self._in_file += rows.num_rows
        if self._rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            integers = {name: "DELTA_BINARY_PACKED" for name, *_ in COUNTERS} | {"step": "DELTA_BINARY_PACKED"}
            self._path = self._folder / f"part-{self._files:03}.parquet"
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                compression="zstd",
                write_page_checksum=True,
                use_dictionary=["episode_id"],
                column_encoding=integers | {"t_s": "BYTE_STREAM_SPLIT"},
            )
        table = pa.concat_tables(self._pending).cast(self._schema)
        with naming(self._path):
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._pending, self._rows = [], 0

    def _close(self) -> None:
        self._flush()
        if self._writer is not None:
            with naming(self._path):
                self._writer.close()
                sync(self._path)
            self._writer, self._files, self._in_file = None, self._files + 1, 0

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._close()
        elif self._writer is not None:
            self._writer.close()


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one raw Parquet file; a damaged one, or one of another major version, is a SageccError that names it."""
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise SageccError(
            f"{path} cannot be read ({str(error).splitlines()[0]}): remove it and collect again"
        ) from error
    version = (table.schema.metadata or {}).get(b"sagecc.raw_version", b"none").decode()
    if version.split(".")[0] != RAW_VERSION.split(".")[0]:
        raise SageccError(f"{path} has raw version {version}, this program reads {RAW_VERSION}: collect again")
    return table
