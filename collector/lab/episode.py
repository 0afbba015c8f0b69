# SPDX-License-Identifier: Apache-2.0
"""One episode: from a guest's recording to a raw trajectory and its summary."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.collector.lab.boot import WATCHDOG_S, Controller, Recording, run_guest
from sagecc.collector.lab.spec import Drive, EpisodeSpec, episode_spec, flow_drives
from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.common.fairness import jain_index
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment
from sagecc.schemas.flows import FLOWS_SCHEMA
from sagecc.schemas.raw import COUNTERS, KICK, raw_schema
from sagecc.schemas.schemes import undisturbed

BOUND_SHARE = 0.05
"""Share of its lifetime from which a flow that is limited by something other than its window gets a notice."""

_REMEDIES = {
    "receive_window": "raise net.ipv4.tcp_rmem",
    "send_buffer": "raise net.ipv4.tcp_wmem",
    "application": "leave its sender a processor",
}


@dataclass(frozen=True)
class Limits:
    """Shares of a flow's lifetime in which something other than its congestion window limited it."""

    receive_window: float
    """Share limited by the receive window."""

    send_buffer: float
    """Share limited by the send buffer."""

    application: float
    """Share limited by the sending program."""

    @property
    def notice(self) -> str | None:
        """A line with the limits that held for more than BOUND_SHARE of the lifetime and the remedies, or None."""
        bound = {name: share for name, share in asdict(self).items() if share > BOUND_SHARE}
        if not bound:
            return None
        limits = ", ".join(f"its {name.replace('_', ' ')} ({share:.0%} of its life)" for name, share in bound.items())
        return f"bound by {limits}: {', '.join(_REMEDIES[name] for name in bound)}"


@dataclass(frozen=True)
class FlowSummary:
    """Summary of a flow over its lifetime."""

    scheme: str
    """What set its congestion window."""

    goodput_mbps: float
    """In-order bytes at the receiver over the lifetime (Mbps)."""

    delay_mean_ms: float
    """Mean one-way delay of data packets over the links of its path: queue, transmission, propagation (ms); NaN where
    none got through."""

    delay_p95_ms: float
    """95th percentile of the same delay (ms); NaN where none got through."""

    sent_packets: int
    """Data packets that reached its links."""

    lost_packets: int
    """Data packets that its links dropped."""

    cwnd_mean: float
    """Mean congestion window over the ticks (packets); NaN where there is none: it never got through."""

    limits: Limits | None = None
    """What limited it in real time; None in the lab, where buffers are forced and programs take no time."""

    completion_s: float | None = None
    """Time from its start until all that it had to send was acknowledged (s); None where that did not happen."""

    marked_packets: int = 0
    """Data packets that its links marked Congestion Experienced."""

    @property
    def notice(self) -> str | None:
        """The notice of what limited the flow besides its window (`Limits.notice`), or None."""
        return self.limits.notice if self.limits else None

    @property
    def loss_rate(self) -> float:
        """Ratio of dropped to sent data packets, at all links of its path; NaN where none was sent."""
        return self.lost_packets / self.sent_packets if self.sent_packets else math.nan


@dataclass(frozen=True)
class Episode:
    """A finished episode."""

    id: str
    """Environment, scheme and seed (schemas.environment.episode_id)."""

    environment: Environment
    """The network and its flows."""

    scheme: str
    """The scheme under test."""

    seed: int
    """Seed of the episode's random numbers."""

    rows: pa.Table
    """Raw trajectory of the flow under test (schemas.raw.raw_schema)."""

    flows: tuple[FlowSummary, ...]
    """Summary of every flow, the one under test first."""

    sha256: str
    """SHA-256 of the samples of the flow under test, in hex."""

    spec_sha256: str
    """SHA-256 of the specification of the run, in hex."""

    jain_index: float | None = None
    """Fairness of the flows on the path of the one under test (`shared_jain_index`), or None."""

    every_flow: pa.Table | None = None
    """Raw trajectories of every flow (FLOWS_SCHEMA), where they were asked for."""

    def summary_row(self) -> dict[str, object]:
        """Return the episode's row of EPISODE_SCHEMA, in which a delay of no packet is 0."""
        tested = self.flows[0]
        has_delays = not math.isnan(tested.delay_mean_ms)
        return {
            "episode_id": self.id,
            "environment_id": self.environment.id,
            "set": self.environment.set,
            "scheme": self.scheme,
            "seed": self.seed,
            "environment": self.environment.to_json(),
            "spec_sha256": self.spec_sha256,
            "rows": self.rows.num_rows,
            "goodput_mbps": tested.goodput_mbps,
            "delay_mean_ms": tested.delay_mean_ms if has_delays else 0.0,
            "delay_p95_ms": tested.delay_p95_ms if has_delays else 0.0,
            "sent_packets": tested.sent_packets,
            "lost_packets": tested.lost_packets,
            "cwnd_mean": tested.cwnd_mean,
        }


