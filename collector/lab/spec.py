# SPDX-License-Identifier: Apache-2.0
"""From an Environment and a scheme to the bytes that a guest is started with.

Nodes 0 to L are the chain of L links, cable i runs from node i to node i + 1: its first LINK is the data
direction, its second the way back. A flow with an RTT of its own sends from a host of its own, a node
after the chain's, whose access cable only takes time; every other flow sends from its first link's node.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.schemas import wire
from sagecc.schemas.environment import INTERVAL_MS, TARGET_MS, Environment, Flow, Link, bdp_bytes, episode_id
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import OTHERS, POLICY_PREFIX, SCHEMES

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
BASE_MEMORY_MB = 192
"""What a guest has beside queues: itself, and the packets that Hybla's first burst holds to be in flight (70 MB)."""

MULTI_LINK_FLOW_BYTES = 512 << 10
"""What the guest keeps of a flow over several links: when each packet entered the first."""

UNLIMITED_QUEUE_BYTES = 64 << 20
"""What the flows that cross a queue without limit may have in it, in equal shares: their hosts' buffers end there."""

MAX_SNDBUF_BYTES = 1 << 30

MAX_LATENCY_US = 1_000_000

UNSENT_FLOW_BYTES = 12 << 20
"""What the guest keeps of a flow that waits: the 8 MiB of init.c's UNSENT_BYTES as packets, and its sockets."""


@dataclass(frozen=True)
class Drive:
    """How the host drives flows.

    underlying: the kernel scheme whose window it sets; `pure` has no logic of its own. latency_us: from a sample to
    when the answer takes effect, for a host that is slow. flows: which, 0 is the one under test.
    """

    underlying: str = "pure"
    latency_us: int = 0
    flows: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not 0 <= self.latency_us <= MAX_LATENCY_US:
            raise SageccError(f"a decision's latency must be 0 to {MAX_LATENCY_US // 1000} ms")


@dataclass(frozen=True)
class EpisodeSpec:
    """What a guest needs to know: the wire bytes, its seed and its memory. Same fields, same run.

    lockstep: the flows that the host drives, in the order in which the guest asks for them. latency_us: of its answers.
    """

    name: str
    wire: bytes
    seed: int
    memory_mb: int
    lockstep: tuple[int, ...]
    latency_us: int = 0

    @property
    def sha256(self) -> str:
        """Digest of everything that decides the run, but for the kernel and a policy."""
        late = f"{self.latency_us} us " if self.latency_us else ""
        return hashlib.sha256(f"{self.seed} {self.memory_mb} {late}".encode() + self.wire).hexdigest()


@dataclass(frozen=True)
class _Cable:
    node_a: int
    node_b: int
    towards_b: Link
    towards_a: Link


def episode_spec(
    environment: Environment, scheme: str, seed: int, packet_delays: bool = True, drive: Drive | None = None
) -> EpisodeSpec:
    """Describe one episode; flow 0 is the scheme under test, the others are the cross flows.

    drive: how the host drives a policy: as the kernel scheme `pure` by default, whose window it sets after every
    sample; and no other scheme. Raises SageccError for a scheme of a flow that the kernel does not have.
    """
    if drive is None and scheme.startswith(POLICY_PREFIX):
        drive = Drive()
    everyone = environment.everyone
    lockstep = drive.flows if drive else ()
    schemes = [scheme, *(cross.scheme for cross in environment.cross)]
    kernel_schemes = [
        drive.underlying if drive and flow in lockstep else name if flow == 0 else _kernel_scheme(name)
        for flow, name in enumerate(schemes)
    ]
    cables, sources, routes = _topology(environment, everyone)
    links, rates, delays, opportunities, losses = _links(cables, seed)
    sndbufs = [_sndbuf_bytes(environment, flow) for flow in everyone]

    ends = np.zeros(len(cables), wire.CABLE)
    ends["node_a"], ends["node_b"] = [c.node_a for c in cables], [c.node_b for c in cables]

    flows = np.zeros(len(everyone), wire.FLOW)
    flows["scheme"] = kernel_schemes
    flows["source"] = sources
    flows["destination"] = [environment.path(flow).stop for flow in everyone]
    flows["start_ns"] = [_ns(flow.start_s) for flow in everyone]
    flows["stop_ns"] = [_ns(environment.stop_of(flow)) for flow in everyone]
    flows["sndbuf_bytes"] = sndbufs
    flows["lockstep"][list(lockstep)] = 1
    flows["first_cable"] = [environment.path(flow)[0] for flow in everyone]
    flows["last_cable"] = [environment.path(flow)[-1] for flow in everyone]
    flows["bottleneck"] = [environment.narrowest(flow) for flow in everyone]
    flows["sampled"] = 1

    head = np.zeros(1, wire.SPEC)
    head["magic"], head["version"] = wire.MAGIC, wire.VERSION
    head["tick_ns"], head["duration_ns"] = _ns(TICK_S), _ns(environment.duration_s)
    head["nodes"], head["cables"] = 1 + max(max(c.node_a, c.node_b) for c in cables), len(cables)
    head["rates"], head["delays"], head["opportunities"] = len(rates), len(delays), len(opportunities)
    head["routes"], head["flows"], head["packet_delays"] = len(routes), len(flows), packet_delays
    body = b"".join(part.tobytes() for part in (ends, links, rates, delays, opportunities, routes, flows, losses))
    head["bytes"] = head.nbytes + len(body)
    return EpisodeSpec(
        name=episode_id(environment.id, scheme, seed),
        wire=head.tobytes() + body,
        seed=seed,
        memory_mb=_memory_mb(environment),
        lockstep=lockstep,
        latency_us=drive.latency_us if drive else 0,
    )


