# SPDX-License-Identifier: Apache-2.0
"""What the agent does: every 10 ms it reads every socket of the scheme and sets all their windows at once.

execution.stock.supervisor starts it as execution.stock.process. Over the socket, one JSON object per message, it
reports that it is ready, receives the shared memory, reports that it drives, and then its timing. It reads the policy's
files, has everything imported and compiled that a policy can need, and is confined (execution.stock.confinement) before
it looks into them. It ends with its parent, and withdraws its orders when it ends in order.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common import shipped
from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import PURE_SCHEME
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.stock import libbpf
from sagecc.execution.stock.confinement import confine
from sagecc.execution.stock.messages import Message, Timing
from sagecc.execution.stock.shared import ROW, STALL_NS, Descriptors, Shared
from sagecc.policy import runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.folder import PolicyFolder
from sagecc.schemas.raw import TICK_S

TICK_NS = round(TICK_S * 1e9)
REPORT_NS = 60_000_000_000

GROWTH_BYTES, SLOT_BYTES = 1 << 30, 1 << 19
"""What a policy may take, and for each of its flows besides: twice what the largest of the paper's takes."""


class FlowPolicy(Protocol):
    """Drives flows, one slot per flow, as execution.agent.policy_agent.PolicyAgent does."""

    def step(self, samples: npt.NDArray[np.void], slots: Ints) -> tuple[Ints, Ints]:
        """Return the windows (packets) and pacing rates (bytes/s) [B] of the flows in slots [B]."""

    def bounding_rates(self, slots: Ints) -> Ints:
        """Return what bounds the windows of the flows in slots [B] until their next step, 0 for nothing."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""


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
        self._tick = int(shared.agent["tick"][0]) % (1 << 63)  # an agent before can have written any
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


def load(path: str | PolicyFolder, runtime_name: str, slots: int) -> PolicyAgent:
    """Return the agent of a policy.

    Args:
        path: the artefact's folder.
        runtime_name: of policy.runtime.
        slots: the most flows at once.

    Raises:
        SageccError: the policy cannot be run on this machine's own kernel.
    """
    policy = PolicyArtefact.load(path)
    underlying = policy.control.underlying_scheme
    if underlying != PURE_SCHEME:
        raise SageccError(
            f"policy {policy.path} acts on top of '{underlying}'; on this machine's own kernel only policies that set"
            f" the window alone ('{PURE_SCHEME}') are driven: run it in the lab"
        )
    return PolicyAgent(policy, slots, step=runtime.load(policy, runtime_name))


def rehearse(runtime_name: str) -> None:
    """Have everything imported, opened and compiled that driving takes, by the policies that come with sagecc.

    Args:
        runtime_name: of policy.runtime.

    Raises:
        SageccError: there is no such runtime, or its library is missing.
    """
    like = "litert" if runtime_name == "litert-int8" else runtime_name  # no policy that comes along has int8
    for name in shipped.SHIPPED:
        warm_up(load(str(shipped.POLICIES / name), like, 2), 2)
    Clock().timing()
    libbpf.library()


class Channel:
    """The agent's end of the socket to its supervisor."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, message: Message) -> None:
        """Send a message; where the supervisor has gone, end in order instead."""
        try:
            self._socket.send(message.encoded())
        except OSError:
            signal.raise_signal(signal.SIGTERM)

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
            channel.send(Message(timing=clock.timing()))
            clock = Clock()
            if signal.SIGUSR1 in signals:
                signals.remove(signal.SIGUSR1)
        due_ns += (skipped + 1) * TICK_NS
        time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
    channel.send(Message(timing=clock.timing()))


def run(end: int, path: str, runtime_name: str, slots: int) -> int:
    """Run the agent; return the exit status.

    Args:
        end: descriptor of the socket to the supervisor.
        path: the policy's folder.
        runtime_name: of policy.runtime.
        slots: the most flows at once.
    """
    parent, channel = os.getppid(), Channel(socket.socket(fileno=end))
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: signals.append(number))
    try:
        folder = PolicyFolder.find(Path(path)).hold(runtime.files(runtime_name))
        rehearse(runtime_name)
        _close_output()
        confine(GROWTH_BYTES + slots * SLOT_BYTES)
        policy = load(folder, runtime_name, slots)
        warm_up(policy, slots)
        gc.collect()
        gc.freeze()
        channel.send(Message(ready=True))
        if signal.SIGTERM not in signals and os.getppid() == parent:
            _drive_shared(policy, channel, signals)
    except SageccError as error:
        channel.send(Message(error=str(error)))
    except MemoryError:
        reason = f"policy {path} needs more memory for {slots} flows than an agent may have: allow fewer by --flows"
        channel.send(Message(error=reason))
    except Exception:  # what is left of it has no other way out
        channel.send(Message(failure=traceback.format_exc()))
    else:
        return 0
    return 2


def _drive_shared(policy: PolicyAgent, channel: Channel, signals: list[int]) -> None:
    """Wait for the shared memory and drive its flows to the end."""
    shared = Shared(channel.descriptors())
    try:
        driver = Driver(policy, shared)
        driver.tick()
        channel.send(Message(driving=True))
        drive(driver, channel, signals)
    finally:
        shared.withdraw()


def _close_output() -> None:
    """Let nothing more come out but messages: standard error may be a file, or root's terminal."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
