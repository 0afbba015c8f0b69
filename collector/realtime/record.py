# SPDX-License-Identifier: Apache-2.0
"""From a real-time run's measurements (TCP_INFO samples, the bottleneck's packets) to an Episode."""

from __future__ import annotations

import errno
import hashlib
import math
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.collector.lab.episode import Episode, FlowSummary, ReceiverCounts, shared_jain_index
from sagecc.collector.realtime.endpoint import SAMPLE, TCP_INFO_BYTES
from sagecc.collector.realtime.limits import limits
from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment, Link, bdp_bytes
from sagecc.schemas.raw import RAW_SCHEMA, TICK_S
from sagecc.schemas.schemes import is_driven

_FIELDS = (
    ("state", "u1", 0),
    ("ca_state", "u1", 1),
    ("flags", "u1", 7),
    ("mss_bytes", "<u4", 16),
    ("unacked_pkts", "<u4", 24),
    ("sacked_pkts", "<u4", 28),
    ("lost_pkts", "<u4", 32),
    ("retrans_pkts", "<u4", 36),
    ("srtt_us", "<u4", 68),
    ("rttvar_us", "<u4", 72),
    ("ssthresh_pkts", "<u4", 76),
    ("cwnd_pkts", "<u4", 80),
    ("retrans_total_pkts", "<u4", 100),
    ("pacing_rate_bytes_s", "<u8", 104),
    ("bytes_acked", "<u8", 120),
    ("received_bytes", "<u8", 128),
    ("notsent_bytes", "<u4", 144),
    ("min_rtt_us", "<u4", 148),
    ("data_segs_out", "<u4", 156),
    ("delivery_rate_bytes_s", "<u8", 160),
    ("rwnd_limited_us", "<u8", 176),
    ("delivered_pkts", "<u4", 192),
    ("bytes_sent", "<u8", 200),
    ("rto_total", "<u2", 240),
)
"""Name, type and offset in struct tcp_info (include/uapi/linux/tcp.h), which grows only at its end."""

_INFO = np.dtype(
    {
        "names": [name for name, *_ in _FIELDS],
        "formats": [kind for _, kind, _ in _FIELDS],
        "offsets": [offset for *_, offset in _FIELDS],
        "itemsize": TCP_INFO_BYTES,
    }
)
SAMPLES = np.dtype(
    [
        ("t_ns", "<u8"),
        ("flow", "<u4"),
        ("length", "<u4"),
        ("info", _INFO),
        ("send_buffer_bytes", "<u4"),
        ("queued_bytes", "<u4"),
    ]
)
assert SAMPLES.itemsize == SAMPLE.size

CLOSE_WAIT = 8
"""State of a receiver to which the sender's FIN has come (include/net/tcp_states.h)."""
APP_LIMITED = 1
"""tcpi_delivery_rate_app_limited: the lowest bit of the byte `flags`."""

_NOT_COLUMNS = {"state", "flags", "received_bytes", "rto_total", "notsent_bytes", "rwnd_limited_us"}
_SENDER_COLUMNS = tuple(name for name, *_ in _FIELDS if name not in _NOT_COLUMNS)
"""Raw columns that are fields of the sender's TCP_INFO, unchanged."""


@dataclass(frozen=True)
class LinkLog:
    """What the bottleneck did with data packets; times count from the episode's beginning.

    Delivered packets are in the order in which they left the queue, dropped packets in any order.
    """

    flow: Ints
    """Flow of each delivered packet [delivered]."""

    bytes: Ints
    """IP size of each delivered packet [delivered]."""

    entered_ns: Ints
    """When it entered the queue [delivered]."""

    left_ns: Ints
    """When it left the queue [delivered]."""

    delay_ns: Ints
    """Its one-way delay: queue, transmission and propagation [delivered]."""

    drop_flow: Ints
    """Flow of each dropped packet [dropped]."""

    drop_ns: Ints
    """When it was dropped [dropped]."""

    capacity_ns: Ints
    """Times of the points of the capacity curve, which is linear in between [points]."""

    capacity_bytes: Ints
    """What the link could have sent by then since the start [points]."""

    def columns(self, flow: int, t_ns: Ints) -> dict[str, npt.NDArray[np.uint64]]:
        """Return the link_* columns of a flow at given times.

        Args:
            flow: number of the flow.
            t_ns: times since the episode began (ns) [rows].

        Returns:
            Values [rows] by column.
        """
        is_flow = self.flow == flow
        departures = np.searchsorted(self.left_ns[is_flow], t_ns, side="right")
        entries_ns = np.sort(self.entered_ns)
        order = np.argsort(self.entered_ns, kind="stable")
        queued_bytes = _sums(self.bytes[order])[np.searchsorted(entries_ns, t_ns, side="right")]
        queued_bytes -= _sums(self.bytes)[np.searchsorted(self.left_ns, t_ns, side="right")]
        columns = {
            "link_packets": departures,
            "link_bytes": _sums(self.bytes[is_flow])[departures],
            "link_drops": np.searchsorted(np.sort(self.drop_ns[self.drop_flow == flow]), t_ns, side="right"),
            "link_delay_ns": _sums(self.delay_ns[is_flow])[departures],
            "link_queue_bytes": queued_bytes,
            "link_capacity_bytes": np.interp(t_ns, self.capacity_ns, self.capacity_bytes),
        }
        return {name: values.astype(np.uint64) for name, values in columns.items()}


