# SPDX-License-Identifier: Apache-2.0
"""How trajectories lie in folders, raw ones and the pool's alike: a folder for each set and scheme, as Hive has it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

PARTITIONS = "set=*/scheme=*"
PARTS = f"{PARTITIONS}/part-*.parquet"
EPISODES_FILE = "episodes.parquet"
LISTINGS = f"{PARTITIONS}/{EPISODES_FILE}"
"""Under a folder of trajectories, as patterns: its partitions, their rows, their lists of episodes (of raw ones)."""

_PLAIN = ":+,@"
"""What stays as it is in a folder's name, beside letters, digits and `-._~`."""


def partition(set_name: str, scheme: str) -> str:
    """Return the folder of one set and scheme; what a folder's name cannot hold is percent-encoded, as Hive has it."""
    return f"set={quote(set_name, safe=_PLAIN)}/scheme={quote(scheme, safe=_PLAIN)}"


def partition_of(part: Path) -> tuple[str, str]:
    """Return set and scheme of a part file, or of any file in a partition's folder."""
    names = (folder.name.partition("=")[2] for folder in (part.parent.parent, part.parent))
    set_name, scheme = (unquote(name) for name in names)
    return set_name, scheme
