# SPDX-License-Identifier: Apache-2.0
"""`sagecc attach` at work for long with flows that come and go, and its agent killed again and again (root only).

In parts: each run adds one to the result, and keeps it up to date each minute, so that a killed run loses no more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from evidence.machine import RESULTS, read_json, save
from evidence.speed.attach import end_if_refused, namespaces
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.common.shipped import SAFEST_POLICY
from sagecc.execution.stock import kernel_scheme
from sagecc.execution.stock.telemetry import resident_bytes

NAME = "attach_soak"
MODEL = Path("models") / SAFEST_POLICY
FLOWS = 1000
LIFE_S = 60.0
"""Mean of a flow's life, which is exponential; another begins when it ends."""
CHUNK_BYTES, PAUSE_S = 4096, 2.0
"""What a flow sends, and how long it then waits on average."""
STUCK_S = 10.0
"""A flow is stuck when nothing of what waits was acknowledged for so long."""
LOOK_S = 10.0
WARM_S = 120.0
"""By then each slot has been used, and the agent's memory touched."""
LOG = Path(".cache") / "attach_soak.log"
SAGECC = [sys.executable, "-m", "sagecc"]

SENDER = """
import heapq, json, os, random, resource, select, socket, struct, sys, time
flows, life_s, chunk, pause_s, stuck_s, scheme = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 14, 1 << 14))
draw, payload = random.Random(1), bytes(chunk)
poller, due, ends = select.poll(), [], {}
poller.register(sys.stdin, select.POLLIN)
begun = ended = sent = stuck = failed = 0
longest_s = 0.0
def begin(now):
    global begun, failed
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, scheme.encode())
    try:
        sock.connect(("10.0.1.1", 5000))
    except OSError:
        failed += 1
        sock.close()
        return heapq.heappush(due, (now + 1, -1, 0))
    sock.setblocking(False)
    begun += 1
    ends[begun] = [sock, now + draw.expovariate(1 / life_s), 0, now, False]
    heapq.heappush(due, (now, begun, 0))
start = time.monotonic()
for flow in range(flows):
    heapq.heappush(due, (start + flow * 10 / flows, -1, 0))
watched = start
print("ready", flush=True)
while True:
    now = time.monotonic()
    while due and due[0][0] <= now:
        _, flow, _ = heapq.heappop(due)
        if flow < 0:
            begin(now)
            continue
        sock, dies, _, _, _ = ends[flow]
        if now >= dies:
            sock.close()
            del ends[flow]
            ended += 1
            heapq.heappush(due, (now, -1, 0))
            continue
        try:
            sent += sock.send(payload)
        except BlockingIOError:
            pass
        except OSError:
            failed += 1
            sock.close()
            del ends[flow]
            heapq.heappush(due, (now, -1, 0))
            continue
        heapq.heappush(due, (now + draw.expovariate(1 / pause_s), flow, 0))
    if now - watched >= 1:
        watched = now
        for end in ends.values():
            info = end[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)
            acked = int.from_bytes(info[120:128], "little")
            waits = any(info[24:28]) or any(info[144:148])  # not acknowledged, not sent
            if acked != end[2] or not waits:
                end[2:] = [acked, now, False]
            longest_s = max(longest_s, now - end[3])
            if now - end[3] > stuck_s and not end[4]:
                end[4], stuck = True, stuck + 1
    wait_s = min(due[0][0] - now, 1) if due else 1
    if poller.poll(max(wait_s, 0.01) * 1000):
        if not sys.stdin.readline():
            sys.exit()
        names = ("begun", "ended", "open", "sent_bytes", "failed", "stuck", "longest_wait_s")
        values = (begun, ended, len(ends), sent, failed, stuck, round(longest_s, 2))
        print(json.dumps(dict(zip(names, values))), flush=True)
"""

