# SPDX-License-Identifier: Apache-2.0
"""Episodes on the host's own kernel: three network namespaces, tbf as the bottleneck, our delay line behind it.

    sender --veth-- router [tbf on a tun device] ==delay line== [tun device] receiver

The router forwards, so that the queue is one hop away from the sender, as in the lab and in real networks. tbf queues
IP packets (a tun device has no other header) up to `queue_bytes` and sends them at the rate; the delay line
(delayline.c) holds them, and the acknowledgements, for the propagation delay. It also taps the three devices with the
kernel's time stamps, so that each packet's delay in the queue and on the line is measured, not assumed.

The namespaces have no names and are held by processes that end with their standard input: however this process ends,
nothing is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.episode import Episode
from sagecc.collector.realtime.endpoint import Specification
from sagecc.collector.realtime.process import Program, endpoint_command
from sagecc.collector.realtime.record import (
    LinkLog,
    check_host_scheme,
    check_supported,
    lives_s,
    make_episode,
    rate_capacity,
    read_samples,
    send_buffer_bytes,
)
from sagecc.common.arrays import Ints
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.schemas.environment import MTU_BYTES, Environment, episode_id
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.wire import FIRST_PORT

SOURCE = Path(__file__).with_name("delayline.c")
TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "gcc": "gcc"}
LEAD_S = 0.2
"""Time between sending the start time and the start itself, in which both ends read it (s)."""

LATE_S = 1.0
"""Time after the episode's end by which the last sample has been taken (s)."""

PRIORITY = 40
"""SCHED_FIFO priority of the ends, below the delay line's: a sender that waits for a processor sends bursts."""

RECEIVE_WINDOW_BYTES = 512 << 20
BUFFER_LIMIT_BYTES = 1 << 30
"""Upper limit of both ends' tcp_rmem and tcp_wmem (bytes)."""

BURST_PACKETS, BURST_S = 2, 0.25e-3
"""Least size of tbf's bucket: packets, and time at its rate. A smaller bucket loses rate to each late timer; from a
larger one, more packets leave without transmission time after a pause."""

STALL_MS = 1.0
"""Lateness from which tbf has lost more than its bucket holds (ms)."""

QUEUE, NEAR, FAR = range(3)
"""Taps: the router's device towards the sender, the delay line's tun devices at the router and at the receiver."""

RECORD = np.dtype(
    [
        ("t_ns", "<u8"),
        ("number", "<u4"),
        ("ip_id", "<u2"),
        ("bytes", "<u2"),
        ("source_port", "<u2"),
        ("destination_port", "<u2"),
        ("tap", "u1"),
        ("outgoing", "u1"),
        ("pad", "<u2"),
    ],
    align=True,
)
"""A tap's record of a packet; must match struct record in delayline.c."""


@dataclass(frozen=True)
class LineError:
    """Error of the delay line in one direction: actual less nominal delay, over all packets."""

    mean_us: float
    """Mean (us)."""

    std_us: float
    """Standard deviation (us)."""

    p99_us: float
    """99th percentile (us)."""

    max_us: float
    """Maximum (us)."""


@dataclass(frozen=True)
class HostRun:
    """An episode on the host's kernel, and measurements of its network."""

    episode: Episode
    """The episode."""

    queueing_ms: float
    """Mean time of the tested flow's packets in tbf's queue, transmission included (ms)."""

    stalled_ms: float
    """Sum of the pauses above STALL_MS in which tbf sent nothing although packets waited (ms)."""

    data_error: LineError
    """Error of the data packets' propagation delay."""

    ack_error: LineError
    """Error of the acknowledgements' propagation delay."""


