# SPDX-License-Identifier: Apache-2.0
"""The host that serves: it receives, and sends by its kernel's schemes, for whoever has its key. It needs no root.

It drives the policies that it was started with, as root, and no other that a client names.

Two ports are open: one for control, one for data. A connection to the second begins with a token that control gave out,
for one run and a short time. Whatever a client asks for, a run is within the server's limits of time and rate, and a
client that is silent or stalls is dropped.
"""

from __future__ import annotations

import logging
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any

from sagecc.collector.realtime.record import check_host_scheme
from sagecc.common.errors import SageccError
from sagecc.common.terminals import one_line
from sagecc.execution.measure.channel import STRANGER_S, ControlChannel, ServerIdentity
from sagecc.execution.measure.clock import HostClock
from sagecc.execution.measure.driven import in_kernel
from sagecc.execution.measure.stream import Receiver, Sender, Stream, stamped
from sagecc.schemas.measured import DOWN, UP, HostVersions
from sagecc.schemas.schemes import POLICY_PREFIX, is_driven

LOG = logging.getLogger("sagecc")

TOKEN_BYTES = 32
CONNECT_S = 10.0
"""For how long a run's connection of data is waited for (s)."""
IDLE_S = 180.0
"""For how long a client may be silent between runs, in which it may load a policy (s)."""
RETRY_S = 0.1
NAME_CHARACTERS = 200
"""Longest name of a scheme."""
STRANGERS = 16
"""Most connections at once of who has not proved to have the key, to each port."""


@dataclass(frozen=True)
class Allowed:
    """What a server allows its clients."""

    max_duration_s: float
    """Longest run (s)."""

    max_rate_mbps: float
    """The most that a run may send or receive (Mbps)."""

    sessions: int
    """Clients at once."""

    stall_s: float
    """After how long of nothing a run is dropped (s)."""

    policies: tuple[str, ...] = ()
    """Policies by which it sends, as schemes (`policy:NAME`); it needs root for them."""


