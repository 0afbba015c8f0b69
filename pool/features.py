# SPDX-License-Identifier: Apache-2.0
"""The 69 features of the paper's Table 1, from raw counters: one implementation for the pool and for live flows.

`_update` takes a flow's state and one raw row and writes one column of features. The pool runs it over
millions of rows (`derive`), a live flow runs it once per tick (`FeatureTracker`): the two cannot differ.

Everything that is added up over a window is a whole number (the ratio min RTT / sRTT counts in 2^-36) and a double
holds the sums exactly, so they cannot drift however long a flow lives. Edge rules, the same for both modes:

- A window not yet full uses the rows there are; before the first RTT sample sRTT and the ratios on it are 0.
- "Over 1 s" is the counter's increase since 100 ticks ago, or since the flow's first row, divided by the time
  that really passed; 0 at the first row.
- A ratio with a zero denominator is 0, except dr_ratio and dr_max_ratio, which are 1; pre_act is 1 at the first row.
- Counters of 32 bits may wrap. A counter that steps backwards has not moved.
- Bytes delivered and lost are packets times the MSS at that tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.common.machine_code import compiled
from sagecc.pool.reward import BYTES_S, RATE_TICKS
from sagecc.schemas.pool import FEATURE_NAMES, WINDOWS_TICKS

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.int64]

RAW_NEEDED = (
    "ca_state",
    "cwnd_pkts",
    "srtt_us",
    "rttvar_us",
    "min_rtt_us",
    "mss_bytes",
    "unacked_pkts",
    "lost_pkts",
    "lost_total_pkts",
    "delivered_pkts",
    "data_segs_out",
    "bytes_acked",
    "bytes_sent",
    "delivery_rate_bytes_s",
    "link_capacity_bytes",
)
"""Raw columns the features and rewards come from; the time (t_s or t_ns) comes before them."""

_T, _CA, _CWND, _SRTT, _RTTVAR, _MIN_RTT, _MSS, _UNACKED, _LOST = range(9)
_LOST_TOTAL, _DELIVERED, _SEGS_OUT, _ACKED, _SENT, _RATE, _CAPACITY = range(9, 16)

RAW_WIDTH = 1 + len(RAW_NEEDED)
FEATURES = len(FEATURE_NAMES)

MEASURED = ("delivered_bytes_s", "lost_bytes_s", "capacity_bytes_s", "rtt_rate")
"""Inputs of the rewards, float64: three rates over 1 s and min RTT / sRTT."""

DR_MAX_TICKS = 200
"""dr_max looks back 2 s."""
MAX_WINDOW_TICKS = 8192
"""Longest window whose sums cannot overflow 64 bits."""

_SERIES = 6  # sRTT, delivery rate, min RTT / sRTT, rttvar, inflight, lost: the order of Table 1
_LANES = 8  # the series padded to whole vector registers
_TOTALS = 7  # delivered, lost, acked, sent bytes; sent packets; capacity bytes; time in ns
_TOTAL_SLOTS = 128
_BLOCK_ROWS = 64
_CHUNK_ROWS = 4096
_FIXED = 2.0**36  # rtt_rate in windows counts in 2^-36
_VALUE_LIMIT = 2.0**40  # 8192 of them add up exactly in a double; 2^40 bytes/s and a ratio of 16 are out of this world
_NO_RTT = 0xFFFFFFFF
_SCALES = (1 / 1e5, 1 / BYTES_S, 1 / _FIXED, 1 / 1e3, 1 / 1e3, 1 / 1e2)
_TIME_DELTA = FEATURE_NAMES.index("time_delta")


@dataclass(frozen=True)
class Windows:
    """Lengths of the observation windows."""

    small: int = WINDOWS_TICKS["s"]
    """Ticks of the small window."""
    medium: int = WINDOWS_TICKS["m"]
    """Ticks of the medium window."""
    large: int = WINDOWS_TICKS["l"]
    """Ticks of the large window."""

    def __post_init__(self) -> None:
        if not all(1 <= ticks <= MAX_WINDOW_TICKS for ticks in self.ticks):
            raise SageccError(f"windows {self}: each must be 1 to {MAX_WINDOW_TICKS} ticks")

    @property
    def ticks(self) -> tuple[int, int, int]:
        """The three lengths."""
        return self.small, self.medium, self.large

    @classmethod
    def parse(cls, text: str) -> Windows:
        """Read `10,200,1000`; one number stands for all three windows.

        Raises:
            SageccError: The text is not one or three whole numbers, or one is out of range.
        """
        try:
            ticks = [int(part) for part in text.split(",")]
        except ValueError:
            ticks = []
        if len(ticks) not in (1, 3):
            raise SageccError(f"windows '{text}': give one or three numbers of ticks, such as 10,200,1000")
        return cls(*(ticks * 3 if len(ticks) == 1 else ticks))

    def __str__(self) -> str:
        return ",".join(str(ticks) for ticks in self.ticks)


class _State(NamedTuple):
    """The state of B flows; the first axis is the flow, the last but one of `values` and `suffix` is time.

    Extrema come from van Herk's blocks: a window of w ticks ends in the current block of w ticks (`prefix`, its
    extremum so far) and starts in the one before (`suffix`, its extremum from each position to its end).
    """

    windows: IntArray
    """Lengths of the windows in ticks [3]."""
    offset: IntArray
    """Where each window's suffixes start [3]."""
    values: FloatArray
    """The last values of each series [B, slots, 8]."""
    sums: FloatArray
    """Sums over each window [B, 3, 8]."""
    prefix: FloatArray
    """Minimum and maximum of the current block so far [B, 3, 2, 8]."""
    suffix: FloatArray
    """Minimum and maximum from each position to the end of the block before [B, 2, sum of windows, 8]."""
    totals: IntArray
    """Counters since the first row, unwrapped [B, 7, 128]."""
    dr_recent: FloatArray
    """The last delivery rates over 1 s [B, 200]."""
    dr_suffix: FloatArray
    """Highest delivery rate from each position to the end of the block before [B, 200]."""
    previous: IntArray
    """The row before [B, 16]."""
    scalars: FloatArray
    """Highest sending rate, previous dr, previous dr_max, highest dr of this block [B, 4]."""
    ticks: IntArray
    """Rows seen [B]."""


