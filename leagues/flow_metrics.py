# SPDX-License-Identifier: Apache-2.0
"""What the flows of one episode had of the network: series over time, fairness, utilisation, convergence.

`flow_series` condenses an episode's raw rows (schemas.flows.FLOWS_SCHEMA) to one row per flow and interval; everything
else here is a pure function of such a series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from sagecc.common.errors import SageccError
from sagecc.common.fairness import jain_of_sums
from sagecc.schemas.flows import FLOWS_SCHEMA
from sagecc.schemas.wire import NO_LIMIT

BITS_PER_MBIT = 1e6
EPSILON = 1e-6
"""Of an interval: ticks are multiples of 10 ms only up to a float's rounding."""
TOLERANCE, HOLD_S = 0.1, 1.0
"""A flow has converged once it stays within so much of its fair share for so long."""

SERIES_SCHEMA = pa.schema(
    [
        pa.field(name, dtype, nullable=nullable, metadata={"unit": unit, "meaning": meaning})
        for name, dtype, nullable, unit, meaning in (
            ("flow", pa.int32(), False, "", "0 is the tested one, then the competitors"),
            ("scheme", pa.string(), False, "", "of this flow"),
            ("t_s", pa.float64(), False, "s", "start of the interval"),
            ("goodput_mbps", pa.float64(), False, "Mbps", "in-order bytes at the receiver, over the whole interval"),
            ("srtt_ms", pa.float64(), True, "ms", "mean smoothed RTT; null before the first sample"),
            ("cwnd_pkts", pa.float64(), False, "packets", "mean congestion window"),
            ("pacing_mbps", pa.float64(), True, "Mbps", "mean pacing rate; null while it is unlimited"),
            ("sent_pkts", pa.int64(), False, "packets", "data packets sent, retransmissions included"),
            ("lost_pkts", pa.int64(), False, "packets", "data packets that the links of its path dropped"),
            ("retransmitted_pkts", pa.int64(), False, "packets", "data packets sent again"),
            ("queue_bytes", pa.float64(), False, "bytes", "mean bytes of all flows in the bottleneck's queue"),
            ("capacity_mbps", pa.float64(), True, "Mbps", "what the bottleneck could send meanwhile; null of one row"),
        )
    ]
)
"""One row per flow and interval in which the flow lives, sorted by flow, then by time."""

_COUNTERS = ("received_bytes", "data_segs_out", "link_drops", "retrans_total_pkts")


def flow_series(flows: pa.Table, interval_s: float = 1.0) -> pl.DataFrame:
    """Condense an episode's rows to one row per flow and interval.

    A counter's growth in an interval is its last value in it less its last value before; a flow's counters are 0
    before its first row.

    Args:
        flows: rows of FLOWS_SCHEMA, of one episode.
        interval_s: length of an interval (s); intervals begin at multiples of it.

    Returns:
        A table of SERIES_SCHEMA.

    Raises:
        SageccError: The interval is not positive.
    """
    _check_interval(interval_s)
    raw = pl.DataFrame(pl.from_arrow(flows.select(_used()))).sort("flow", "t_s")
    interval = (pl.col("t_s") / interval_s - EPSILON).ceil().cast(pl.Int64) - 1
    per_interval = (
        raw.with_columns(
            interval=pl.max_horizontal(interval, pl.lit(0, pl.Int64)),
            first_s=pl.col("t_s").first().over("flow"),
            first_capacity=pl.col("link_capacity_bytes").first().over("flow"),
        )
        .group_by("flow", "interval", maintain_order=True)
        .agg(
            pl.col("scheme", "first_s", "first_capacity").first(),
            pl.col(*_COUNTERS).last().cast(pl.Int64),
            pl.col("t_s").last().alias("last_s"),
            pl.col("link_capacity_bytes").last().alias("capacity"),
            srtt_ms=pl.col("srtt_us").filter(pl.col("srtt_us") > 0).mean() / 1000,
            cwnd_pkts=pl.col("cwnd_pkts").mean(),
            pacing_mbps=pl.col("pacing_rate_bytes_s")
            .filter(pl.col("pacing_rate_bytes_s") < NO_LIMIT)
            .cast(pl.Float64)
            .mean()
            * 8
            / BITS_PER_MBIT,
            queue_bytes=pl.col("link_queue_bytes").cast(pl.Float64).mean(),
        )
    )
    before = pl.col(*_COUNTERS).shift(1).fill_null(0).over("flow")
    increments = per_interval.with_columns(pl.col(*_COUNTERS) - before).with_columns(
        seconds=pl.col("last_s") - pl.coalesce(pl.col("last_s").shift(1).over("flow"), "first_s"),
        could=pl.col("capacity").cast(pl.Float64)
        - pl.coalesce(pl.col("capacity").shift(1).over("flow"), "first_capacity").cast(pl.Float64),
    )
    return increments.select(
        pl.col("flow").cast(pl.Int32),
        "scheme",
        t_s=(pl.col("interval") * interval_s).round(6),
        goodput_mbps=pl.col("received_bytes") * 8 / BITS_PER_MBIT / interval_s,
        srtt_ms=pl.col("srtt_ms"),
        cwnd_pkts=pl.col("cwnd_pkts"),
        pacing_mbps=pl.col("pacing_mbps"),
        sent_pkts=pl.col("data_segs_out"),
        lost_pkts=pl.col("link_drops"),
        retransmitted_pkts=pl.col("retrans_total_pkts"),
        queue_bytes=pl.col("queue_bytes"),
        capacity_mbps=pl.when(pl.col("seconds") > 0).then(pl.col("could") * 8 / BITS_PER_MBIT / pl.col("seconds")),
    )