class MeasureServer:
    """Two listening ports, and a thread for each client."""

    def __init__(
        self, address: str, ports: tuple[int, int], key: bytes, allowed: Allowed, clock: HostClock | None = None
    ) -> None:
        """Open the ports.

        Args:
            address: where to listen: an address of this host, or "" for all.
            ports: of control and of data; 0 for any.
            key: the shared key.
            allowed: limits of what clients may do.
            clock: this host's.

        Raises:
            SageccError: a port is taken, or cannot be had.
        """
        self._key, self._allowed, self._clock = key, allowed, clock or HostClock()
        self._identity = ServerIdentity()
        self._sessions, self._policy = threading.Semaphore(allowed.sessions), threading.Lock()
        self._expected: dict[bytes, queue.Queue[socket.socket]] = {}
        with ExitStack() as stack:
            self._listeners = [stack.enter_context(closing(_listener(address, port))) for port in ports]
            stack.pop_all()

    @property
    def ports(self) -> tuple[int, int]:
        """Ports of control and of data."""
        control, data = (int(listener.getsockname()[1]) for listener in self._listeners)
        return control, data

    def run(self) -> None:
        """Serve until the process ends, or the ports are closed."""
        control, data = self._listeners
        threading.Thread(target=self._accept, args=(data, self._take_data), daemon=True).start()
        self._accept(control, self._talk)

    def close(self) -> None:
        """Close the ports."""
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
            listener.close()

    def _accept(
        self, listener: socket.socket, handle: Callable[[socket.socket, str, threading.Semaphore], None]
    ) -> None:
        """Hand each connection to a thread of its own; of too many strangers the newest is dropped."""
        strangers = threading.Semaphore(STRANGERS)
        while True:
            try:
                sock, (address, *_) = listener.accept()
            except OSError:
                if listener.fileno() < 0:
                    return
                time.sleep(RETRY_S)
                continue
            if not strangers.acquire(blocking=False):
                sock.close()
                continue
            sock.settimeout(STRANGER_S)
            threading.Thread(
                target=handle, args=(sock, address.removeprefix("::ffff:"), strangers), daemon=True
            ).start()

    def _take_data(self, sock: socket.socket, peer: str, strangers: threading.Semaphore) -> None:
        """Hand a connection of data to the run whose token comes first; drop any other."""
        try:
            stamped(sock)
            token = sock.recv(TOKEN_BYTES, socket.MSG_WAITALL)
        except OSError:
            token = b""
        finally:
            strangers.release()
        waiting = self._expected.pop(token, None)
        if waiting is None:
            sock.close()
        else:
            waiting.put(sock)

    def _talk(self, sock: socket.socket, peer: str, strangers: threading.Semaphore) -> None:
        """Serve one client to its end, whatever it does."""
        try:
            try:
                channel = self._identity.accept(sock, peer)
                channel.welcome(self._key)
            finally:
                strangers.release()
            with closing(channel):
                self._serve(channel, peer)
        except SageccError as error:
            LOG.warning("%s: %s", peer, one_line(str(error)))
        finally:
            sock.close()

    def _serve(self, channel: ControlChannel, peer: str) -> None:
        channel.set_timeout(IDLE_S)
        if not self._sessions.acquire(blocking=False):
            channel.send({"error": f"busy: it lets {self._allowed.sessions} measure at once; try again later"})
            return
        LOG.info("%s: measures", peer)
        try:
            versions = asdict(HostVersions.here())
            channel.send({**asdict(self._allowed), "data_port": self.ports[1], "versions": versions})
            while (message := channel.receive()).get("do") != "end":
                self._answer(channel, message, peer)
            LOG.info("%s: done", peer)
        finally:
            self._sessions.release()

    def _answer(self, channel: ControlChannel, message: dict[str, Any], peer: str) -> None:
        received_ns = self._clock.now_ns()
        match message:
            case {"do": "time"}:
                channel.send({"received_ns": received_ns, "sent_ns": self._clock.now_ns()})
            case {"do": "check", "schemes": [*schemes]}:
                channel.send(
                    {"refused": {str(scheme): reason for scheme in schemes if (reason := self._why_not(scheme))}}
                )
            case {
                "do": "run",
                "direction": "up" | "down" as direction,
                "scheme": str(scheme),
                "duration_s": duration_s,
            }:
                self._run(channel, direction, scheme, duration_s, peer)
            case _:
                channel.send({"error": "no such request"})
                raise SageccError("asks for what there is not")

    def _run(self, channel: ControlChannel, direction: str, scheme: str, duration_s: object, peer: str) -> None:
        allowed = self._allowed
        problem = self._why_not(scheme) if direction == DOWN else None
        if not isinstance(duration_s, int | float) or not 0 < duration_s <= allowed.max_duration_s:
            problem = f"a run lasts {allowed.max_duration_s:g} s at most"
        if problem:
            channel.send({"error": problem})
            raise SageccError(problem)
        stream = Stream(float(duration_s), allowed.stall_s, allowed.max_rate_mbps)  # type: ignore[arg-type]
        try:
            with self._in_kernel(direction, scheme) as kernel_scheme, self._connection(channel) as sock:
                if direction == UP:
                    channel.send({"do": "go"})
                    log = Receiver(sock, stream, self._clock, TOKEN_BYTES).run()
                else:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, kernel_scheme.encode())
                    log = Sender(sock, stream, self._clock).run()
        except SageccError as error:
            channel.send({"error": f"the run broke: {error}"})
            raise
        channel.send({"do": "logs"}, samples=log.samples, pairs=log.pairs)
        LOG.info("%s: %s %s, %g s", peer, direction, scheme if direction == DOWN else "data", stream.duration_s)

    @contextmanager
    def _in_kernel(self, direction: str, scheme: str) -> Iterator[str]:
        """Yield the name of a run's scheme in this host's kernel; none is needed to receive."""
        if direction == UP:
            yield ""
            return
        with self._policy if is_driven(scheme) else nullcontext(), in_kernel(scheme) as kernel_scheme:
            yield kernel_scheme

    @contextmanager
    def _connection(self, channel: ControlChannel) -> Iterator[socket.socket]:
        """Yield a run's connection of data, for which the client gets a token.

        Raises:
            SageccError: none comes.
        """
        with self._token() as (token, waiting):
            channel.send({"token": token.hex()})
            try:
                sock = waiting.get(timeout=CONNECT_S)
            except queue.Empty:
                raise SageccError(f"no connection came to the data port within {CONNECT_S:g} s: open it too") from None
        with sock:
            yield sock

    def _why_not(self, scheme: object) -> str | None:
        """Return why this host does not send by a scheme, or None if it does."""
        name = str(scheme)[:NAME_CHARACTERS]
        if name in self._allowed.policies:
            return None
        if name.startswith(POLICY_PREFIX):
            command = f"sagecc measure serve --policy {name.removeprefix(POLICY_PREFIX)}"
            return f"the host that serves drives no such policy: start '{command}' there, as root"
        try:
            check_host_scheme(name)
        except SageccError as error:
            return str(error)
        return None

    @contextmanager
    def _token(self) -> Any:
        """Expect a connection of data; yield its token, and the queue that it comes through."""
        token, waiting = secrets.token_bytes(TOKEN_BYTES), queue.Queue[socket.socket](1)
        self._expected[token] = waiting
        try:
            yield token, waiting
        finally:
            self._expected.pop(token, None)


def _listener(address: str, port: int) -> socket.socket:
    """Return a listening socket; on all addresses, of IPv4 and IPv6 both where there is IPv6."""
    try:
        if address:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((address, port), family=family)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SageccError(f"port {port} of {address or 'this host'} cannot be had ({reason}): choose another") from None
