# SPDX-License-Identifier: Apache-2.0
"""Every flow of an episode: the raw counters of each, told apart by the flow's number."""

from __future__ import annotations

import pyarrow as pa

from sagecc.schemas.raw import RAW_SCHEMA

FLOWS_VERSION = "1.0"
"""Major.minor: a reader refuses another major version and reads any minor one."""

FLOWS_SCHEMA = pa.schema(
    [
        RAW_SCHEMA.field("episode_id"),
        pa.field("flow", pa.int32(), nullable=False, metadata={"meaning": "0 is the tested one, then the competitors"}),
        pa.field("scheme", pa.string(), nullable=False, metadata={"meaning": "of this flow"}),
        *(field for field in RAW_SCHEMA if field.name != "episode_id"),
    ]
)
"""One row per flow and tick, sorted by flow, then by time."""
