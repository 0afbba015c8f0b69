# SPDX-License-Identifier: Apache-2.0
"""Options that name data on this machine or in an object store, and the copies of the latter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from sagecc.common.manifest import MANIFEST
from sagecc.common.remote import Place, copied, place
from sagecc.schemas.partitions import EPISODES_FILE, FAILURES, LISTINGS, PARTS, parts_of

COPIES = "copies"
"""Folder of the copies in the cache of a command."""

RAW_CACHE = Path(".cache/raw")
"""Where copies of raw trajectories lie; safe to delete."""


class _Place(click.ParamType[Place]):
    """A folder, or one in an object store: s3://BUCKET/FOLDER, gs://BUCKET/FOLDER."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Return the place; raises SageccError where it is none."""
        return place(value) if isinstance(value, str) else value


PLACE = _Place()


def pool_copy(pool: Place, cache: Path) -> Path:
    """Return a pool's folder on this machine; one in a store is copied (common.remote).

    Args:
        pool: the pool.
        cache: folder of compiled pools, which has the copy too.

    Raises:
        SageccError: as `copied`.
    """
    return copied(pool, cache / COPIES, (PARTS, EPISODES_FILE, MANIFEST))


def raw_copy(raw: Place, schemes: Iterable[str]) -> Path:
    """Return a folder of raw trajectories on this machine; of one in a store, these schemes' are copied.

    Raises:
        SageccError: as `copied`.
    """
    return copied(raw, RAW_CACHE, (LISTINGS, FAILURES, *map(parts_of, schemes)))
