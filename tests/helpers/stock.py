# SPDX-License-Identifier: Apache-2.0
"""What tests on the machine's own kernel share: who can run them, a policy that holds its window, a shaped network."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.realtime.process import Program
from sagecc.collector.realtime.record import SAMPLES
from sagecc.common.errors import SageccError
from sagecc.execution.stock import libbpf
from sagecc.execution.stock.kernel_scheme import SCHEME, Scheme, why_not
from tests.conftest import ROOT

HERE = why_not("CAP_NET_ADMIN")
on_stock_kernel = pytest.mark.skipif(HERE is not None, reason=str(HERE))


def _why_no_libbpf() -> str | None:
    try:
        libbpf.library()
    except SageccError as error:
        return str(error)
    return None


NO_LIBBPF = _why_no_libbpf()
with_libbpf = pytest.mark.skipif(NO_LIBBPF is not None, reason=str(NO_LIBBPF))


def _why_no_network() -> str | None:
    missing = [tool for tool in ("ip", "tc", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"shaped networks need {', '.join(missing)}"
    script = "ip link add near type veth && tc qdisc add dev near root tbf rate 1mbit burst 3028 limit 9000"
    trial = ["unshare", "--net", "sh", "-c", script]
    return "no veth or no tbf here" if subprocess.run(trial, capture_output=True).returncode else None


NO_NETWORK = HERE or _why_no_network()
in_namespaces = pytest.mark.skipif(NO_NETWORK is not None, reason=str(NO_NETWORK))

SAGECC = [sys.executable, "-m", "sagecc"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
NAME = f"sagecc_t{os.getpid()}"
"""Of a scheme that a test registers for itself."""

PORT = 5000
TCP_INFO_BYTES = 280

SENDER = """
import hashlib, json, random, socket, sys, threading, time
address, port, scheme = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = random.Random(1).randbytes(1 << 20)
sock = socket.socket()
if scheme:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, scheme.encode())
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
sock.connect((address, port))
windows, over = [], threading.Event()
def sample():
    while not over.wait(0.02):
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 280)
        windows.append((time.monotonic(), int.from_bytes(info[80:84], "little"), info[1]))
def listen():
    sys.stdin.read()
    over.set()
threads = [threading.Thread(target=each) for each in (sample, listen)]
for thread in threads:
    thread.start()
digest, sent = hashlib.sha256(), 0
print("sending", flush=True)
while not over.is_set():
    part = data[sent % len(data) : sent % len(data) + (1 << 14)]
    sock.sendall(part)
    digest.update(part)
    sent += len(part)
for thread in threads:
    thread.join()
used = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\\0")[0].decode()
sock.shutdown(socket.SHUT_WR)
sock.recv(1)
print(json.dumps({"bytes": sent, "sha256": digest.hexdigest(), "windows": windows, "scheme": used}))
"""

RECEIVER = """
import hashlib, socket, sys
listener = socket.create_server(("", int(sys.argv[1])))
print("ready", flush=True)
digest, got = hashlib.sha256(), 0
sock, _ = listener.accept()
while data := sock.recv(1 << 16):
    digest.update(data)
    got += len(data)
sock.close()
print(got, digest.hexdigest(), flush=True)
"""


def scheme_in_use(name: str = SCHEME) -> bool:
    """Tell whether the kernel offers the scheme."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError:
            return False
    return True


@contextmanager
def registered_scheme(flows: int, trials: bool = False) -> Iterator[Scheme]:
    """Yield the scheme for so many sockets, registered under a name of the tests' own."""
    with closing(Scheme(flows, NAME, trials=trials)) as loaded:
        loaded.register()
        try:
            yield loaded
        finally:
            loaded.unregister()


@contextmanager
def connection(name: str = NAME) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a connection over loopback whose first end uses the scheme."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        sock.connect(listener.getsockname())
        other, _ = listener.accept()
        with other:
            yield sock, other


def tcp_info(sock: socket.socket) -> npt.NDArray[np.void]:
    """Return a socket's TCP_INFO, parsed."""
    data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    info: npt.NDArray[np.void] = np.frombuffer(data.ljust(TCP_INFO_BYTES, b"\0"), SAMPLES["info"])[0]
    return info


@contextmanager
def bpf_filesystem() -> Iterator[Path]:
    """Mount a BPF file system; take it off with all that is pinned there."""
    with tempfile.TemporaryDirectory(prefix="sagecc-bpf-") as folder:
        subprocess.run(["mount", "-t", "bpf", "bpf", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


class VethNetwork:
    """sender -- router [tbf] -- receiver, in namespaces that end with the test."""

    def __init__(self, stack: ExitStack, rate_mbps: float, queue_bytes: int) -> None:
        self._pids = [stack.enter_context(self._namespace()) for _ in range(3)]
        _, router, receiver = self._pids
        up = "ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; "
        self.do(0, up + f"ip link add out type veth peer name in netns {router}")
        self.do(0, "ip link set dev out gso_max_segs 1; ip addr add 10.0.0.1/24 dev out; ip link set out up")
        self.do(1, up + "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self.do(1, f"ip link add far type veth peer name in netns {receiver}")
        self.do(1, "ip addr add 10.0.0.254/24 dev in; ip link set in up; ip addr add 10.0.1.254/24 dev far")
        self.do(2, up + "ip addr add 10.0.1.1/24 dev in; ip link set in up; ip route add default via 10.0.1.254")
        self.do(
            1, f"tc qdisc add dev far root tbf rate {rate_mbps}mbit burst 3028 limit {queue_bytes}; ip link set far up"
        )
        self.do(0, "ip route add default via 10.0.0.254")

    @contextmanager
    def _namespace(self) -> Iterator[int]:
        with Program("test", "namespace", ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]) as program:
            program.wait_ready()
            yield program.pid

    def inside(self, node: int, command: list[str]) -> list[str]:
        """Return the command that runs another at a node: 0 sender, 1 router, 2 receiver."""
        return ["nsenter", f"--net=/proc/{self._pids[node]}/ns/net", *command]

    def do(self, node: int, script: str) -> None:
        """Run a script at a node."""
        subprocess.run(self.inside(node, ["sh", "-ec", script]), check=True, capture_output=True)

    def receiver(self, port: int = PORT) -> subprocess.Popen[str]:
        """Start a receiver that waits for one connection."""
        command = self.inside(2, [sys.executable, "-c", RECEIVER, str(port)])
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    def sender(self, scheme: str, port: int = PORT) -> list[str]:
        """Return the command of a sender, which sends until its standard input ends."""
        return self.inside(0, [sys.executable, "-c", SENDER, "10.0.1.1", str(port), scheme])


class Transfer:
    """Bytes on their way through a network, with the sender's window each 20 ms."""

    def __init__(self, network: VethNetwork, scheme: str = SCHEME) -> None:
        self._receiver = network.receiver()
        command = network.sender(scheme)
        self.sender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.sender.stdout is not None and self.sender.stdout.readline() == "sending\n"

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def finish(self, within_s: float = 60) -> dict[str, Any]:
        """End it; return windows [(s, packets, ca_state)] and the scheme, all bytes having arrived unchanged."""
        said, _ = self.sender.communicate(timeout=within_s)
        got, _ = self._receiver.communicate(timeout=within_s)
        assert self.sender.returncode == 0
        result: dict[str, Any] = json.loads(said)
        assert got.split() == [str(result["bytes"]), result["sha256"]]
        return result

    def stop(self) -> None:
        """End both ends."""
        for process in (self.sender, self._receiver):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
