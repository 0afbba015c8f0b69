# SPDX-License-Identifier: Apache-2.0
"""Raw trajectories from your own logs: TCP_INFO of a flow over time, as CSV or Parquet, with a mapping of columns.

What only a lab can count is estimated at the sender: what the receiver got is what was acknowledged, what crossed the
bottleneck what was delivered, what it dropped what was marked lost, and a packet's one-way delay the smoothed RTT less
the way back. The bottleneck's capacity is that of the network that is named.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from sagecc.collector.lab.episode import Episode, FlowSummary
from sagecc.collector.run.store import KERNEL, Partition, pack
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.inputs import check_regular
from sagecc.common.parquet import parquet_schema
from sagecc.common.tables import first_line
from sagecc.schemas import wire
from sagecc.schemas.capacity import capacity_bytes
from sagecc.schemas.environment import BYTES_S_PER_MBPS, Environment, episode_id
from sagecc.schemas.partitions import PARTS
from sagecc.schemas.raw import COUNTERS, RAW_SCHEMA, TICK_S

MAKER = "own log"
"""What stands in the files' metadata in place of the kernel that ran the episodes."""

LOG_BYTES = 2**34
HEADERS_BYTES = 52
"""Of IP, TCP and its time stamps."""
MAX_TICKS_APART = 1.5

_TIMES_US = {"us": 1, "ms": 1e3, "s": 1e6}
_RATES_BYTES_S = {"bytes_s": 1, "bps": 1 / 8, "kbps": 125, "mbps": BYTES_S_PER_MBPS}
_COUNTED = (
    *("ca_state", "cwnd_pkts", "mss_bytes", "unacked_pkts", "lost_pkts", "lost_total_pkts", "delivered_pkts"),
    *("data_segs_out", "bytes_acked", "bytes_sent"),
)
_SPARE = MappingProxyType(
    {"app_limited": 0, "ssthresh_pkts": 2**31 - 1, "sacked_pkts": 0, "retrans_pkts": 0, "rto_total": 0}
)
"""Counters that no feature needs, and what stands for them where a log has not got them."""
_GROWING = ("lost_total_pkts", "delivered_pkts", "data_segs_out", "bytes_acked", "bytes_sent")

QUANTITIES: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        **{f"t_{unit}": ("t_s", us / 1e6) for unit, us in {**_TIMES_US, "ns": 1e-3}.items()},
        **{
            f"{name}_{unit}": (f"{name}_us", us)
            for name in ("srtt", "rttvar", "min_rtt")
            for unit, us in _TIMES_US.items()
        },
        **{
            f"{name}_{unit}": (f"{name}_bytes_s", factor)
            for name in ("delivery_rate", "pacing_rate")
            for unit, factor in _RATES_BYTES_S.items()
        },
        **{name: (name, 1.0) for name in (*_COUNTED, *_SPARE, "retrans_total_pkts")},
    }
)
"""What a column may hold: of which raw column, times what."""

NEEDED = ("t_s", *_COUNTED, "srtt_us", "rttvar_us", "min_rtt_us", "delivery_rate_bytes_s")
"""Raw columns that a log must give: those that features come from."""

