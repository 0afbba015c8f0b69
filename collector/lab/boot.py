# SPDX-License-Identifier: Apache-2.0
"""The lab: boot a virtual-time kernel, send it an episode's specification, and read what it measures."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import IO, Self

import numpy as np
import numpy.typing as npt

from sagecc.collector.kernel.machine import check_kernel, check_machine, memory_folder
from sagecc.collector.lab.crash import explain, keep_console
from sagecc.collector.lab.spec import EpisodeSpec
from sagecc.collector.lab.under_way import OrdersUnderWay
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.schemas import wire

FlowController = Callable[[np.void], tuple[int, int]]
"""From one wire.SAMPLE to an action: congestion window (packets) and pacing rate (bytes/s; 0 for no pacing)."""

Controller = Callable[[npt.NDArray[np.void]], tuple[Sequence[int], Sequence[int]]]
"""The same for the samples of all driven flows of a tick: windows and pacing rates in their order."""

WATCHDOG_S = 60.0
"""Silence after which a guest counts as hung (s): it sends something every few virtual milliseconds."""

WAITS = 4
"""Waits that a silence is made of: a host that was suspended ends one of them, and the guest still has the others."""

EXIT_GRACE_S = 5.0
"""Time in which a guest that has closed its socket may print why and exit (s)."""

BUSY_S = 5.0
"""Time in which whoever copied the kernel may close it (s): what is open for writing cannot be executed."""

RECEIVE_BYTES = 256 << 10
"""Size of a read: as much as the guest sends at once."""


@dataclass(frozen=True)
class Recording:
    """Everything that a guest measured in an episode."""

    samples: npt.NDArray[np.void]
    """wire.SAMPLE [samples], in the order of arrival."""

    packets: npt.NDArray[np.void]
    """wire.PACKET [packets], in the order of arrival."""

    completions_ns: Mapping[int, int] = field(default_factory=dict)
    """By flow, when all that it had to send was acknowledged, since the episode began (ns)."""


class _GuestError(Exception):
    """The guest has closed its end of the socket."""


def _packed(dtype: np.dtype[np.void]) -> struct.Struct:
    names = dtype.names or ()
    return struct.Struct("<" + "".join(_STRUCT_CODE[dtype[name].itemsize] for name in names))


_STRUCT_CODE = {1: "B", 2: "H", 4: "I", 8: "Q"}
_RECORD, _ACTION = _packed(wire.RECORD), _packed(wire.ACTION)
_TIMEVAL = struct.Struct("ll")
_FLOW_OFFSET = dict(wire.SAMPLE.fields or {})["flow"][1]
_FLOW_BYTES = slice(_FLOW_OFFSET, _FLOW_OFFSET + wire.SAMPLE["flow"].itemsize)


class _Stream:
    """Records from the guest's socket; methods raise _GuestError when the guest ends, SageccError when it hangs."""

    def __init__(self, sock: socket.socket, name: str, watchdog_s: float) -> None:
        self._sock, self._name, self._watchdog_s = sock, name, watchdog_s
        self._buffer, self._position = b"", 0
        self._chunk = memoryview(bytearray(RECEIVE_BYTES))
        # the kernel's own timeout: Python's would cost a poll() for each recv()
        for option, wait_s in ((socket.SO_RCVTIMEO, watchdog_s / WAITS), (socket.SO_SNDTIMEO, watchdog_s)):
            sock.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(int(wait_s), int(wait_s % 1 * 1e6)))

    def send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise _GuestError from None
        except BlockingIOError:
            raise self._hang_error() from None

    def read(self, count: int) -> bytes:
        while len(self._buffer) - self._position < count:
            self._fill()
        self._position += count
        return self._buffer[self._position - count : self._position]

    def record(self) -> tuple[int, bytes]:
        """Return the kind and the body of the next record."""
        while len(self._buffer) - self._position < _RECORD.size:
            self._fill()
        kind, count = _RECORD.unpack_from(self._buffer, self._position)
        size = _RECORD.size + count
        while len(self._buffer) - self._position < size:
            self._fill()
        begin = self._position + _RECORD.size
        self._position += size
        return kind, self._buffer[begin : self._position]

    def _fill(self) -> None:
        count = self._received()
        if not count:
            raise _GuestError
        self._buffer = self._buffer[self._position :] + self._chunk[:count]
        self._position = 0

    def _received(self) -> int:
        for _ in range(WAITS):
            try:
                return self._sock.recv_into(self._chunk)
            except BlockingIOError:
                continue
            except ConnectionError:
                return 0
        raise self._hang_error()

    def _hang_error(self) -> SageccError:
        return SageccError(f"episode {self._name}: the guest said nothing for {self._watchdog_s:g} s and was ended")


