# SPDX-License-Identifier: Apache-2.0
"""Folders compared by what their files hold."""

from __future__ import annotations

from pathlib import Path

from sagecc.common.files import sha256_file


def hashes(folder: Path, aside: str = "") -> dict[str, str]:
    """Return every file's digest, less those in folders called `aside`."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and aside not in path.parts)
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}
