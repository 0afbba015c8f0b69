# SPDX-License-Identifier: Apache-2.0
"""How much memory a running episode takes at its worst: the grid's fastest, longest, deepest link, every scheme.

Counted separately: the guest (its kernel with the file that is its memory, and its traced process; the
proportional set size of /proc/PID/smaps_rollup, sampled) and the process that reads and stores what it sends.
A guest never gives a page back, so what is sampled last is its peak.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from tqdm import tqdm

from evidence.machine import save
from evidence.speed.collect import cpu_s
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import set_one, set_two
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import SCHEMES

SAMPLE_S = 0.05
SET_TWO_SCHEMES = ("cubic", "bbr2")


def main() -> None:
    """Measure and save."""
    worst, longest, least = set_one(192, 1, 160, 16), set_two(192, 160, 16), set_one(12, 1, 10, 0.5)
    plan = [
        *((worst, scheme) for scheme in SCHEMES),
        *((longest, scheme) for scheme in SET_TWO_SCHEMES),
        (least, "cubic"),
    ]
    save("memory", {"episodes": [measure(environment, scheme) for environment, scheme in tqdm(plan, desc="memory")]})


def measure(environment: Environment, scheme: str) -> dict[str, object]:
    """Run one episode in a fresh process; return the peaks of guest and process in MB."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=run, args=(environment, scheme, theirs))
    process.start()
    theirs.close()
    if process.pid is None:
        raise SageccError("the episode's process did not start")
    guest = 0
    while not ours.poll(SAMPLE_S):
        guest = max(guest, sum(proportional_bytes(pid) for pid in descendants(process.pid)))
    try:
        collector = ours.recv()
    except EOFError:
        raise SageccError(f"{environment.id}.{scheme}: the episode failed (its own words are above)") from None
    process.join()
    return {
        "environment": environment.id,
        "scheme": scheme,
        "guest_mb": guest / 1e6,
        "collector_mb": collector / 1e6,
    }


def run(environment: Environment, scheme: str, to: Connection) -> None:
    """Run and store one episode; send this process's peak resident bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        cpu_s(environment, scheme, Path(scratch))
    to.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`, those that end meanwhile left out."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size of one process, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.memory"):
        main()
