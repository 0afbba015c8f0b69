# SPDX-License-Identifier: Apache-2.0
"""Raw trajectories of a small fluid model: an AIMD flow behind a tail-drop queue, every counter consistent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sagecc.collector.run.grid import bottleneck
from sagecc.schemas import wire
from sagecc.schemas.environment import CrossFlow, Environment, dumbbell
from sagecc.schemas.partitions import partition
from sagecc.schemas.raw import COUNTERS, EPISODE_SCHEMA, RAW_SCHEMA, RAW_VERSION, TICK_S

MSS = 1448
PACKET = 1500

Columns = dict[str, npt.NDArray[Any]]


def trajectory(
    rows: int = 2500,
    bandwidth_mbps: float = 24.0,
    step: float = 1.0,
    rtt_ms: float = 40.0,
    queue_bdp: float = 1.0,
    start_s: float = 0.0,
    seed: int = 0,
    wrap: bool = False,
) -> Columns:
    """Return raw columns (step, t_s and COUNTERS) of one flow; wrap: its 32-bit counters wrap after 100 packets."""
    noise = np.random.default_rng(seed)
    base = rtt_ms * 1e-3
    limit = bandwidth_mbps * 125_000 * base * queue_bdp
    cwnd, queue, ssthresh, recovery = 10.0, 0.0, 1e9, 0
    sent = delivered = lost = dropped = segments = acked_packets = capacity = delay_ns = 0.0
    srtt, rttvar = base, base / 2
    records = []
    for tick in range(rows):
        now = start_s + (tick + 1) * TICK_S
        rate = bandwidth_mbps * 125_000 * (step if tick * TICK_S % 14 >= 7 else 1.0)
        capacity += rate * TICK_S
        rtt = base + queue / rate + noise.uniform(0, 2e-4)
        srtt += (rtt - srtt) / 8
        rttvar += (abs(rtt - srtt) - rttvar) / 4
        arriving = cwnd * PACKET / rtt * TICK_S
        leaving = min(queue + arriving, rate * TICK_S)
        queue += arriving - leaving
        drops = max(0.0, queue - limit) // PACKET
        queue -= drops * PACKET
        segments += arriving / PACKET
        sent += arriving * MSS / PACKET
        delivered += leaving / PACKET
        delay_ns += leaving / PACKET * (base / 2 + queue / rate) * 1e9
        dropped += drops
        recovery = max(0, recovery - 1)
        if drops and not recovery:
            lost += drops
            ssthresh = cwnd = max(2.0, cwnd / 2)
            recovery = int(rtt / TICK_S) + 1
        elif not recovery:
            acked = leaving / PACKET
            cwnd += acked if cwnd < ssthresh else acked / cwnd
        acked_packets = acked_packets if recovery else delivered  # SACKed meanwhile, not yet in order
        records.append(
            {
                "ca_state": 3 if recovery else 0,
                "app_limited": 0,
                "cwnd_pkts": int(cwnd),
                "ssthresh_pkts": int(min(ssthresh, 2**31 - 1)),
                "srtt_us": int(srtt * 1e6),
                "rttvar_us": int(rttvar * 1e6),
                "min_rtt_us": int(base * 1e6),
                "mss_bytes": MSS,
                "unacked_pkts": int(min(cwnd, queue / PACKET + rate * base / PACKET)),
                "sacked_pkts": 0,
                "lost_pkts": int(drops) if recovery else 0,
                "retrans_pkts": 0,
                "lost_total_pkts": int(lost),
                "retrans_total_pkts": int(lost),
                "delivered_pkts": int(delivered),
                "data_segs_out": int(segments),
                "rto_total": 0,
                "bytes_acked": int(acked_packets * MSS),
                "bytes_sent": int(sent),
                "delivery_rate_bytes_s": int(leaving / TICK_S * MSS / PACKET),
                "pacing_rate_bytes_s": wire.NO_LIMIT,
                "received_bytes": int(delivered * MSS),
                "link_packets": int(delivered),
                "link_bytes": int(delivered) * PACKET,
                "link_drops": int(dropped),
                "link_delay_ns": int(delay_ns),
                "link_queue_bytes": int(queue),
                "link_capacity_bytes": int(capacity),
                "t_ns": round(now * 1e9),
            }
        )
    columns: Columns = {"step": np.arange(rows, dtype=np.int32)}
    columns["t_s"] = np.array([record["t_ns"] for record in records]) / 1e9
    for name, dtype, *_ in COUNTERS:
        columns[name] = np.array([record[name] for record in records], dtype.to_pandas_dtype())
    if wrap:
        for name in ("delivered_pkts", "lost_total_pkts", "data_segs_out"):
            columns[name] = columns[name] + np.uint32(2**32 - 100)
    return columns


def samples(columns: Columns) -> npt.NDArray[np.void]:
    """Return the same rows as the lab's records (wire.SAMPLE)."""
    records = np.zeros(len(columns["t_s"]), wire.SAMPLE)
    records["t_ns"] = np.rint(columns["t_s"] * 1e9)
    for name, *_ in COUNTERS:
        records[name] = columns[name]
    return records


