# SPDX-License-Identifier: Apache-2.0
"""Raw trajectories with chosen rates and delays, written as the collector lays them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sagecc.schemas.environment import CrossFlow, Environment, Link, RateStep, bdp_bytes, dumbbell
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.partitions import partition
from sagecc.schemas.raw import COUNTERS, EPISODE_SCHEMA, RAW_SCHEMA, RAW_VERSION

KERNEL = "ab" * 32
PACKET_BYTES = 1500


def set_one(
    bandwidth_mbps: float = 12.0, step: float = 1.0, rtt_ms: float = 20.0, queue_bdp: float = 1.0
) -> Environment:
    """4 s, scored in [1, 2) and [2, 4); the rate changes at 2 s."""
    rates = (RateStep(0.0, bandwidth_mbps),) + ((RateStep(2.0, bandwidth_mbps * step),) if step != 1 else ())
    queue = int(bdp_bytes(bandwidth_mbps, rtt_ms) * queue_bdp)
    return dumbbell("I", Link(rates, rtt_ms / 2, queue), rtt_ms / 2, 4.0, ((1.0, 2.0), (2.0, 4.0)))


def set_two(bandwidth_mbps: float = 12.0, rtt_ms: float = 20.0) -> Environment:
    """4 s, the flow from 1 s on beside one Cubic flow, scored in [1, 2) and [2, 4)."""
    return dumbbell(
        "II",
        Link((RateStep(0.0, bandwidth_mbps),), rtt_ms / 2, int(bdp_bytes(bandwidth_mbps, rtt_ms))),
        rtt_ms / 2,
        4.0,
        ((1.0, 2.0), (2.0, 4.0)),
        reward="friendliness",
        cross=(CrossFlow("cubic"),),
        start_s=1.0,
    )


def rows(
    environment: Environment,
    scheme: str,
    mbps: Sequence[float],
    delay_ms: Sequence[float],
    first_tick_s: float | None = None,
    last_tick_s: float | None = None,
    seed: int = 0,
) -> pa.Table:
    """One trajectory: in scoring window i goodput mbps[i] and one-way delay delay_ms[i]; before the first, as in it.

    The flow begins at environment.start_s; the first tick comes 50 ms later, the last at the end.
    """
    begin_s = environment.start_s
    first = round((begin_s + 0.05 if first_tick_s is None else first_tick_s) * 100)
    last = round((environment.duration_s if last_tick_s is None else last_tick_s) * 100)
    t = np.arange(first, last + 1) / 100
    edges = [begin_s, *(end for _, end in environment.windows_s)]
    received, packets, delays = (np.zeros(len(t)) for _ in range(3))
    for (a, b), rate, delay in zip(pairwise(edges), mbps, delay_ms, strict=True):
        seconds = np.clip(t, a, b) - a
        received += seconds * rate * 125_000
        packets += np.round(seconds * rate * 125_000 / PACKET_BYTES)
        delays += np.round(seconds * rate * 125_000 / PACKET_BYTES) * delay * 1e6
    capacity = np.zeros(len(t))
    steps = environment.bottleneck.rates or (RateStep(0.0, environment.bandwidth_mbps),)  # a trace: its mean
    for step, end in zip(steps, [*(s.t_s for s in steps[1:]), environment.duration_s], strict=True):
        capacity += (np.clip(t, step.t_s, end) - step.t_s) * step.rate_mbps * 125_000
    columns: dict[str, object] = {name: np.zeros(len(t)) for name, *_ in COUNTERS}
    columns |= {
        "received_bytes": np.round(received),
        "link_packets": packets,
        "link_delay_ns": np.round(delays),
        "link_capacity_bytes": np.round(capacity),
        "cwnd_pkts": np.full(len(t), 10.0),
    }
    arrays = [
        pa.array([f"{environment.id}.{scheme}.{seed}"] * len(t)),
        pa.array(np.arange(len(t), dtype=np.int32)),
        pa.array(t),
        *(pa.array(columns[name]).cast(dtype) for name, dtype, *_ in COUNTERS),
    ]
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)


def write(root: Path, trajectories: Mapping[tuple[Environment, str], pa.Table], kernel: str = KERNEL) -> None:
    """Write trajectories as set=*/scheme=* partitions, two part files where there are two episodes or more."""
    metadata = {b"sagecc.raw_version": RAW_VERSION.encode(), b"sagecc.kernel": kernel.encode()}
    folders: dict[Path, list[tuple[Environment, str, pa.Table]]] = {}
    for (environment, scheme), table in trajectories.items():
        folders.setdefault(root / partition(environment.set, scheme), []).append((environment, scheme, table))
    for folder, episodes in folders.items():
        folder.mkdir(parents=True)
        for part in (0, 1):
            tables = [table for _, _, table in episodes[part::2]]
            if tables:
                table = pa.concat_tables(tables).replace_schema_metadata(RAW_SCHEMA.with_metadata(metadata).metadata)
                pq.write_table(table, folder / f"part-{part:03}.parquet")
        summaries = [
            {field.name: "" if pa.types.is_string(field.type) else 0 for field in EPISODE_SCHEMA}
            | {
                "episode_id": (episode_id := table["episode_id"][0].as_py()),
                "environment_id": environment.id,
                "set": environment.set,
                "scheme": scheme,
                "seed": int(episode_id.rpartition(".")[2]),
                "environment": environment.to_json(),
                "rows": table.num_rows,
                "sent_packets": 1000,
            }
            for environment, scheme, table in episodes
        ]
        schema = EPISODE_SCHEMA.with_metadata(metadata)
        pq.write_table(pa.Table.from_pylist(summaries, schema=schema), folder / "episodes.parquet")


def smoke(*environments: Environment) -> EnvironmentSet:
    """Stand in for the profile `smoke` with these networks."""
    return EnvironmentSet("smoke", "--profile smoke", environments)


class StubLab:
    """Stands in for the lab: notes what it was asked for, and writes trajectories of a chosen rate and delay."""

    def __init__(self, mbps: float = 8, delay_ms: float = 11) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.figures = [mbps, mbps], [delay_ms, delay_ms]

    def __call__(self, environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
        self.calls.append(tuple(policies))
        todo = {(e, p) for e in environments for p in policies if not (out / partition(e.set, p)).exists()}
        write(out, {(e, p): rows(e, p, *self.figures) for e in environments for p in policies if (e, p) in todo})
