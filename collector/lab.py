# SPDX-License-Identifier: Apache-2.0
"""The lab: boots one virtual-time kernel, gives it an episode, and reads what it measured."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from collector.machine import check_kernel, check_machine, memory_folder, obituary
from collector.spec import EpisodeSpec
from schemas import wire
from schemas.errors import SageccError

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


def run_guest(
    kernel: Path,
    spec: EpisodeSpec,
    controllers: Mapping[int, Controller] | None = None,
    watchdog_s: float = WATCHDOG_S,
) -> Recording:
    """Run one episode to its end and return everything it sent.

    controllers: one a lockstep flow; called after every sample, while virtual time stands still.
    Raises SageccError naming the episode if the guest cannot start, dies, hangs, reports an error,
    or its stream is short or of another version.
    """
    check_kernel(kernel)
    check_machine()
    folder = memory_folder(spec.memory_mb)
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as console:
        with theirs:
            process = _start(_command(kernel, spec), theirs, console, folder)
        try:
            stream = _Stream(ours, spec.name, watchdog_s)
            stream.send(spec.wire)
            return _record(stream, spec, controllers or {})
        except _GuestError:
            status = _end(process, grace_s=DYING_S)
            console.seek(0)
            words = console.read().decode(errors="replace")
            raise SageccError(f"episode {spec.name}: {obituary(words, status, folder)}") from None
        finally:
            _end(process)


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
    except FileNotFoundError:
        raise SageccError(f"{command[0]} is not installed (Debian: util-linux)") from None


def _end(process: subprocess.Popen[bytes], grace_s: float = 0) -> int:
    """End the guest and its processes, after `grace_s` in which it may end by itself; return its status."""
    if grace_s:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(grace_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _command(kernel: Path, spec: EpisodeSpec) -> list[str]:
    """The command line feeds the guest's random numbers: nothing in it may change from run to run.

    Without address randomisation for the same reason; setpriv makes the guest die with its parent.
    """
    return [
        *("setpriv", "--pdeathsig", "KILL", "setarch", "x86_64", "-R", str(kernel.resolve())),
        *(f"mem={spec.memory_mb}M", "time-travel=inf-cpu", "time-travel-start=1000000", "norandmaps"),
        *(f"seed={spec.seed}", "lab=0", "uml_dir=/dev/null/"),
        *("quiet", "con=null", "con0=null,fd:1", "panic=-1"),
    ]


def _record(stream: _Stream, spec: EpisodeSpec, controllers: Mapping[int, Controller]) -> Recording:
    hello = np.frombuffer(stream.read(wire.HELLO.itemsize), wire.HELLO)[0]
    if (hello["magic"], hello["version"], hello["sample_bytes"]) != (wire.MAGIC, wire.VERSION, wire.SAMPLE.itemsize):
        raise SageccError(f"episode {spec.name}: the kernel speaks another version; run 'sagecc kernel' to rebuild it")
    samples, packets = bytearray(), bytearray()
    now: dict[int, np.void] = {}
    for kind, body in stream.records():
        if kind == wire.KIND_SAMPLE:
            samples += body
            if controllers:
                sample = np.frombuffer(body, wire.SAMPLE)[0]
                now[int(sample["flow"])] = sample
        elif kind == wire.KIND_PACKETS:
            packets += body
        elif kind == wire.KIND_TICK:
            stream.send(_actions(spec, controllers, now))
            now.clear()  # a flow that has stopped is asked no more
        elif kind == wire.KIND_END:
            end = np.frombuffer(body, wire.END)[0]
            break
        elif kind == wire.KIND_ERROR:
            text = body.split(b"\0")[0].decode(errors="replace")
            raise SageccError(f"episode {spec.name}: {text}")
        else:
            raise SageccError(f"episode {spec.name}: the guest sent a record of unknown kind {kind}")
    recording = Recording(np.frombuffer(samples, wire.SAMPLE), np.frombuffer(packets, wire.PACKET))
    if (len(recording.samples), len(recording.packets)) != (int(end["samples"]), int(end["packets"])):
        raise SageccError(f"episode {spec.name}: the guest's stream is short")
    return recording


def _actions(spec: EpisodeSpec, controllers: Mapping[int, Controller], now: Mapping[int, np.void]) -> bytes:
    actions = (controllers[flow](now[flow]) for flow in spec.lockstep if flow in now)
    return b"".join(_ACTION.pack(cwnd_pkts, 0, pacing_bytes_s) for cwnd_pkts, pacing_bytes_s in actions)
