# SPDX-License-Identifier: Apache-2.0
"""The metrics of `sagecc attach`: what the connections of both groups do, and how the agent fares."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sagecc.execution.stock.metrics import Metric
from sagecc.execution.stock.observer import Observer
from sagecc.execution.stock.shared import Shared, Structured
from sagecc.execution.stock.supervisor import Supervisor
from sagecc.execution.stock.trial import GROUPS, TrialMemory

QUANTILES = (0.5, 0.95)

_TOTALS = {
    "connections": ("begun", "Connections that were drawn into the group."),
    "acked_bytes": ("acked_bytes", "Bytes that the group's receivers acknowledged."),
    "sent_segments": ("sent_segs", "Segments with data that the group sent, retransmissions included."),
    "retransmitted_segments": ("retrans_segs", "Segments that the group retransmitted."),
}
_EVENTS = {
    "flows": "Sockets that the policy was to drive, since the scheme was loaded.",
    "fell_back": "Times that a flow fell back from the policy to Reno's rules.",
    "resumed": "Times that the policy took such a flow over again.",
    "without_slot": "Flows beyond the number that --flows allows.",
    "not_chosen": "Sockets that the kernel refused another scheme.",
}


def metrics(observer: Observer, trial: TrialMemory, shared: Shared, supervisor: Supervisor) -> Iterator[Metric]:
    """Yield the metrics as of the last look."""
    yield from _of_groups(observer)
    yield _one("unseen_connections_total", "Connections whose end was missed.", trial.unseen)
    for name, text in _EVENTS.items():
        yield _one(f"{name}_total", text, shared.count(name))
    yield _one("open_flows", "Sockets that use the scheme.", shared.count("flows") - shared.count("ended"))
    silent_s = (time.monotonic_ns() - int(shared.agent["beat_ns"][0])) / 1e9
    yield _one("agent_silent_seconds", "Time since the agent's last orders.", silent_s)
    if (timing := supervisor.timing) and timing.ticks:
        text = "Share of its deadlines that the agent met as of its last report, one a minute."
        yield _one("agent_deadlines_met_ratio", text, timing.met / timing.ticks)
        text = "99th percentile of the time from when a tick is due to its orders, as of the same report."
        yield _one("agent_tick_p99_seconds", text, timing.p99_ms / 1e3)
    sizes = [
        ({"process": who}, resident_bytes(pid)) for who, pid in (("attach", os.getpid()), ("agent", supervisor.pid))
    ]
    yield Metric("sagecc_resident_memory_bytes", "gauge", "Resident memory of a process.", sizes)


def _of_groups(observer: Observer) -> Iterator[Metric]:
    for name, (field, text) in _TOTALS.items():
        yield Metric(f"sagecc_{name}_total", "counter", text, _by_group(observer.totals[field].tolist()))
    rows = observer.open
    counts = [int((rows["group"] == number).sum()) for number in range(len(GROUPS))]
    yield Metric("sagecc_open_connections", "gauge", "Open connections of the group.", _by_group(counts))
    for name, text in (("srtt", "Smoothed RTT"), ("min_rtt", "Minimum RTT")):
        values = list(_quantiles(rows, f"{name}_us"))
        yield Metric(f"sagecc_{name}_seconds", "gauge", f"{text} over the group's open connections.", values)


def _quantiles(rows: Structured, field: str) -> Iterator[tuple[dict[str, str], float]]:
    for number, group in enumerate(GROUPS):
        values = rows[field][(rows["group"] == number) & (rows["srtt_us"] > 0)]
        for quantile in QUANTILES if len(values) else ():
            yield {"group": group, "quantile": str(quantile)}, float(np.quantile(values, quantile)) / 1e6


def _by_group(values: Sequence[float]) -> list[tuple[dict[str, str], float]]:
    return [({"group": group}, value) for group, value in zip(GROUPS, values, strict=True)]


def _one(name: str, text: str, value: float) -> Metric:
    return Metric(f"sagecc_{name}", "counter" if name.endswith("_total") else "gauge", text, [({}, value)])


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, 0 where it has ended."""
    try:
        match = re.search(r"^VmRSS:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(match[1]) if match else 0