def why_not() -> str | None:
    """Return why this machine cannot run an episode on its own kernel, or None where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        return f"it needs: apt-get install {' '.join(missing)}"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun: modprobe tun"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        return "network namespaces may not be created here"
    return None


def run_on_host(environment: Environment, scheme: str, seed: int = 0) -> HostRun:
    """Run one episode in real time on the host's kernel (root only); it takes the environment's duration.

    Args:
        environment: the network and its flows.
        scheme: kernel scheme of the flow under test.
        seed: part of the episode's name only: real time is not reproducible.

    Raises:
        SageccError: this machine or backend cannot run the episode, or the flow did not get through.
    """
    name = episode_id(environment.id, scheme, seed)
    reason = why_not()
    if reason:
        raise SageccError(f"episode {name}: {reason}; {SEE_DOCTOR}")
    check_host_scheme(scheme)
    check_supported(environment, "the host's tbf", ("rates", "queue_bytes"))
    if environment.bottleneck.queue_bytes is None or not environment.bottleneck.rates:
        raise SageccError(f"episode {name}: the host's tbf needs a rate and a queue limit in bytes")
    if not all(step.rate_mbps for step in environment.bottleneck.rates):
        raise SageccError(f"episode {name}: the host's tbf has no rate of 0 for an outage: use the lab")
    with tempfile.TemporaryDirectory(prefix="sagecc-") as folder:
        return _HostEpisode(environment, scheme, seed, name, Path(folder)).run()


class _HostEpisode:
    """An episode that runs, with its folder for files."""

    def __init__(self, environment: Environment, scheme: str, seed: int, name: str, folder: Path) -> None:
        self._environment, self._scheme, self._seed, self._name = environment, scheme, seed, name
        self._folder = folder

    def run(self) -> HostRun:
        environment, name = self._environment, self._name
        with ExitStack() as stack:
            sender, router, receiver = (stack.enter_context(self._namespace(node)) for node in _NODES)
            self._configure(sender, router)
            line = stack.enter_context(Program(name, "delay line", self._line_command(router, receiver)))
            line.wait_ready()
            self._connect(sender, router, receiver)
            ends = []
            for role, node in (("receive", receiver), ("send", sender)):
                command = [*_nsenter(node), *endpoint_command(role, self._specification(role))]
                ends.append(stack.enter_context(Program(name, f"{role[:-1]}er", command)))
                ends[-1].wait_ready()
            began_ns = time.time_ns() + round(LEAD_S * 1e9)
            for end in ends:
                end.send_line(str(began_ns))
            self._follow_rates(router, began_ns)
            left_s = began_ns / 1e9 + environment.duration_s - time.time()
            for end in ends:
                end.finish(left_s + 30)
            line.stop()
            return self._result(began_ns)

    @contextmanager
    def _namespace(self, node: str) -> Iterator[int]:
        """Hold a new network namespace by a process that ends with this one; yield the process id."""
        holder = ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]
        with Program(self._name, f"namespace of the {node}", holder) as program:
            program.wait_ready()
            yield program.pid

    def _configure(self, sender: int, router: int) -> None:
        self._run_in(sender, f"ip link add name out type veth peer name in netns {router}")
        for node in (sender, router):
            self._run_in(node, "sysctl", "net.ipv6.conf.all.disable_ipv6=1")
        self._run_in(router, "sysctl", "net.ipv4.ip_forward=1")
        # queues count real packets, as in the lab
        self._run_in(
            sender, "ip link set dev out gso_max_segs 1", "ip addr add 10.0.0.1/24 dev out", "ip link set out up"
        )
        self._run_in(router, "ip addr add 10.0.0.254/24 dev in", "ip link set in up")
        self._run_in(sender, "ip route add default via 10.0.0.254")

    def _connect(self, sender: int, router: int, receiver: int) -> None:
        self._run_in(router, "ip addr add 10.0.1.254 peer 10.0.1.1 dev near", f"ip link set near mtu {MTU_BYTES} up")
        self._run_in(router, f"tc qdisc add dev near root {self._tbf(self._environment.bandwidth_mbps)}")
        self._run_in(receiver, "sysctl", "net.ipv6.conf.all.disable_ipv6=1")
        self._run_in(receiver, "ip addr add 10.0.1.1 peer 10.0.1.254 dev far", f"ip link set far mtu {MTU_BYTES} up")
        self._run_in(receiver, "ip route add default dev far")
        for node in (sender, receiver):
            self._run_in(node, "sysctl", "net.ipv4.tcp_no_metrics_save=1")
            for side in ("r", "w"):
                self._run_in(node, "sysctl", f"net.ipv4.tcp_{side}mem=4096 131072 {BUFFER_LIMIT_BYTES}")

    def _tbf(self, rate_mbps: float) -> str:
        rate, limit = round(rate_mbps * 1e6), self._environment.bottleneck.queue_bytes
        burst = max(BURST_PACKETS * MTU_BYTES, round(rate * BURST_S / 8))
        return f"tbf rate {rate}bit burst {burst} limit {limit}"

    def _run_in(self, node: int, *commands: str) -> None:
        """Run shell commands in a namespace; if the first is `sysctl`, set the second, KEY=VALUE, in /proc/sys."""
        if commands[0] == "sysctl":
            key, value = commands[1].split("=")
            script = f"echo {value} > /proc/sys/{key.replace('.', '/')}"
        else:
            script = " && ".join(commands)
        process = subprocess.run([*_nsenter(node), "sh", "-c", script], capture_output=True, text=True)
        if process.returncode:
            raise SageccError(f"episode {self._name}: '{script}' failed: {process.stderr.strip()}")

    def _line_command(self, router: int, receiver: int) -> list[str]:
        environment, program = self._environment, self._folder / "delayline"
        compiler = subprocess.run(["gcc", "-O2", "-o", program, SOURCE], capture_output=True, text=True)
        if compiler.returncode:
            raise SageccError(f"the delay line does not build: {compiler.stderr.strip().splitlines()[-1]}")
        delays_ns = [round(ms * 1e6) for ms in (environment.bottleneck.delay_ms, environment.return_delay_ms)]
        near, far = (f"/proc/{node}/ns/net" for node in (router, receiver))
        return [str(part) for part in (program, near, "near", "in", far, "far", *delays_ns, self._folder / "packets")]

    def _specification(self, role: str) -> Specification:
        environment = self._environment
        return Specification(
            address="10.0.1.1" if role == "send" else None,
            first_port=FIRST_PORT,
            schemes=(self._scheme, *(cross.scheme for cross in environment.cross)),
            lives_s=lives_s(environment),
            duration_s=environment.duration_s,
            tick_s=TICK_S,
            buffer_bytes=send_buffer_bytes(environment) if role == "send" else RECEIVE_WINDOW_BYTES,
            priority=PRIORITY,
            out=str(self._folder / role),
        )

    def _follow_rates(self, router: int, began_ns: int) -> None:
        for step in self._environment.bottleneck.rates[1:]:
            if step.t_s < self._environment.duration_s:
                time.sleep(max(began_ns / 1e9 + step.t_s - time.time(), 0))
                self._run_in(router, f"tc qdisc change dev near root {self._tbf(step.rate_mbps)}")

    def _result(self, began_ns: int) -> HostRun:
        environment = self._environment
        packets = np.fromfile(self._folder / "packets", RECORD)
        log = link_log(packets, began_ns, environment)
        sender, receiver = (read_samples(self._folder / role) for role in ("send", "receive"))
        episode = make_episode(
            environment, self._scheme, self._seed, self._name, sent=sender, received=receiver, link=log
        )
        is_tested = log.flow == 0
        packets = packets[
            packets["t_ns"] < began_ns + round(environment.duration_s * 1e9)
        ]  # without what follows the episode
        return HostRun(
            episode=episode,
            queueing_ms=float((log.left_ns - log.entered_ns)[is_tested].mean()) / 1e6,
            stalled_ms=stalled_ms(log, environment.bandwidth_mbps),
            data_error=line_error(packets, NEAR, FAR, environment.bottleneck.delay_ms),
            ack_error=line_error(packets, FAR, NEAR, environment.return_delay_ms),
        )


_NODES = ("sender", "router", "receiver")


def _nsenter(node: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{node}/ns/net"]


def _flows(packets: npt.NDArray[np.void]) -> Ints:
    """Return each packet's flow, by the receiver's port, which is below any port of a sender."""
    flows: Ints = np.minimum(packets["source_port"], packets["destination_port"]).astype(np.int64) - FIRST_PORT
    return flows


def _keys(packets: npt.NDArray[np.void]) -> Ints:
    """Return keys that identify packets of one direction: flow, sequence or acknowledgement number, IP id."""
    keys: Ints = _flows(packets) << 48 | packets["number"].astype(np.int64) << 16 | packets["ip_id"]
    return keys


def match(before: Ints, after: Ints) -> Ints:
    """Return the index in `before` of each key of `after`.

    Args:
        before: packets' keys at one tap [n].
        after: keys at a later tap [m].

    Returns:
        Indices [m].

    Raises:
        SageccError: `before` lacks a key.
    """
    order = np.argsort(before, kind="stable")
    indices = order[np.minimum(np.searchsorted(before[order], after), len(before) - 1)] if len(before) else after[:0]
    if len(indices) != len(after) or not np.array_equal(before[indices], after):
        raise SageccError("the packets' record is inconsistent: a tap has lost packets")
    return indices


def link_log(packets: npt.NDArray[np.void], began_ns: int, environment: Environment) -> LinkLog:
    """Return what tbf and the delay line did with what reached the queue before the episode's end.

    Args:
        packets: the taps' records, RECORD [packets].
        began_ns: when the episode began (CLOCK_REALTIME, ns).
        environment: the network and its flows.

    Raises:
        SageccError: the records are incomplete, or no packet left the queue.
    """
    data = packets[packets["destination_port"] < packets["source_port"]]
    arrivals = data[(data["tap"] == QUEUE) & (data["outgoing"] == 0)]
    departures = data[(data["tap"] == NEAR) & (data["outgoing"] == 1)]
    deliveries = data[(data["tap"] == FAR) & (data["outgoing"] == 0)]
    if not len(departures):
        raise SageccError("no packet ever left the queue")
    entered = match(_keys(arrivals), _keys(departures))
    crossed = match(_keys(departures), _keys(deliveries))  # the last packets are still on the line
    is_dropped = np.ones(len(arrivals), bool)
    is_dropped[entered] = False
    is_dropped[entered[-1] + 1 :] = False  # still in the queue
    arrived_ns, left_ns = (part["t_ns"].astype(np.int64) - began_ns for part in (arrivals, departures))
    end_ns = round(environment.duration_s * 1e9)  # the flows' buffers drain after it
    is_dropped &= arrived_ns < end_ns
    is_within = arrived_ns[entered] < end_ns
    nominal_ns = round(environment.bottleneck.delay_ms * 1e6)
    line_ns = np.full(len(departures), nominal_ns)
    line_ns[crossed] = deliveries["t_ns"].astype(np.int64) - departures["t_ns"][crossed].astype(np.int64)
    capacity_ns, capacity_bytes = rate_capacity(environment.bottleneck, environment.duration_s + LATE_S)
    return LinkLog(
        flow=_flows(departures[is_within]),
        bytes=departures["bytes"][is_within].astype(np.int64),
        entered_ns=arrived_ns[entered][is_within],
        left_ns=left_ns[is_within],
        delay_ns=(left_ns - arrived_ns[entered] + line_ns)[is_within],
        drop_flow=_flows(arrivals[is_dropped]),
        drop_ns=arrived_ns[is_dropped],
        capacity_ns=capacity_ns,
        capacity_bytes=capacity_bytes,
    )


def stalled_ms(log: LinkLog, rate_mbps: float) -> float:
    """Return the sum of the pauses above STALL_MS in which a link at `rate_mbps` was late with waiting packets (ms)."""
    sendable_bytes = np.diff(np.interp(log.left_ns, log.capacity_ns, log.capacity_bytes))
    late_ms = (sendable_bytes - log.bytes[1:]) * 8 / rate_mbps / 1000
    had_to_wait = log.entered_ns[1:] < log.left_ns[:-1]
    return float(late_ms[had_to_wait & (late_ms > STALL_MS)].sum())


def line_error(packets: npt.NDArray[np.void], tap_in: int, tap_out: int, delay_ms: float) -> LineError:
    """Return the delay line's error from one tap to another.

    Args:
        packets: the taps' records, RECORD [packets].
        tap_in: tap at which packets enter the line.
        tap_out: tap at which they leave it.
        delay_ms: nominal delay (ms).
    """
    entries = packets[(packets["tap"] == tap_in) & (packets["outgoing"] == 1)]
    departures = packets[(packets["tap"] == tap_out) & (packets["outgoing"] == 0)]
    entered_ns = entries["t_ns"][match(_keys(entries), _keys(departures))].astype(np.int64)
    errors_us = (departures["t_ns"].astype(np.int64) - entered_ns) / 1e3 - delay_ms * 1e3
    return LineError(
        mean_us=float(errors_us.mean()),
        std_us=float(errors_us.std()),
        p99_us=float(np.percentile(errors_us, 99)),
        max_us=float(errors_us.max()),
    )
