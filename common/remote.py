# SPDX-License-Identifier: Apache-2.0
"""Folders in object stores, read only: Amazon's S3 and what speaks like it, and Google's, by pyarrow's file systems.

Credentials and addresses are those of the stores' own environment variables.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from tqdm import tqdm

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.locks import in_turn
from sagecc.common.tables import first_line

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

CONNECT_S, REQUEST_S, RETRY_S = 10.0, 60.0, 15.0
"""How long a connection, a request and all its repetitions are waited for (s)."""

READ_BYTES = 2**18
"""Least that is asked of a store at once: a footer, or the pages of a column."""

COPIES_AT_A_TIME = 8

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_STORES = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}
"""Each scheme, and the variables that say who asks."""


@dataclass(frozen=True, order=True)
class Remote:
    """A folder or an object in a store; used as a Path is, for reading."""

    scheme: str
    """Of _STORES."""
    key: PurePosixPath
    """The bucket, and the key in it."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __truediv__(self, name: str) -> Remote:
        return Remote(self.scheme, self.key / name)

    @property
    def name(self) -> str:
        """Its last part."""
        return self.key.name

    @property
    def parent(self) -> Remote:
        """The folder that it is in."""
        return Remote(self.scheme, self.key.parent)

    def relative_to(self, folder: Remote) -> PurePosixPath:
        """Return its path in a folder."""
        return self.key.relative_to(folder.key)

    def exists(self) -> bool:
        """Tell whether there is such an object, or a key below it."""
        from pyarrow.fs import FileType

        return bool(self._info().type != FileType.NotFound)

    def info(self) -> FileInfo:
        """Return what the store says of an object.

        Raises:
            SageccError: it is no object, or out of reach.
        """
        from pyarrow.fs import FileType

        info = self._info()
        if info.type != FileType.File:
            raise SageccError(f"{self} is no object of its bucket")
        return info

    def size_bytes(self) -> int:
        """Return an object's size; errors as those of `info`."""
        return int(self.info().size)

    def glob(self, pattern: str) -> Iterator[Remote]:
        """Yield the objects below that match a pattern, whose `*` stands within one part; none where it is missing."""
        if self.exists():
            for found, _ in self.objects([pattern]):
                yield found

    def objects(self, patterns: Sequence[str]) -> list[tuple[Remote, FileInfo]]:
        """Return the objects below that match a pattern, in order, each with what the store says of it.

        Raises:
            SageccError: the folder is missing or out of reach.
        """
        from pyarrow.fs import FileSelector, FileType

        with _naming(self):
            listed = self._files().get_file_info(FileSelector(str(self.key), recursive=True))
        found = []
        for info in listed:
            place = Remote(self.scheme, PurePosixPath(info.path))
            relative = place.relative_to(self)
            is_like = any(
                len(relative.parts) == pattern.count("/") + 1 and relative.match(pattern) for pattern in patterns
            )
            if info.type == FileType.File and is_like:
                found.append((place, info))
        return sorted(found, key=lambda each: each[0])

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open an object to read it; reading raises SageccError where the store fails."""
        with _naming(self):
            return io.BufferedReader(_Object(self, self._files().open_input_file(str(self.key))), READ_BYTES)

    def _info(self) -> FileInfo:
        with _naming(self):
            return self._files().get_file_info(str(self.key))

    def _files(self) -> FileSystem:
        with _naming(self):
            return file_system(self.scheme, self.key.parts[0])


Place: TypeAlias = Path | Remote
"""Where data to be read lie."""


def place(text: str) -> Place:
    """Return the place that a command line names: a path, or s3://BUCKET/KEY or gs://BUCKET/KEY.

    Raises:
        SageccError: it names another kind of store, or no bucket.
    """
    match = _URL.fullmatch(text)
    if not match:
        return Path(text)
    if match[1] not in _STORES:
        raise SageccError(
            f"{text}: '{match[1]}://' is not read; name a folder, {' or '.join(f'{s}://' for s in _STORES)}"
        )
    key = PurePosixPath(match[2].strip("/"))
    if not key.parts or ".." in key.parts:
        raise SageccError(f"{text} names no folder of a bucket: write {match[1]}://BUCKET/FOLDER")
    return Remote(match[1], key)


def matching(folder: Place, pattern: str) -> list[Place]:
    """Return the files of a folder that match a pattern, in the order of their paths."""
    found: list[Place] = [*folder.glob(pattern)]
    return sorted(found, key=lambda each: (each if isinstance(each, Path) else each.key).parts)


def copied(source: Place, cache_folder: Path, patterns: Sequence[str]) -> Path:
    """Return a folder on this machine with the files of a place; of a remote one, what is new there is copied.

    A copy that breaks off leaves whole files alone, and the next one continues.

    Args:
        source: the place.
        cache_folder: has the copies, in a folder for each place.
        patterns: of the files, each below the place.

    Raises:
        SageccError: the place is out of reach, an object is cut off or changes meanwhile, or the disk is too small.
    """
    if isinstance(source, Path):
        return source
    folder = cache_folder / source.scheme / source.key
    folder.mkdir(parents=True, exist_ok=True)
    with in_turn(folder.with_name(f".lock-{folder.name}"), f"another process copies {source}: waiting for it"):
        listed = {folder / each.relative_to(source): (each, info) for each, info in source.objects(patterns)}
        for gone in {path for pattern in patterns for path in folder.glob(pattern)} - listed.keys():
            gone.unlink()
        wanted = {path: each for path, each in listed.items() if not _is_copy(path, each[1])}
        needed, free = sum(info.size for _, info in wanted.values()), shutil.disk_usage(folder).free
        if needed > free:
            raise SageccError(
                f"{folder} has {free / 1e9:.1f} GB left, the copy of {source} takes {needed / 1e9:.1f} GB"
            )
        _copy_all(wanted, needed, f"copy {source}")
    return folder


def _is_copy(path: Path, info: FileInfo) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return (status.st_size, status.st_mtime_ns) == (info.size, info.mtime_ns)


def _copy_all(wanted: dict[Path, tuple[Remote, FileInfo]], size_bytes: int, what: str) -> None:
    with (
        tqdm(total=size_bytes, unit="B", unit_scale=True, desc=what, disable=None, leave=False) as bar,
        ThreadPoolExecutor(COPIES_AT_A_TIME) as threads,
    ):
        copies = [threads.submit(_copy, each, info, path) for path, (each, info) in wanted.items()]
        try:
            for copy in as_completed(copies):
                bar.update(copy.result())
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


def _copy(source: Remote, info: FileInfo, path: Path) -> int:
    """Copy an object; return its size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as temporary:
        with source.open() as reader, temporary.open("wb") as sink:
            shutil.copyfileobj(reader, sink, 2**23)
        data_bytes = temporary.stat().st_size
        if data_bytes != info.size:
            raise SageccError(f"{source} came with {data_bytes:,} of its {info.size:,} bytes: start again")
        if path.suffix == ".parquet" and not _ends_as_parquet(temporary):
            raise SageccError(f"{source} is cut off, or no Parquet file: upload it again")
        os.utime(temporary, ns=(info.mtime_ns, info.mtime_ns))
    return data_bytes


def _ends_as_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4))
        return file.read() == b"PAR1"


class _Object(io.RawIOBase):
    """An object's bytes; whatever the store raises becomes SageccError, for a reader would take it for damage."""

    def __init__(self, source: Remote, file: Any) -> None:
        self._source, self._file = source, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _naming(self._source):
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def _naming(source: Remote) -> Iterator[None]:
    """Turn what pyarrow raises into one line that names the place."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise SageccError(f"{source} does not exist: check its name") from None
    except (OSError, pa.ArrowException) as error:
        raise SageccError(
            f"{source} cannot be read ({first_line(error)}): check its name, and {_STORES[source.scheme]}"
        ) from error


@cache
def file_system(scheme: str, bucket: str) -> FileSystem:
    """Return the file system of a bucket, once for each: it keeps its connections."""
    from pyarrow import fs

    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=RETRY_S))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    where: dict[str, Any] = {"region": region} if region else {}
    if endpoint:
        protocol, _, address = endpoint.rpartition("://")
        where |= {"scheme": protocol or "https", "endpoint_override": address.rstrip("/")}
    elif not region:
        where["region"] = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(connect_timeout=CONNECT_S, request_timeout=REQUEST_S, **where)