RECEIVER = """
import resource, select, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 14, 1 << 14))
listener = socket.create_server(("", 5000), backlog=4096)
poller, ends = select.epoll(), {}
poller.register(listener, select.EPOLLIN)
poller.register(sys.stdin, select.EPOLLIN)
print("ready", flush=True)
while True:
    for number, _ in poller.poll(1):
        if number == sys.stdin.fileno():
            sys.exit()
        if number == listener.fileno():
            sock, _ = listener.accept()
            sock.setblocking(False)
            ends[sock.fileno()] = sock
            poller.register(sock, select.EPOLLIN)
            continue
        try:
            data = ends[number].recv(1 << 16)
        except BlockingIOError:
            continue
        except OSError:
            data = b""
        if not data:
            ends.pop(number).close()
"""


class Traffic:
    """FLOWS flows that come and go."""

    def __init__(self, stack: ExitStack) -> None:
        pids = stack.enter_context(namespaces())
        setting = json.dumps([FLOWS, LIFE_S, CHUNK_BYTES, PAUSE_S, STUCK_S, kernel_scheme.SCHEME])
        self._ends = []
        for pid, *command in ((pids[2], RECEIVER), (pids[0], SENDER, setting)):
            inside = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", *command]
            end = subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(_end, end)
            self._ends.append(end)
            assert end.stdout is not None
            if end.stdout.readline() != "ready\n":
                raise SageccError("the benchmark's traffic did not begin")

    def state(self) -> dict[str, Any]:
        """Return what the sender counted so far."""
        sender = self._ends[1]
        assert sender.stdin is not None and sender.stdout is not None
        sender.stdin.write("state\n")
        sender.stdin.flush()
        found: dict[str, Any] = json.loads(sender.stdout.readline())
        return found


