# SPDX-License-Identifier: Apache-2.0
"""The specification of an episode: from an Environment and a scheme to the bytes with which a guest is started.

Nodes 0 to L are the chain of L links. Cable i connects nodes i and i + 1: its first LINK is the data direction, its
second the return direction. A flow with an extra RTT sends from a node of its own, numbered after the chain's, whose
access cable only delays; every other flow sends from the first node of its path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.schemas import wire
from sagecc.schemas.disturbance import Kick
from sagecc.schemas.environment import (
    INTERVAL_MS,
    QUANTUM_BYTES,
    TARGET_MS,
    Environment,
    Flow,
    Link,
    bdp_bytes,
    episode_id,
)
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import OTHERS, SCHEMES, is_driven, undisturbed

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
BASE_MEMORY_MB = 192
"""Memory of a guest besides queues (MiB): the kernel, and the packets of Hybla's first burst (70 MB)."""

MULTI_LINK_FLOW_BYTES = 512 << 10
"""Memory per flow over several links (bytes): the time at which each packet entered the first."""

UNLIMITED_QUEUE_BYTES = 64 << 20
"""Bytes that flows may have in a queue without limit, in equal shares: their send buffers end there."""

MAX_SNDBUF_BYTES = 1 << 30

OUTAGE_STEP_NS = NS_PER_S - 1
"""Longest step of an outage on the wire, which has no rate of 0: at 1 bit/s a step below a second sends no bit."""

MAX_LATENCY_US = 1_000_000

UNSENT_FLOW_BYTES = 12 << 20
"""Memory per flow for unsent data (bytes): the 8 MiB of init.c's UNSENT_BYTES as packets, and its sockets."""

UNSENT_FLOWS = 64
"""Flows that have so much unsent data; more of them share it (init.c)."""

FURTHER_FLOW_BYTES = 512 << 10
"""Memory per flow beyond UNSENT_FLOWS (bytes): its sockets, and its node and access cable."""


@dataclass(frozen=True)
class Drive:
    """How the host drives a flow."""

    underlying: str = "pure"
    """Kernel scheme whose window the host sets; `pure` has no logic of its own."""

    latency_us: int = 0
    """Virtual time from a sample until its action takes effect (us), to model a slow host."""

    sha256: str = ""
    """SHA-256 of what drives it, a policy's files or a scheme's code: the trajectories of whoever competes with it
    depend on them."""

    def __post_init__(self) -> None:
        if not 0 <= self.latency_us <= MAX_LATENCY_US:
            raise SageccError(f"a decision's latency must be 0 to {MAX_LATENCY_US // 1000} ms")


@dataclass(frozen=True)
class EpisodeSpec:
    """Everything that a guest is started with; equal fields give equal runs."""

    name: str
    """Identifier of the episode."""

    wire: bytes
    """SPEC and its arrays (schemas.wire)."""

    seed: int
    """Seed of the guest's random numbers."""

    memory_mb: int
    """Memory of the guest (MiB)."""

    lockstep: tuple[int, ...]
    """Numbers of the flows that the host drives, in the order of their samples."""

    latencies_us: tuple[int, ...] = ()
    """Virtual time from a sample of each of `lockstep` until its action takes effect (us)."""

    competitors: tuple[str, ...] = ()
    """SHA-256 of what drives other flows than the one under test, in the order of `lockstep`."""

    @property
    def sha256(self) -> str:
        """SHA-256 of everything that determines the run except the kernel and the policy under test, in hex."""
        # one number where all are alike: raw data hold the hashes of such specifications
        latencies = dict.fromkeys(self.latencies_us) if len(set(self.latencies_us)) == 1 else self.latencies_us
        # "as ordered": what a late host sees as a window (OrdersUnderWay), which older runs had not
        latency = f"{' '.join(map(str, latencies))} us as ordered " if any(self.latencies_us) else ""
        others = "".join(f"{sha256} " for sha256 in self.competitors)
        return hashlib.sha256(f"{self.seed} {self.memory_mb} {latency}{others}".encode() + self.wire).hexdigest()


@dataclass(frozen=True)
class _Cable:
    """Two nodes and the link in each direction between them."""

    node_a: int
    node_b: int
    towards_b: Link
    towards_a: Link


def driven_flows(environment: Environment, scheme: str) -> dict[int, str]:
    """Return the scheme of each flow that the host drives, by the flow's number; `scheme` is flow 0's."""
    schemes = (scheme, *(cross.scheme for cross in environment.cross))
    return {flow: name for flow, name in enumerate(schemes) if is_driven(name)}


