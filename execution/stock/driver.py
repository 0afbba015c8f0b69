# SPDX-License-Identifier: Apache-2.0
"""The agent's process: each 10 ms it looks at every socket of the scheme and answers all of them at once.

execution.stock.supervisor starts `python -m sagecc.execution.stock.driver SOCKET POLICY RUNTIME SLOTS`. Over the
socket, a JSON object a message, it says that it is ready, is handed the shared memory, says that it drives, and how it
kept time. It gives up every privilege before it reads the policy, ends with its parent, and takes its orders back when
it ends in order.
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
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.common.processes import end_with_parent
from sagecc.execution.agent.actions import OWN_WINDOW
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
"""AUTO: the fastest runtime that the artefact is exported to, or else the one that needs no export."""


class Policy(Protocol):
    """What drives flows: execution.agent.policy_agent.PolicyAgent."""

    def step(self, samples: npt.NDArray[np.void], slots: Ints) -> tuple[Ints, Ints]:
        """Return windows and pacing rates [B] of the flows in slots [B]."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""


@dataclass
class Timing:
    """How an agent kept time since it last said so.

    ticks: how many were due while there were flows. met: after how many of them every order was out before the next
    was due. flows: most at once. p50_ms, p99_ms, longest_ms: from a tick's due time until its orders were out.
    cpu_s, wall_s: processor time, and time.
    """

    ticks: int
    met: int
    flows: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    cpu_s: float
    wall_s: float


class Clock:
    """Counts what Timing says."""

    def __init__(self) -> None:
        self._began = time.monotonic_ns(), time.process_time_ns()
        self._took_ns: list[int] = []
        self._skipped = self._flows = 0

    def note(self, flows: int, took_ns: int, skipped: int) -> None:
        """Count a tick that took so long, and how many it made impossible."""
        if flows:
            self._took_ns.append(took_ns)
            self._skipped += skipped
            self._flows = max(self._flows, flows)

    @property
    def since_ns(self) -> int:
        """When counting began (CLOCK_MONOTONIC)."""
        return self._began[0]

    def timing(self) -> Timing:
        """Return the count."""
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

    def __init__(self, policy: Policy, shared: Shared) -> None:
        self._policy, self._shared = policy, shared
        self._known = np.zeros(shared.slots, np.uint64)
        self._tick = int(shared.agent["tick"][0])
        self._last_ns = 0
        shared.agent["pid"] = os.getpid()

    def tick(self) -> int:
        """Look at every socket, ask the policy about all at once, leave its orders; return how many sockets.

        After a pause in which the flows fell back, the policy starts on each anew.
        Raises SageccError where the policy has no answer.
        """
        shared = self._shared
        if time.monotonic_ns() - self._last_ns > STALL_NS:
            self._known[:] = 0
        self._tick += 1
        slots = shared.observe(self._tick)
        rows = shared.rows[slots]
        flows = rows["flow"]
        for slot in slots[flows != self._known[slots]]:
            self._policy.reset(int(slot))
        self._known[slots] = flows
        if len(slots):
            cwnd, pacing = self._policy.step(rows, slots)
            self._last_ns = time.monotonic_ns()
            shared.order(slots, flows, cwnd, pacing, self._last_ns)
        else:
            self._last_ns = time.monotonic_ns()
            shared.agent["beat_ns"] = self._last_ns
        return len(slots)


def warm_up(policy: Policy, slots: int) -> None:
    """Have everything compiled and allocated before a flow waits for it."""
    for batch in {1, min(16, slots), slots}:
        at = np.arange(batch)
        rows = np.zeros(batch, ROW)
        rows["cwnd_pkts"], rows["mss_bytes"], rows["srtt_us"], rows["min_rtt_us"] = 10, 1448, 40_000, 40_000
        for tick in range(2):
            rows["t_ns"] = tick * TICK_NS
            policy.step(rows, at)
    for slot in range(slots):
        policy.reset(slot)


def load(path: str, runtime_name: str, slots: int) -> PolicyAgent:
    """Return the agent of a policy in a runtime by name, or in AUTO's first that the artefact has.

    Raises SageccError where it cannot be run here.
    """
    policy = PolicyArtefact.load(path)
    below = policy.control.underlying_scheme
    if below != OWN_WINDOW:
        raise SageccError(
            f"policy {path} acts on top of '{below}'; on this machine's own kernel only policies that set the window"
            f" alone ('{OWN_WINDOW}') are driven: run it in the lab"
        )
    try:
        step = runtime.load(policy, LITERT if runtime_name == AUTO else runtime_name)
    except SageccError:
        if runtime_name != AUTO:
            raise
        step = runtime.load(policy)  # nothing is exported
    return PolicyAgent(policy, slots, step=step)


class Link:
    """The agent's end of the socket to its supervisor."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def say(self, **message: object) -> None:
        """Send a message; a supervisor that has gone needs none."""
        try:
            self._end.send(json.dumps(message).encode())
        except OSError:
            os.kill(os.getpid(), signal.SIGTERM)

    def descriptors(self) -> Descriptors:
        """Wait for what is shared."""
        _, found, _, _ = socket.recv_fds(self._end, 1, len(Descriptors._fields))
        if not found:
            sys.exit(0)
        return Descriptors._make(found)


def drive(driver: Driver, link: Link, signals: list[int]) -> None:
    """Tick until `signals` holds SIGTERM; report how time was kept, each minute and at every SIGUSR1."""
    clock, due_ns = Clock(), time.monotonic_ns()
    while signal.SIGTERM not in signals:
        flows = driver.tick()
        took_ns = time.monotonic_ns() - due_ns
        skipped = took_ns // TICK_NS
        clock.note(flows, took_ns, skipped)
        if signals or clock.since_ns + REPORT_NS < due_ns:
            link.say(timing=asdict(clock.timing()))
            clock = Clock()
            if signal.SIGUSR1 in signals:
                signals.remove(signal.SIGUSR1)
        due_ns += (skipped + 1) * TICK_NS
        time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
    link.say(timing=asdict(clock.timing()))


def drop_privileges() -> None:
    """Give up every capability for good: all that is left to do is arithmetic on shared memory."""
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
    link = Link(socket.socket(fileno=int(sys.argv[1])))
    path, runtime_name, slots = sys.argv[2], sys.argv[3], int(sys.argv[4])
    try:
        policy = load(path, runtime_name, slots)
        warm_up(policy, slots)
    except SageccError as error:
        link.say(error=str(error))
        return 2
    gc.collect()
    gc.freeze()
    link.say(ready=True)
    if signal.SIGTERM in signals or os.getppid() != parent:
        return 0
    shared = Shared(link.descriptors())
    driver = Driver(policy, shared)
    try:
        driver.tick()
        link.say(driving=True)
        drive(driver, link, signals)
    except SageccError as error:
        shared.withdraw()
        link.say(error=str(error))
        return 2
    finally:
        shared.withdraw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
