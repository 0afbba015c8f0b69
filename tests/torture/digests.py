# SPDX-License-Identifier: Apache-2.0
"""Digests put right after damage, as somebody who means harm would: in cards, leagues and manifests."""

from __future__ import annotations

import json
from pathlib import Path

from sagecc.common.files import sha256_file
from sagecc.common.manifest import MANIFEST, digest

CARD, LEAGUE = "card.json", "league.json"


def put_right(folder: Path, file: Path) -> bool:
    """Put right every digest of a file that stands in another one; return whether there was any.

    Args:
        folder: of a kind of input.
        file: the damaged file, within the folder.
    """
    path = folder / file
    found = path.name in (LEAGUE, MANIFEST) and _own(path)
    for name in (CARD, LEAGUE):
        found |= path.name != name and _in_files(path.with_name(name), path)
    for parent in path.parents:
        found |= path.name != MANIFEST and _in_manifest(parent / MANIFEST, path)
    return found


def _own(path: Path) -> bool:
    """Put right a document's digest of itself."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "sha256" in content and _write(path, content)


def _in_files(listing: Path, path: Path) -> bool:
    """Put right a digest in the `files` of a card or a league."""
    if not listing.is_file():
        return False
    content = json.loads(listing.read_text())
    if path.name not in content.get("files", {}):
        return False
    content["files"][path.name] = sha256_file(path)
    return _write(listing, content)


def _in_manifest(manifest: Path, path: Path) -> bool:
    """Put right a file's entry in a pool's manifest."""
    if not manifest.is_file():
        return False
    content = json.loads(manifest.read_text())
    name = path.relative_to(manifest.parent).as_posix()
    if name not in content.get("files", {}):
        return False
    content["files"][name] |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    return _write(manifest, content)


def _write(path: Path, content: dict[str, object]) -> bool:
    if "sha256" in content:
        own = {key: value for key, value in content.items() if key != "sha256"}
        content["sha256"] = digest(own)
    path.unlink()  # its bytes are linked from elsewhere
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    return True
