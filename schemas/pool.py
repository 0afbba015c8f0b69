# SPDX-License-Identifier: Apache-2.0
"""The pool's columns: 69 features, action and reward, with unit, formula and index in the paper's Table 1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import MappingProxyType

import pyarrow as pa

from sagecc.common.errors import SageccError
from sagecc.common.versions import same_major
from sagecc.schemas.raw import raw_schema

POOL_VERSION = "1.1"
"""Major.minor: a reader refuses another major version and reads any minor one. 1.1 added bounds and the manifest."""

VERSION_KEY = b"sagecc.pool_version"
WINDOWS_KEY = b"sagecc.windows"
ALIGNMENT_KEY = b"sagecc.reward_alignment"
EFFECTIVE_KEY = b"sagecc.effective_windows"
INPUT_KEY = b"sagecc.input_sha256"
KERNEL_KEY = b"sagecc.kernel"
PLAYER_KEY = b"sagecc.player"
"""Keys of every file's metadata: version, observation windows, pairing of rewards, which schemes' windows are effective
ones (only in a pool that has some), digest of the input; files of rows also have the identity of the kernel that ran
the episodes, and those of a policy in training what played them."""

COLUMNS_FILE = "columns.parquet"
"""File of the data dictionary, for readers that have only the files."""

WINDOWS_TICKS = {"s": 10, "m": 200, "l": 1000}
"""Small, medium and large observation windows (section 7.4 of the paper): 0.1 s, 2 s, 10 s."""

_S, _M, _L = WINDOWS_TICKS.values()
WINDOW_NAMES = {"all": (_S, _M, _L), "small": (_S,) * 3, "medium": (_M,) * 3, "large": (_L,) * 3}
"""Window lengths (ticks) by the pool's name: all three windows, or one for all (section 7.4 of the paper)."""

ACTION_LOG2_LIMIT = 2.0
"""Bound of |log2(action)|, to which the learner clips."""


@dataclass(frozen=True)
class Column:
    """A column of the pool; its numbers are finite."""

    name: str
    """Name of the column."""

    dtype: pa.DataType
    """Arrow type."""

    unit: str
    """Unit; empty where there is none."""

    formula: str
    """How a value is computed, or what it means."""

    paper_index: int = 0
    """Row of the paper's Table 1 (1 to 69); 0 for a column that is not a feature."""

    _: KW_ONLY

    low: float | None = None
    """Least value, or None without a bound."""

    high: float | None = None
    """Greatest value, or None without a bound."""

    nullable: bool = False
    """Whether a value may be null."""

    absent: str = ""
    """In what episode a value may be null; empty for in none."""


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
    for group, unit, quantity in groups:
        for window, ticks in zip(WINDOWS_TICKS, lengths, strict=True):
            for statistic in ("avg", "min", "max"):
                formula = f"{statistic} of {quantity} over the last {ticks} ticks"
                columns.append(Column(f"{group}_{window}.{statistic}", pa.float32(), unit, formula, index, low=0))
                index += 1
    return columns


_F32 = pa.float32()

MIN_CWND_RATIO, MAX_CWND_RATIO = 2.0**-32, 2.0**32
"""Bounds of the ratio of two congestion windows, which the kernel counts in 32 bits."""

MAX_REWARD = 25.0