def flow_drives(environment: Environment, scheme: str, drives: Mapping[str, Drive]) -> dict[int, Drive]:
    """Return how the host drives each flow that a policy or a scheme in user space is in charge of, by its number.

    Args:
        environment: the network and its flows.
        scheme: the scheme under test.
        drives: by such a scheme; `Drive()` for one that is not there.
    """
    return {flow: drives.get(name, Drive()) for flow, name in driven_flows(environment, scheme).items()}


def episode_spec(
    environment: Environment,
    scheme: str,
    seed: int,
    *,
    packet_delays: bool = True,
    drives: Mapping[int, Drive] | None = None,
) -> EpisodeSpec:
    """Return the specification of one episode; flow 0 is the one under test, the others are the cross flows.

    Args:
        environment: the network and its flows.
        scheme: the scheme under test, disturbed or not.
        seed: seed of the episode's random numbers.
        packet_delays: whether the guest sends the delay of every data packet.
        drives: how the host drives flows, by their numbers: every driven one, and any other; by default
            every driven one's as `Drive()` says.

    Raises:
        SageccError: the kernel has no such scheme as a flow's that the host does not drive.
    """
    if drives is None:
        drives = flow_drives(environment, scheme, {})
    name = episode_id(environment.id, scheme, seed)
    base, disturbance = undisturbed(scheme)
    environment = disturbance.environment(environment, name)
    kicks = _kicks(disturbance.schedule(environment, name))
    flows = environment.all_flows
    lockstep = tuple(sorted(drives))
    schemes = [base, *(cross.scheme for cross in environment.cross)]
    kernel_schemes = [
        drives[flow].underlying if flow in drives else each if flow == 0 else _kernel_scheme(each)
        for flow, each in enumerate(schemes)
    ]
    cables, sources, routes = _topology(environment, flows)
    links, rates, delays, opportunities, losses = _links(cables, seed, _ns(environment.duration_s))
    sndbufs = [_sndbuf_bytes(environment, flow) for flow in flows]

    cable_records = np.zeros(len(cables), wire.CABLE)
    cable_records["node_a"], cable_records["node_b"] = [c.node_a for c in cables], [c.node_b for c in cables]

    flow_records = np.zeros(len(flows), wire.FLOW)
    flow_records["scheme"] = kernel_schemes
    flow_records["source"] = sources
    flow_records["destination"] = [environment.path(flow).stop for flow in flows]
    flow_records["start_ns"] = [_ns(flow.start_s) for flow in flows]
    flow_records["stop_ns"] = [_ns(environment.stop_of(flow)) for flow in flows]
    flow_records["sndbuf_bytes"] = sndbufs
    flow_records["lockstep"][list(lockstep)] = 1
    flow_records["first_cable"] = [environment.path(flow)[0] for flow in flows]
    flow_records["last_cable"] = [environment.path(flow)[-1] for flow in flows]
    flow_records["bottleneck"] = [environment.narrowest(flow) for flow in flows]
    flow_records["sampled"] = 1
    flow_records["ecn"] = [flow.ecn for flow in flows]
    extension, application = _extension(cables, flows), _application(flows)

    header = np.zeros(1, wire.SPEC)
    header["magic"], header["version"] = wire.MAGIC, wire.VERSION
    header["tick_ns"], header["duration_ns"] = _ns(TICK_S), _ns(environment.duration_s)
    header["nodes"], header["cables"] = 1 + max(max(c.node_a, c.node_b) for c in cables), len(cables)
    header["rates"], header["delays"], header["opportunities"] = len(rates), len(delays), len(opportunities)
    header["routes"], header["flows"], header["packet_delays"] = len(routes), len(flow_records), packet_delays
    header["kicks"], header["extended"] = len(kicks), bool(extension) * wire.HAS_EXTENSION
    header["extended"] |= bool(application) * wire.HAS_APPLICATION
    body = b"".join(
        part.tobytes() for part in (cable_records, links, rates, delays, opportunities, routes, flow_records, kicks)
    )
    body += extension + application + losses.tobytes()
    header["bytes"] = header.nbytes + len(body)
    return EpisodeSpec(
        name=name,
        wire=header.tobytes() + body,
        seed=seed,
        memory_mb=_memory_mb(environment),
        lockstep=lockstep,
        latencies_us=tuple(drives[flow].latency_us for flow in lockstep),
        competitors=tuple(drives[flow].sha256 for flow in lockstep if flow and drives[flow].sha256),
    )


def link_seed(seed: int, index: int) -> int:
    """Return the seed of LINK `index`: the first 8 bytes of SHA-256("<episode's seed> <index>"), little-endian."""
    return int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:8], "little")


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _ms_to_ns(milliseconds: float) -> int:
    return round(milliseconds * NS_PER_MS)


