# SPDX-License-Identifier: Apache-2.0
"""The first ten minutes of an analyst, of somebody with a scheme, and of somebody who deploys: each command's time.

As root, in a folder and a home of their own; what is deployed sends over a link between two network namespaces.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.common.shipped import BEST_POLICY

README = Path(__file__).parents[2] / "README.md"
QUESTION = (
    "SELECT scheme, round(avg(goodput_mbps), 2) AS mbps, round(avg(delay_mean_ms), 1) AS ms "
    "FROM episodes GROUP BY ALL ORDER BY ms LIMIT 4"
)
SCHEME = "gentle.py"
CLIENT, SERVER, ADDRESS = "newcomer-client", "newcomer-server", "10.77.0.2"
RATE_MBPS, QUEUE_MS, SENT_MB = 48, 40, 30
SEND = (
    "import socket, sys; s = socket.create_connection((sys.argv[1], 5001)); "
    "s.sendall(bytes(int(sys.argv[2]) * 10**6)); s.shutdown(1); s.recv(1)"
)
SINK = """
import socket, time
server = socket.create_server(("", 5001))
print("ready", flush=True)
peer, _ = server.accept()
start, count = time.perf_counter(), 0
while data := peer.recv(1 << 20):
    count += len(data)
print(f"{count * 8e-6 / (time.perf_counter() - start):.1f} Mbps arrived")
peer.sendall(b".")
"""


def main() -> None:
    """Measure and save."""
    if os.geteuid():
        raise SageccError("network namespaces and BPF need root: run this as root")
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / SCHEME).write_text(readme_scheme())
        busy = round(os.getloadavg()[0], 1)
        readers = {"analyst": analyst(folder), "scheme": scheme(folder), "deploy": deploy(folder)}
        save("newcomer", {"load_average": busy, "readers": readers})


def readme_scheme() -> str:
    """Return the Python scheme that README.md shows."""
    found = re.search(r"```python\n(class .*?)```", README.read_text(), re.DOTALL)
    if found is None:
        raise SageccError(f"{README}: shows no scheme")
    return found[1]


def analyst(folder: Path) -> list[dict[str, object]]:
    """Collect a few episodes, derive their pool and ask it."""
    kernel = ("--kernel", str(KERNEL.resolve()))
    return [
        timed(folder, ("collect", "--profile", "smoke"), kernel),
        timed(folder, ("pool",)),
        timed(folder, ("sql", QUESTION)),
    ]


def scheme(folder: Path) -> list[dict[str, object]]:
    """Compare README's scheme with Cubic."""
    command = ("compare", "cubic", f"python:{SCHEME}:Gentle")
    return [timed(folder, command, ("--kernel", str(KERNEL.resolve())))]


def deploy(folder: Path) -> list[dict[str, object]]:
    """Look at the machine, then send over a link of its own with a policy in charge."""
    looked = timed(folder, ("doctor",), may_fail=True)
    looked["output"] = str(looked["output"]).rpartition("\n\n")[2]  # the lines above name this machine's places
    with link():
        sink = subprocess.Popen(
            ["ip", "netns", "exec", SERVER, sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True
        )
        try:
            output = cast(IO[str], sink.stdout)
            output.readline()
            program = ("ip", "netns", "exec", CLIENT, sys.executable, "-c", SEND, ADDRESS, str(SENT_MB))
            sent = timed(folder, ("exec", "--policy", BEST_POLICY, "--", *program), with_errors=True)
            arrived = output.read().strip()
        finally:
            sink.kill()
            sink.wait()
    sent["command"] = f"sudo sagecc exec --policy {BEST_POLICY} -- ip netns exec client PROGRAM"
    sent["output"] = "\n".join(part for part in (str(sent["output"]), arrived) if part)
    return [looked, sent]


@contextmanager
def link() -> Iterator[None]:
    """Yield with two namespaces and a link between them, its queue QUEUE_MS long; take them away again."""

    def run(*words: str) -> None:
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise SageccError(f"{' '.join(words)}: {done.stderr.strip()}")

    try:
        for name in (CLIENT, SERVER):
            run("ip", "netns", "add", name)
        run("ip", "link", "add", "nc0", "netns", CLIENT, "type", "veth", "peer", "name", "nc1", "netns", SERVER)
        for name, device, address in ((CLIENT, "nc0", "10.77.0.1"), (SERVER, "nc1", ADDRESS)):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        shape = ("rate", f"{RATE_MBPS}mbit", "burst", "32kb", "latency", f"{QUEUE_MS}ms")
        run("tc", "-n", CLIENT, "qdisc", "add", "dev", "nc0", "root", "tbf", *shape)
        yield
    finally:
        for name in (CLIENT, SERVER):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def timed(
    folder: Path, words: Sequence[str], also: Sequence[str] = (), with_errors: bool = False, may_fail: bool = False
) -> dict[str, object]:
    """Run `sagecc` once.

    Args:
        folder: where, and its home.
        words: as a reader types them.
        also: what only this place needs.
        with_errors: whether its output has what it writes to standard error.
        may_fail: whether another status than 0 is an answer.

    Returns:
        command, wall_s, status, and what it printed.

    Raises:
        SageccError: it failed.
    """
    place: Mapping[str, str] = {"HOME": str(folder), "NUMBA_CACHE_DIR": str(folder / "numba"), "PYTHONPATH": ""}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "sagecc", words[0], *also, *words[1:]],
        cwd=folder,
        env={**os.environ, **place},
        capture_output=True,
        text=True,
    )
    wall_s = time.perf_counter() - start
    if done.returncode and not may_fail:
        raise SageccError(f"sagecc {words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    shown = " ".join(f'"{word}"' if " " in word else word for word in ("sagecc", *words))
    output = (done.stdout + (done.stderr if with_errors else "")).replace(str(folder), ".").strip()
    return {"command": shown, "wall_s": round(wall_s, 1), "status": done.returncode, "output": output}


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.newcomer"):
        main()
