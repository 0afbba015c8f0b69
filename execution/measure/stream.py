# SPDX-License-Identifier: Apache-2.0
"""The data of a run: one TCP connection, random bytes as fast as its window allows, and what both kernels say of it.

Each 10 ms both ends read TCP_INFO, as in all real-time episodes (collector.realtime.endpoint). One-way delays are those
of data packets themselves: the sending kernel stamps when it hands the packet of a marked byte to the network device
(SOF_TIMESTAMPING_TX_SCHED with OPT_ID, Documentation/networking/timestamping.rst), the receiving kernel when a packet
arrives (SOF_TIMESTAMPING_RX_SOFTWARE). Neither needs a privilege, a second connection, or anything in the data.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from dataclasses import dataclass

from sagecc.collector.realtime.endpoint import RESET_ON_CLOSE, sample
from sagecc.common.errors import SageccError
from sagecc.execution.measure.clock import HostClock
from sagecc.schemas.raw import TICK_S

SO_TIMESTAMPING = 37
"""include/uapi/asm-generic/socket.h; of its messages too."""
RX_SOFTWARE, REPORT, OPT_ID, TX_SCHED, TIMES_ONLY = 1 << 3, 1 << 4, 1 << 7, 1 << 8, 1 << 11
"""SOF_TIMESTAMPING_* of include/uapi/linux/net_tstamp.h."""
ERRORS = {(socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25)}
"""IP_RECVERR and IPV6_RECVERR, with which a byte's number comes."""
TIMES, ERROR = struct.Struct("=6q"), struct.Struct("=IBBBBII")
"""struct scm_timestamping; struct sock_extended_err, whose last word is the byte's number."""
MARK = [(socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("=I", TX_SCHED))]
PAIR = struct.Struct("<qq")
"""Of marks and arrivals: bytes sent or received so far, and when (ns of CLOCK_REALTIME)."""

MARK_S = 2e-3
"""Time at the flow's rate from one marked byte to the next."""
LEAST_WRITE, MOST_WRITE = 1448, 1 << 16
READ_BYTES = 1 << 16
APART_NS = 200_000
"""Arrivals closer together than this count as one, at the last of them (ns)."""
GRACE_S = 2.0
"""For how long a receiver waits for the end of a run after its duration (s)."""
BURST_S = 0.1
"""What may be sent at once below a limit of the rate (s at it)."""
RANDOM_BYTES = 1 << 20


@dataclass(frozen=True)
class Stream:
    """What both ends of a run agree on."""

    duration_s: float
    """How long data are sent (s)."""

    stall_s: float
    """For how long nothing may get through (s)."""

    most_mbps: float
    """The most that is sent or read (Mbps)."""


@dataclass(frozen=True)
class Log:
    """What one end has recorded."""

    samples: bytes
    """Of collector.realtime.endpoint.SAMPLE, at the times of the end's own clock."""

    pairs: bytes
    """Of PAIR: at the sender of marked bytes as they leave, at the receiver of what arrives."""


class BrokenError(SageccError):
    """The path or the other host is gone in a run."""


class _End:
    """What sender and receiver share: ticks, samples, the limit of the rate, and how long nothing got through."""

    def __init__(self, sock: socket.socket, stream: Stream, clock: HostClock) -> None:
        sock.setblocking(False)
        self._sock, self._stream, self._clock = sock, stream, clock
        self._samples, self._pairs = bytearray(), bytearray()
        self._began_s = self._progress_s = time.monotonic()
        self._ticks = 0
        self._moved_bytes = self._through_bytes = 0

    @property
    def elapsed_s(self) -> float:
        """Time since the run began (s)."""
        return time.monotonic() - self._began_s

    def log(self) -> Log:
        """Return what was recorded."""
        return Log(bytes(self._samples), bytes(self._pairs))

    def _tick(self, through_offset: int) -> None:
        """Sample where a tick is due; raise BrokenError where nothing got through for too long.

        Args:
            through_offset: place in TCP_INFO of the counter of bytes that tells it.
        """
        elapsed_s = self.elapsed_s
        if elapsed_s < self._ticks * TICK_S:
            return
        self._ticks = int(elapsed_s / TICK_S) + 1
        row = sample(self._sock, 0, self._clock.now_ns)
        self._samples += row
        through_bytes = int.from_bytes(row[16 + through_offset : 24 + through_offset], "little")
        if through_bytes != self._through_bytes:
            self._through_bytes, self._progress_s = through_bytes, time.monotonic()
        elif time.monotonic() - self._progress_s > self._stream.stall_s:
            raise BrokenError(f"nothing got through for {self._stream.stall_s:g} s")

    @property
    def _wait_s(self) -> float:
        return max(self._ticks * TICK_S - self.elapsed_s, 0.0)

    @property
    def _allowed_bytes(self) -> int:
        """What may be sent or read now below the limit of the rate."""
        bytes_s = self._stream.most_mbps * 1e6 / 8
        return int(bytes_s * (self.elapsed_s + BURST_S)) - self._moved_bytes

    def _stamp_ns(self, seconds: int, ns: int) -> int:
        return self._clock.stamp_ns(seconds * 1_000_000_000 + ns)


