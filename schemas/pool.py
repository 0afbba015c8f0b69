# SPDX-License-Identifier: Apache-2.0
"""The pool's columns: 69 features, action and reward, each with unit, formula and index in the paper's Table 1."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

POOL_VERSION = "1.0"
"""Major.minor: a reader refuses another major version and reads any minor one."""

WINDOWS_TICKS = {"s": 10, "m": 200, "l": 1000}
"""Small, medium and large observation windows (section 7.4 of the paper): 0.1 s, 2 s, 10 s."""

ACTION_LOG2_LIMIT = 2.0
"""The learner clips log2(action) to plus or minus this."""


@dataclass(frozen=True)
class Column:
    """One column. paper_index is the row of Table 1 (1 to 69), 0 for what is not a feature."""

    name: str
    dtype: pa.DataType
    unit: str
    formula: str
    paper_index: int = 0


def _window_columns(lengths: tuple[int, ...]) -> list[Column]:
    groups = (
        ("rtt", "100 ms", "srtt"),
        ("thr", "100 Mbps", "thr"),
        ("rtt_rate", "ratio", "min RTT / sRTT"),
        ("rtt_var", "1 ms", "rttvar"),
        ("inflight", "1000 packets", "unacknowledged packets / 1000"),
        ("lost", "100 packets", "packets held lost / 100"),
    )
    columns, index = [], 5
    for group, unit, what in groups:
        for window, ticks in zip(WINDOWS_TICKS, lengths, strict=True):
            for statistic in ("avg", "min", "max"):
                formula = f"{statistic} of {what} over the last {ticks} ticks"
                columns.append(Column(f"{group}_{window}.{statistic}", pa.float32(), unit, formula, index))
                index += 1
    return columns


_F32 = pa.float32()

FEATURES: tuple[Column, ...] = (
    Column("srtt", _F32, "100 ms", "sRTT / 100 ms", 1),
    Column("rttvar", _F32, "1 ms", "RTT variance / 1 ms", 2),
    Column("thr", _F32, "100 Mbps", "delivery rate of the socket / 100 Mbps", 3),
    Column("ca_state", _F32, "", "kernel state, 0 open to 4 loss", 4),
    *_window_columns(tuple(WINDOWS_TICKS.values())),
    Column("time_delta", _F32, "ratio", "time since the previous row / min RTT", 59),
    Column("rtt_rate", _F32, "ratio", "min RTT / sRTT", 60),
    Column("loss_db", _F32, "100 Mbps", "newly lost bytes per second over 1 s / 100 Mbps", 61),
    Column("acked_rate", _F32, "ratio", "acknowledged rate over 1 s / highest sending rate over 1 s seen so far", 62),
    Column("dr_ratio", _F32, "ratio", "delivery rate over 1 s / the same one tick before", 63),
    Column("bdp_cwnd", _F32, "ratio", "dr_max (bytes/s) x min RTT (s) / (cwnd x MSS)", 64),
    Column("dr", _F32, "100 Mbps", "delivered bytes over 1 s / 100 Mbps", 65),
    Column("cwnd_unacked_rate", _F32, "ratio", "unacknowledged packets / packets sent over 1 s", 66),
    Column("dr_max", _F32, "100 Mbps", "highest dr over 2 s", 67),
    Column("dr_max_ratio", _F32, "ratio", "dr_max / the same one tick before", 68),
    Column("pre_act", _F32, "ratio", "previous action: cwnd_t / cwnd_(t-1)", 69),
)

FEATURE_NAMES: tuple[str, ...] = tuple(c.name for c in FEATURES)

KEYS: tuple[Column, ...] = (
    Column("episode_id", pa.string(), "", "environment id, scheme and seed"),
    Column("step", pa.int32(), "ticks", "0 for the first row of the episode"),
    Column("t_s", pa.float64(), "s", "virtual time since the episode began"),
)

LABELS: tuple[Column, ...] = (
    Column("action", _F32, "ratio", "cwnd_(t+1) / cwnd_t"),
    Column("reward", _F32, "", "measured at tick t+1: R1 where reward_kind is power, R2 where it is friendliness"),
    Column("is_first", pa.bool_(), "", "first row of its episode"),
    Column("is_last", pa.bool_(), "", "last row of its episode"),
)

POOL_COLUMNS: tuple[Column, ...] = (*KEYS, *FEATURES, *LABELS)

REWARD_ALIGNMENTS = ("after", "public")
"""Row t's reward: measured at tick t+1, after the action; or at tick t, as the public code of Sage pairs them."""