def to_arrow(series: pl.DataFrame) -> pa.Table:
    """Return a series as it is kept in a file, with SERIES_SCHEMA's units and meanings."""
    return series.select(SERIES_SCHEMA.names).to_arrow().cast(SERIES_SCHEMA)


def _used() -> list[str]:
    gauges = ("srtt_us", "cwnd_pkts", "pacing_rate_bytes_s", "link_queue_bytes", "link_capacity_bytes")
    columns = {"flow", "scheme", "t_s", *_COUNTERS, *gauges}
    return [name for name in FLOWS_SCHEMA.names if name in columns]


def rebin(series: pl.DataFrame, interval_s: float, wanted_s: float) -> pl.DataFrame:
    """Join intervals to longer ones.

    Args:
        series: of SERIES_SCHEMA.
        interval_s: its intervals' length (s).
        wanted_s: the new intervals' length (s), a multiple of it.

    Returns:
        A table of SERIES_SCHEMA: packets summed, the goodput over the whole new interval, means of everything else.

    Raises:
        SageccError: The new length is no multiple of the old one.
    """
    _check_interval(interval_s)
    factor = round(wanted_s / interval_s)
    if factor < 1 or abs(factor * interval_s - wanted_s) > EPSILON:
        raise SageccError(f"series: intervals of {interval_s:g} s cannot be joined to {wanted_s:g} s; take a multiple")
    interval = (pl.col("t_s") / wanted_s + EPSILON).floor()
    return (
        series.with_columns(t_s=(interval * wanted_s).round(6))
        .group_by("flow", "t_s", maintain_order=True)
        .agg(
            pl.col("scheme").first(),
            pl.col("goodput_mbps").sum() / factor,
            pl.col("srtt_ms", "cwnd_pkts", "pacing_mbps", "queue_bytes", "capacity_mbps").mean(),
            pl.col("sent_pkts", "lost_pkts", "retransmitted_pkts").sum(),
        )
        .select(series.columns)
    )


def between(series: pl.DataFrame, start_s: float, end_s: float, interval_s: float = 1.0) -> pl.DataFrame:
    """Return the intervals that lie wholly in [start_s, end_s]."""
    return series.filter((pl.col("t_s") >= start_s - EPSILON) & (pl.col("t_s") + interval_s <= end_s + EPSILON))


def flow_means(series: pl.DataFrame) -> pl.DataFrame:
    """Return one row per flow over a whole series; cut it with `between` for a window.

    Returns:
        flow, scheme, goodput_mbps, srtt_ms, cwnd_pkts, loss_rate and retransmission_rate (over packets sent; null where
        nothing was sent).
    """
    sent = pl.when(pl.col("sent_pkts").sum() > 0).then(pl.col("sent_pkts").sum())
    return (
        series.group_by("flow", maintain_order=True)
        .agg(
            pl.col("scheme").first(),
            pl.col("goodput_mbps", "srtt_ms", "cwnd_pkts").mean(),
            loss_rate=pl.col("lost_pkts").sum() / sent,
            retransmission_rate=pl.col("retransmitted_pkts").sum() / sent,
        )
        .sort("flow")
    )


