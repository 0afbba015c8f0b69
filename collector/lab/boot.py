# SPDX-License-Identifier: Apache-2.0
"""The lab: boots one virtual-time kernel, gives it an episode, and reads what it measured."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np
import numpy.typing as npt

from sagecc.collector.kernel.machine import check_kernel, check_machine, memory_folder
from sagecc.collector.lab.crash import explain, keep_console
from sagecc.collector.lab.spec import EpisodeSpec
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.schemas import wire

Controller = Callable[[np.void], tuple[int, int]]
"""Takes one wire.SAMPLE, returns (cwnd in packets, pacing rate in bytes/s; 0 for no pacing)."""

WATCHDOG_S = 60.0
"""A guest that says nothing for so long is hung: it says something every few virtual milliseconds."""

DYING_S = 5.0
"""How long a guest that has closed its end may take to say why."""

RECEIVE_BYTES = 256 << 10
"""As much as the guest sends at once."""


@dataclass(frozen=True)
class Recording:
    """What a guest sent: wire.SAMPLE and wire.PACKET arrays in the order they came."""

    samples: npt.NDArray[np.void]
    packets: npt.NDArray[np.void]


class _GuestError(Exception):
    """The guest has closed its end."""


def _packed(dtype: np.dtype[np.void]) -> struct.Struct:
    names = dtype.names or ()
    return struct.Struct("<" + "".join(_STRUCT_CODE[dtype[name].itemsize] for name in names))


_STRUCT_CODE = {1: "B", 2: "H", 4: "I", 8: "Q"}
_RECORD, _ACTION = _packed(wire.RECORD), _packed(wire.ACTION)
_TIMEVAL = struct.Struct("ll")
_FLOW_AT = dict(wire.SAMPLE.fields or {})["flow"][1]
_FLOW = slice(_FLOW_AT, _FLOW_AT + wire.SAMPLE["flow"].itemsize)
_SPOKEN = (wire.MAGIC, wire.VERSION, wire.SAMPLE.itemsize)


class _Stream:
    """Records from the guest's socket; raises _GuestError when it dies, SageccError when it hangs."""

    def __init__(self, sock: socket.socket, name: str, watchdog_s: float) -> None:
        self._sock, self._name, self._watchdog_s = sock, name, watchdog_s
        self._buffer, self._at = b"", 0
        self._chunk = memoryview(bytearray(RECEIVE_BYTES))
        # the kernel's own time limit: Python's would cost a poll() for each recv()
        limit = _TIMEVAL.pack(int(watchdog_s), int(watchdog_s % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise _GuestError from None
        except BlockingIOError:
            raise self._hung() from None

    def read(self, count: int) -> bytes:
        while len(self._buffer) - self._at < count:
            self._fill()
        self._at += count
        return self._buffer[self._at - count : self._at]

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield (kind, body) of every record."""
        while True:
            kind, count = _RECORD.unpack(self.read(_RECORD.size))
            yield kind, self.read(count)

    def _fill(self) -> None:
        try:
            got = self._sock.recv_into(self._chunk)
        except BlockingIOError:
            raise self._hung() from None
        except ConnectionError:
            got = 0
        if not got:
            raise _GuestError
        self._buffer = self._buffer[self._at :] + self._chunk[:got]
        self._at = 0

    def _hung(self) -> SageccError:
        return SageccError(f"episode {self._name}: the guest said nothing for {self._watchdog_s:g} s and was ended")


class Guest:
    """One running episode, tick by tick: `tick`, then `act`, until `tick` returns None; then `recording` is whole.

    Between a tick and the act virtual time stands still. Every method, and entering, raises SageccError naming the
    episode if the guest cannot start, dies, hangs, reports an error, or its stream is short or of another version.
    """

    def __init__(self, kernel: Path, spec: EpisodeSpec, watchdog_s: float = WATCHDOG_S) -> None:
        self._kernel, self._spec, self._watchdog_s = kernel, spec, watchdog_s
        self._samples, self._packets = bytearray(), bytearray()
        self._asked: list[bytes] = []
        self._driven = {np.array(flow, wire.SAMPLE["flow"]).tobytes() for flow in spec.lockstep}
        self._ended: np.void | None = None
        self._held = ExitStack()

    def __enter__(self) -> Self:
        check_kernel(self._kernel)
        check_machine()
        self._folder = memory_folder(self._spec.memory_mb)
        with ExitStack() as held:
            ours, theirs = socket.socketpair()
            held.enter_context(ours)
            self._console = held.enter_context(tempfile.TemporaryFile())
            with theirs:
                self._process = _start(_command(self._kernel, self._spec), theirs, self._console, self._folder)
            held.callback(_end, self._process)
            self._stream = _Stream(ours, self._spec.name, self._watchdog_s)
            self._records = self._stream.records()
            with self._naming_death():
                self._stream.send(self._spec.wire)
                hello = np.frombuffer(self._stream.read(wire.HELLO.itemsize), wire.HELLO)[0]
            if (hello["magic"], hello["version"], hello["sample_bytes"]) != _SPOKEN:
                raise SageccError(
                    f"episode {self._spec.name}: the kernel speaks another version; run 'sagecc kernel' to rebuild it"
                )
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def tick(self) -> npt.NDArray[np.void] | None:
        """Run to the next tick at which a driven flow is up; return those flows' samples, wire.SAMPLE [n], by flow.

        None when the episode is over.
        """
        if self._ended is not None:
            return None
        with self._naming_death():
            for kind, body in self._records:
                if kind == wire.KIND_SAMPLE:
                    self._samples += body
                    if body[_FLOW] in self._driven:
                        self._asked.append(body)
                elif kind == wire.KIND_PACKETS:
                    self._packets += body
                elif kind == wire.KIND_TICK:
                    now = np.frombuffer(b"".join(self._asked), wire.SAMPLE)
                    self._asked.clear()
                    return now
                elif kind == wire.KIND_END:
                    self._ended = np.frombuffer(body, wire.END)[0]
                    return None
                else:
                    raise SageccError(f"episode {self._spec.name}: {_complaint(kind, body)}")
        return None

    def act(self, cwnd_pkts: Sequence[int], pacing_bytes_s: Sequence[int]) -> None:
        """Answer the samples of the last tick, in their order.

        cwnd_pkts: windows, 0 leaves one to its scheme (`pure` has no say). pacing_bytes_s: 0 for no pacing.
        """
        late = self._spec.latency_us
        actions = zip(cwnd_pkts, pacing_bytes_s, strict=True)
        with self._naming_death():
            self._stream.send(b"".join(_ACTION.pack(cwnd, late, pacing) for cwnd, pacing in actions))

    @property
    def recording(self) -> Recording:
        """Everything that the guest sent. Raises SageccError where the episode is not over, or not whole."""
        recording = Recording(np.frombuffer(self._samples, wire.SAMPLE), np.frombuffer(self._packets, wire.PACKET))
        counts = (len(recording.samples), len(recording.packets))
        if self._ended is None or counts != (int(self._ended["samples"]), int(self._ended["packets"])):
            raise SageccError(f"episode {self._spec.name}: the guest's stream is short")
        return recording

    @contextmanager
    def _naming_death(self) -> Iterator[None]:
        try:
            yield
        except _GuestError:
            status = _end(self._process, grace_s=DYING_S)
            self._console.seek(0)
            console = self._console.read().decode(errors="replace")
            crash = explain(console, status, self._folder)
            text = f"episode {self._spec.name}: {crash.text}"
            if not crash.known:
                kept = keep_console(self._spec.name, console)
                text += f"; the whole console is in {kept}: report it with what 'sagecc doctor' prints"
            raise SageccError(text) from None


def run_guest(
    kernel: Path,
    spec: EpisodeSpec,
    controllers: Mapping[int, Controller] | None = None,
    watchdog_s: float = WATCHDOG_S,
) -> Recording:
    """Run one episode to its end and return everything it sent.

    controllers: one a driven flow; called after every sample, while virtual time stands still. Raises as Guest does.
    """
    with Guest(kernel, spec, watchdog_s) as guest:
        while (now := guest.tick()) is not None:
            answers = [(controllers or {})[int(sample["flow"])](sample) for sample in now]
            guest.act(*zip(*answers, strict=True))
        return guest.recording


def _start(command: list[str], theirs: socket.socket, console: IO[bytes], folder: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=theirs.fileno(),
            stdout=console,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": folder},
            start_new_session=True,
        )
    except OSError as error:
        raise SageccError(f"{command[0]} cannot be run ({error.strerror}): {SEE_DOCTOR}") from None


def _end(process: subprocess.Popen[bytes], grace_s: float = 0) -> int:
    """End the guest and its processes, after `grace_s` in which it may end by itself; return its status."""
    if grace_s:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(grace_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _command(kernel: Path, spec: EpisodeSpec) -> list[str]:
    """The command line feeds the guest's random numbers: nothing in it may change from run to run."""
    return [
        str(kernel.resolve()),
        *(f"mem={spec.memory_mb}M", "time-travel=inf-cpu", "time-travel-start=1000000", "norandmaps"),
        *(f"seed={spec.seed}", "lab=0", "uml_dir=/dev/null/"),
        *("quiet", "con=null", "con0=null,fd:1", "panic=-1"),
    ]


def _complaint(kind: int, body: bytes) -> str:
    if kind == wire.KIND_ERROR:
        return body.split(b"\0")[0].decode(errors="replace")
    return f"the guest sent a record of unknown kind {kind}"