def _sums(values: Ints) -> Ints:
    """Return the sums of the first 0, 1, … values [n + 1]."""
    return np.concatenate(([0], np.cumsum(values)))


def rate_capacity(link: Link, until_s: float) -> tuple[Ints, Ints]:
    """Return the capacity curve of a link's rate schedule.

    Args:
        link: a link with rates.
        until_s: end of the curve (s).

    Returns:
        Times (ns) and bytes that could have been sent by then, both [points].
    """
    steps = [step for step in link.rates if step.t_s < until_s]
    times_s = np.array([*(step.t_s for step in steps), until_s])
    sent_bytes = np.diff(times_s) * [step.rate_mbps for step in steps] * 1e6 / 8
    return (times_s * 1e9).astype(np.int64), _sums(sent_bytes.astype(np.int64))


def read_samples(path: Path) -> npt.NDArray[np.void]:
    """Return the samples that an endpoint wrote, SAMPLES [samples]."""
    return np.fromfile(path, SAMPLES)


def check_host_scheme(scheme: str) -> None:
    """Check that this host's kernel can run a scheme.

    Raises:
        SageccError: it cannot; the message lists the schemes that it has.
    """
    if is_driven(scheme):
        raise SageccError(f"{scheme}: the lab alone runs it; in real time use a scheme of this kernel")
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, scheme.encode())
        except OSError as error:
            schemes = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
            if error.errno != errno.EPERM:
                raise SageccError(
                    f"this host's kernel has no scheme '{scheme}': it offers {', '.join(schemes)}"
                ) from None
            raise SageccError(
                f"this host's kernel keeps '{scheme}' for root: "
                f"sysctl -w net.ipv4.tcp_allowed_congestion_control='{' '.join(schemes)}'"
            ) from None


def check_supported(environment: Environment, backend: str, link_fields: tuple[str, ...]) -> None:
    """Check that a real-time backend can run an environment: one link, whose return link only delays.

    Args:
        environment: the network and its flows.
        backend: name of the backend, for the message.
        link_fields: fields of the link, besides its delay, that the backend implements.

    Raises:
        SageccError: it cannot; the message names the field.
    """
    if len(environment.links) != 1:
        raise SageccError(f"{backend} runs one bottleneck, not {len(environment.links)} links: use the lab")
    for flow in environment.all_flows:
        if flow.extra_rtt_ms:
            raise SageccError(f"{backend} gives all flows one RTT (extra_rtt_ms must be 0): use the lab")
        if flow.size_bytes is not None:
            raise SageccError(f"{backend} runs no finite transfers (size_bytes): use the lab")
        if flow.receive_window_bytes is not None or flow.pauses_s:
            raise SageccError(
                f"{backend} limits no receiver or application (receive_window_bytes, pauses_s): use the lab"
            )
        if flow.ecn:
            raise SageccError(f"{backend} negotiates no ECN (ecn): use the lab")
    directions = ((environment.links[0], (*link_fields, "delay_ms")), (environment.return_links[0], ("delay_ms",)))
    for link, names in directions:
        for name, value in vars(link).items():
            if name not in names and value != getattr(Link(), name):
                side = "way back" if link is environment.return_links[0] else "link"
                raise SageccError(f"{backend} cannot do {name} = {value} on the {side}: use the lab")


def make_episode(
    environment: Environment,
    scheme: str,
    seed: int,
    name: str,
    *,
    sent: npt.NDArray[np.void],
    received: npt.NDArray[np.void],
    link: LinkLog,
) -> Episode:
    """Return the episode of a run, with the same columns and summaries as the lab's.

    Args:
        environment: the network and its flows.
        scheme: scheme of the flow under test.
        seed: seed in the episode's name.
        name: the episode's identifier.
        sent: SAMPLES of the senders [samples].
        received: SAMPLES of the receivers [samples].
        link: what the bottleneck did.

    Raises:
        SageccError: the flow under test did not get through.
    """
    samples = sent[sent["flow"] == 0]
    if not len(samples) or not len(link.flow):
        raise SageccError(f"episode {name}: the flow never got through (no sample in {environment.duration_s:g} s)")
    received = _without_fins(received)
    rows = _rows(name, samples, received[received["flow"] == 0], link)
    schemes = (scheme, *(cross.scheme for cross in environment.cross))
    flows = tuple(
        _summary(flow, flow_scheme, life_s, sent, received, link)
        for flow, (flow_scheme, life_s) in enumerate(zip(schemes, lives_s(environment), strict=True))
    )
    counts = (received[received["flow"] == flow] for flow in range(environment.flow_count))
    jain = shared_jain_index(environment, [ReceiverCounts(c["t_ns"], c["info"]["received_bytes"]) for c in counts])
    digest = hashlib.sha256(samples.tobytes()).hexdigest()
    spec = hashlib.sha256(f"{environment.to_json()} {scheme} {seed}".encode()).hexdigest()
    return Episode(
        id=name,
        environment=environment,
        scheme=scheme,
        seed=seed,
        rows=rows,
        flows=flows,
        sha256=digest,
        spec_sha256=spec,
        jain_index=jain,
    )


