# SPDX-License-Identifier: Apache-2.0
"""The agent's process: every 10 ms it reads every socket of the scheme and sets all their windows at once.

execution.stock.supervisor starts `python -m sagecc.execution.stock.driver SOCKET POLICY RUNTIME SLOTS`. Over the
socket, one JSON object per message, it reports that it is ready, receives the shared memory, reports that it drives,
and then its timing. It gives up every privilege before it reads the policy, ends with its parent, and withdraws its
orders when it ends in order.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.common.processes import end_with_parent
from sagecc.execution.agent.actions import PURE_SCHEME
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.stock.shared import ROW, STALL_NS, Descriptors, Shared
from sagecc.policy import runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.raw import TICK_S

TICK_NS = round(TICK_S * 1e9)
REPORT_NS = 60_000_000_000
PR_SET_NO_NEW_PRIVS = 38
LINUX_CAPABILITY_VERSION_3 = 0x20080522

AUTO, LITERT = "auto", "litert"
"""AUTO: the fastest runtime that the artefact is exported to, otherwise the one that needs no export."""


class FlowPolicy(Protocol):
    """Drives flows, one slot per flow, as execution.agent.policy_agent.PolicyAgent does."""

    def step(self, samples: npt.NDArray[np.void], slots: Ints) -> tuple[Ints, Ints]:
        """Return the windows (packets) and pacing rates (bytes/s) [B] of the flows in slots [B]."""

    def bounding_rates(self, slots: Ints) -> Ints:
        """Return what bounds the windows of the flows in slots [B] until their next step, 0 for nothing."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""


@dataclass
class Timing:
    """How an agent kept time since its last report."""

    ticks: int
    """Ticks that were due while there were flows."""
    met: int
    """Of those, the ticks whose orders were all out before the next tick was due."""
    flows: int
    """Most flows at once."""
    p50_ms: float
    """Median time from when a tick was due until its orders were out."""
    p99_ms: float
    """The same time's 99th percentile."""
    longest_ms: float
    """The same time's maximum."""
    cpu_s: float
    """CPU time of the agent."""
    wall_s: float
    """Time since the last report."""


class Clock:
    """Counts ticks and how long they took, for a Timing."""

    def __init__(self) -> None:
        self._began = time.monotonic_ns(), time.process_time_ns()
        self._took_ns: list[int] = []
        self._skipped = self._flows = 0

    def record(self, flows: int, took_ns: int, skipped: int) -> None:
        """Count a tick.

        Args:
            flows: driven at this tick; where there are none nothing is counted.
            took_ns: from when the tick was due until its orders were out.
            skipped: ticks that were due meanwhile and are left out.
        """
        if flows:
            self._took_ns.append(took_ns)
            self._skipped += skipped
            self._flows = max(self._flows, flows)

    @property
    def began_ns(self) -> int:
        """When counting began (CLOCK_MONOTONIC)."""
        return self._began[0]

    def timing(self) -> Timing:
        """Return what was counted."""
        took = np.array(self._took_ns or [0]) / 1e6
        p50, p99 = np.percentile(took, (50, 99))
        return Timing(
            ticks=len(self._took_ns) + self._skipped,
            met=sum(ns <= TICK_NS for ns in self._took_ns),
            flows=self._flows,
            p50_ms=round(float(p50), 3),
            p99_ms=round(float(p99), 3),
            longest_ms=round(float(took.max()), 3),
            cpu_s=(time.process_time_ns() - self._began[1]) / 1e9,
            wall_s=(time.monotonic_ns() - self._began[0]) / 1e9,
        )


class Driver:
    """One policy and all sockets of the scheme, a tick at a time."""

    def __init__(self, policy: FlowPolicy, shared: Shared) -> None:
        self._policy, self._shared = policy, shared
        self._flow_ids = np.zeros(shared.slots, np.uint64)
        self._tick = int(shared.agent["tick"][0])
        self._last_ns = 0
        shared.agent["pid"] = os.getpid()

    def tick(self) -> int:
        """Read every socket, infer all actions at once, leave the orders; return the number of sockets.

        After a pause in which the flows fell back, the policy starts on each anew.

        Raises:
            SageccError: an action is not a number.
        """
        shared = self._shared
        if time.monotonic_ns() - self._last_ns > STALL_NS:
            self._flow_ids[:] = 0
        self._tick += 1
        slots = shared.observe(self._tick)
        rows = shared.rows[slots]
        flows = rows["flow"]
        for slot in slots[flows != self._flow_ids[slots]]:
            self._policy.reset(int(slot))
        self._flow_ids[slots] = flows
        if len(slots):
            cwnd, pacing = self._policy.step(rows, slots)
            self._last_ns = time.monotonic_ns()
            shared.order(slots, flows, cwnd, pacing, self._policy.bounding_rates(slots), self._last_ns)
        else:
            self._last_ns = time.monotonic_ns()
            shared.agent["beat_ns"] = self._last_ns
        return len(slots)


