# SPDX-License-Identifier: Apache-2.0
"""Starts the agent, watches it, and logs what happens to it and its flows.

The programs in the kernel fall back to Reno's rules on their own. The agent may be dead then, so that the supervisor
logs it, as `sagecc attach` or `sagecc exec`; where that was killed as well, the next one does, from the kernel's count.
"""

from __future__ import annotations

import json
import logging
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.execution.stock.kernel_scheme import CGROUP_CAPABILITIES, Scheme, private_name, why_not
from sagecc.execution.stock.shared import STALL_NS, Descriptors, Shared

LOG = logging.getLogger("sagecc")

READY_S = 120.0
"""How long an agent may load its policy: the first time on a machine everything is compiled."""

END_S = 5.0
MESSAGE_BYTES = 1 << 16
RENO = "follow Reno's rules"


class AgentLostError(SageccError):
    """The agent has ended; its flows follow Reno's rules."""


class Supervisor:
    """An agent's process, from its start until it is stopped at the end of the `with` block."""

    def __init__(self, policy: Path, runtime: str, slots: int) -> None:
        """Start an agent and wait until it is ready to drive.

        Args:
            policy: the artefact's folder.
            runtime: of policy.runtime, or execution.stock.driver.AUTO.
            slots: the most flows at once.

        Raises:
            SageccError: the policy cannot be run.
        """
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            sys.executable,
            "-P",
            "-m",
            "sagecc.execution.stock.driver",
            str(other.fileno()),
            str(policy),
            runtime,
            str(slots),
        ]
        with other:
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], start_new_session=True)
        self._shared: Shared | None = None
        self._silent_since_ns: int | None = None
        self.timings: list[dict[str, Any]] = []
        """The agent's reports (execution.stock.driver.Timing)."""
        try:
            self._wait_for("ready")
        except BaseException:
            self._end_process()
            raise

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the agent."""
        return self._process.pid

    def drive(self, descriptors: Descriptors, shared: Shared) -> None:
        """Hand over the scheme's memory; return when every flow that exists has its first order."""
        self._shared = shared
        self._report_earlier_fallbacks(shared)
        socket.send_fds(self._end, [b"."], list(descriptors))
        self._wait_for("driving")
        LOG.info("the agent (process %d) drives every socket of the scheme; %d now", self.pid, _flows(shared))

    def check(self, timeout_s: float) -> None:
        """Wait for a message and log it; raises AgentLostError when the agent is gone."""
        if self._readable(timeout_s):
            self._receive()
        if self._process.poll() is not None:
            raise self._lost_error()
        self._check_heartbeat()

    def report(self) -> dict[str, Any]:
        """Return how the agent kept time since its last report (execution.stock.driver.Timing)."""
        while self._readable(0):  # earlier messages
            self._receive()
        earlier = len(self.timings)
        self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + END_S
        while len(self.timings) == earlier and time.monotonic() < deadline:
            self.check(END_S)
        if len(self.timings) == earlier:
            raise SageccError(f"the agent has not said within {END_S:g} s how it keeps time")
        return self.timings[-1]

    def stop(self) -> None:
        """End the agent; its flows follow Reno's rules from their next ACK on."""
        self._end_process()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.withdraw()
            LOG.info("the agent has ended: %d flows %s", _flows(shared), RENO)

    def _end_process(self) -> None:
        """End the agent and read its last messages; once."""
        if self._end.fileno() < 0:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)
            self._end.shutdown(socket.SHUT_WR)  # it may wait for the memory
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        while self._readable(0) and self._read():
            pass
        self._end.close()

    def _readable(self, timeout_s: float) -> bool:
        """Wait for a message, or for the end of them; poll, as select knows 1,024 descriptors only."""
        poller = select.poll()
        poller.register(self._end, select.POLLIN)
        return bool(poller.poll(1000 * timeout_s))

    def _wait_for(self, key: str) -> None:
        """Wait for a message with that key; raises SageccError where there is none in time."""
        deadline = time.monotonic() + READY_S
        while (left_s := deadline - time.monotonic()) > 0:
            if self._readable(min(left_s, 0.2)) and key in self._receive():
                return
        raise SageccError(f"the agent was not {key} within {READY_S:g} s")

    def _receive(self) -> dict[str, Any]:
        """Read one message; raises AgentLostError where it is an error's, or the agent's end is closed."""
        message = self._read()
        if message is None or "error" in message:
            raise self._lost_error(None if message is None else str(message["error"]))
        return message

    def _read(self) -> dict[str, Any] | None:
        """Return one message, None when the agent's end is closed; keep and log a report of its timing."""
        data = self._end.recv(MESSAGE_BYTES)
        if not data:
            return None
        message: dict[str, Any] = json.loads(data)
        if timing := message.get("timing"):
            self.timings.append(timing)
            if timing["ticks"]:
                LOG.info(
                    "%.2f %% of %d deadlines met, %d flows at most, %.1f ms at the 99th percentile, %.0f %% of a core",
                    100 * timing["met"] / timing["ticks"],
                    timing["ticks"],
                    timing["flows"],
                    timing["p99_ms"],
                    100 * timing["cpu_s"] / timing["wall_s"],
                )
        return message

    def _lost_error(self, reason: str | None = None) -> AgentLostError:
        """Withdraw the orders of an agent that is gone; return the error to raise."""
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        ending = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        shared, self._shared = self._shared, None
        if shared is None:
            return AgentLostError(reason or f"the agent {ending} before it drove a flow")
        shared.withdraw()
        shared.agent["reported"] = shared.count("fell_back") + _flows(shared)
        return AgentLostError(f"{reason or f'the agent {ending}'}; its {_flows(shared)} flows {RENO}")

    def _check_heartbeat(self) -> None:
        """Log when the agent has been silent for too long, and when it is back."""
        shared = self._shared
        if shared is None:
            return
        beat_ns = int(shared.agent["beat_ns"][0])
        if time.monotonic_ns() - beat_ns > STALL_NS:
            if self._silent_since_ns is None:
                self._silent_since_ns = beat_ns
                LOG.warning("the agent is silent for %d ms: its %d flows %s", STALL_NS // 10**6, _flows(shared), RENO)
        elif self._silent_since_ns is not None:
            silent_s = (beat_ns - self._silent_since_ns) / 1e9
            LOG.warning("the agent is back after %.2f s: %d flows had fallen back", silent_s, _unreported(shared))
            shared.agent["reported"] = shared.count("fell_back")
            self._silent_since_ns = None

    def _report_earlier_fallbacks(self, shared: Shared) -> None:
        """Log how many flows fell back while there was no supervisor."""
        if unreported := _unreported(shared):
            LOG.warning("since the last agent %d flows fell back to Reno's rules", unreported)
        shared.agent["reported"] = shared.count("fell_back")


@contextmanager
def driving(
    policy: Path, runtime: str, slots: int, name: str | None = None, cgroups: bool = False
) -> Iterator[tuple[Supervisor, Scheme, Shared]]:
    """Load a scheme and drive its flows for as long as the `with` block: nothing is pinned, nothing stays.

    Args:
        policy: the artefact's folder.
        runtime: as Supervisor's.
        slots: the most flows at once.
        name: the scheme's, by default one for this process alone.
        cgroups: as Scheme's.

    Raises:
        SageccError: policy or machine cannot; the machine is then as before.
    """
    reason = why_not(*CGROUP_CAPABILITIES if cgroups else ())
    if reason:
        raise SageccError(f"{reason}; {SEE_DOCTOR}")
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor(policy, runtime, slots))
        scheme = stack.enter_context(closing(Scheme(slots, name or private_name(), cgroups)))
        scheme.register()
        stack.callback(scheme.unregister)
        shared = stack.enter_context(closing(Shared(scheme.descriptors)))
        stack.callback(supervisor.stop)  # before the memory goes
        supervisor.drive(scheme.descriptors, shared)
        yield supervisor, scheme, shared


def _flows(shared: Shared) -> int:
    return shared.count("flows") - shared.count("ended")


def _unreported(shared: Shared) -> int:
    return max(shared.count("fell_back") - int(shared.agent["reported"][0]), 0)