class Guest:
    """One running episode, tick by tick: `tick`, then `act`, until `tick` returns None; then `recording` is complete.

    Virtual time stands still between `tick` and `act`.

    Args:
        kernel: path of the kernel.
        spec: the episode.
        watchdog_s: silence after which the guest counts as hung (s).

    Raises:
        SageccError: from every method and on entry, naming the episode: the guest cannot start, dies, hangs, reports an
            error, or its stream is incomplete or of another version.
    """

    def __init__(self, kernel: Path, spec: EpisodeSpec, watchdog_s: float = WATCHDOG_S) -> None:
        self._kernel, self._spec, self._watchdog_s = kernel, spec, watchdog_s
        self._samples, self._packets = bytearray(), bytearray()
        self._completions_ns: dict[int, int] = {}
        latencies_us = spec.latencies_us or (0,) * len(spec.lockstep)
        self._latencies_us = {
            np.array(flow, wire.SAMPLE["flow"]).tobytes(): latency_us
            for flow, latency_us in zip(spec.lockstep, latencies_us, strict=True)
        }
        self._action_latencies_us: list[int] = []
        self._under_way = {
            flow: OrdersUnderWay(latency_us)
            for flow, latency_us in zip(spec.lockstep, latencies_us, strict=True)
            if latency_us
        }
        self._orders: list[OrdersUnderWay | None] = []  # of the last tick's samples, where any flow is late
        self._end: np.void | None = None
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        check_kernel(self._kernel)
        check_machine()
        self._folder = memory_folder(self._spec.memory_mb)
        with ExitStack() as resources:
            host_socket, guest_socket = socket.socketpair()
            resources.enter_context(host_socket)
            self._console = resources.enter_context(tempfile.TemporaryFile())
            with guest_socket:
                self._process = _start(_command(self._kernel, self._spec), guest_socket, self._console, self._folder)
            resources.callback(_stop, self._process)
            self._stream = _Stream(host_socket, self._spec.name, self._watchdog_s)
            try:
                self._stream.send(self._spec.wire)
                hello = np.frombuffer(self._stream.read(wire.HELLO.itemsize), wire.HELLO)[0]
            except _GuestError:
                raise self._crash() from None
            if not _understands(hello, self._spec):
                raise SageccError(
                    f"episode {self._spec.name}: the kernel speaks another version; run 'sagecc kernel' to rebuild it"
                )
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def tick(self) -> npt.NDArray[np.void] | None:
        """Run to the next tick at which a lockstep flow is up.

        Returns:
            The lockstep flows' samples, wire.SAMPLE [flows], in the order of flows; None when the episode is over. The
            window of a flow whose orders are late is as `OrdersUnderWay` has it.
        """
        if self._end is not None:
            return None
        tick: list[bytes] = []
        self._action_latencies_us.clear()
        while True:
            try:
                kind, body = self._stream.record()
            except _GuestError:
                raise self._crash() from None
            if kind == wire.KIND_SAMPLE:
                self._samples += body
                latency_us = self._latencies_us.get(body[_FLOW_BYTES])
                if latency_us is not None:
                    tick.append(body)
                    self._action_latencies_us.append(latency_us)
            elif kind == wire.KIND_PACKETS:
                self._packets += body
            elif kind == wire.KIND_COMPLETION:
                completion = np.frombuffer(body, wire.COMPLETION)[0]
                self._completions_ns[int(completion["flow"])] = int(completion["t_ns"])
            elif kind == wire.KIND_TICK:
                samples = np.frombuffer(b"".join(tick), wire.SAMPLE)
                return self._ordered(samples) if self._under_way else samples
            elif kind == wire.KIND_END:
                self._end = np.frombuffer(body, wire.END)[0]
                return None
            else:
                raise SageccError(f"episode {self._spec.name}: {_error_text(kind, body)}")

    def act(self, cwnd_pkts: Sequence[int], pacing_bytes_s: Sequence[int]) -> None:
        """Send the actions for the samples of the last tick, in their order.

        Args:
            cwnd_pkts: congestion windows (packets); 0 leaves one to its scheme (`pure` sets none).
            pacing_bytes_s: pacing rates (bytes/s); 0 for no pacing.
        """
        actions = zip(cwnd_pkts, self._action_latencies_us, pacing_bytes_s, strict=True)
        for orders, cwnd in zip(self._orders, cwnd_pkts, strict=False):
            if orders:
                orders.order(cwnd)
        try:
            self._stream.send(b"".join(starmap(_ACTION.pack, actions)))
        except _GuestError:
            raise self._crash() from None

    def _ordered(self, samples: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Return samples whose windows are what was ordered, where that is under way."""
        samples = samples.copy()
        self._orders = [self._under_way.get(flow) for flow in samples["flow"].tolist()]
        for row, orders in enumerate(self._orders):
            if orders:
                samples["cwnd_pkts"][row] = orders.window(int(samples["cwnd_pkts"][row]))
        return samples

    def let_end(self, grace_s: float) -> None:
        """Let the guest, whose episode is over, exit by itself within `grace_s`: else it is killed."""
        _stop(self._process, grace_s)

    @property
    def recording_so_far(self) -> Recording:
        """What the guest has measured up to its last tick."""
        return Recording(
            np.frombuffer(self._samples, wire.SAMPLE),
            np.frombuffer(self._packets, wire.PACKET),
            dict(self._completions_ns),
        )

    @property
    def recording(self) -> Recording:
        """Everything that the guest measured.

        Raises:
            SageccError: the episode is not over, or its stream is incomplete.
        """
        recording = self.recording_so_far
        counts = (len(recording.samples), len(recording.packets))
        if self._end is None or counts != (int(self._end["samples"]), int(self._end["packets"])):
            raise SageccError(f"episode {self._spec.name}: the guest's stream is short")
        return recording

    def _crash(self) -> SageccError:
        """Return why the guest has ended."""
        status = _stop(self._process, grace_s=EXIT_GRACE_S)
        self._console.seek(0)
        console = self._console.read().decode(errors="replace")
        crash = explain(console, status, self._folder)
        text = f"episode {self._spec.name}: {crash.text}"
        if not crash.known:
            path = keep_console(self._spec.name, console)
            text += f"; the whole console is in {path}: report it with what 'sagecc doctor' prints"
        return SageccError(text)


def run_guest(
    kernel: Path,
    spec: EpisodeSpec,
    controller: Controller | None = None,
    watchdog_s: float = WATCHDOG_S,
) -> Recording:
    """Run one episode to its end.

    Args:
        kernel: path of the kernel.
        spec: the episode.
        controller: called with the lockstep flows' samples of every tick, while virtual time stands still; required
            where there are such flows.
        watchdog_s: silence after which the guest counts as hung (s).

    Returns:
        Everything that the guest measured.

    Raises:
        SageccError: as from `Guest`.
    """
    with Guest(kernel, spec, watchdog_s) as guest:
        while (samples := guest.tick()) is not None:
            assert controller is not None
            guest.act(*controller(samples))
        return guest.recording


def per_flow(controller: FlowController) -> Controller:
    """Return a controller that asks `controller` about one flow after another."""

    def act(samples: npt.NDArray[np.void]) -> tuple[Sequence[int], Sequence[int]]:
        windows, rates = zip(*(controller(sample) for sample in samples), strict=True)
        return windows, rates

    return act


def _understands(hello: np.void, spec: EpisodeSpec) -> bool:
    """Tell whether a guest speaks as this program does, and knows all that the specification holds."""
    is_extended = np.frombuffer(spec.wire, wire.SPEC, 1)[0]["extended"]
    oldest = wire.HELLO_VERSION if is_extended else wire.PLAIN_HELLO_VERSION
    speaks = (hello["magic"], hello["sample_bytes"]) == (wire.MAGIC, wire.SAMPLE.itemsize)
    return bool(speaks and oldest <= hello["version"] <= wire.HELLO_VERSION)


def _start(command: list[str], guest_socket: socket.socket, console: IO[bytes], folder: str) -> subprocess.Popen[bytes]:
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            return subprocess.Popen(
                command,
                stdin=guest_socket.fileno(),
                stdout=console,
                stderr=subprocess.STDOUT,
                env={"PATH": "/usr/bin:/bin", "TMPDIR": folder},
                process_group=0,  # not a session: the scheduler's autogroups would count each guest like a whole login
            )
        except OSError as error:
            if error.errno != errno.ETXTBSY or time.monotonic() > deadline:
                raise SageccError(f"{command[0]} cannot be run ({error.strerror}): {SEE_DOCTOR}") from None
            time.sleep(0.01)


def _stop(process: subprocess.Popen[bytes], grace_s: float = 0) -> int:
    """Kill the guest and its processes, unless it exits by itself within `grace_s`; return its exit status."""
    if grace_s:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(grace_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _command(kernel: Path, spec: EpisodeSpec) -> list[str]:
    """Return the guest's command line; it seeds the guest's random numbers, so it may not change from run to run."""
    return [
        str(kernel.resolve()),
        f"mem={spec.memory_mb}M",
        "time-travel=inf-cpu",
        "time-travel-start=1000000",
        "norandmaps",
        f"seed={spec.seed}",
        "lab=0",
        "uml_dir=/dev/null/",
        "quiet",
        "con=null",
        "con0=null,fd:1",
        "panic=-1",
    ]


def _error_text(kind: int, body: bytes) -> str:
    if kind == wire.KIND_ERROR:
        return body.split(b"\0")[0].decode(errors="replace")
    return f"the guest sent a record of unknown kind {kind}"
