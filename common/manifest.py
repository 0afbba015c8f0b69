# SPDX-License-Identifier: Apache-2.0
"""The pool's manifest: every file with its size, rows and SHA-256, so that any other byte is found out.

`manifest.json` is written last. It holds the hash of itself too, over all the rest as JSON with sorted keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically

MANIFEST = "manifest.json"
NOTES = ".derived"
"""A folder in the pool of which readers need to know nothing (pool.notes)."""


@dataclass(frozen=True)
class FileEntry:
    """What a file must be. bytes: its size. rows: of its table. input_sha256: what it was derived from."""

    bytes: int
    rows: int
    sha256: str
    input_sha256: str

    @classmethod
    def of(cls, path: Path, rows: int, input_sha256: str) -> FileEntry:
        """Read the file once."""
        return cls(path.stat().st_size, rows, sha256_file(path), input_sha256)


@dataclass(frozen=True)
class Manifest:
    """The files of a pool by their paths in it, and what all of them say about the pool (its metadata)."""

    about: Mapping[str, str]
    files: Mapping[str, FileEntry]

    def write(self, pool: Path) -> None:
        """Write `pool`/manifest.json, whole or not at all."""
        rest = self._plain()
        with write_atomically(pool / MANIFEST) as beside:
            beside.write_text(json.dumps(rest | {"sha256": digest(rest)}, indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, pool: Path) -> Manifest:
        """Return a pool's manifest. Raises SageccError where there is none, or one that is not as it was written."""
        path = pool / MANIFEST
        try:
            rest = json.loads(path.read_bytes())
            found = rest.pop("sha256")
            files = {name: FileEntry(**entry) for name, entry in rest["files"].items()}
            about = {name: str(value) for name, value in rest["about"].items()}
        except FileNotFoundError:
            raise SageccError(f"{path} is missing: derive the pool again with 'sagecc pool'") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SageccError(f"{path} is damaged ({error}): derive the pool again with 'sagecc pool'") from error
        if found != digest(rest):
            raise SageccError(f"{path} is damaged (its own hash does not hold): derive the pool again")
        return cls(about, files)

    def _plain(self) -> dict[str, Any]:
        return {"about": dict(self.about), "files": {name: asdict(entry) for name, entry in self.files.items()}}


def digest(rest: Mapping[str, Any]) -> str:
    """Return the hash that a JSON object holds of all the rest of it."""
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