def warm_up(policy: FlowPolicy, slots: int) -> None:
    """Have everything compiled and allocated before a flow waits for it."""
    for batch in {1, min(16, slots), slots}:
        batch_slots = np.arange(batch)
        rows = np.zeros(batch, ROW)
        rows["cwnd_pkts"], rows["mss_bytes"], rows["srtt_us"], rows["min_rtt_us"] = 10, 1448, 40_000, 40_000
        for tick in range(2):
            rows["t_ns"] = tick * TICK_NS
            policy.step(rows, batch_slots)
    for slot in range(slots):
        policy.reset(slot)


def load(path: str, runtime_name: str, slots: int) -> PolicyAgent:
    """Return the agent of a policy.

    Args:
        path: the artefact's folder.
        runtime_name: of policy.runtime, or AUTO.
        slots: the most flows at once.

    Raises:
        SageccError: the policy cannot be run on this machine's own kernel.
    """
    policy = PolicyArtefact.load(Path(path))
    underlying = policy.control.underlying_scheme
    if underlying != PURE_SCHEME:
        raise SageccError(
            f"policy {path} acts on top of '{underlying}'; on this machine's own kernel only policies that set the"
            f" window alone ('{PURE_SCHEME}') are driven: run it in the lab"
        )
    try:
        step = runtime.load(policy, LITERT if runtime_name == AUTO else runtime_name)
    except SageccError:
        if runtime_name != AUTO:
            raise
        step = runtime.load(policy)  # nothing is exported
    return PolicyAgent(policy, slots, step=step)


class Channel:
    """The agent's end of the socket to its supervisor."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, **message: object) -> None:
        """Send a message; where the supervisor has gone, end in order instead."""
        try:
            self._socket.send(json.dumps(message).encode())
        except OSError:
            os.kill(os.getpid(), signal.SIGTERM)

    def descriptors(self) -> Descriptors:
        """Wait for the descriptors of the shared memory; exit where the supervisor closes the socket instead."""
        _, fds, _, _ = socket.recv_fds(self._socket, 1, len(Descriptors._fields))
        if not fds:
            sys.exit(0)
        return Descriptors._make(fds)


def drive(driver: Driver, channel: Channel, signals: list[int]) -> None:
    """Tick until SIGTERM; report the timing every minute and at every SIGUSR1.

    Args:
        driver: of all sockets.
        channel: where reports go.
        signals: signals as they arrive; a SIGUSR1 is removed when its report is out.
    """
    clock, due_ns = Clock(), time.monotonic_ns()
    while signal.SIGTERM not in signals:
        flows = driver.tick()
        took_ns = time.monotonic_ns() - due_ns
        skipped = took_ns // TICK_NS
        clock.record(flows, took_ns, skipped)
        if signals or clock.began_ns + REPORT_NS < due_ns:
            channel.send(timing=asdict(clock.timing()))
            clock = Clock()
            if signal.SIGUSR1 in signals:
                signals.remove(signal.SIGUSR1)
        due_ns += (skipped + 1) * TICK_NS
        time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
    channel.send(timing=asdict(clock.timing()))


def drop_privileges() -> None:
    """Give up every capability for good: what remains to be done is arithmetic on shared memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.capset(header, none):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> int:
    """Run the agent; return the exit status."""
    parent = os.getppid()
    drop_privileges()
    end_with_parent()
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: signals.append(number))
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    path, runtime_name, slots = sys.argv[2], sys.argv[3], int(sys.argv[4])
    try:
        policy = load(path, runtime_name, slots)
        warm_up(policy, slots)
    except SageccError as error:
        channel.send(error=str(error))
        return 2
    gc.collect()
    gc.freeze()
    channel.send(ready=True)
    if signal.SIGTERM in signals or os.getppid() != parent:
        return 0
    shared = Shared(channel.descriptors())
    driver = Driver(policy, shared)
    try:
        driver.tick()
        channel.send(driving=True)
        drive(driver, channel, signals)
    except SageccError as error:
        shared.withdraw()
        channel.send(error=str(error))
        return 2
    finally:
        shared.withdraw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