@dataclass(frozen=True)
class ReceiverCounts:
    """Byte counter of a flow's receiver over time."""

    t_ns: npt.NDArray[np.integer]
    """Sampling times since the episode began (ns) [samples]."""

    received_bytes: npt.NDArray[np.integer]
    """Bytes received in order by then [samples]."""

    def bytes_at(self, t_s: npt.ArrayLike) -> Doubles:
        """Return the last count at or before each of some times (bytes) [times]."""
        t_ns = np.rint(np.asarray(t_s, np.float64) * 1e9).astype(self.t_ns.dtype)
        counts = np.append(0.0, self.received_bytes)[np.searchsorted(self.t_ns, t_ns, side="right")]
        return np.asarray(counts)


def run_episode(
    kernel: Path,
    environment: Environment,
    scheme: str,
    seed: int = 0,
    controller: Controller | None = None,
    *,
    watchdog_s: float = WATCHDOG_S,
    drives: Mapping[str, Drive] = MappingProxyType({}),
    every_flow: bool = False,
) -> Episode:
    """Run one episode in the lab.

    Args:
        kernel: path of the kernel.
        environment: the network and its flows.
        scheme: the scheme under test.
        seed: seed of the episode's random numbers.
        controller: sets the windows of the flows whose scheme is a policy (`policy:...`).
        watchdog_s: silence after which the guest counts as hung (s).
        drives: by such a scheme, how the controller drives its flows, where that differs from the default.
        every_flow: whether the episode has the rows of every flow.

    Raises:
        SageccError: the episode yields no complete trajectory; the message names it.
    """
    spec = episode_spec(environment, scheme, seed, drives=flow_drives(environment, scheme, drives))
    recording = run_guest(kernel, spec, controller, watchdog_s)
    return episode_from_recording(environment, scheme, seed, spec, recording, every_flow=every_flow)


def episode_from_recording(
    environment: Environment,
    scheme: str,
    seed: int,
    spec: EpisodeSpec,
    recording: Recording,
    *,
    every_flow: bool = False,
    stopped_s: float = math.inf,
) -> Episode:
    """Return the episode that a guest has recorded.

    Args:
        environment: the network and its flows.
        scheme: the scheme under test.
        seed: seed of the episode's random numbers.
        spec: the specification with which the guest was started.
        recording: everything that the guest measured.
        every_flow: whether the episode has the rows of every flow.
        stopped_s: when the recording was broken off (s); rates are over the time until then.

    Raises:
        SageccError: the flow under test never got through.
    """
    samples = recording.samples[recording.samples["flow"] == 0]
    if not len(samples):
        raise SageccError(f"episode {spec.name}: the flow never got through (no sample in {environment.duration_s} s)")
    schemes = (scheme, *(cross.scheme for cross in environment.cross))
    _, disturbance = undisturbed(scheme)
    played = _shortened(disturbance.environment(environment, spec.name), recording)
    sha256 = hashlib.sha256(samples.tobytes()).hexdigest()
    recording = replace(recording, samples=_without_fins(recording.samples, environment))
    samples = recording.samples[recording.samples["flow"] == 0]
    flows = tuple(
        _summary(recording, number, name, flow.start_s, min(played.stop_of(flow), stopped_s))
        for number, (name, flow) in enumerate(zip(schemes, played.all_flows, strict=True))
    )
    counts = (recording.samples[recording.samples["flow"] == number] for number in range(environment.flow_count))
    jain = shared_jain_index(played, [ReceiverCounts(rows["t_ns"], rows["received_bytes"]) for rows in counts])
    return Episode(
        id=spec.name,
        environment=environment,
        scheme=scheme,
        seed=seed,
        rows=_rows(spec.name, samples, bool(disturbance)),
        flows=flows,
        sha256=sha256,
        spec_sha256=spec.sha256,
        jain_index=jain,
        every_flow=_every_flow(spec.name, schemes, recording.samples) if every_flow else None,
    )


def _without_fins(samples: npt.NDArray[np.void], environment: Environment) -> npt.NDArray[np.void]:
    """Return samples whose receivers count what a transfer sends alone: TCP counts its FIN as a byte."""
    sizes = [flow.size_bytes for flow in environment.all_flows]
    if not any(sizes):
        return samples
    most = np.array([np.iinfo(np.uint64).max if size is None else size for size in sizes], np.uint64)
    samples = samples.copy()
    samples["received_bytes"] = np.minimum(samples["received_bytes"], most[samples["flow"]])
    return samples