FEATURES: tuple[Column, ...] = (
    Column("srtt", _F32, "100 ms", "sRTT / 100 ms", 1, low=0),
    Column("rttvar", _F32, "1 ms", "RTT variance / 1 ms", 2, low=0),
    Column("thr", _F32, "100 Mbps", "delivery rate of the socket / 100 Mbps", 3, low=0),
    Column("ca_state", _F32, "", "kernel state, 0 open to 4 loss", 4, low=0, high=4),
    *_window_columns(tuple(WINDOWS_TICKS.values())),
    Column("time_delta", _F32, "ratio", "time since the previous row / min RTT", 59, low=0),
    Column("rtt_rate", _F32, "ratio", "min RTT / sRTT", 60, low=0),
    Column("loss_db", _F32, "100 Mbps", "newly lost bytes per second over 1 s / 100 Mbps", 61, low=0),
    Column(
        "acked_rate", _F32, "ratio", "acknowledged rate over 1 s / highest sending rate over 1 s seen so far", 62, low=0
    ),
    Column("dr_ratio", _F32, "ratio", "delivery rate over 1 s / the same one tick before", 63, low=0),
    Column("bdp_cwnd", _F32, "ratio", "dr_max (bytes/s) x min RTT (s) / (cwnd x MSS)", 64, low=0),
    Column("dr", _F32, "100 Mbps", "delivered bytes over 1 s / 100 Mbps", 65, low=0),
    Column("cwnd_unacked_rate", _F32, "ratio", "unacknowledged packets / packets sent over 1 s", 66, low=0),
    Column("dr_max", _F32, "100 Mbps", "highest dr over 2 s", 67, low=0),
    Column("dr_max_ratio", _F32, "ratio", "dr_max / the same one tick before", 68, low=0),
    Column(
        "pre_act", _F32, "ratio", "previous action: cwnd_t / cwnd_(t-1)", 69, low=MIN_CWND_RATIO, high=MAX_CWND_RATIO
    ),
)

FEATURE_NAMES: tuple[str, ...] = tuple(c.name for c in FEATURES)


def _kept(keeps: Callable[[Column], bool]) -> tuple[str, ...]:
    return tuple(column.name for column in FEATURES if keeps(column))


def _of_window(window: str) -> tuple[str, ...]:
    return _kept(lambda column: "." not in column.name or f"_{window}." in column.name)


INPUT_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "all": FEATURE_NAMES,
        "no-min-max": _kept(lambda column: not column.name.endswith((".min", ".max"))),
        "no-rtt-var": _kept(lambda column: not 23 <= column.paper_index <= 40),
        "no-loss-inflight": _kept(lambda column: not 41 <= column.paper_index <= 58),
        "no-acked-rate": _kept(lambda column: column.name != "acked_rate"),
        **{f"window-{window}": _of_window(window) for window in WINDOWS_TICKS},
    }
)
"""Names of the features in each group of inputs: all, those of section 7.3's ablations, section 7.4's windows, and all
but the acknowledged rate over the highest rate ever sent, which tells of a recorder's past."""

KEYS: tuple[Column, ...] = (
    Column("episode_id", pa.string(), "", "environment id, scheme and seed"),
    Column("step", pa.int32(), "ticks", "0 for the first row of the episode", low=0),
    Column("t_s", pa.float64(), "s", "virtual time since the episode began", low=0),
)

LABELS: tuple[Column, ...] = (
    Column("action", _F32, "ratio", "cwnd_(t+1) / cwnd_t", 0, low=MIN_CWND_RATIO, high=MAX_CWND_RATIO),
    Column("reward", _F32, "", "measured at tick t+1: R1 (reward_kind power) or R2 (friendliness)", high=MAX_REWARD),
    Column("is_first", pa.bool_(), "", "first row of its episode"),
    Column("is_last", pa.bool_(), "", "last row of its episode"),
)

POOL_COLUMNS: tuple[Column, ...] = (*KEYS, *FEATURES, *LABELS)

IS_KICKED = Column(
    "is_kicked", pa.bool_(), "", "of disturbed schemes alone: the lab multiplied the window in this transition"
)
"""In partitions of disturbed schemes (schemas.disturbance), behind POOL_COLUMNS."""

OF_CWND = ("bdp_cwnd", "pre_act", "action")
"""The columns that a congestion window is in."""

REWARD_ALIGNMENTS = ("after", "public")
"""When row t's reward is measured: at tick t+1, after the action, or at tick t, as in the public code of Sage."""

_UNCOUNTED = "of others' trajectories that do not say"