class Attached:
    """`sagecc attach` as a process."""

    def __init__(self, pins: Path) -> None:
        command = [*SAGECC, "attach", "--policy", str(MODEL), "--pins", str(pins), "--flows", str(2 * FLOWS)]
        with LOG.open("ab") as target:
            at = target.tell()
            self.process = subprocess.Popen([*command, "--metrics", "9301"], stderr=target)
        until = time.monotonic() + 180
        while b"drives every socket" not in (said := LOG.read_bytes()[at:]):
            if self.process.poll() is not None or time.monotonic() > until:
                raise SageccError(f"attach did not begin: {said.decode(errors='replace').strip()}")
            time.sleep(0.1)
        self.agent = int(said.split(b"(process ")[1].split(b")")[0])
        self.begun_s = time.monotonic()

    def figures(self) -> dict[str, Any]:
        """Return memory, descriptors by kind and processor time of both processes."""
        pids = {"attach": self.process.pid, "agent": self.agent}
        return {
            who: {
                "rss_mib": round(resident_bytes(pid) / 2**20, 1),
                "descriptors": sum(kinds.values()),
                "bpf_maps": kinds["anon_inode:bpf-map"],
                "bpf_links": kinds["anon_inode:bpf_link"] + kinds["anon_inode:bpf-link"],
                "cpu_s": _cpu_s(pid),
            }
            for who, pid in pids.items()
            for kinds in [_descriptors(pid)]
        }

    def end(self) -> int:
        """End it; return its status."""
        self.process.terminate()
        return self.process.wait(60)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def _descriptors(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found[str(path.readlink())] += 1
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # from the third field of proc(5) on
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _bpf_folder() -> Iterator[Path]:
    """Mount a BPF file system, and take it off when `sagecc detach` has removed the pins."""
    with tempfile.TemporaryDirectory(prefix="sagecc-soak-") as folder:
        subprocess.run(["mount", "-t", "bpf", "bpf", folder], check=True)
        try:
            yield Path(folder) / "pins"
        finally:
            subprocess.run([*SAGECC, "detach", "--pins", Path(folder) / "pins"], check=True, stdout=subprocess.DEVNULL)
            left = (Path(folder) / "pins").exists() or _offered()
            subprocess.run(["umount", folder], check=True)
            if left:
                raise SageccError("detach has left pins or the scheme")


def _offered() -> bool:
    names = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return kernel_scheme.SCHEME in names


def soak(minutes: float, kills: int, keep: Any) -> None:
    """Run a part: steady for so long, then so many agents killed.

    keep: takes the part as it is so far.
    """
    part: dict[str, Any] = {"minutes": 0.0, "samples": [], "kills": [], "flows": {}, "load": 0.0}
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    with ExitStack() as stack:
        pins = stack.enter_context(_bpf_folder())
        attached = Attached(pins)
        stack.callback(lambda: attached.process.poll() is None and attached.end())
        traffic, begun_s = Traffic(stack), time.monotonic()
        saved_s = begun_s

        def note() -> None:
            part["minutes"] = round((time.monotonic() - begun_s) / 60, 2)
            part["flows"], part["load"] = traffic.state(), round(os.getloadavg()[1], 1)
            keep(part)

        while time.monotonic() - begun_s < 60 * minutes:
            time.sleep(LOOK_S)
            try:
                part["samples"].append({"s": round(time.monotonic() - begun_s, 1), **attached.figures()})
            except FileNotFoundError:
                raise SageccError(f"attach or its agent has ended: {LOG}") from None
            if time.monotonic() - saved_s >= 60:
                saved_s = time.monotonic()
                note()
        draw = random.Random(kills)
        for _ in range(kills):
            time.sleep(draw.uniform(0.2, 3))
            before = traffic.state()
            os.kill(attached.agent, signal.SIGKILL)
            status = attached.process.wait(60)
            time.sleep(2)
            after = traffic.state()
            part["kills"].append({"status": status, "sent_bytes": after["sent_bytes"] - before["sent_bytes"]})
            attached = Attached(pins)
            note()
        note()


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the page shows of all parts."""
    samples = [[each for each in part["samples"] if each["s"] >= WARM_S] for part in parts]
    samples = [run for run in samples if run and run[-1]["s"] > run[0]["s"]]
    ends = [(run[0], run[-1]) for run in samples]
    who = {}
    for process in ("attach", "agent"):
        spans = [(first[process], last[process], last["s"] - first["s"]) for first, last in ends]
        who[process] = {
            "rss_mib": [spans[0][0]["rss_mib"], spans[-1][1]["rss_mib"]] if spans else [],
            "growth_mib": round(max((last["rss_mib"] - first["rss_mib"] for first, last, _ in spans), default=0), 1),
            "descriptors": sorted({each[process]["descriptors"] for run in samples for each in run}),
            "bpf": sorted({each[process]["bpf_maps"] + each[process]["bpf_links"] for run in samples for each in run}),
            "cores": round(
                sum(last["cpu_s"] - first["cpu_s"] for first, last, _ in spans) / sum(s for _, _, s in spans), 2
            )
            if spans
            else None,
        }
    kills = [kill for part in parts for kill in part["kills"]]
    return {
        "parts": len(parts),
        "minutes": round(sum(part["minutes"] for part in parts), 1),
        "flows": {
            name: sum(part["flows"][name] for part in parts)
            for name in ("begun", "ended", "failed", "stuck", "sent_bytes")
        },
        "longest_wait_s": max(part["flows"]["longest_wait_s"] for part in parts),
        "load": max(part["load"] for part in parts),
        "processes": who,
        "kills": len(kills),
        "kills_without_progress": sum(kill["sent_bytes"] <= 0 or kill["status"] != 2 for kill in kills),
    }


def main() -> None:
    """Run a part and save all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--fresh", action="store_true", help="forget the parts of before")
    options = parser.parse_args()
    end_if_refused()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that nothing is left behind
    path = RESULTS / f"{NAME}.json"
    earlier = [] if options.fresh or not path.exists() else read_json(path)["result"]["parts"]

    def keep(part: dict[str, Any]) -> None:
        samples = part["samples"]
        thinned = samples[: -1 : max(1, len(samples) // 20)] + samples[-1:]
        parts = [*earlier, {**part, "samples": thinned}]
        save(
            NAME, {"policy": str(MODEL), "at_once": FLOWS, "life_s": LIFE_S, "summary": summary(parts), "parts": parts}
        )

    soak(options.minutes, options.kills, keep)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.attach_soak"):
        main()
