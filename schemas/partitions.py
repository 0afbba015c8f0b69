# SPDX-License-Identifier: Apache-2.0
"""Folder layout of trajectories, both raw ones and the pool's: one folder per set and scheme, as in Hive."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from sagecc.common.remote import Place

PARTITIONS = "set=*/scheme=*"
PARTS = f"{PARTITIONS}/part-*.parquet"
EPISODES_FILE = "episodes.parquet"
FAILED_FILE = "failed.json"
LISTINGS = f"{PARTITIONS}/{EPISODES_FILE}"
FAILURES = f"{PARTITIONS}/{FAILED_FILE}"
"""Patterns under a folder of trajectories: its partitions, their rows, and a raw partition's lists of its episodes
and of those that failed."""

ROUNDS = "round-*/raw"
"""Pattern under a growing pool's folder: the raw trajectories that its policy played, one folder a round."""

_PLAIN = ":+,@"
"""Characters that are not escaped in a folder's name, besides letters, digits and `-._~`."""


def partition(set_name: str, scheme: str) -> str:
    """Return the relative folder of a set and scheme; other characters are percent-encoded, as in Hive."""
    return f"set={quote(set_name, safe=_PLAIN)}/scheme={quote(scheme, safe=_PLAIN)}"


def parts_of(scheme: str) -> str:
    """Return the pattern of a scheme's rows in any set; as PARTS."""
    return f"set=*/{PurePosixPath(partition('', scheme)).name}/part-*.parquet"


def partition_of(part: Place) -> tuple[str, str]:
    """Return the set and scheme of a file in a partition's folder."""
    names = (folder.name.partition("=")[2] for folder in (part.parent.parent, part.parent))
    set_name, scheme = (unquote(name) for name in names)
    return set_name, scheme