def _kernel_scheme(name: str) -> str:
    if name in SCHEMES or name in OTHERS:
        return name
    raise SageccError(f"cross flow: '{name}' is no kernel scheme; 'sagecc schemes' lists them")


def _topology(
    environment: Environment, flows: tuple[Flow, ...]
) -> tuple[list[_Cable], list[int], npt.NDArray[np.void]]:
    """Return the cables, the node that each flow sends from, and ROUTE for all that the flows need."""
    chain = zip(environment.links, environment.return_links, strict=True)
    cables = [_Cable(node, node + 1, link, return_link) for node, (link, return_link) in enumerate(chain)]
    nodes = len(cables) + 1
    sources, routes = [], set()
    for flow in flows:
        path = environment.path(flow)
        source, destination = path.start, path.stop
        if flow.extra_rtt_ms:
            source, nodes = nodes, nodes + 1
            routes |= {(source, destination, len(cables)), (path.start, source, len(cables))}
            access = Link(delay_ms=flow.extra_rtt_ms / 2)
            cables.append(_Cable(source, path.start, access, access))
        routes |= {(cable, destination, cable) for cable in path}
        routes |= {(cable + 1, source, cable) for cable in path}
        sources.append(source)
    array = np.zeros(len(routes), wire.ROUTE)
    array["node"], array["destination"], array["cable"] = zip(*sorted(routes), strict=True)
    return cables, sources, array


def _rates(link: Link, until_ns: int) -> list[tuple[int, int]]:
    """Return RATE of a link: its schedule, with outages until then in steps of OUTAGE_STEP_NS."""
    edges_ns = (*(_ns(step.t_s) for step in link.rates), until_ns)
    rates: list[tuple[int, int]] = []
    for step, (begin_ns, end_ns) in zip(link.rates, pairwise(edges_ns), strict=True):
        if step.rate_mbps:
            rates.append((begin_ns, round(step.rate_mbps * 1e6)))
        else:
            rates += [(t_ns, 1) for t_ns in range(begin_ns, max(end_ns, begin_ns + 1), OUTAGE_STEP_NS)]
    return rates


def _links(cables: list[_Cable], seed: int, until_ns: int) -> tuple[npt.NDArray[np.void], ...]:
    """Return LINK, two per cable, and the RATE, DELAY and OPPORTUNITY arrays that they index, and LOSS."""
    directions = [link for cable in cables for link in (cable.towards_b, cable.towards_a)]
    array = np.zeros(len(directions), wire.LINK)
    rates: list[tuple[int, int]] = []
    delays: list[tuple[int, int]] = []
    opportunities: list[int] = []
    losses: list[tuple[int, int, int]] = []
    for index, (record, link) in enumerate(zip(array, directions, strict=True)):
        own_rates = _rates(link, until_ns)
        record["first_rate"], record["rates"] = len(rates), len(own_rates)
        record["first_delay"], record["delays"] = len(delays), 1 + len(link.delays)
        record["first_opportunity"] = len(opportunities)
        rates += own_rates
        delays += [(0, _ms_to_ns(link.delay_ms))]
        delays += [(_ns(step.t_s), _ms_to_ns(step.delay_ms)) for step in link.delays]
        if link.trace:
            times_ns = [_ms_to_ns(time_ms) for time_ms in link.trace.opportunities_ms]
            record["opportunities"], record["period_ns"] = len(times_ns), times_ns[-1]
            opportunities += times_ns
        record["limit_bytes"] = wire.NO_LIMIT if link.queue_bytes is None else link.queue_bytes
        record["limit_packets"] = wire.NO_LIMIT if link.queue_packets is None else link.queue_packets
        target_ms = TARGET_MS.get(link.discipline, 0) if link.target_ms is None else link.target_ms
        interval_ms = INTERVAL_MS.get(link.discipline, 0) if link.interval_ms is None else link.interval_ms
        record["target_ns"], record["interval_ns"] = _ms_to_ns(target_ms), _ms_to_ns(interval_ms)
        record["jitter_ns"], record["grain_ns"] = _ms_to_ns(link.jitter_ms), _ms_to_ns(link.grain_ms)
        record["loss"] = _share(link.loss)
        losses += [(_ns(step.t_s), index, _share(step.loss)) for step in link.losses]
        record["discipline"] = wire.DISCIPLINES.index(link.discipline)
        record["reorder"] = link.jitter_reorders or link.delay_reorders
        random = link.loss or link.losses or link.jitter_ms or link.discipline == "pie"
        record["seed"] = link_seed(seed, index) if random else 0
    return (
        array,
        np.array(rates, wire.RATE),
        np.array(delays, wire.DELAY),
        np.array(opportunities, wire.OPPORTUNITY),
        np.array(losses, wire.LOSS),
    )