def jain_over_time(series: pl.DataFrame) -> pl.DataFrame:
    """Return Jain's index of the goodputs in each interval, over the flows that live in it; `rebin` makes longer slots.

    Returns:
        t_s and jain; null where nothing arrived.
    """
    goodput = pl.col("goodput_mbps")
    squares = (goodput**2).sum()
    index = pl.when(squares > 0).then(jain_of_sums(goodput.sum(), squares, pl.len()))
    return series.group_by("t_s").agg(jain=index).sort("t_s")


def ratio_over_time(series: pl.DataFrame) -> pl.DataFrame:
    """Return the smallest goodput over the largest in each interval in which two flows or more live.

    Args:
        series: of SERIES_SCHEMA.

    Returns:
        t_s and ratio (0 to 1); null where nothing arrived.
    """
    goodput = pl.col("goodput_mbps")
    ratio = pl.when(goodput.max() > 0).then(goodput.min() / goodput.max())
    return (
        series.group_by("t_s").agg(flows=pl.len(), ratio=ratio).filter(pl.col("flows") >= 2).drop("flows").sort("t_s")
    )


def share_over_time(
    series: pl.DataFrame, against: Literal["mean", "max"] = "mean", floor_mbps: float = 0.0
) -> pl.DataFrame:
    """Return flow 0's goodput over its competitors' in each interval in which it and another live.

    Args:
        series: of SERIES_SCHEMA.
        against: the competitors' mean or largest goodput.
        floor_mbps: either side of the ratio counts as at least this.

    Returns:
        t_s and ratio; null where the competitors got nothing and there is no floor.
    """
    goodput = pl.col("goodput_mbps")
    others = goodput.filter(pl.col("flow") != 0)
    other = pl.max_horizontal({"mean": others.mean(), "max": others.max()}[against], pl.lit(floor_mbps))
    own = pl.max_horizontal(goodput.filter(pl.col("flow") == 0).first(), pl.lit(floor_mbps))
    both = (pl.col("flow") == 0).any() & (pl.col("flow") != 0).any()
    return (
        series.group_by("t_s")
        .agg(both=both, ratio=pl.when(other > 0).then(own / other))
        .filter("both")
        .sort("t_s")
        .drop("both")
    )


def utilisation_over_time(series: pl.DataFrame) -> pl.DataFrame:
    """Return the flows' goodput together over the bottleneck's capacity in each interval (t_s, utilisation).

    In-order bytes hold no retransmission and no header: 1448 of a packet's 1500 bytes are the most. In an outage,
    where nothing could be sent, it is null.
    """
    capacity = pl.col("capacity_mbps").max()
    share = pl.when(capacity > 0).then(pl.col("goodput_mbps").sum() / capacity)
    return series.group_by("t_s").agg(utilisation=share).sort("t_s")


@dataclass(frozen=True)
class Convergence:
    """How fast and how steadily a flow came to its fair share (Astraea, EuroSys 2024, section 5.2)."""

    time_s: float | None
    """From the event to the start of the first HOLD_S within TOLERANCE; None where there was none."""
    deviation_mbps: float | None
    """Standard deviation of its goodput from then on; None where it never converged, or for one interval only."""


def convergence(goodput_mbps: Sequence[float], fair_mbps: float, interval_s: float) -> Convergence:
    """Measure how a flow converges after an event, such as its own start.

    Args:
        goodput_mbps: the flow's goodput in each interval from the event on, until the next.
        fair_mbps: its fair share.
        interval_s: the intervals' length (s).
    """
    rates = np.asarray(goodput_mbps, dtype=np.float64)
    inside = np.abs(rates - fair_mbps) <= TOLERANCE * fair_mbps * (1 + 1e-9)
    intervals = max(1, int(np.ceil(HOLD_S / interval_s - EPSILON)))
    if len(rates) < intervals:
        return Convergence(None, None)
    is_held = np.lib.stride_tricks.sliding_window_view(inside, intervals).all(axis=1)
    if not is_held.any():
        return Convergence(None, None)
    first = int(is_held.argmax())
    after = rates[first:]
    return Convergence(first * interval_s, float(after.std(ddof=1)) if len(after) > 1 else None)


def _check_interval(interval_s: float) -> None:
    if interval_s <= 0:
        raise SageccError(f"series: an interval must be longer than 0 s, not {interval_s:g}")
