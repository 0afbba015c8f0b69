# SPDX-License-Identifier: Apache-2.0
"""One episode: from what a guest sent to a raw trajectory and its summary."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.collector.lab.boot import WATCHDOG_S, Controller, Recording, run_guest
from sagecc.collector.lab.spec import Drive, EpisodeSpec, episode_spec
from sagecc.common.errors import SageccError
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment
from sagecc.schemas.raw import COUNTERS, RAW_SCHEMA

BOUND_SHARE = 0.05
"""Of its life: a flow held for longer than this by something else than its window tells of that, not of its scheme."""

_REMEDIES = {
    "receive_window": "raise net.ipv4.tcp_rmem",
    "send_buffer": "raise net.ipv4.tcp_wmem",
    "application": "leave its sender a processor",
}


@dataclass(frozen=True)
class Limits:
    """What held a flow that its congestion window did not: shares of its life."""

    receive_window: float
    send_buffer: float
    application: float

    @property
    def notice(self) -> str | None:
        """A line that names what bound the flow for more than BOUND_SHARE of its life, and the remedy; or None."""
        bound = {name: share for name, share in asdict(self).items() if share > BOUND_SHARE}
        if not bound:
            return None
        whats = ", ".join(f"its {name.replace('_', ' ')} ({share:.0%} of its life)" for name, share in bound.items())
        return f"bound by {whats}: {', '.join(_REMEDIES[name] for name in bound)}"


@dataclass(frozen=True)
class FlowSummary:
    """One flow over its life.

    delay: one way over the links of its path, data packets (queue, transmission, propagation).
    sent, lost: data packets that its links took and dropped.
    limits: in real time; in the lab buffers are forced and programs take no time.
    """

    scheme: str
    goodput_mbps: float
    delay_mean_ms: float
    delay_p95_ms: float
    sent_packets: int
    lost_packets: int
    cwnd_mean: float
    limits: Limits | None = None

    @property
    def notice(self) -> str | None:
        """What bound the flow besides its window (`Limits.notice`), or None."""
        return self.limits.notice if self.limits else None

    @property
    def loss_rate(self) -> float:
        """Dropped over sent data packets, at all links of its path."""
        return self.lost_packets / max(self.sent_packets, 1)


@dataclass(frozen=True)
class Episode:
    """A finished episode: rows of the flow under test, a summary of every flow (the one under test first).

    jain_index: over the flows whose path is that of the one under test, while all of them run; None where there is
    no other, they never run together, or nothing arrives meanwhile.
    """

    id: str
    environment: Environment
    scheme: str
    seed: int
    rows: pa.Table
    flows: tuple[FlowSummary, ...]
    sha256: str
    spec_sha256: str
    jain_index: float | None = None

    def summary_row(self) -> dict[str, object]:
        """Return the row of EPISODE_SCHEMA."""
        own = self.flows[0]
        return {
            "episode_id": self.id,
            "environment_id": self.environment.id,
            "set": self.environment.set,
            "scheme": self.scheme,
            "seed": self.seed,
            "environment": self.environment.to_json(),
            "spec_sha256": self.spec_sha256,
            "rows": self.rows.num_rows,
            "goodput_mbps": own.goodput_mbps,
            "delay_mean_ms": own.delay_mean_ms,
            "delay_p95_ms": own.delay_p95_ms,
            "sent_packets": own.sent_packets,
            "lost_packets": own.lost_packets,
            "cwnd_mean": own.cwnd_mean,
        }


@dataclass(frozen=True)
class Received:
    """What a flow's receiver had (bytes) at each moment t_ns, both [rows]."""

    t_ns: npt.NDArray[np.integer]
    received_bytes: npt.NDArray[np.integer]

    def by(self, t_s: float) -> float:
        """Return the last count at or before `t_s` (bytes)."""
        rows = int(np.searchsorted(self.t_ns, round(t_s * 1e9), side="right"))
        return float(self.received_bytes[rows - 1]) if rows else 0.0


