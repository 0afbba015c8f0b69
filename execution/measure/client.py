# SPDX-License-Identifier: Apache-2.0
"""The host that measures: it asks a server for runs, and sends or receives their data."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sagecc.common.errors import SageccError
from sagecc.execution.measure.channel import STRANGER_S, ControlChannel, LostError, Message, connect
from sagecc.execution.measure.clock import ClockOffset, HostClock, RoundTrip, RunClock
from sagecc.execution.measure.stream import BrokenError, Log, Receiver, Sender, Stream, stamped
from sagecc.schemas.measured import DOWN, UP, HostVersions
from sagecc.schemas.schemes import is_driven

Number = TypeVar("Number", int, float)

ROUND_TRIPS = 20
"""For an estimate of the clocks' offset."""
ANSWER_S = 15.0
"""For how long an answer may take, beyond what it has to wait for (s)."""
LOAD_S = 150.0
"""For how long a server may load a policy (s)."""


@dataclass(frozen=True)
class RunLog:
    """What both ends recorded of a run."""

    sender: Log
    """By the sender's clock."""

    receiver: Log
    """By the receiver's clock."""

    clock: RunClock
    """How far the server's clock was ahead."""


class Session:
    """A client's connection to a server."""

    def __init__(self, host: str, port: int, key: bytes, stall_s: float) -> None:
        """Connect.

        Args:
            host: name or address of the server.
            port: of control.
            key: the shared key.
            stall_s: for how long nothing may get through in a run (s).

        Raises:
            SageccError: there is no server, or it has another version or key, or is busy.
        """
        self._host, self._stall_s, self._clock = host, stall_s, HostClock()
        try:
            connection = _connected(host, port)
        except OSError as error:
            raise SageccError(
                f"{host}: nothing answers at port {port} ({error.strerror or error}):"
                " start 'sagecc measure serve' there, and let its two ports through"
            ) from None
        self._channel = connect(connection, host)
        try:
            self._channel.introduce(key)
            self._channel.set_timeout(ANSWER_S)
            allowed = self._channel.receive()
            self._data_port = _number(allowed, "data_port", host, int)
            self.max_duration_s = _number(allowed, "max_duration_s", host, float)
            self._max_rate_mbps = _number(allowed, "max_rate_mbps", host, float)
            self.server = HostVersions.told(allowed.get("versions"))
        except BaseException:
            self._channel.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(SageccError):
            self._channel.send({"do": "end"})
        self._channel.close()

    def refused(self, schemes: Sequence[str]) -> dict[str, str]:
        """Return by scheme why the server does not send by it; without those that it does send by."""
        self._channel.send({"do": "check", "schemes": list(schemes)})
        answer = self._channel.receive().get("refused")
        if not isinstance(answer, dict):
            raise SageccError(f"{self._host} does not say by which schemes it sends")
        return {str(scheme): str(reason) for scheme, reason in answer.items()}

    def run(self, direction: str, scheme: str, kernel_scheme: str, duration_s: float) -> RunLog:
        """Measure one run.

        Args:
            direction: UP or DOWN.
            scheme: what sets the window.
            kernel_scheme: its name in this host's kernel, for UP.
            duration_s: how long data are sent (s).

        Raises:
            BrokenError: the path broke, or the other host is gone.
            SageccError: the server refuses, or the clocks have no common time.
        """
        try:
            before = self._offset()
            self._channel.send({"do": "run", "direction": direction, "scheme": scheme, "duration_s": duration_s})
            self._channel.set_timeout(LOAD_S if direction == DOWN and is_driven(scheme) else ANSWER_S)
            token = bytes.fromhex(str(self._channel.receive().get("token")))
            own = self._stream(direction, kernel_scheme, token, duration_s)
            theirs = self._logs()
            clock = RunClock(before, self._offset())
        except LostError as error:
            raise BrokenError(str(error)) from None
        clock.check()
        sender, receiver = (own, theirs) if direction == UP else (theirs, own)
        return RunLog(sender, receiver, clock)

    def _stream(self, direction: str, kernel_scheme: str, token: bytes, duration_s: float) -> Log:
        stream = Stream(duration_s, self._stall_s, self._max_rate_mbps)
        scheme = kernel_scheme if direction == UP else None
        try:
            connection = _connected(self._host, self._data_port, scheme)
        except OSError as error:
            raise BrokenError(
                f"nothing answers at its port of data, {self._data_port} ({error.strerror or error}); let it through"
            ) from None
        with connection as sock:
            try:
                sock.sendall(token)
            except OSError as error:
                raise BrokenError(f"the connection of data broke: {error.strerror}") from None
            if direction == DOWN:
                return Receiver(sock, stream, self._clock).run()
            self._channel.receive()  # the server is at the other end
            return Sender(sock, stream, self._clock, len(token)).run()

    def _logs(self) -> Log:
        """Return the server's log of the run that has just ended."""
        self._channel.set_timeout(ANSWER_S + self._stall_s)
        _, arrays = self._channel.receive_arrays()
        self._channel.set_timeout(ANSWER_S)
        if arrays.keys() != {"samples", "pairs"}:
            raise SageccError(f"{self._host} has sent no log of the run")
        return Log(**arrays)

    def _offset(self) -> ClockOffset:
        """Return how far the server's clock is ahead now."""
        return ClockOffset.of(_trip(self._channel, self._clock, self._host) for _ in range(ROUND_TRIPS))


def _trip(channel: ControlChannel, clock: HostClock, host: str) -> RoundTrip:
    sent_ns = clock.now_ns()
    channel.send({"do": "time"})
    answer = channel.receive()
    received_ns = clock.now_ns()
    there_ns, back_ns = (_number(answer, name, host, int) for name in ("received_ns", "sent_ns"))
    return RoundTrip(sent_ns, there_ns, back_ns, received_ns)


def _number(message: Message, name: str, host: str, kind: type[Number]) -> Number:
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SageccError(f"{host} does not say its {name}")
    return kind(value)


def _connected(host: str, port: int, scheme: str | None = None) -> socket.socket:
    """Return a connection to a port of the server, by a scheme of this host's kernel if one is given.

    Raises:
        OSError: nothing answers there.
        SageccError: there is no such host.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        raise SageccError(f"{host}: there is no such host ({getattr(error, 'strerror', None) or error})") from None
    problem = OSError()
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            if scheme is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, scheme.encode())
            sock.settimeout(STRANGER_S)
            sock.connect(address)
        except OSError as error:
            sock.close()
            problem = error
            continue
        return stamped(sock)
    raise problem
