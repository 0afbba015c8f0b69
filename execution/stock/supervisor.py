# SPDX-License-Identifier: Apache-2.0
"""Starts the agent, watches it, and says what becomes of it and its flows.

The programs in the kernel need nobody to fall back to Reno's rules. That it happened has to be said by one who is not
the agent, which may be dead: here, in the log of `sagecc attach` or `sagecc exec`, and where that was killed as well,
by the next one, from the kernel's count.
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
from sagecc.execution.stock.kernel_scheme import CGROUP_CAPABILITIES, Scheme, own_name, why_not
from sagecc.execution.stock.shared import STALL_NS, Descriptors, Shared

LOG = logging.getLogger("sagecc")

READY_S = 120.0
"""How long an agent may load its policy: the first time on a machine everything is compiled."""

END_S = 5.0
MESSAGE_BYTES = 1 << 16
RENO = "follow Reno's rules"


class AgentLostError(SageccError):
    """The agent is gone; its flows follow Reno's rules."""


class Supervisor:
    """An agent's process, from its start until it is stopped at the end of the `with` block."""

    def __init__(self, policy: Path, runtime: str, slots: int) -> None:
        """Start an agent for at most `slots` flows.

        Returns once it could start at once; raises SageccError where the policy cannot be run.
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
        """What the agent said about how it kept time (execution.stock.driver.Timing)."""
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
        """Hand over the scheme's memory; return when every flow that has been there has its first order."""
        self._shared = shared
        self._say_what_went_unsaid(shared)
        socket.send_fds(self._end, [b"."], list(descriptors))
        self._wait_for("driving")
        LOG.info("the agent (process %d) drives every socket of the scheme; %d now", self.pid, _flows(shared))

    def check(self, timeout_s: float) -> None:
        """Wait a moment for something to say. Raises AgentLostError when the agent is gone."""
        if self._has_said(timeout_s):
            self._take()
        if self._process.poll() is not None:
            raise self._lost()
        self._watch_beat()

    def report(self) -> dict[str, Any]:
        """Return how the agent kept time since it last said so; it counts anew from here."""
        while self._has_said(0):  # what was said before
            self._take()
        known = len(self.timings)
        self._process.send_signal(signal.SIGUSR1)
        until = time.monotonic() + END_S
        while len(self.timings) == known and time.monotonic() < until:
            self.check(END_S)
        if len(self.timings) == known:
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
        """End the agent, and hear its last words; once."""
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
        while self._has_said(0) and self._read():
            pass
        self._end.close()

    def _has_said(self, within_s: float) -> bool:
        """Wait for a message, or for the end of them; poll, as select knows 1,024 descriptors only."""
        poller = select.poll()
        poller.register(self._end, select.POLLIN)
        return bool(poller.poll(1000 * within_s))

    def _wait_for(self, word: str) -> None:
        until = time.monotonic() + READY_S
        while (left_s := until - time.monotonic()) > 0:
            if self._has_said(min(left_s, 0.2)) and word in self._take():
                return
        raise SageccError(f"the agent was not {word} within {READY_S:g} s")

    def _take(self) -> dict[str, Any]:
        """Read one message. Raises AgentLostError where it is an error's, or there is no other end."""
        message = self._read()
        if message is None or "error" in message:
            raise self._lost(None if message is None else str(message["error"]))
        return message

    def _read(self) -> dict[str, Any] | None:
        """Return one message, None when there is no other end; note how the agent kept time."""
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

    def _lost(self, why: str | None = None) -> AgentLostError:
        """Take back the orders of an agent that is gone, and return what to say."""
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        shared, self._shared = self._shared, None
        if shared is None:
            return AgentLostError(why or f"the agent {how} before it drove a flow")
        shared.withdraw()
        shared.agent["reported"] = shared.count("fell_back") + _flows(shared)
        return AgentLostError(f"{why or f'the agent {how}'}; its {_flows(shared)} flows {RENO}")

    def _watch_beat(self) -> None:
        """Say when the agent has been silent for too long, and when it is back."""
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

    def _say_what_went_unsaid(self, shared: Shared) -> None:
        """Say how many flows fell back after the last one that could have said so was gone."""
        if unsaid := _unreported(shared):
            LOG.warning("since the last agent %d flows fell back to Reno's rules", unsaid)
        shared.agent["reported"] = shared.count("fell_back")


@contextmanager
def driving(
    policy: Path, runtime: str, slots: int, name: str | None = None, cgroups: bool = False
) -> Iterator[tuple[Supervisor, Scheme, Shared]]:
    """Load a scheme and drive its flows for as long as the `with` block: nothing is pinned, nothing stays.

    name: the process's own by default. cgroups: see Scheme.
    Raises SageccError where policy or machine will not; the machine is then as before.
    """
    reason = why_not(*CGROUP_CAPABILITIES if cgroups else ())
    if reason:
        raise SageccError(f"{reason}; {SEE_DOCTOR}")
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor(policy, runtime, slots))
        scheme = stack.enter_context(closing(Scheme(slots, name or own_name(), cgroups)))
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