def run_episode(
    kernel: Path,
    environment: Environment,
    scheme: str,
    seed: int = 0,
    controller: Controller | None = None,
    watchdog_s: float = WATCHDOG_S,
    drive: Drive | None = None,
) -> Episode:
    """Run one episode in the lab. `controller` sets the window of a policy (scheme `policy:...`), `drive` says how.

    Raises SageccError, naming the episode, when it yields no whole trajectory.
    """
    spec = episode_spec(environment, scheme, seed, drive=drive)
    recording = run_guest(kernel, spec, dict.fromkeys(spec.lockstep, controller) if controller else None, watchdog_s)
    return finished(environment, scheme, seed, spec, recording)


def finished(environment: Environment, scheme: str, seed: int, spec: EpisodeSpec, recording: Recording) -> Episode:
    """Make an episode of what a guest sent. Raises SageccError where the flow under test never got through."""
    own = recording.samples[recording.samples["flow"] == 0]
    if not len(own):
        raise SageccError(f"episode {spec.name}: the flow never got through (no sample in {environment.duration_s} s)")
    schemes = (scheme, *(cross.scheme for cross in environment.cross))
    flows = tuple(
        _summary(recording, number, name, environment.stop_of(flow) - flow.start_s)
        for number, (name, flow) in enumerate(zip(schemes, environment.all_flows, strict=True))
    )
    counts = (recording.samples[recording.samples["flow"] == number] for number in range(environment.flow_count))
    jain = shared_jain_index(environment, [Received(rows["t_ns"], rows["received_bytes"]) for rows in counts])
    digest = hashlib.sha256(own.tobytes()).hexdigest()
    return Episode(spec.name, environment, scheme, seed, _rows(spec.name, own), flows, digest, spec.sha256, jain)


def jain_index(rates: Sequence[float]) -> float | None:
    """Return Jain's fairness index, (sum x)^2 / (n sum x^2): 1 for equal rates, 1/n for one that takes all.

    None where no rate is above 0.
    """
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def shared_jain_index(environment: Environment, received: Sequence[Received]) -> float | None:
    """Return Jain's index of the flows on the tested one's path, over the time in which all of them run.

    received: of every flow, the one under test first, when it was looked at and what it had received by then.
    None where there is no other, they never run together, or nothing arrives meanwhile.
    """
    own_path = environment.path(environment.flow)
    peers = {number: flow for number, flow in enumerate(environment.all_flows) if environment.path(flow) == own_path}
    begin_s = max(flow.start_s for flow in peers.values())
    end_s = min(environment.stop_of(flow) for flow in peers.values())
    if len(peers) < 2 or begin_s >= end_s:
        return None
    return jain_index([received[number].by(end_s) - received[number].by(begin_s) for number in peers])


def _rows(name: str, samples: npt.NDArray[np.void]) -> pa.Table:
    columns = {
        "episode_id": pa.array([name] * len(samples), pa.string()),
        "step": np.arange(len(samples), dtype=np.int32),
        "t_s": samples["t_ns"] / 1e9,
    }
    columns |= {field: np.ascontiguousarray(samples[field]) for field, *_ in COUNTERS}
    return pa.table(columns, schema=RAW_SCHEMA)


def _summary(recording: Recording, flow: int, scheme: str, life_s: float) -> FlowSummary:
    samples = recording.samples[recording.samples["flow"] == flow]
    delays = recording.packets["delay"][recording.packets["flow"] == flow]
    if not len(samples) or not len(delays):
        return FlowSummary(scheme, 0.0, 0.0, 0.0, 0, 0, 0.0)
    last = samples[-1]
    to_ms = wire.DELAY_UNIT_NS / 1e6
    return FlowSummary(
        scheme=scheme,
        goodput_mbps=float(last["received_bytes"]) * 8 / 1e6 / life_s,
        delay_mean_ms=float(last["link_delay_ns"]) / max(float(last["link_packets"]), 1) / 1e6,
        delay_p95_ms=float(np.percentile(delays, 95)) * to_ms,
        sent_packets=int(last["link_packets"]) + int(last["link_drops"]),
        lost_packets=int(last["link_drops"]),
        cwnd_mean=float(samples["cwnd_pkts"].mean()),
    )
