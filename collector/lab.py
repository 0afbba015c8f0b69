# SPDX-License-Identifier: Apache-2.0
"""The lab: boots one virtual-time kernel, gives it an episode, and reads what it measured."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from collector.spec import EpisodeSpec
from schemas import wire
from schemas.errors import SageccError

Controller = Callable[[np.void], tuple[int, int]]
"""Takes one wire.SAMPLE, returns (cwnd in packets, pacing rate in bytes/s; 0 for no pacing)."""

WATCHDOG_S = 60.0
"""A guest that says nothing for so long is hung: it says something every few virtual milliseconds."""

RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True)
class Recording:
    """What a guest sent: wire.SAMPLE and wire.PACKET arrays in the order they came."""

    samples: npt.NDArray[np.void]
    packets: npt.NDArray[np.void]


class _Stream:
    """Exact-length reads from the guest's socket; one line of error when it dies or hangs."""

    def __init__(self, sock: socket.socket, name: str, console: IO[bytes], watchdog_s: float) -> None:
        self._sock, self._name, self._console = sock, name, console
        self._buffer, self._at = b"", 0
        sock.settimeout(watchdog_s)

    def read(self, count: int) -> memoryview:
        while len(self._buffer) - self._at < count:
            try:
                chunk = self._sock.recv(RECEIVE_BYTES)
            except TimeoutError:
                raise SageccError(
                    f"episode {self._name}: the guest said nothing for {self._sock.gettimeout():g} s and was ended"
                ) from None
            except ConnectionError:
                chunk = b""
            if not chunk:
                raise SageccError(f"episode {self._name}: the guest died in mid-episode; {self._last_words()}")
            self._buffer = self._buffer[self._at :] + chunk
            self._at = 0
        self._at += count
        return memoryview(self._buffer)[self._at - count : self._at]

    def _last_words(self) -> str:
        self._console.seek(0)
        text = self._console.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip() and "umid" not in line]  # it has no pid file
        return f"its last words: {lines[-1].strip()}" if lines else "it left no message"


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
    if not kernel.is_file():
        raise SageccError(f"no kernel at {kernel}: run 'sagecc kernel' first")
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as console:
        with theirs:
            process = subprocess.Popen(
                _command(kernel, spec),
                stdin=theirs.fileno(),
                stdout=console,
                stderr=subprocess.STDOUT,
                env={"PATH": "/usr/bin:/bin", "TMPDIR": os.environ.get("TMPDIR", "/dev/shm")},
                start_new_session=True,
            )
        try:
            stream = _Stream(ours, spec.name, console, watchdog_s)
            try:
                ours.sendall(spec.wire)
            except (BrokenPipeError, ConnectionResetError):
                stream.read(1)  # raises with the guest's last words
            recording = _record(stream, ours, spec, controllers or {})
            process.wait(timeout=watchdog_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return recording


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


def _record(
    stream: _Stream, sock: socket.socket, spec: EpisodeSpec, controllers: Mapping[int, Controller]
) -> Recording:
    hello = np.frombuffer(stream.read(wire.HELLO.itemsize), wire.HELLO)[0]
    if (hello["magic"], hello["version"], hello["sample_bytes"]) != (wire.MAGIC, wire.VERSION, wire.SAMPLE.itemsize):
        raise SageccError(f"episode {spec.name}: the kernel speaks another version; run 'sagecc kernel' to rebuild it")
    samples, packets, now = bytearray(), bytearray(), {}
    while True:
        header = np.frombuffer(stream.read(wire.RECORD.itemsize), wire.RECORD)[0]
        body = stream.read(int(header["bytes"]))
        kind = header["kind"]
        if kind == wire.KIND_SAMPLE:
            samples += body
            if controllers:
                sample = np.frombuffer(bytes(body), wire.SAMPLE)[0]
                now[int(sample["flow"])] = sample
        elif kind == wire.KIND_PACKETS:
            packets += body
        elif kind == wire.KIND_TICK:
            sock.sendall(_actions(spec, controllers, now))
        elif kind == wire.KIND_END:
            end = np.frombuffer(body, wire.END)[0]
            break
        elif kind == wire.KIND_ERROR:
            text = bytes(body).split(b"\0")[0].decode(errors="replace")
            raise SageccError(f"episode {spec.name}: {text}")
        else:
            raise SageccError(f"episode {spec.name}: the guest sent a record of unknown kind {kind}")
    recording = Recording(np.frombuffer(bytes(samples), wire.SAMPLE), np.frombuffer(bytes(packets), wire.PACKET))
    if (len(recording.samples), len(recording.packets)) != (int(end["samples"]), int(end["packets"])):
        raise SageccError(f"episode {spec.name}: the guest's stream is short")
    return recording


def _actions(spec: EpisodeSpec, controllers: Mapping[int, Controller], now: Mapping[int, np.void]) -> bytes:
    actions = np.zeros(sum(flow in now for flow in spec.lockstep), wire.ACTION)
    for action, flow in zip(actions, (f for f in spec.lockstep if f in now), strict=True):
        action["cwnd_pkts"], action["pacing_bytes_s"] = controllers[flow](now[flow])
    return actions.tobytes()