def table(episode_id: str, columns: Columns) -> pa.Table:
    """Return the rows as a raw table (RAW_SCHEMA)."""
    ids = pa.array([episode_id] * len(columns["t_s"]), pa.string())
    return pa.table({"episode_id": ids, **columns}, schema=RAW_SCHEMA)


META = {b"sagecc.raw_version": RAW_VERSION.encode(), b"sagecc.kernel": b"ab" * 32}


def network(set_name: str, mbps: float, queue_bdp: float = 1.0) -> Environment:
    multi = set_name == "II"
    return dumbbell(
        set_name,
        bottleneck(mbps, 1.0, 40, queue_bdp, 30),
        return_delay_ms=20,
        duration_s=30,
        windows_s=((0, 30),),
        reward="friendliness" if multi else "power",
        cross=(CrossFlow("cubic"),) if multi else (),
        start_s=5.0 if multi else 0.0,
    )


def write_partition(
    raw: Path,
    set_name: str,
    scheme: str,
    rows: tuple[int, ...] = (900, 650, 1200),
    per_file: int = 2,
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    meta: dict[bytes, bytes] = META,
    environments: Sequence[Environment] = (),
) -> dict[str, Columns]:
    """Write raw episodes the way the collector does; return their columns by id. environments: one for each of rows."""
    folder = raw / partition(set_name, scheme)
    folder.mkdir(parents=True)
    episodes = {}
    for seed, count in enumerate(rows):
        environment = environments[seed] if environments else network(set_name, 12.0 * 2**seed)
        columns = trajectory(
            count,
            environment.bandwidth_mbps,
            environment.step,
            environment.min_rtt_ms,
            environment.queue_bdp,
            environment.start_s,
            seed,
        )
        episodes[f"{environment.id}.{scheme}.0"] = (environment, columns)
    ids = sorted(episodes)
    for number, start in enumerate(range(0, len(ids), per_file)):
        rows_of_file = pa.concat_tables([table(name, episodes[name][1]) for name in ids[start : start + per_file]])
        pq.write_table(
            change(rows_of_file).replace_schema_metadata(meta),
            folder / f"part-{number:03}.parquet",
            row_group_size=500,
        )
    listing = [
        {
            "episode_id": name,
            "environment_id": episodes[name][0].id,
            "set": set_name,
            "scheme": scheme,
            "seed": 0,
            "environment": episodes[name][0].to_json(),
            "rows": len(episodes[name][1]["t_s"]),
            "goodput_mbps": 10.0,
            "delay_mean_ms": 30.0,
            "delay_p95_ms": 40.0,
            "sent_packets": 1000,
            "lost_packets": 10,
            "cwnd_mean": 50.0,
        }
        for name in ids
    ]
    pq.write_table(
        pa.Table.from_pylist(listing, schema=EPISODE_SCHEMA.with_metadata(meta)), folder / "episodes.parquet"
    )
    return {name: episodes[name][1] for name in ids}
