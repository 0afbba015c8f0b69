# SPDX-License-Identifier: Apache-2.0
"""`sagecc attach --share --watch`: a policy that floods its links is taken off, and its connections go on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from evidence.speed.attach_soak import RECEIVER
from sagecc.collector.realtime.process import Program
from sagecc.execution.stock.kernel_scheme import SCHEME
from tests.helpers.policies import save_still_policy
from tests.helpers.stock import ENVIRONMENT, SAGECC, bpf_filesystem, in_namespaces, scheme_in_use

pytestmark = pytest.mark.kernel

PATHS = 80
"""Connections, each on a link of its own; that a group gets fewer than a test needs, happens in one of 10^5 runs."""
RATE_KBIT, QUEUE_BYTES = 400, 15_000
OTHER = "reno"

SENDER = """
import json, select, socket, sys, time
paths = int(sys.argv[1])
sent, socks = [0] * paths, []
for path in range(paths):
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[2].encode())
    sock.connect((f"10.1.{path}.2", 5000))
    sock.setblocking(False)
    socks.append(sock)
    time.sleep(0.005)
poller = select.epoll()
poller.register(sys.stdin, select.EPOLLIN)
for path, sock in enumerate(socks):
    poller.register(sock, select.EPOLLOUT)
by_number = {sock.fileno(): path for path, sock in enumerate(socks)}
print("ready", flush=True)
while True:
    for number, _ in poller.poll(1):
        if number == sys.stdin.fileno():
            if not sys.stdin.readline():
                sys.exit()
            used = [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) for sock in socks]
            print(json.dumps({"sent": sent, "schemes": [name.split(b"\\0")[0].decode() for name in used]}), flush=True)
        else:
            sent[by_number[number]] += socks[by_number[number]].send(b"x" * 4096)
"""


@contextmanager
def sending() -> Iterator[subprocess.Popen[str]]:
    """Yield a sender with a connection on each of PATHS links, which says what it sent and by what when it is asked."""
    with ExitStack() as stack:
        holder = ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]
        nodes = [stack.enter_context(Program("test", "namespace", holder)) for _ in range(2)]
        for node in nodes:
            node.wait_ready()
        inside = [["nsenter", f"--net=/proc/{node.pid}/ns/net"] for node in nodes]
        links = "".join(
            f"link add a{n} type veth peer name b{n} netns {nodes[1].pid}\naddr add 10.1.{n}.1/24 dev a{n}\n"
            f"link set a{n} gso_max_segs 1 up\n"
            for n in range(PATHS)
        )
        ends = "link set lo up\n" + "".join(
            f"addr add 10.1.{n}.2/24 dev b{n}\nlink set b{n} up\n" for n in range(PATHS)
        )
        queues = "".join(
            f"qdisc add dev a{n} root tbf rate {RATE_KBIT}kbit burst 3028 limit {QUEUE_BYTES}\n" for n in range(PATHS)
        )
        for end, tool, batch in ((0, "ip", "link set lo up\n" + links), (0, "tc", queues), (1, "ip", ends)):
            subprocess.run([*inside[end], tool, "-batch", "-"], input=batch, text=True, check=True)
        stack.enter_context(Program("test", "receiver", [*inside[1], sys.executable, "-c", RECEIVER])).wait_ready()
        command = [*inside[0], sys.executable, "-c", SENDER, str(PATHS), SCHEME]
        sender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with sender:
            assert sender.stdout is not None and sender.stdout.readline() == "ready\n"
            yield sender


@in_namespaces
def test_a_canary_that_floods_is_taken_off_and_its_connections_go_on(tmp_path: Path) -> None:
    if scheme_in_use():
        pytest.skip("sagecc_pure is in use on this machine")
    policy = save_still_policy(tmp_path / "policy", log2_ratio=0.05)
    with ExitStack() as stack:
        pins = stack.enter_context(bpf_filesystem()) / "sagecc"
        detach = [*SAGECC, "detach", "--pins", str(pins)]
        stack.callback(lambda: subprocess.run(detach, env=ENVIRONMENT, check=True))
        options = ["--share", "50%", "--control", OTHER, "--watch", "--interval", "2s", "--metrics", "9319"]
        command = [*SAGECC, "attach", "--policy", str(policy), "--pins", str(pins), "--flows", "128", *options]
        attach = stack.enter_context(
            subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(attach.kill)
        assert attach.stderr is not None
        assert any("drives every socket" in line for line in attach.stderr)  # stops there
        sender = stack.enter_context(sending())
        page = ""
        while attach.poll() is None:
            try:
                with urllib.request.urlopen("http://127.0.0.1:9319/metrics", timeout=5) as answer:
                    page = answer.read().decode() or page
            except OSError:
                break
            time.sleep(0.2)
        table, log = attach.communicate(timeout=60)
        assert attach.returncode == 3
        assert re.search(r"the policy is taken off after \d+ intervals: (retransmitted|sRTT) .* against ", log)
        assert f"every connection gets {OTHER}" in log
        before = state(sender)
        time.sleep(2)
        after = state(sender)
    assert set(after["schemes"]) == {OTHER}
    assert all(later > sooner for later, sooner in zip(after["sent"], before["sent"], strict=True))
    drawn = dict(re.findall(r'sagecc_connections_total\{group="(\w+)"\} (\d+)', page))
    assert PATHS * 3 / 4 <= sum(map(int, drawn.values())) <= PATHS and min(map(int, drawn.values())) >= 20
    lines = table.splitlines()
    assert lines[0].split()[:3] == ["interval", "group", "connections"]
    assert [line.split()[1] for line in lines[1:]] == ["canary", "control"] * (len(lines) // 2)
    assert SCHEME not in after["schemes"]


def state(sender: subprocess.Popen[str]) -> dict[str, Any]:
    assert sender.stdin is not None and sender.stdout is not None
    sender.stdin.write("state\n")
    sender.stdin.flush()
    found: dict[str, Any] = json.loads(sender.stdout.readline())
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--share", "0%"], "--share is more than 0 % and at most 100 %"),
        (["--share", "101%"], "--share is more than 0 % and at most 100 %"),
        (["--watch"], "--watch compares the driven connections with others: give a --share"),
        (["--share", "5%", "--interval", "0.1s"], "--interval is at least 1 s"),
        (["--share", "5%", "--control", "nonsense"], "the kernel does not offer 'nonsense' to the other connections"),
        (["--metrics", "here"], "'here': an address is a port, such as 9300, or HOST:PORT"),
    ],
)
def test_a_trial_that_cannot_be_is_refused(options: list[str], message: str, tmp_path: Path) -> None:
    policy = save_still_policy(tmp_path / "policy")
    command = [*SAGECC, "attach", "--policy", str(policy), "--pins", str(tmp_path / "pins"), *options]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr
