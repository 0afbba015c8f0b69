# SPDX-License-Identifier: Apache-2.0
"""Raw trajectories in which every counter moves, and a pool of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from sagecc.pool.derivation import build_pool
from sagecc.schemas.environment import Environment
from sagecc.schemas.raw import COUNTERS, RAW_SCHEMA
from tests.helpers.league_episodes import write


def lively(environment: Environment, scheme: str, ticks: int, seed: int) -> pa.Table:
    """A flow whose window, RTT and rates wander at random."""
    random = np.random.default_rng(seed)
    cwnd = np.exp(np.cumsum(random.normal(0, 0.1, ticks)) + 3).clip(4, 1000).astype(int)
    srtt = (20_000 + 2_000 * np.abs(np.cumsum(random.normal(0, 1, ticks)))).astype(int)
    sent = np.cumsum(random.integers(1, 40, ticks))
    columns: dict[str, np.ndarray] = {name: np.zeros(ticks) for name, *_ in COUNTERS}
    columns |= {
        "cwnd_pkts": cwnd,
        "srtt_us": srtt,
        "rttvar_us": random.integers(100, 5_000, ticks),
        "min_rtt_us": np.full(ticks, 20_000),
        "mss_bytes": np.full(ticks, 1448),
        "unacked_pkts": (cwnd * random.random(ticks)).astype(int),
        "lost_pkts": random.integers(0, 3, ticks),
        "lost_total_pkts": np.cumsum(random.integers(0, 3, ticks)),
        "delivered_pkts": sent,
        "data_segs_out": sent + cwnd,
        "bytes_acked": sent * 1448,
        "bytes_sent": (sent + cwnd) * 1448,
        "received_bytes": sent * 1448,
        "delivery_rate_bytes_s": random.integers(10_000, 5_000_000, ticks),
        "link_capacity_bytes": np.arange(ticks) * 15_000,
        "link_packets": sent,
        "link_delay_ns": sent * 20_000_000,
    }
    arrays = [
        pa.array([f"{environment.id}.{scheme}.0"] * ticks),
        pa.array(np.arange(ticks, dtype=np.int32)),
        pa.array(np.round(environment.start_s + 0.01 * np.arange(1, ticks + 1), 2)),
        *(pa.array(np.asarray(columns[name])).cast(dtype) for name, dtype, *_ in COUNTERS),
    ]
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)


def make_pool(folder: Path, trajectories: Mapping[tuple[Environment, str], pa.Table]) -> tuple[Path, Path]:
    """Write the trajectories and derive their pool; return the folders of both."""
    write(folder / "raw", trajectories)
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder / "raw", folder / "pool"
