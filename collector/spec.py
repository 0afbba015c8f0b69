# SPDX-License-Identifier: Apache-2.0
"""From an Environment and a scheme to the bytes that a guest is started with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from collector.schemes import POLICY_PREFIX
from schemas import wire
from schemas.environment import Environment
from schemas.raw import TICK_S

NS_PER_S = 1_000_000_000
BASE_MEMORY_MB = 96
"""What a guest needs without any queue."""

SENDER, RECEIVER = 0, 1


@dataclass(frozen=True)
class EpisodeSpec:
    """What a guest needs to know: the wire bytes, its seed and its memory. Same fields, same run."""

    name: str
    wire: bytes
    seed: int
    memory_mb: int
    lockstep: tuple[int, ...]

    @property
    def sha256(self) -> str:
        """Digest of everything that decides the run, but for the kernel and a policy."""
        return hashlib.sha256(f"{self.seed} {self.memory_mb} ".encode() + self.wire).hexdigest()


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def episode_spec(environment: Environment, scheme: str, seed: int, packet_delays: bool = True) -> EpisodeSpec:
    """Describe one episode; flow 0 is the scheme under test, the others are the cross flows.

    A policy runs as the kernel scheme `pure`, whose window the host sets after every sample.
    """
    lockstep = scheme.startswith(POLICY_PREFIX)
    link = environment.bottleneck
    top_rate = max(step.rate_mbps for step in link.rates)
    in_flight = top_rate * environment.min_rtt_ms * 125 + link.queue_bytes
    sndbuf = int(min(4 * in_flight + (1 << 20), 1 << 30))  # never the limit: twice the window, twice for overhead

    rates = np.zeros(len(link.rates), wire.RATE)
    rates["t_ns"] = [_ns(step.t_s) for step in link.rates]
    rates["bits_per_s"] = [round(step.rate_mbps * 1e6) for step in link.rates]

    links = np.zeros(2, wire.LINK)
    links["rates"] = [len(rates), 0]
    links["delay_ns"] = [round(link.delay_ms * 1e6), round(environment.return_delay_ms * 1e6)]
    links["limit_bytes"] = [link.queue_bytes, wire.NO_LIMIT]

    cables = np.zeros(1, wire.CABLE)
    cables["node_a"], cables["node_b"] = SENDER, RECEIVER
    routes = np.zeros(2, wire.ROUTE)
    routes["node"], routes["destination"] = [SENDER, RECEIVER], [RECEIVER, SENDER]

    flows = np.zeros(environment.flows, wire.FLOW)
    flows["scheme"] = ["pure" if lockstep else scheme, *(cross.scheme for cross in environment.cross)]
    flows["source"], flows["destination"] = SENDER, RECEIVER
    flows["start_ns"] = [_ns(environment.start_s), *(_ns(cross.start_s) for cross in environment.cross)]
    flows["stop_ns"] = _ns(environment.duration_s)
    flows["sndbuf_bytes"] = sndbuf
    flows["lockstep"][0] = lockstep
    flows["sampled"] = 1

    head = np.zeros(1, wire.SPEC)
    head["magic"], head["version"] = wire.MAGIC, wire.VERSION
    head["tick_ns"], head["duration_ns"] = _ns(TICK_S), _ns(environment.duration_s)
    head["nodes"], head["cables"], head["rates"] = 2, 1, len(rates)
    head["routes"], head["flows"], head["packet_delays"] = len(routes), len(flows), packet_delays
    body = b"".join(part.tobytes() for part in (cables, links, rates, routes, flows))
    head["bytes"] = head.nbytes + len(body)
    return EpisodeSpec(
        name=f"{environment.id}.{scheme}.{seed}",
        wire=head.tobytes() + body,
        seed=seed,
        memory_mb=BASE_MEMORY_MB + int(6 * in_flight) // (1 << 20),
        lockstep=(0,) if lockstep else (),
    )