EPISODE_COLUMNS: tuple[Column, ...] = (
    Column("episode_id", pa.string(), "", "environment id, scheme and seed"),
    Column("environment_id", pa.string(), "", "the network; same fields, same id"),
    Column("set", pa.string(), "", "I: single flow; II: against Cubic"),
    Column("bandwidth_mbps", pa.float64(), "Mbps", "base rate of the bottleneck"),
    Column("step", pa.float64(), "ratio", "second rate / first; 1 for a flat link"),
    Column("rtt_ms", pa.float64(), "ms", "minimum RTT: propagation there and back"),
    Column("queue_bdp", pa.float64(), "BDP", "queue limit / (base rate x minimum RTT)"),
    Column("queue_bytes", pa.int64(), "bytes", "queue limit"),
    Column("flows", pa.int32(), "", "flows that share the bottleneck"),
    Column("start_s", pa.float64(), "s", "when the scheme under test starts"),
    Column("duration_s", pa.float64(), "s", "virtual length of the episode"),
    Column("reward_kind", pa.string(), "", "power (R1) or friendliness (R2)"),
    Column("scheme", pa.string(), "", "what set the congestion window"),
    Column("seed", pa.int64(), "", "of the episode's random numbers"),
    Column("rows", pa.int64(), "ticks", "rows of the pool: one fewer than raw rows"),
    Column("goodput_mbps", pa.float64(), "Mbps", "in-order bytes at the receiver / time since the start"),
    Column("delay_mean_ms", pa.float64(), "ms", "mean one-way delay of the data packets"),
    Column("delay_p95_ms", pa.float64(), "ms", "their 95th percentile"),
    Column("sent_packets", pa.int64(), "packets", "data packets that reached the bottleneck"),
    Column("lost_packets", pa.int64(), "packets", "of those, dropped by it"),
    Column("cwnd_mean", pa.float64(), "packets", "mean congestion window over the rows"),
    Column("return", pa.float64(), "", "sum of rewards"),
    Column("reward_mean", pa.float64(), "", "return / rows"),
    Column("environment", pa.string(), "", "every field of the environment as JSON"),
)


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(
                column.name,
                column.dtype,
                nullable=False,
                metadata={"unit": column.unit, "formula": column.formula, "paper_index": str(column.paper_index)},
            )
            for column in columns
        ]
    )


POOL_SCHEMA = _schema(POOL_COLUMNS)
"""A row a tick."""

POOL_EPISODE_SCHEMA = _schema(EPISODE_COLUMNS)
"""A row an episode (`episodes.parquet`)."""


def pool_columns(windows: tuple[int, int, int]) -> tuple[Column, ...]:
    """Return POOL_COLUMNS as they read with observation windows of other lengths (ticks)."""
    described = {column.name: column for column in _window_columns(windows)}
    return tuple(described.get(column.name, column) for column in POOL_COLUMNS)


def pool_schema(windows: tuple[int, int, int]) -> pa.Schema:
    """Return POOL_SCHEMA with the formulas of observation windows of other lengths (ticks)."""
    return _schema(pool_columns(windows))


def dictionary(windows: tuple[int, int, int]) -> pa.Table:
    """Return the data dictionary of the pool's rows: name, dtype, unit, formula, paper_index."""
    columns = pool_columns(windows)
    types = {pa.float32(): "float32", pa.float64(): "float64"}
    return pa.table(
        {
            "name": [column.name for column in columns],
            "dtype": [types.get(column.dtype, str(column.dtype)) for column in columns],
            "unit": [column.unit for column in columns],
            "formula": [column.formula for column in columns],
            "paper_index": pa.array([column.paper_index for column in columns], pa.int32()),
        }
    )
