# SPDX-License-Identifier: Apache-2.0
"""Kill every stage and the agent, damage every kind of input (root only). A killed run goes on from build/torture."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

from evidence.machine import save
from sagecc.collector.realtime import host
from sagecc.common.errors import SageccError
from sagecc.execution.stock import kernel_scheme
from tests.torture import agents, kills, material, mutations, processes, stages, surroundings
from tests.torture.journal import Journal

STATE = stages.ROOT / "build" / "torture"
MATERIAL = STATE / "material"
SEED = 13
KILLS, INPUTS, TRIALS = 100, 10_000, 200
CLONE_NEWNS = 0x20000
NICE = 19


def main() -> None:
    """Run the lanes side by side to their ends, count, and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="of each stage, and of the agent")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="how many are damaged")
    parser.add_argument("--trials", type=int, default=TRIALS, help="how many commands run in bad surroundings")
    parser.add_argument("--replay", type=int, metavar="INDEX", help="try one damaged input again, here, and stop")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    parser.add_argument("--lane", choices=list(LANES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    reason = kernel_scheme.why_not() or host.why_not()
    if reason:
        sys.exit(f"torture needs a machine whose own kernel can be driven: {reason}")
    if options.replay is not None:
        print(mutations.attempt(options.replay, STATE / "replay" / "work", MATERIAL, SEED))
    elif options.lane:
        _lane(options)
    else:
        material.make(MATERIAL)
        _side_by_side(options)
        result = _count()
        if not options.dry:
            save("torture", result)
        print(f"{_findings(result)} findings; every row lies under {STATE}")


def _side_by_side(options: argparse.Namespace) -> None:
    numbers = ("--kills", str(options.kills), "--inputs", str(options.inputs), "--trials", str(options.trials))
    command = ("setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "tests.torture", *numbers, "--lane")
    lanes = {name: subprocess.Popen([*command, name]) for name in LANES}
    try:
        failed = [name for name, lane in lanes.items() if lane.wait()]
    except KeyboardInterrupt:
        for lane in lanes.values():
            lane.wait()
        sys.exit("interrupted; the same command goes on from here")
    if failed:
        sys.exit(f"not done: {', '.join(failed)}; the same command goes on from here")


def _lane(options: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what it has started ends in order
    os.nice(NICE)
    processes.adopt_orphans()
    _own_memory_folder()
    try:
        LANES[options.lane](options)
    except (SageccError, KeyboardInterrupt) as error:
        sys.exit(f"{options.lane}: {str(error) or 'interrupted'}")


def _stages(options: argparse.Namespace) -> None:
    for name, job in stages.jobs(MATERIAL).items():
        with _bar(0, name, options.kills, "kill") as bar:
            kills.torture(job, STATE / name, MATERIAL, options.kills, SEED, bar)


def _agents(options: argparse.Namespace) -> None:
    with _bar(1, "agent", options.kills, "kill") as bar:
        agents.torture(STATE / "agent", options.kills, SEED, bar)


def _inputs(options: argparse.Namespace) -> None:
    with _bar(2, "inputs", options.inputs, "input") as bar:
        mutations.torture(STATE / "inputs", MATERIAL, options.inputs, SEED, bar)


def _surroundings(options: argparse.Namespace) -> None:
    with _bar(3, "around", options.trials, "trial") as bar:
        surroundings.torture(STATE / "surroundings", MATERIAL, options.trials, SEED, bar)


LANES: dict[str, Callable[[argparse.Namespace], None]] = {
    "stages": _stages,
    "agents": _agents,
    "inputs": _inputs,
    "surroundings": _surroundings,
}


def _bar(position: int, name: str, total: int, unit: str) -> tqdm[Any]:
    return tqdm(total=total, desc=f"{name:8}", unit=unit, position=position, mininterval=1)


def _own_memory_folder() -> None:
    """Give this process and its children a /dev/shm that nobody else writes into: what is left there is theirs."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "a mount namespace is refused")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777,exec", "tmpfs", "/dev/shm"], check=True)


def _count() -> dict[str, Any]:
    """Return the figures of everything that was tried."""
    tried = Journal(STATE / "inputs" / "inputs.jsonl").rows
    return {
        "seed": SEED,
        "stages": {name: kills.summary(Journal(STATE / name / "kills.jsonl").rows) for name in stages.jobs(MATERIAL)},
        "agent": agents.summary(Journal(STATE / "agent" / "kills.jsonl").rows),
        "inputs": mutations.summary(tried),
        "surroundings": surroundings.summary(Journal(STATE / "surroundings" / "trials.jsonl").rows),
        "as_processes": sum(row["process"] for row in tried),
        "input_minutes": round(sum(row["seconds"] for row in tried) / 60, 1),
    }


def _findings(result: dict[str, Any]) -> int:
    parts = [*result["stages"].values(), result["agent"], *result["inputs"], *result["surroundings"]]
    return sum(sum(part["findings"].values()) for part in parts)


if __name__ == "__main__":
    main()
