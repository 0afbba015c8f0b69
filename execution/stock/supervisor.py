# SPDX-License-Identifier: Apache-2.0
"""Starts the agent, watches it, and logs what happens to it and its flows.

The programs in the kernel fall back to Reno's rules on their own. The agent may be dead then, so that the supervisor
logs it, as `sagecc attach` or `sagecc exec`; where that was killed as well, the next one does, from the kernel's count.
"""

from __future__ import annotations

import logging
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.execution.stock.kernel_scheme import CGROUP_CAPABILITIES, Scheme, private_name, why_not
from sagecc.execution.stock.messages import MESSAGE_BYTES, Message, Timing
from sagecc.execution.stock.shared import STALL_NS, Descriptors, Shared

LOG = logging.getLogger("sagecc")

READY_S = 120.0
"""How long an agent may load its policy: the first time on a machine everything is compiled."""

END_S = 5.0
LEAST_REPORT_S = 1.0
"""From one report in the log to the next: an agent that its policy took over does not fill the disk."""
RENO = "follow Reno's rules"

_BROKEN = " (its policy broke the runtime: 'exact' is the safest)"
MEANINGS: dict[int, str] = {
    signal.SIGSYS: " (it asked the kernel for what an agent may not do)",
    **dict.fromkeys((signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT), _BROKEN),
}
"""What an agent's end by a signal says of its policy."""


class AgentLostError(SageccError):
    """The agent has ended; its flows follow Reno's rules."""


class Supervisor:
    """An agent's process, from its start until it is stopped at the end of the `with` block."""

    def __init__(self, policy: Path, runtime: str, slots: int) -> None:
        """Start an agent and wait until it is ready to drive.

        Args:
            policy: the artefact's folder.
            runtime: of policy.runtime.
            slots: the most flows at once.

        Raises:
            SageccError: the policy cannot be run.
        """
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            sys.executable,
            "-P",
            "-m",
            "sagecc.execution.stock.process",
            str(other.fileno()),
            str(policy),
            runtime,
            str(slots),
        ]
        with other:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        self._shared: Shared | None = None
        self._silent_since_ns: int | None = None
        self._timing: Timing | None = None
        self._logged_s = -LEAST_REPORT_S
        try:
            self._wait_for("ready", lambda message: message.ready)
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

    @property
    def timing(self) -> Timing | None:
        """How the agent kept time until its last report, if there was one."""
        return self._timing

    def drive(self, descriptors: Descriptors, shared: Shared) -> None:
        """Hand over the scheme's memory; return when every flow that exists has its first order."""
        self._shared = shared
        self._report_earlier_fallbacks(shared)
        socket.send_fds(self._end, [b"."], list(descriptors))
        self._wait_for("driving", lambda message: message.driving)
        LOG.info("the agent (process %d) drives every socket of the scheme; %d now", self.pid, _flows(shared))

    def check(self, timeout_s: float) -> None:
        """Wait for a message and log it; raises AgentLostError when the agent is gone."""
        if self._readable(timeout_s):
            self._receive()
        if self._process.poll() is not None:
            raise self._lost_error()
        self._check_heartbeat()

    def report(self) -> Timing:
        """Return how the agent kept time since its last report."""
        while self._readable(0):  # earlier messages
            self._receive()
        self._timing = None
        self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + END_S
        while self._timing is None and time.monotonic() < deadline:
            self.check(END_S)
        if self._timing is None:
            raise SageccError(f"the agent has not said within {END_S:g} s how it keeps time")
        return self._timing

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

    def _wait_for(self, state: str, told: Callable[[Message], bool]) -> None:
        """Wait for a message that tells it; raises SageccError where there is none in time."""
        deadline = time.monotonic() + READY_S
        while (left_s := deadline - time.monotonic()) > 0:
            if self._readable(min(left_s, 0.2)) and told(self._receive()):
                return
        raise SageccError(f"the agent was not {state} within {READY_S:g} s")

    def _receive(self) -> Message:
        """Read one message; raises AgentLostError where the agent ends, or its end is closed."""
        message = self._read()
        if message is None:
            raise self._lost_error()
        if message.failure:
            LOG.error("the agent failed:\n%s", message.failure)
        if message.error or message.failure:
            raise self._lost_error(message.error or "the agent failed")
        return message

    def _read(self) -> Message | None:
        """Return one message, None when the agent's end is closed; keep and log a report of its timing."""
        data = self._end.recv(MESSAGE_BYTES)
        if not data:
            return None
        message = Message.decoded(data)
        if message.timing:
            self._timing = message.timing
            self._log(message.timing)
        return message

    def _log(self, timing: Timing) -> None:
        now_s = time.monotonic()
        if not timing.ticks or now_s - self._logged_s < LEAST_REPORT_S:
            return
        self._logged_s = now_s
        LOG.info(
            "%.2f %% of %d deadlines met, %d flows at most, %.1f ms at the 99th percentile, %.0f %% of a core",
            100 * timing.met / timing.ticks,
            timing.ticks,
            timing.flows,
            timing.p99_ms,
            100 * timing.cpu_s / timing.wall_s,
        )

    def _lost_error(self, reason: str | None = None) -> AgentLostError:
        """Withdraw the orders of an agent that is gone; return the error to raise."""
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        ending = f"was killed by {_signal(-status)}" if status < 0 else f"ended with status {status}"
        shared, self._shared = self._shared, None
        if shared is None:
            return AgentLostError(reason or f"the agent {ending} before it drove a flow")
        shared.withdraw()
        shared.report(shared.count("fell_back") + _flows(shared))
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
            shared.report(shared.count("fell_back"))
            self._silent_since_ns = None

    def _report_earlier_fallbacks(self, shared: Shared) -> None:
        """Log how many flows fell back while there was no supervisor."""
        if unreported := _unreported(shared):
            LOG.warning("since the last agent %d flows fell back to Reno's rules", unreported)
        shared.report(shared.count("fell_back"))


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


def _signal(number: int) -> str:
    """Return a signal's name and what an agent's end by it means."""
    names = {known.value: known.name for known in signal.Signals}
    return names.get(number, f"signal {number}") + MEANINGS.get(number, "")