def link_seed(seed: int, index: int) -> int:
    """Return the seed of LINK `index` in an episode: the first 8 bytes of SHA-256("<seed> <index>"), little-endian."""
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
    """Return the cables, the node that each flow sends from, and every route that the flows need."""
    chain = zip(environment.links, environment.return_links, strict=True)
    cables = [_Cable(node, node + 1, there, back) for node, (there, back) in enumerate(chain)]
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


def _links(cables: list[_Cable], seed: int) -> tuple[npt.NDArray[np.void], ...]:
    """Return LINK (two a cable), the RATE, DELAY and OPPORTUNITY arrays they point into, and LOSS."""
    directions = [link for cable in cables for link in (cable.towards_b, cable.towards_a)]
    array = np.zeros(len(directions), wire.LINK)
    rates: list[tuple[int, int]] = []
    delays: list[tuple[int, int]] = []
    opportunities: list[int] = []
    losses: list[tuple[int, int, int]] = []
    for index, (record, link) in enumerate(zip(array, directions, strict=True)):
        record["first_rate"], record["rates"] = len(rates), len(link.rates)
        record["first_delay"], record["delays"] = len(delays), 1 + len(link.delays)
        record["first_opportunity"] = len(opportunities)
        rates += [(_ns(step.t_s), round(step.rate_mbps * 1e6)) for step in link.rates]
        delays += [(0, _ms_to_ns(link.delay_ms))]
        delays += [(_ns(step.t_s), _ms_to_ns(step.delay_ms)) for step in link.delays]
        if link.trace:
            moments = [_ms_to_ns(moment) for moment in link.trace.opportunities_ms]
            record["opportunities"], record["period_ns"] = len(moments), moments[-1]
            opportunities += moments
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


def _share(loss: float) -> int:
    """Return a probability as a share of LOSS_ONE that 32 bits hold."""
    return min(round(loss * wire.LOSS_ONE), wire.LOSS_ONE - 1)


def _in_flight_bytes(environment: Environment, flow: Flow) -> float:
    """Return the most that the flow can have on its way: what its path and its queues hold at their fullest."""
    links = [environment.links[index] for index in environment.path(flow)]
    back = [environment.return_links[index] for index in environment.path(flow)]
    rtt_ms = flow.extra_rtt_ms + sum(link.peak_delay_ms for link in (*links, *back))
    queues = sum(_queue_share_bytes(environment, index) for index in environment.path(flow))
    return bdp_bytes(min(link.peak_mbps for link in links), rtt_ms) + queues


def _queue_share_bytes(environment: Environment, index: int) -> float:
    """Return how much of link `index`'s queue one flow can fill."""
    link, limit = environment.links[index], environment.links[index].limit_bytes
    if not link.limited:
        return 0  # nobody waits
    if limit is None:
        limit = UNLIMITED_QUEUE_BYTES // sum(index in environment.path(flow) for flow in environment.everyone)
    return min(limit, bdp_bytes(link.peak_mbps, environment.duration_s * 1000))  # it sends no more than that


def _sndbuf_bytes(environment: Environment, flow: Flow) -> int:
    """Return a send buffer that is never the limit: Hybla's first burst alone asks for 65,535 packets of some 3 kB."""
    burst = (1 << 30) // max(environment.flows, 2)
    return int(min(16 * _in_flight_bytes(environment, flow) + burst, MAX_SNDBUF_BYTES))


def _memory_mb(environment: Environment) -> int:
    """Return the guest's memory: half of the largest send buffer (its payload is one page, sent over and over).

    Flows share the queues, so that the others pay only for what waits unsent in their sockets.
    """
    flows = environment.everyone
    in_flight = max(_in_flight_bytes(environment, flow) for flow in flows)
    several = sum(len(environment.path(flow)) > 1 for flow in flows) * MULTI_LINK_FLOW_BYTES
    return BASE_MEMORY_MB + int(8 * in_flight + (len(flows) - 1) * UNSENT_FLOW_BYTES + several) // (1 << 20)