def _new_state(windows: Windows, flows: int) -> _State:
    lengths = np.array(windows.ticks, np.int64)
    slots = 1 << int(lengths.max()).bit_length()  # above the longest window: what leaves one is still held
    return _State(
        windows=lengths,
        offset=np.cumsum(lengths) - lengths,
        values=np.zeros((flows, slots, _LANES), np.float64),
        sums=np.zeros((flows, 3, _LANES), np.float64),
        prefix=np.zeros((flows, 3, 2, _LANES), np.float64),
        suffix=np.zeros((flows, 2, int(lengths.sum()), _LANES), np.float64),
        totals=np.zeros((flows, _TOTALS, _TOTAL_SLOTS), np.int64),
        dr_recent=np.zeros((flows, DR_MAX_TICKS), np.float64),
        dr_suffix=np.zeros((flows, DR_MAX_TICKS), np.float64),
        previous=np.zeros((flows, RAW_WIDTH), np.int64),
        scalars=np.zeros((flows, 4), np.float64),
        ticks=np.zeros(flows, np.int64),
    )


@compiled
def _reset(state: _State, flow: int) -> None:
    state.sums[flow] = 0.0
    state.scalars[flow] = 0.0
    state.ticks[flow] = 0


@compiled
def step32(now: int, before: int) -> int:
    """Increase of a 32-bit counter that may wrap."""
    step = (now - before) & 0xFFFFFFFF
    return step if step < 0x80000000 else 0


@compiled
def _ratio(numerator: float, denominator: float, otherwise: float) -> float:
    return numerator / denominator if denominator > 0.0 else otherwise


@compiled
def _update_totals(totals: IntArray, tick: int, raw: IntArray, previous: IntArray) -> None:
    """Advance the seven 64-bit totals [7, 128] by the kernel's counters."""
    slot = tick & (_TOTAL_SLOTS - 1)
    if tick == 0:
        totals[:, slot] = 0
        return
    before = (tick - 1) & (_TOTAL_SLOTS - 1)
    mss = raw[_MSS]
    totals[0, slot] = totals[0, before] + step32(raw[_DELIVERED], previous[_DELIVERED]) * mss
    totals[1, slot] = totals[1, before] + step32(raw[_LOST_TOTAL], previous[_LOST_TOTAL]) * mss
    totals[2, slot] = totals[2, before] + max(0, raw[_ACKED] - previous[_ACKED])
    totals[3, slot] = totals[3, before] + max(0, raw[_SENT] - previous[_SENT])
    totals[4, slot] = totals[4, before] + step32(raw[_SEGS_OUT], previous[_SEGS_OUT])
    totals[5, slot] = totals[5, before] + max(0, raw[_CAPACITY] - previous[_CAPACITY])
    totals[6, slot] = totals[6, before] + max(0, raw[_T] - previous[_T])