def _without_fins(received: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return receivers' SAMPLES that count data alone: TCP counts a FIN as a byte."""
    received = received.copy()
    received["info"]["received_bytes"] -= received["info"]["state"] == CLOSE_WAIT
    return received


def lives_s(environment: Environment) -> tuple[tuple[float, float], ...]:
    """Return start and stop of every flow (s), the one under test first."""
    return tuple((flow.start_s, environment.stop_of(flow)) for flow in environment.all_flows)


def in_flight_bytes(environment: Environment) -> float:
    """Return how many bytes the link and its queue hold when full; a queue without limit counts as 0."""
    return bdp_bytes(environment.bottleneck.peak_mbps, environment.min_rtt_ms) + (environment.queue_bytes or 0)


def send_buffer_bytes(environment: Environment) -> int:
    """Return a send buffer (bytes) of twice what can be in flight, doubled for the kernel's overhead.

    Unlike in the lab, where at most 8 MiB wait unsent, the whole buffer is filled here.
    """
    return int(min(4 * in_flight_bytes(environment) + (1 << 20), 1 << 30))


def _rows(
    name: str,
    sent: npt.NDArray[np.void],
    received: npt.NDArray[np.void],
    link: LinkLog,
) -> pa.Table:
    info, t_ns = sent["info"], sent["t_ns"].astype(np.int64)
    ticks = (t_ns // round(TICK_S * 1e9)).astype(np.int32)
    columns = {
        "episode_id": pa.array([name] * len(sent), pa.string()),
        "step": ticks - ticks[0],
        "t_s": t_ns / 1e9,
        "app_limited": info["flags"] & APP_LIMITED,
        "lost_total_pkts": lost_total(info),
        "rto_total": info["rto_total"].astype(np.uint32),
        "received_bytes": _received_bytes(received, t_ns),
    }
    columns |= {column: np.ascontiguousarray(info[column]) for column in _SENDER_COLUMNS}
    columns |= link.columns(0, t_ns)
    return pa.table(columns, schema=RAW_SCHEMA)


def lost_total(info: npt.NDArray[np.void]) -> npt.NDArray[np.uint32]:
    """Estimate tp->lost, which TCP_INFO lacks: packets retransmitted, and held lost but not yet retransmitted."""
    lost_now = np.maximum(info["lost_pkts"].astype(np.int64) - info["retrans_pkts"], 0)
    return np.maximum.accumulate(info["retrans_total_pkts"] + lost_now).astype(np.uint32)


def _received_bytes(received: npt.NDArray[np.void], t_ns: Ints) -> npt.NDArray[np.uint64]:
    """Return the receiver's last byte count at each time."""
    counts = np.concatenate(([0], received["info"]["received_bytes"]))
    return counts[np.searchsorted(received["t_ns"].astype(np.int64), t_ns, side="right")].astype(np.uint64)


def _summary(
    flow: int,
    scheme: str,
    life_s: tuple[float, float],
    sent: npt.NDArray[np.void],
    received: npt.NDArray[np.void],
    link: LinkLog,
) -> FlowSummary:
    start_s, stop_s = life_s
    delays = link.delay_ns[link.flow == flow] / 1e6
    drops = int((link.drop_flow == flow).sum())
    samples, receiver_info = sent[sent["flow"] == flow], received[received["flow"] == flow]["info"]
    got_through = bool(len(delays) and len(samples) and len(receiver_info))
    return FlowSummary(
        scheme=scheme,
        goodput_mbps=float(receiver_info["received_bytes"][-1]) * 8 / 1e6 / (stop_s - start_s) if got_through else 0.0,
        delay_mean_ms=float(delays.mean()) if got_through else math.nan,
        delay_p95_ms=float(np.percentile(delays, 95)) if got_through else math.nan,
        sent_packets=len(delays) + drops,
        lost_packets=drops,
        cwnd_mean=float(samples["info"]["cwnd_pkts"].mean()) if len(samples) else math.nan,
        limits=limits(samples, start_s, stop_s),
    )