def _shortened(environment: Environment, recording: Recording) -> Environment:
    """Return the environment with each flow that completed its transfer ending there."""
    if not recording.completions_ns:
        return environment
    ends_s = {number: t_ns / 1e9 for number, t_ns in recording.completions_ns.items()}
    flow, *others = (
        replace(flow, stop_s=min(ends_s.get(number, environment.duration_s), environment.stop_of(flow)))
        for number, flow in enumerate(environment.all_flows)
    )
    cross = tuple(replace(each, flow=other) for each, other in zip(environment.cross, others, strict=True))
    return replace(environment, flow=flow, cross=cross)


def shared_jain_index(environment: Environment, received: Sequence[ReceiverCounts]) -> float | None:
    """Return Jain's index of the flows on the path of the one under test, over the time in which all of them run.

    Args:
        environment: the network and its flows.
        received: the receiver's counts of every flow, the one under test first.

    Returns:
        The index; None where no other flow has that path, the flows never run together, or nothing arrives meanwhile.
    """
    tested_path = environment.path(environment.flow)
    peers = {number: flow for number, flow in enumerate(environment.all_flows) if environment.path(flow) == tested_path}
    begin_s = max(flow.start_s for flow in peers.values())
    end_s = min(environment.stop_of(flow) for flow in peers.values())
    if len(peers) < 2 or begin_s >= end_s:
        return None
    return jain_index([float(np.diff(received[number].bytes_at([begin_s, end_s]))[0]) for number in peers])


def _rows(name: str, samples: npt.NDArray[np.void], disturbed: bool = False) -> pa.Table:
    columns = {
        "episode_id": pa.array([name] * len(samples), pa.string()),
        "step": np.arange(len(samples), dtype=np.int32),
        "t_s": samples["t_ns"] / 1e9,
    }
    columns |= {field: np.ascontiguousarray(samples[field]) for field, *_ in COUNTERS}
    if disturbed:
        columns[KICK.name] = np.where(samples["kick"], samples["kick"] / wire.KICK_ONE, 1.0)
    return pa.table(columns, schema=raw_schema(disturbed))


def _every_flow(name: str, schemes: Sequence[str], samples: npt.NDArray[np.void]) -> pa.Table:
    samples = samples[np.argsort(samples["flow"], kind="stable")]
    _, starts, counts = np.unique(samples["flow"], return_index=True, return_counts=True)
    names = pa.array(list(schemes), pa.string()).take(pa.array(samples["flow"].astype(np.int64)))
    rows = _rows(name, samples)
    step = (np.arange(len(samples)) - np.repeat(starts, counts)).astype(np.int32)
    columns = {column: rows[column] for column in rows.column_names}
    columns |= {"flow": pa.array(samples["flow"].astype(np.int32)), "scheme": names, "step": pa.array(step)}
    return pa.table([columns[column] for column in FLOWS_SCHEMA.names], schema=FLOWS_SCHEMA)


def _summary(recording: Recording, flow: int, scheme: str, start_s: float, stop_s: float) -> FlowSummary:
    samples = recording.samples[recording.samples["flow"] == flow]
    delays = recording.packets["delay"][recording.packets["flow"] == flow]
    if not len(samples):
        return FlowSummary(
            scheme=scheme,
            goodput_mbps=0.0,
            delay_mean_ms=math.nan,
            delay_p95_ms=math.nan,
            sent_packets=0,
            lost_packets=0,
            cwnd_mean=math.nan,
        )
    last = samples[-1]
    unit_ms = wire.DELAY_UNIT_NS / 1e6
    packets = float(last["link_packets"])
    completion_ns = recording.completions_ns.get(flow)
    return FlowSummary(
        scheme=scheme,
        goodput_mbps=float(last["received_bytes"]) * 8 / 1e6 / (stop_s - start_s),
        delay_mean_ms=float(last["link_delay_ns"]) / packets / 1e6 if packets else math.nan,
        delay_p95_ms=float(np.percentile(delays, 95)) * unit_ms if len(delays) else math.nan,
        sent_packets=int(last["link_packets"]) + int(last["link_drops"]),
        lost_packets=int(last["link_drops"]),
        cwnd_mean=float(samples["cwnd_pkts"].mean()),
        completion_s=None if completion_ns is None else completion_ns / 1e9 - start_s,
        marked_packets=int(last["link_marks"]),
    )
