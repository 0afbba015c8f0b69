# SPDX-License-Identifier: Apache-2.0
"""Tables of every flow of an episode, of the lab and made up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.collector.lab.boot import run_guest
from sagecc.collector.lab.spec import episode_spec
from sagecc.common.errors import SageccError
from sagecc.leagues.flow_metrics import flow_series, to_arrow
from sagecc.leagues.study.collect import Outcome
from sagecc.leagues.study.experiments import StudyRun
from sagecc.schemas.flows import FLOWS_SCHEMA
from sagecc.schemas.raw import COUNTERS, TICK_S
from sagecc.schemas.wire import NO_LIMIT

COUNTER_NAMES = tuple(name for name, *_ in COUNTERS)


def flows_table(samples: npt.NDArray[np.void], schemes: Sequence[str], name: str = "episode") -> pa.Table:
    """Return a guest's samples of all flows as a table of FLOWS_SCHEMA."""
    rows = samples[np.lexsort((samples["t_ns"], samples["flow"]))]
    numbers = rows["flow"].astype(np.int32)
    first = np.searchsorted(numbers, numbers)
    columns = {
        "episode_id": pa.array([name] * len(rows), pa.string()),
        "flow": numbers,
        "scheme": pa.array([schemes[flow] for flow in numbers], pa.string()),
        "step": (np.arange(len(rows)) - first).astype(np.int32),
        "t_s": rows["t_ns"] / 1e9,
        **{field: np.ascontiguousarray(rows[field]) for field in COUNTER_NAMES},
    }
    return pa.table(columns, schema=FLOWS_SCHEMA)


def lab_flows(kernel: Path, run: StudyRun) -> pa.Table:
    """Run kernel schemes in the lab and return every flow's rows."""
    spec = episode_spec(run.environment, run.scheme, run.seed, packet_delays=False)
    return flows_table(run_guest(kernel, spec).samples, run.schemes, spec.name)


class LabRunner:
    """Runs kernel schemes on threads: each guest is a process."""

    def __init__(self, kernel: Path, jobs: int = 1) -> None:
        self._kernel, self._jobs = kernel, jobs

    def __call__(self, runs: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
        with ThreadPoolExecutor(self._jobs) as threads:
            yield from zip(runs, threads.map(self._run, runs), strict=True)

    def _run(self, run: StudyRun) -> Outcome:
        try:
            return to_arrow(flow_series(lab_flows(self._kernel, run), run.interval_s))
        except SageccError as error:
            return error


def made_up_flows(
    rates_mbps: Mapping[int, Sequence[float]],
    *,
    starts_s: Mapping[int, float] | None = None,
    capacity_mbps: float = 100.0,
    schemes: Sequence[str] = (),
    srtt_ms: float = 20.0,
) -> pa.Table:
    """Return rows of flows whose goodput each second is given: 1500 bytes a packet, one in 100 lost and sent again.

    Args:
        rates_mbps: by flow, its goodput in each second of its life.
        starts_s: when each starts; 0 without.
        capacity_mbps: of the bottleneck.
        schemes: of the flows; all Cubic without.
        srtt_ms: smoothed RTT, but for a flow's first row, which has none.
    """
    ticks = round(1 / TICK_S)
    parts: list[pa.Table] = []
    for flow, rates in sorted(rates_mbps.items()):
        count = len(rates) * ticks
        start_s = (starts_s or {}).get(flow, 0.0)
        t_s = start_s + TICK_S * np.arange(1, count + 1)
        received = np.cumsum(np.repeat(np.asarray(rates, float), ticks) * 1e6 / 8 * TICK_S)
        sent = np.floor(received / 1500)
        columns: dict[str, npt.NDArray[np.generic]] = {name: np.zeros(count) for name in COUNTER_NAMES}
        columns |= {
            "received_bytes": np.round(received),
            "data_segs_out": sent,
            "link_drops": np.floor(sent / 100),
            "retrans_total_pkts": np.floor(sent / 100),
            "srtt_us": np.where(np.arange(count) == 0, 0, srtt_ms * 1000),
            "cwnd_pkts": np.full(count, 10 * (flow + 1)),
            "link_queue_bytes": np.full(count, 3000),
            "link_capacity_bytes": np.round(t_s * capacity_mbps * 1e6 / 8),
        }
        pacing = np.where(np.arange(count) % 2 == 0, np.uint64(NO_LIMIT), np.uint64(1_250_000)).astype(np.uint64)
        data = {
            "episode_id": pa.array(["made-up"] * count),
            "flow": np.full(count, flow, np.int32),
            "scheme": pa.array([schemes[flow] if schemes else "cubic"] * count),
            "step": np.arange(count, dtype=np.int32),
            "t_s": t_s,
            **{name: columns[name].astype(FLOWS_SCHEMA.field(name).type.to_pandas_dtype()) for name in COUNTER_NAMES},
        }
        parts.append(pa.table(data | {"pacing_rate_bytes_s": pacing}, schema=FLOWS_SCHEMA))
    return pa.concat_tables(parts)