def _extension(cables: list[_Cable], flows: tuple[Flow, ...]) -> bytes:
    """Return EXTENSION with its EXTRA and TRANSFER; nothing where no link and no flow needs one."""
    extras = [
        (
            index,
            link.ecn,
            link.ack_filter,
            wire.NO_LIMIT if link.mark_packets is None else link.mark_packets,
            round(link.policer.rate_mbps * 1e6) if link.policer else 0,
            link.policer.burst_bytes if link.policer else 0,
            link.quantum_bytes or QUANTUM_BYTES,
        )
        for index, link in enumerate(link for cable in cables for link in (cable.towards_b, cable.towards_a))
        if link.policer or link.marks or link.ack_filter or link.discipline == "fq-codel"
    ]
    transfers = [(number, 0, flow.size_bytes) for number, flow in enumerate(flows) if flow.size_bytes is not None]
    if not extras and not transfers:
        return b""
    counts = np.array([(len(extras), len(transfers))], wire.EXTENSION)
    return b"".join(
        part.tobytes() for part in (counts, np.array(extras, wire.EXTRA), np.array(transfers, wire.TRANSFER))
    )


def _application(flows: tuple[Flow, ...]) -> bytes:
    """Return APPLICATION with its WINDOW and PAUSE; nothing where no application and no receiver holds a flow back."""
    windows = [
        (number, flow.receive_window_bytes)
        for number, flow in enumerate(flows)
        if flow.receive_window_bytes is not None
    ]
    pauses = [(number, 0, _ns(a), _ns(b)) for number, flow in enumerate(flows) for a, b in flow.pauses_s]
    if not windows and not pauses:
        return b""
    counts = np.array([(len(windows), len(pauses))], wire.APPLICATION)
    return b"".join(part.tobytes() for part in (counts, np.array(windows, wire.WINDOW), np.array(pauses, wire.PAUSE)))


def _kicks(kicks: tuple[Kick, ...]) -> npt.NDArray[np.void]:
    """Return KICK, all of flow 0."""
    array = np.zeros(len(kicks), wire.KICK)
    array["t_ns"] = [_ns(kick.t_s) for kick in kicks]
    array["factor"] = [round(kick.factor * wire.KICK_ONE) for kick in kicks]
    return array


def _share(loss: float) -> int:
    """Return a probability as a share of LOSS_ONE that 32 bits hold."""
    return min(round(loss * wire.LOSS_ONE), wire.LOSS_ONE - 1)


def _in_flight_bytes(environment: Environment, flow: Flow) -> float:
    """Return the most bytes that the flow can have in flight: what its path and its queues hold when full."""
    links = [environment.links[index] for index in environment.path(flow)]
    return_links = [environment.return_links[index] for index in environment.path(flow)]
    rtt_ms = flow.extra_rtt_ms + sum(link.peak_delay_ms for link in (*links, *return_links))
    queues = sum(_queue_share_bytes(environment, index) for index in environment.path(flow))
    return bdp_bytes(min(link.peak_mbps for link in links), rtt_ms) + queues


def _queue_share_bytes(environment: Environment, index: int) -> float:
    """Return how many bytes of link `index`'s queue one flow can fill."""
    link, limit = environment.links[index], environment.links[index].limit_bytes
    if not link.limited:
        return 0  # no packet waits
    if limit is None:
        limit = UNLIMITED_QUEUE_BYTES // sum(index in environment.path(flow) for flow in environment.all_flows)
    return min(limit, bdp_bytes(link.peak_mbps, environment.duration_s * 1000))  # a link sends no more in an episode


def _sndbuf_bytes(environment: Environment, flow: Flow) -> int:
    """Return a send buffer (bytes) that never limits: Hybla's first burst alone takes 65,535 packets of some 3 kB."""
    burst = (1 << 30) // max(environment.flow_count, 2)
    return int(min(16 * _in_flight_bytes(environment, flow) + burst, MAX_SNDBUF_BYTES))


def _memory_mb(environment: Environment) -> int:
    """Return the guest's memory (MiB): half of the largest send buffer, whose payload is one page, sent repeatedly.

    Flows share the queues, so the others add only the unsent data in their sockets.
    """
    flows = environment.all_flows
    in_flight = max(_in_flight_bytes(environment, flow) for flow in flows)
    multi_link_bytes = sum(len(environment.path(flow)) > 1 for flow in flows) * MULTI_LINK_FLOW_BYTES
    unsent = (min(len(flows), UNSENT_FLOWS) - 1) * UNSENT_FLOW_BYTES
    further = max(len(flows) - UNSENT_FLOWS, 0) * FURTHER_FLOW_BYTES
    return BASE_MEMORY_MB + int(8 * in_flight + unsent + further + multi_link_bytes) // (1 << 20)