@compiled
def _update_windows(state: _State, flow: int, tick: int, features: FloatArray) -> None:
    """Write features 5 to 58: average, minimum and maximum of each series over each window."""
    values = state.values[flow]
    value_mask = values.shape[0] - 1
    new = values[tick & value_mask]
    for window in range(3):
        length = state.windows[window]
        sums = state.sums[flow, window]
        low, high = state.prefix[flow, window, 0], state.prefix[flow, window, 1]
        low_suffix = state.suffix[flow, 0, state.offset[window] : state.offset[window] + length]
        high_suffix = state.suffix[flow, 1, state.offset[window] : state.offset[window] + length]
        position = tick % length
        if position == 0:
            for lane in range(_LANES):
                low[lane] = new[lane]
                high[lane] = new[lane]
        else:
            for lane in range(_LANES):
                low[lane] = new[lane] if new[lane] < low[lane] else low[lane]
                high[lane] = new[lane] if new[lane] > high[lane] else high[lane]
        if tick >= length:
            leaving = values[(tick - length) & value_mask]
            for lane in range(_LANES):
                sums[lane] += new[lane] - leaving[lane]
        else:
            for lane in range(_LANES):
                sums[lane] += new[lane]

        share = 1.0 / min(tick + 1, length)
        spans_blocks = tick >= length and position + 1 < length
        before = position + 1 if spans_blocks else 0
        for series in range(_SERIES):
            lowest, highest = low[series], high[series]
            if spans_blocks:
                lowest = low_suffix[before, series] if low_suffix[before, series] < lowest else lowest
                highest = high_suffix[before, series] if high_suffix[before, series] > highest else highest
            mean = sums[series] * share
            mean = mean if mean > lowest else lowest
            mean = mean if mean < highest else highest
            out = 4 + 9 * series + 3 * window
            scale = _SCALES[series]
            features[out] = mean * scale
            features[out + 1] = lowest * scale
            features[out + 2] = highest * scale

        if position + 1 == length:
            for lane in range(_LANES):
                low_suffix[length - 1, lane] = new[lane]
                high_suffix[length - 1, lane] = new[lane]
            for back in range(1, length):
                value = values[(tick - back) & value_mask]
                index = length - 1 - back
                for lane in range(_LANES):
                    least, most = low_suffix[index + 1, lane], high_suffix[index + 1, lane]
                    low_suffix[index, lane] = value[lane] if value[lane] < least else least
                    high_suffix[index, lane] = value[lane] if value[lane] > most else most


@compiled
def _highest_rate(recent: FloatArray, suffix: FloatArray, scalars: FloatArray, tick: int, rate: float) -> float:
    """Take the next rate over 1 s; return the highest of the last 200."""
    position = tick % DR_MAX_TICKS
    recent[position] = rate
    scalars[3] = rate if position == 0 else max(scalars[3], rate)
    highest = scalars[3]
    if position + 1 == DR_MAX_TICKS:
        suffix[position] = rate
        for index in range(DR_MAX_TICKS - 2, -1, -1):
            suffix[index] = max(suffix[index + 1], recent[index])
    elif tick >= DR_MAX_TICKS:
        highest = max(highest, suffix[position + 1])
    return float(highest)