EPISODE_COLUMNS: tuple[Column, ...] = (
    Column("episode_id", pa.string(), "", "environment id, scheme and seed"),
    Column("environment_id", pa.string(), "", "the network; same fields, same id"),
    Column("set", pa.string(), "", "I: single flow; II: against Cubic"),
    Column("bandwidth_mbps", pa.float64(), "Mbps", "base rate of the bottleneck", low=0),
    Column("step", pa.float64(), "ratio", "second rate / first; 1 for a flat link"),
    Column("rtt_ms", pa.float64(), "ms", "minimum RTT: propagation there and back", low=0),
    Column("queue_bdp", pa.float64(), "BDP", "queue limit / (base rate x minimum RTT)", low=0, absent="without one"),
    Column("queue_bytes", pa.int64(), "bytes", "queue limit", low=0, absent="without one"),
    Column("flows", pa.int32(), "", "flows that share the bottleneck", low=1),
    Column("start_s", pa.float64(), "s", "when the scheme under test starts", low=0),
    Column("duration_s", pa.float64(), "s", "virtual length of the episode", low=0),
    Column("reward_kind", pa.string(), "", "power (R1) or friendliness (R2)"),
    Column("scheme", pa.string(), "", "what set the congestion window"),
    Column("seed", pa.int64(), "", "of the episode's random numbers"),
    Column("rows", pa.int64(), "ticks", "rows of the pool: one fewer than raw rows", low=1),
    Column("goodput_mbps", pa.float64(), "Mbps", "in-order bytes at the receiver / time since the start", low=0),
    Column("delay_mean_ms", pa.float64(), "ms", "mean one-way delay of the data packets", low=0, absent="without any"),
    Column("delay_p95_ms", pa.float64(), "ms", "their 95th percentile", low=0, absent="without any"),
    Column("sent_packets", pa.int64(), "packets", "data packets that reached the bottleneck", low=0, absent=_UNCOUNTED),
    Column("lost_packets", pa.int64(), "packets", "of those, dropped by it", low=0, absent=_UNCOUNTED),
    Column("cwnd_mean", pa.float64(), "packets", "mean congestion window over the rows", low=0, absent=_UNCOUNTED),
    Column("return", pa.float64(), "", "sum of rewards"),
    Column("reward_mean", pa.float64(), "", "return / rows", high=MAX_REWARD),
    Column("environment", pa.string(), "", "every field of the environment as JSON"),
)


def _field_metadata(column: Column) -> dict[str, str]:
    metadata = {"unit": column.unit, "formula": column.formula, "paper_index": str(column.paper_index)}
    bounds = {"low": column.low, "high": column.high}
    return metadata | {name: f"{value:g}" for name, value in bounds.items() if value is not None}


def schema_of(columns: tuple[Column, ...]) -> pa.Schema:
    """Return columns as an Arrow schema, units, formulas and bounds in the fields' metadata."""
    return pa.schema(
        [
            pa.field(column.name, column.dtype, nullable=column.nullable, metadata=_field_metadata(column))
            for column in columns
        ]
    )


POOL_SCHEMA = schema_of(POOL_COLUMNS)
"""One row per tick."""

POOL_EPISODE_SCHEMA = schema_of(EPISODE_COLUMNS)
"""One row per episode (`episodes.parquet`) of a pool without nulls."""

MAY_BE_ABSENT = frozenset(column.name for column in EPISODE_COLUMNS if column.absent)
"""The columns of EPISODE_COLUMNS that are nullable in a pool that has a null there, and in no other."""


def episode_columns(nullable: Collection[str] = ()) -> tuple[Column, ...]:
    """Return EPISODE_COLUMNS as a pool has them.

    Args:
        nullable: names of the columns that have nulls in it, of MAY_BE_ABSENT.
    """
    return tuple(
        replace(column, formula=f"{column.formula}; null {column.absent}", nullable=True)
        if column.name in MAY_BE_ABSENT.intersection(nullable)
        else column
        for column in EPISODE_COLUMNS
    )


def episode_schema(nullable: Collection[str] = ()) -> pa.Schema:
    """Return the schema of `episodes.parquet`; see episode_columns."""
    return schema_of(episode_columns(nullable))