Values = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class LogColumns:
    """Which columns of a log hold what."""

    places: Mapping[str, str | float]
    """By a name of QUANTITIES a column's name, or the one value of all rows."""

    @classmethod
    def parse(cls, text: str) -> LogColumns:
        """Read `QUANTITY=COLUMN,...`, such as `t_s=time,srtt_ms=rtt,mss_bytes=1448`; a number stands for all rows.

        Raises:
            SageccError: A quantity is unknown, missing, or there twice.
        """
        places: dict[str, str | float] = {}
        for part in text.split(","):
            name, equals, column = (piece.strip() for piece in part.partition("="))
            if name not in QUANTITIES or not equals or not column:
                raise SageccError(f"--columns: '{part}' is no QUANTITY=COLUMN; quantities are {', '.join(QUANTITIES)}")
            places[name] = float(column) if re.fullmatch(r"\d{1,20}(\.\d+)?", column) else column
        given = [QUANTITIES[name][0] for name in places]
        if doubles := [name for name in given if given.count(name) > 1]:
            raise SageccError(f"--columns: {doubles[0]} is there twice; leave one of them out")
        if missing := [name for name in NEEDED if name not in given]:
            units = [name for name, (raw, _) in QUANTITIES.items() if raw == missing[0]]
            raise SageccError(f"--columns: {missing[0]} is missing; give {' or '.join(units)}")
        return cls(places)

    def read(self, path: Path) -> Values:
        """Return a log's columns by their raw names, float64.

        Raises:
            SageccError: The file or a column cannot be read; the message names it.
        """
        check_regular(path, LOG_BYTES)
        names = sorted({place for place in self.places.values() if isinstance(place, str)})
        try:
            scan = (
                pl.scan_parquet(path, glob=False, hive_partitioning=False)
                if path.suffix == ".parquet"
                else pl.scan_csv(path, glob=False, infer_schema_length=None)
            )
            there = scan.collect_schema().names()
            if missing := [name for name in names if name not in there]:
                raise SageccError(f"{path} has no column '{missing[0]}'; there are {', '.join(there)[:300]}")
            table = scan.select(pl.col(names).cast(pl.Float64)).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise SageccError(f"{path} cannot be read as a log: {first_line(error)}") from error
        for name in names:
            if not table[name].is_finite().fill_null(False).all():
                row = int((~table[name].is_finite().fill_null(False)).arg_max() or 0)
                raise SageccError(f"{path}: column '{name}' holds no number in row {row + 1}")
        values: Values = {}
        for name, place in self.places.items():
            raw, factor = QUANTITIES[name]
            column = table[place].to_numpy() if isinstance(place, str) else np.full(len(table), place)
            values[raw] = column * factor
        return values


def import_logs(
    paths: Sequence[Path], columns: LogColumns, scheme: str, environment: Environment, out: Path
) -> Mapping[str, int]:
    """Add logs of one scheme in one network to a folder of raw trajectories; a log that is there already stays.

    Args:
        paths: the logs.
        columns: what their columns hold.
        scheme: what set the windows.
        environment: the network.
        out: the folder; new, empty, or filled by earlier imports.

    Returns:
        By episode id its rows, of these logs.

    Raises:
        SageccError: A log or a column cannot be read or is none of a flow's counters, or `out` holds what a kernel ran.
    """
    if any((parquet_schema(part).metadata or {}).get(KERNEL) != MAKER.encode() for part in out.glob(PARTS)):
        raise SageccError(f"{out} holds trajectories that a kernel ran: choose another --raw")
    rows: dict[str, int] = {}
    with Partition(out, environment.set, scheme, MAKER) as partition:
        kept = partition.kept()
        known = {sha256: name for name, sha256 in kept.items()}
        for path in paths:
            digest = hashlib.sha256(repr((sha256_file(path), sorted(columns.places.items()))).encode()).hexdigest()
            seed = next(seed for seed in range(len(kept) + 1) if episode_id(environment.id, scheme, seed) not in kept)
            name = known.get(digest, episode_id(environment.id, scheme, seed))
            episode = _episode(path, columns.read(path), name, scheme, environment, seed, digest)
            partition.add(name, pack(episode, MAKER))
            kept[name], known[digest], rows[name] = digest, name, episode.rows.num_rows
        partition.assemble(kept)
    return rows


def _episode(
    path: Path, values: Values, name: str, scheme: str, environment: Environment, seed: int, digest: str
) -> Episode:
    columns = _raw(path, _at_ticks(path, values), environment)
    count, last = len(columns["t_s"]), {key: column[-1] for key, column in columns.items()}
    ids = pa.array([name] * count, pa.string())
    table = pa.table({"episode_id": ids, "step": np.arange(count, dtype=np.int32), **columns}, schema=RAW_SCHEMA)
    life_s = float(columns["t_s"][-1] - environment.start_s)
    delays_ms = np.maximum(columns["srtt_us"] / 1e3 - environment.return_delay_ms, 0.0)
    packets = int(last["link_packets"])
    summary = FlowSummary(
        scheme=scheme,
        goodput_mbps=float(last["received_bytes"]) * 8 / 1e6 / life_s,
        delay_mean_ms=float(last["link_delay_ns"]) / 1e6 / packets if packets else float("nan"),
        delay_p95_ms=float(np.percentile(delays_ms, 95)),
        sent_packets=int(last["data_segs_out"]),
        lost_packets=int(last["link_drops"]),
        cwnd_mean=float(columns["cwnd_pkts"].mean()),
    )
    return Episode(name, environment, scheme, seed, table, (summary,), digest, digest)