@compiled
def _update(state: _State, flow: int, raw: IntArray, features: FloatArray, measured: FloatArray) -> None:
    """Take one raw row [16] of `flow`; write its features [69] and measured values [4]."""
    tick = state.ticks[flow]
    previous = state.previous[flow]
    totals = state.totals[flow]
    scalars = state.scalars[flow]
    _update_totals(totals, tick, raw, previous)

    srtt = float(raw[_SRTT])
    min_rtt = float(raw[_MIN_RTT]) if raw[_MIN_RTT] != _NO_RTT else 0.0
    rtt_rate = _ratio(min_rtt, srtt, 0.0)
    values = state.values[flow]
    new = values[tick & (values.shape[0] - 1)]
    new[0] = srtt
    new[1] = min(max(float(raw[_RATE]), 0.0), _VALUE_LIMIT)
    new[2] = min(np.floor(rtt_rate * _FIXED + 0.5), _VALUE_LIMIT)
    new[3] = float(raw[_RTTVAR])
    new[4] = float(raw[_UNACKED])
    new[5] = float(raw[_LOST])
    features[0] = new[0] * _SCALES[0]
    features[1] = new[3] * _SCALES[3]
    features[2] = new[1] * _SCALES[1]
    features[3] = float(raw[_CA])
    _update_windows(state, flow, tick, features)

    newest, oldest = tick & (_TOTAL_SLOTS - 1), max(0, tick - RATE_TICKS) & (_TOTAL_SLOTS - 1)
    per_second = _ratio(1e9, float(totals[6, newest] - totals[6, oldest]), 0.0)
    delivered = float(totals[0, newest] - totals[0, oldest]) * per_second
    lost = float(totals[1, newest] - totals[1, oldest]) * per_second
    acked = float(totals[2, newest] - totals[2, oldest]) * per_second
    sent = float(totals[3, newest] - totals[3, oldest]) * per_second
    segments = float(totals[4, newest] - totals[4, oldest])
    dr_max = _highest_rate(state.dr_recent[flow], state.dr_suffix[flow], scalars, tick, delivered)
    sent_max = max(scalars[0], sent)
    cwnd = float(raw[_CWND])
    gap_us = float(raw[_T] - previous[_T]) / 1e3

    out = _TIME_DELTA
    features[out] = _ratio(gap_us, min_rtt, 0.0) if tick > 0 else 0.0
    features[out + 1] = new[2] * _SCALES[2]
    features[out + 2] = lost / BYTES_S
    features[out + 3] = _ratio(acked, sent_max, 0.0)
    features[out + 4] = _ratio(delivered, scalars[1], 1.0)
    features[out + 5] = _ratio(dr_max * min_rtt / 1e6, cwnd * float(raw[_MSS]), 0.0)
    features[out + 6] = delivered / BYTES_S
    features[out + 7] = _ratio(float(raw[_UNACKED]), segments, 0.0)
    features[out + 8] = dr_max / BYTES_S
    features[out + 9] = _ratio(dr_max, scalars[2], 1.0)
    features[out + 10] = _ratio(cwnd, float(previous[_CWND]), 1.0) if tick > 0 else 1.0
    measured[0] = delivered
    measured[1] = lost
    measured[2] = float(totals[5, newest] - totals[5, oldest]) * per_second
    measured[3] = rtt_rate

    scalars[0] = sent_max
    scalars[1] = delivered
    scalars[2] = dr_max
    for column in range(RAW_WIDTH):
        previous[column] = raw[column]
    state.ticks[flow] = tick + 1


@compiled
def _update_all(
    state: _State, raw: IntArray, first: npt.NDArray[np.bool_], features: FloatArray, measured: FloatArray, start: int
) -> None:
    """Run the rows of one episode after another through flow 0; write columns `start` to `start` + m.

    Rows become columns one block at a time: 69 distant writes per row would fall into one another's cache lines.

    Args:
        state: state of which flow 0 is used.
        raw: raw rows [m, 16].
        first: marks each episode's first row, of all n rows [n].
        features: where the features go [69, n or more].
        measured: where the measured values go [4, n].
        start: column of the first of these rows.
    """
    rows = raw.shape[0]
    feature_block = np.empty((_BLOCK_ROWS, features.shape[0]), np.float32)
    measured_block = np.empty((_BLOCK_ROWS, measured.shape[0]), np.float64)
    for block in range(0, rows, _BLOCK_ROWS):
        count = min(_BLOCK_ROWS, rows - block)
        for row in range(count):
            if first[start + block + row]:
                _reset(state, 0)
            _update(state, 0, raw[block + row], feature_block[row], measured_block[row])
        column_start = start + block
        for column in range(features.shape[0]):
            for row in range(count):
                features[column, column_start + row] = feature_block[row, column]
        for column in range(measured.shape[0]):
            for row in range(count):
                measured[column, column_start + row] = measured_block[row, column]