class Sender(_End):
    """Sends over a connection."""

    ACKED = 120
    """Place of tcpi_bytes_acked."""

    def __init__(self, sock: socket.socket, stream: Stream, clock: HostClock, sent_bytes: int = 0) -> None:
        """Prepare to send.

        Args:
            sock: the connection, with the scheme that is measured; `stamped` before its first byte.
            stream: what both ends agree on.
            clock: this host's.
            sent_bytes: what was sent before, which the receiver counts too.
        """
        super().__init__(sock, stream, clock)
        self._moved_bytes = sent_bytes
        self._data = memoryview(os.urandom(RANDOM_BYTES))

    def run(self) -> Log:
        """Send until the duration is over, and reset the connection.

        Raises:
            BrokenError: the path, or the other host, is gone.
        """
        poller = select.epoll()
        poller.register(self._sock, select.EPOLLOUT)
        try:
            while self.elapsed_s < self._stream.duration_s:
                self._tick(self.ACKED)
                may_write = self._allowed_bytes >= LEAST_WRITE
                poller.modify(self._sock, select.EPOLLOUT if may_write else 0)
                for _, events in poller.poll(self._wait_s):
                    if events & select.EPOLLERR:
                        self._read_marks()
                    if events & select.EPOLLHUP:
                        raise BrokenError(self._reason())
                    if events & select.EPOLLOUT:
                        self._write()
            self._read_marks()
            self._samples += sample(self._sock, 0, self._clock.now_ns)
        except OSError as error:
            raise BrokenError(error.strerror or str(error)) from None
        finally:
            poller.close()
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._sock.close()
        return self.log()

    def _write(self) -> None:
        rate = self._through_bytes / max(self.elapsed_s, TICK_S)
        count = max(LEAST_WRITE, min(int(rate * MARK_S), MOST_WRITE, self._allowed_bytes))
        start = self._moved_bytes % (RANDOM_BYTES - MOST_WRITE)
        try:
            self._moved_bytes += self._sock.sendmsg([self._data[start : start + count]], MARK)
        except BlockingIOError:
            return

    def _read_marks(self) -> None:
        """Take the stamps of marked bytes that have left."""
        while True:
            try:
                _, notes, _, _ = self._sock.recvmsg(0, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            t_ns = number = None
            for level, kind, data in notes:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING):
                    seconds, ns, *_ = TIMES.unpack(data)
                    t_ns = self._stamp_ns(seconds, ns)
                elif (level, kind) in ERRORS:
                    code, origin, *_, number = ERROR.unpack(data[: ERROR.size])
                    if code != errno.ENOMSG or origin != 4:  # SO_EE_ORIGIN_TIMESTAMPING
                        number = None
            if t_ns is not None and number is not None:
                at = (number + 1) & 0xFFFFFFFF  # the kernel's number has 32 bits, and counts from 0
                wraps = round((self._moved_bytes - at) / 2**32)
                self._pairs += PAIR.pack(at + max(wraps, 0) * 2**32, t_ns)

    def _reason(self) -> str:
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return os.strerror(code) if code else "the other host has closed the connection"


class Receiver(_End):
    """Receives over a connection, and discards."""

    RECEIVED = 128
    """Place of tcpi_bytes_received."""

    def __init__(self, sock: socket.socket, stream: Stream, clock: HostClock, got_bytes: int = 0) -> None:
        """Prepare to receive; arguments are those of Sender, `got_bytes` what was received before."""
        super().__init__(sock, stream, clock)
        self._got_bytes = got_bytes
        self._last_ns = 0

    def run(self) -> Log:
        """Receive from the first byte on until the connection ends; whether that was in time the sender knows.

        Raises:
            BrokenError: nothing got through for too long.
        """
        scratch = bytearray(READ_BYTES)
        poller = select.epoll()
        poller.register(self._sock, select.EPOLLIN)
        try:
            if not poller.poll(self._stream.stall_s):
                raise BrokenError(f"nothing came for {self._stream.stall_s:g} s")
            self._began_s = self._progress_s = time.monotonic()
            while self.elapsed_s < self._stream.duration_s + GRACE_S:
                if self.elapsed_s < self._stream.duration_s:
                    self._tick(self.RECEIVED)
                poller.modify(self._sock, select.EPOLLIN if self._allowed_bytes > 0 else 0)
                events = poller.poll(self._wait_s or TICK_S)
                if events and not self._read(scratch, events[0][1]):
                    break
        finally:
            poller.close()
            self._sock.close()
        return self.log()

    def _read(self, scratch: bytearray, events: int) -> bool:
        """Discard what has arrived; return whether more may come."""
        try:
            count, notes, _, _ = self._sock.recvmsg_into([scratch], 256, socket.MSG_TRUNC)
        except BlockingIOError:
            return not events & select.EPOLLHUP
        except OSError:  # reset: the run is over
            return False
        if not count:
            return False
        self._moved_bytes += count
        self._got_bytes += count
        for level, kind, data in notes:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING):
                seconds, ns, *_ = TIMES.unpack(data)
                t_ns = self._stamp_ns(seconds, ns)
                if 0 <= t_ns - self._last_ns < APART_NS:
                    del self._pairs[-PAIR.size :]
                else:
                    self._last_ns = t_ns
                self._pairs += PAIR.pack(self._got_bytes, t_ns)
        return True


def stamped(sock: socket.socket) -> socket.socket:
    """Have the kernel stamp what arrives, and count the bytes that are sent, from the first one on."""
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE | REPORT | OPT_ID | TIMES_ONLY)
    return sock
