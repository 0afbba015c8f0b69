# SPDX-License-Identifier: Apache-2.0
"""The pool's manifest: size, rows and SHA-256 of every file, so that any changed byte is detected.

`manifest.json` is written last. Its key `sha256` holds the hash of all its other keys, as JSON with sorted keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sagecc.common.document import DocumentError, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically

MANIFEST = "manifest.json"
NOTES = ".derived"
"""The pool's folder of notes on how it was derived (pool.notes), which readers ignore."""


@dataclass(frozen=True)
class FileEntry:
    """What the manifest states of one file."""

    bytes: int
    """Its size."""

    rows: int
    """Rows of its table."""

    sha256: str
    """SHA-256 of its bytes, in hex."""

    input_sha256: str
    """SHA-256 of what it was derived from, in hex."""

    def __post_init__(self) -> None:
        counts = type(self.bytes) is type(self.rows) is int and self.bytes >= 0 and self.rows >= 0
        if not counts or not isinstance(self.sha256, str) or not isinstance(self.input_sha256, str):
            raise ValueError("an entry has other values than sizes and hashes")

    @classmethod
    def from_file(cls, path: Path, rows: int, input_sha256: str) -> FileEntry:
        """Return the entry of a file, which is read once; arguments as the fields."""
        return cls(path.stat().st_size, rows, sha256_file(path), input_sha256)


@dataclass(frozen=True)
class Manifest:
    """The metadata and the files of a pool."""

    about: Mapping[str, str]
    """Metadata that all files share."""

    files: Mapping[str, FileEntry]
    """Entry by path, relative to the pool's folder."""

    def write(self, pool: Path) -> None:
        """Write `pool`/manifest.json atomically."""
        content = self._plain()
        with write_atomically(pool / MANIFEST) as file:
            file.write_text(json.dumps(content | {"sha256": digest(content)}, indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, pool: Path) -> Manifest:
        """Return a pool's manifest.

        Raises:
            SageccError: the manifest is missing or damaged.
        """
        path = pool / MANIFEST
        try:
            content = read_document(path)
            stated_sha256 = content.pop("sha256")
            files = {name: FileEntry(**entry) for name, entry in content["files"].items()}
            about = {name: str(value) for name, value in content["about"].items()}
        except FileNotFoundError:
            raise SageccError(f"{path} is missing: derive the pool again with 'sagecc pool'") from None
        except DocumentError as error:
            raise SageccError(f"{error}: derive the pool again with 'sagecc pool'") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SageccError(f"{path} is damaged ({error}): derive the pool again with 'sagecc pool'") from error
        if stated_sha256 != digest(content):
            raise SageccError(f"{path} is damaged (its own hash does not hold): derive the pool again")
        return cls(about, files)

    def _plain(self) -> dict[str, Any]:
        return {"about": dict(self.about), "files": {name: asdict(entry) for name, entry in self.files.items()}}


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an object as JSON with sorted keys, in hex."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