def nullable_columns(schema: pa.Schema) -> frozenset[str]:
    """Return which columns have nulls in a pool, from the schema of its `episodes.parquet`."""
    return frozenset(
        name for name in MAY_BE_ABSENT if (at := schema.get_field_index(name)) >= 0 and schema.field(at).nullable
    )


def pool_columns(windows: tuple[int, int, int], effective: str = "", disturbed: bool = False) -> tuple[Column, ...]:
    """Return POOL_COLUMNS with the formulas of a pool.

    Args:
        windows: lengths of its observation windows (ticks).
        effective: the schemes whose windows are effective ones (pool.effective), as in its metadata.
        disturbed: whether the columns are a disturbed scheme's.
    """
    columns = {column.name: column for column in _window_columns(windows)}
    if effective:
        note = f"; cwnd of {effective}: min(cwnd, pacing rate x sRTT / MSS)"
        of_cwnd = (column for column in POOL_COLUMNS if column.name in OF_CWND)
        columns |= {column.name: replace(column, formula=column.formula + note) for column in of_cwnd}
    names = (*POOL_COLUMNS, IS_KICKED) if disturbed else POOL_COLUMNS
    return tuple(columns.get(column.name, column) for column in names)


def pool_schema(windows: tuple[int, int, int], effective: str = "", disturbed: bool = False) -> pa.Schema:
    """Return POOL_SCHEMA with the formulas of a pool; see pool_columns."""
    return schema_of(pool_columns(windows, effective, disturbed))


def raw_columns(disturbed: bool = False) -> tuple[Column, ...]:
    """Return the columns of raw trajectories (schemas/raw.py), from which the pool's are derived."""
    columns = [(field, field.metadata or {}) for field in raw_schema(disturbed)]
    return tuple(
        Column(field.name, field.type, meta[b"unit"].decode(), meta[b"meaning"].decode()) for field, meta in columns
    )


def dictionary(
    windows: tuple[int, int, int] = WINDOW_NAMES["all"],
    effective: str = "",
    nullable: Collection[str] = (),
    disturbed: bool = False,
) -> pa.Table:
    """Return the data dictionary, the pool's columns first.

    Args:
        windows: lengths of the small, medium and large observation windows (ticks).
        effective: the schemes whose windows are effective ones.
        nullable: names of the columns that have nulls in the list of episodes.
        disturbed: whether there are disturbed schemes.

    Returns:
        One row per column: name, dtype, unit, formula, paper_index, table (transitions, episodes or raw), low and high
        (null without a bound).
    """
    return description(
        {
            "transitions": pool_columns(windows, effective, disturbed),
            "episodes": episode_columns(nullable),
            "raw": raw_columns(disturbed),
        }
    )


def description(tables: Mapping[str, Sequence[Column]]) -> pa.Table:
    """Return a data dictionary of tables' columns; see `dictionary`."""
    types = {pa.float32(): "float32", pa.float64(): "float64"}
    rows = [(table, column) for table, columns in tables.items() for column in columns]
    return pa.table(
        {
            "name": [column.name for _, column in rows],
            "dtype": [types.get(column.dtype, str(column.dtype)) for _, column in rows],
            "unit": [column.unit for _, column in rows],
            "formula": [column.formula for _, column in rows],
            "paper_index": pa.array([column.paper_index for _, column in rows], pa.int32()),
            "table": [table for table, _ in rows],
            "low": pa.array([column.low for _, column in rows], pa.float64()),
            "high": pa.array([column.high for _, column in rows], pa.float64()),
        }
    )


def check_version(path: object, version: str) -> None:
    """Check that a file's version can be read here.

    Args:
        path: the file, for the message.
        version: its version; empty where it states none.

    Raises:
        SageccError: its major version is not POOL_VERSION's.
    """
    if not same_major(version, POOL_VERSION):
        raise SageccError(
            f"{path} has pool version {version or 'none'}, this program reads {POOL_VERSION}:"
            " derive the pool again with 'sagecc pool', or use the sagecc that made it"
        )