def _at_ticks(path: Path, values: Values) -> Values:
    """Return the last row of each tick of 10 ms, its time that since the first row."""
    if len(values["t_s"]) < 2:
        raise SageccError(f"{path}: has {len(values['t_s'])} rows; two at least make a transition")
    since_s = np.round(values["t_s"] - values["t_s"][0], 6)  # seconds since 1970 leave a float no more digits
    if (later := np.diff(since_s) <= 0).any():
        raise SageccError(f"{path}: the time of row {int(np.argmax(later)) + 2} is not after that of the row before")
    ticks = np.floor(since_s / TICK_S + 0.5).astype(np.int64)
    chosen = np.append(np.diff(ticks) > 0, True)
    apart = float(np.median(np.diff(since_s[chosen]))) / TICK_S if chosen.sum() > 1 else np.inf
    if apart > MAX_TICKS_APART:
        raise SageccError(
            f"{path}: its rows are {apart * TICK_S * 1e3:.0f} ms apart; features are of rows {TICK_S * 1e3:g} ms apart"
        )
    return {name: column[chosen] for name, column in (values | {"t_s": since_s}).items()}


def _raw(path: Path, values: Values, environment: Environment) -> Values:
    """Return raw columns, whole numbers within their types."""
    t_s = environment.start_s + TICK_S + values["t_s"]
    if t_s[-1] > environment.duration_s + TICK_S:
        raise SageccError(f"{path}: lasts {t_s[-1]:g} s, and its network {environment.duration_s:g} s")
    raw = {name: np.rint(column) for name, column in values.items() if name != "t_s"}
    for name in _GROWING:
        step = np.diff(raw[name] - raw[name][0])
        if (step < 0).any():
            raise SageccError(f"{path}: {name} falls in row {int(np.argmax(step < 0)) + 2}; it only counts")
        raw[name] -= raw[name][0]
    count = len(t_s)
    delay_us = np.maximum(raw["srtt_us"] - 1e3 * environment.return_delay_ms, 0.0)
    delivered = raw["delivered_pkts"]
    raw = {
        **{name: np.full(count, value) for name, value in _SPARE.items()},
        "retrans_total_pkts": raw["lost_total_pkts"],
        "pacing_rate_bytes_s": np.zeros(count),
        **raw,
        "received_bytes": raw["bytes_acked"],
        "link_packets": delivered,
        "link_bytes": delivered * (raw["mss_bytes"] + HEADERS_BYTES),
        "link_drops": raw["lost_total_pkts"],
        "link_delay_ns": np.cumsum(np.diff(delivered, prepend=0.0) * delay_us * 1e3),
        "link_queue_bytes": np.zeros(count),
        "link_capacity_bytes": capacity_bytes(environment.bottleneck, np.rint(t_s * 1e9).astype(np.int64)),
    }
    columns: Values = {"t_s": t_s}
    for name, dtype, *_ in COUNTERS:
        wrong = (raw[name] < (name == "cwnd_pkts")) | (raw[name] > min(np.iinfo(dtype.to_pandas_dtype()).max, 2**63))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise SageccError(f"{path}: {name} is {raw[name][row]:g} at {values['t_s'][row]:g} s, which none can be")
        columns[name] = raw[name].astype(dtype.to_pandas_dtype())
    if "pacing_rate_bytes_s" not in values:
        columns["pacing_rate_bytes_s"][:] = wire.NO_LIMIT
    return columns
