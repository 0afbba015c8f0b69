# SPDX-License-Identifier: Apache-2.0
"""A store's objects as DuckDB reads them: in ranges, those of the asked columns alone.

DuckDB's own reader of stores is an extension that it downloads, and has credentials of its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, BinaryIO

import fsspec

from sagecc.common.remote import Remote, place


class Objects(fsspec.AbstractFileSystem):  # type: ignore[misc]  # it ships no types
    """The objects of one kind of store, by the names that DuckDB has of them; asked once what they are.

    Args:
        scheme: the store's, such as `s3`.
    """

    cachable = False

    def __init__(self, scheme: str) -> None:
        super().__init__()
        self.protocol = scheme
        self._infos: dict[str, Any] = {}

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return an object's name, size and kind."""
        return {"name": path, "size": self._info(path).size, "type": "file"}

    def modified(self, path: str) -> datetime:
        """Return when an object was written."""
        return self._info(path).mtime  # type: ignore[no-any-return]

    def open(self, path: str, mode: str = "rb", **_: object) -> BinaryIO:
        """Open an object to read it."""
        return self._at(path).open(mode)

    def _info(self, path: str) -> Any:
        if path not in self._infos:
            self._infos[path] = self._at(path).info()
        return self._infos[path]

    def _at(self, path: str) -> Remote:
        found = place(path if "://" in path else f"{self.protocol}://{path}")
        if not isinstance(found, Remote):
            raise FileNotFoundError(path)
        return found