@compiled
def _update_flows(state: _State, flows: IntArray, raw: IntArray, features: FloatArray, measured: FloatArray) -> None:
    """Take one row [16] of each of several flows; write features [m, 69] and measured values [m, 4]."""
    for row in range(raw.shape[0]):
        _update(state, flows[row], raw[row], features[row], measured[row])


Columns = Mapping[str, npt.NDArray[Any]]


def raw_matrix(columns: Columns | npt.NDArray[np.void]) -> IntArray:
    """Return raw columns as one matrix of whole numbers.

    Args:
        columns: raw columns by name, or a structured array such as wire.SAMPLE's. Time is `t_ns` or, where that is
            missing, `t_s`; a missing `link_capacity_bytes` (a flow on a real network) counts as 0.

    Returns:
        Time in ns and RAW_NEEDED, int64 [n, 16].

    Raises:
        KeyError: Another column is missing.
        ValueError: Another field of a structured array is missing.
    """
    names = columns.dtype.names or () if isinstance(columns, np.ndarray) else tuple(columns)
    time = np.asarray(columns["t_ns"]) if "t_ns" in names else np.rint(np.asarray(columns["t_s"]) * 1e9)
    matrix = np.empty((time.size, RAW_WIDTH), np.int64)
    matrix[:, 0] = time
    for index, name in enumerate(RAW_NEEDED, start=1):
        missing = name == "link_capacity_bytes" and name not in names
        matrix[:, index] = 0 if missing else columns[name]
    return matrix


def derive(
    columns: Columns,
    first: npt.NDArray[np.bool_],
    windows: Windows | None = None,
    out: npt.NDArray[np.float32] | None = None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Derive the features of n raw rows.

    Args:
        columns: raw columns by name, of whole episodes one after another.
        first: marks each episode's first row [n].
        windows: lengths of the observation windows; the paper's by default.
        out: where to put the features [69, n or more]; reusing one array spares the cost of fresh memory.

    Returns:
        Features [69, n] and measured values [4, n] (see MEASURED).
    """
    rows = len(first)
    features = np.empty((FEATURES, rows), np.float32) if out is None else out[:, :rows]
    measured = np.empty((len(MEASURED), rows), np.float64)
    state = _new_state(windows or Windows(), 1)
    for start in range(0, rows, _CHUNK_ROWS):
        chunk = raw_matrix({name: values[start : start + _CHUNK_ROWS] for name, values in columns.items()})
        _update_all(state, chunk, first, features, measured, start)
    return features, measured


class FeatureTracker:
    """Features of live flows, one tick at a time; equal to the pool's on the same rows.

    Args:
        windows: lengths of the observation windows; the paper's by default.
        flows: number of flows (about 230 kB of memory each with the paper's windows).
    """

    def __init__(self, windows: Windows | None = None, flows: int = 1) -> None:
        self._state = _new_state(windows or Windows(), flows)
        self._flows = np.arange(flows, dtype=np.int64)
        self.measured = np.zeros((flows, len(MEASURED)), np.float64)
        """Inputs of the rewards for the flows of the last update [flows, 4]; see MEASURED."""

    def update(self, sample: npt.NDArray[np.void] | np.void) -> npt.NDArray[np.float32]:
        """Take the next row of the only (or first) flow; return its features [69]."""
        row: npt.NDArray[np.float32] = self.update_flows(np.atleast_1d(np.asarray(sample)), self._flows[:1])[0]
        return row

    def update_flows(self, samples: npt.NDArray[np.void], flows: IntArray | None = None) -> npt.NDArray[np.float32]:
        """Take the next row of several flows.

        Args:
            samples: one raw row per flow, as `raw_matrix` takes them.
            flows: the flows' numbers; all by default.

        Returns:
            Features [len(samples), 69].

        Raises:
            ValueError: There are not as many samples as flows.
        """
        chosen = self._flows if flows is None else flows
        if len(samples) != len(chosen):
            raise ValueError(f"{len(samples)} samples for {len(chosen)} flows")
        features = np.empty((len(samples), FEATURES), np.float32)
        self.measured = np.empty((len(samples), len(MEASURED)), np.float64)
        _update_flows(self._state, chosen, raw_matrix(samples), features, self.measured)
        return features

    def reset(self, flow: int = 0) -> None:
        """Forget a flow, so that its slot can serve another."""
        _reset(self._state, flow)
