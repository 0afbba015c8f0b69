# SPDX-License-Identifier: Apache-2.0
"""The agent, killed in mid-transfer on this machine's own kernel: the flow goes on by Reno's rules, to its end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from sagecc.common.errors import SageccError
from sagecc.execution.stock import libbpf
from sagecc.execution.stock.cgroup import PREFIX
from sagecc.execution.stock.kernel_scheme import SCHEME
from tests.helpers.policies import save_still_policy
from tests.helpers.stock import Transfer, VethNetwork, bpf_filesystem, scheme_in_use
from tests.torture.journal import Journal
from tests.torture.material import ENVIRONMENT
from tests.torture.processes import below, left_behind
from tests.torture.stages import SAGECC

RATE_MBPS, QUEUE_PACKETS = 12, 40
FLOWS = 8

A_TRANSFER = 10
"""Agents that are killed one after another in one transfer under `sagecc attach`."""

ATTACH_WAYS = ("agent", "attach", "both", "stopped")
EXEC_WAYS = ("agent", "exec", "both", "stopped", "group")
"""Who is killed: the agent, the command above it, both at once, an agent that hangs (is stopped), the whole group with
the program in it."""

MOVES_S = 1.0
"""Within this a window that an agent held must move by itself: 0.2 s of silence, a round trip, the sampling."""

ALONE_S = 3.0
"""How long a flow is watched without its agent."""

Window = tuple[float, int, int]
"""When (CLOCK_MONOTONIC, s), packets, state of the congestion control."""


def torture(folder: Path, kills: int, seed: int, bar: tqdm[Any]) -> None:
    """Kill so many agents: seven of ten under `sagecc attach`, the others under `sagecc exec`; a row each."""
    journal = Journal(folder / "kills.jsonl")
    policy = save_still_policy(folder / "policy")
    attached = kills * 7 // 10
    _clear(folder / "under way")
    bar.update(sum("kill" in row for row in journal.rows))
    while (done := sum("kill" in row for row in journal.rows)) < kills:
        rng, begun = random.Random(f"{seed} agent {done}"), time.monotonic()
        (folder / "under way").touch()
        with nothing_stays() as findings:
            left = min(A_TRANSFER, attached - done)
            rows = _attach(policy, rng, left) if left > 0 else [_exec(policy, rng)]
        (folder / "under way").unlink()
        rows[-1]["findings"] += findings
        seconds = round((time.monotonic() - begun) / len(rows), 2)
        for number, row in enumerate(rows):
            journal.add({"kill": done + number, **row, "seconds": seconds})
        bar.update(len(rows))


def _clear(under_way: Path) -> None:
    """Remove the scheme that a killed benchmark has left. Raises SageccError where it is another's."""
    if under_way.exists():
        _detach(None)
    elif scheme_in_use():
        raise SageccError(f"{SCHEME} is in use on this machine: wait for that, or remove it with 'sagecc detach'")


@contextmanager
def nothing_stays() -> Iterator[list[str]]:
    """Yield a list that at the end has what stayed in the kernel or below this process."""
    found: list[str] = []
    before = set(libbpf.map_ids())
    yield found
    until = time.monotonic() + 5
    while (left := set(libbpf.map_ids()) - before) and time.monotonic() < until:
        time.sleep(0.05)
    found += [f"left behind: a BPF map ({number})" for number in left]
    found += [f"left behind: {SCHEME}"] * scheme_in_use()
    found += [f"left behind: {group}" for group in Path("/sys/fs/cgroup").rglob(f"{PREFIX}*")]
    found += [f"left behind: {seen}" for seen in left_behind(5)]


def _attach(policy: Path, rng: random.Random, kills: int) -> list[dict[str, Any]]:
    """Kill agents of `sagecc attach` one after another in one transfer."""
    rows: list[dict[str, Any]] = []
    alone: list[tuple[float, float]] = []
    with ExitStack() as stack:
        network = VethNetwork(stack, RATE_MBPS, QUEUE_PACKETS * 1500)
        pins = stack.enter_context(bpf_filesystem()) / "sagecc"
        stack.callback(_detach, pins)
        transfer: Transfer | None = None
        for _ in range(kills):
            arguments = ["attach", "--policy", str(policy), "--pins", str(pins), "--flows", str(FLOWS)]
            with subprocess.Popen([*SAGECC, *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as attach:
                agent = _agent_of(attach)
                alone[-1:] = [(*alone[-1][:1], time.monotonic())] if alone else []
                transfer = transfer or stack.enter_context(Transfer(network))
                time.sleep(rng.uniform(0.3, 1.3))
                row, at = _kill(rng.choice(ATTACH_WAYS), attach, agent)
                rows.append(row)
                alone.append((at, at + ALONE_S))
                time.sleep(ALONE_S)
        assert transfer is not None
        try:
            windows: Sequence[Window] = transfer.finish()["windows"]
        except (AssertionError, subprocess.TimeoutExpired) as error:
            rows[-1]["findings"].append(f"stuck: the transfer did not end ({error})")
            return rows
    for row, (begin_s, end_s) in zip(rows, alone, strict=True):
        row["findings"] += [f"stuck: {why}" for why in not_reno(windows, begin_s, end_s)]
    return rows


def _exec(policy: Path, rng: random.Random) -> dict[str, Any]:
    """Kill the agent of `sagecc exec`, which runs a sender."""
    with ExitStack() as stack:
        network = VethNetwork(stack, RATE_MBPS, QUEUE_PACKETS * 1500)
        receiver = network.receiver()
        program = ["exec", "--policy", str(policy), "--flows", str(FLOWS), "--", *network.sender("")]
        process = subprocess.Popen(
            [*SAGECC, *program],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        stack.callback(_detach, None)
        stack.callback(_end, process, receiver)
        agent = _agent_of(process)
        assert process.stdout is not None
        if process.stdout.readline() != "sending\n":
            return {"way": "none", "victim": "none", "status": None, "said": "", "findings": ["the sender failed"]}
        time.sleep(rng.uniform(0.3, 1.3))
        way = rng.choice(EXEC_WAYS)
        row, at = _kill(way, process, agent)
        if way == "group":  # the sender too
            return row
        time.sleep(ALONE_S)
        try:
            said, _ = process.communicate(timeout=60)
            got, _ = receiver.communicate(timeout=60)
            result = json.loads(said)
        except (subprocess.TimeoutExpired, ValueError) as error:
            row["findings"].append(f"stuck: the transfer did not end ({error})")
            return row
        if got.split() != [str(result["bytes"]), result["sha256"]]:
            row["findings"].append("lost: other bytes arrived than were sent")
        row["findings"] += [f"stuck: {why}" for why in not_reno(result["windows"], at, at + ALONE_S)]
        return row


def _agent_of(process: subprocess.Popen[str]) -> int:
    """Wait until a command's agent drives; return its process id."""
    assert process.stderr is not None
    for line in process.stderr:
        if "drives every socket" in line:
            return int(line.split("(process ")[1].split(")")[0])
    raise RuntimeError("the agent never drove")


def _kill(way: str, process: subprocess.Popen[str], agent: int) -> tuple[dict[str, Any], float]:
    """Kill; return the row and when it was done."""
    if way == "stopped":
        os.kill(agent, signal.SIGSTOP)
        at = time.monotonic()
        time.sleep(0.5)
        os.kill(agent, signal.SIGKILL)
    elif way == "group":
        os.killpg(process.pid, signal.SIGKILL)
        at = time.monotonic()
    else:
        if way != "agent":
            process.kill()
        if way in ("agent", "both"):
            with suppress(ProcessLookupError):
                os.kill(agent, signal.SIGKILL)
        at = time.monotonic()
    return {"way": way, "victim": "agent" if way in ("agent", "stopped") else "command", "findings": []}, at


def _detach(pins: Path | None) -> None:
    where = ["--pins", str(pins)] if pins else []
    subprocess.run([*SAGECC, "detach", *where], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, timeout=60)


def _end(process: subprocess.Popen[str], receiver: subprocess.Popen[str]) -> None:
    """End both ends and what is below them."""
    pids = [seen.pid for seen in below(process.pid)]
    for pid in (*pids, process.pid, receiver.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for each in (process, receiver):
        each.wait()
        for pipe in (each.stdin, each.stdout, each.stderr):
            if pipe:
                pipe.close()


def not_reno(windows: Sequence[Window], begin_s: float, end_s: float) -> list[str]:
    """Return what of a flow that was left alone does not follow Reno's rules: it moves, rises slowly, halves."""
    soon = [cwnd for t_s, cwnd, _ in windows if begin_s - 0.1 <= t_s < begin_s + MOVES_S]
    then = [cwnd for t_s, cwnd, _ in windows if begin_s + MOVES_S <= t_s < end_s]
    if len(set(soon)) < 2:
        return [f"the window did not move within {MOVES_S:g} s"]
    steps = [after - before for before, after in pairwise(then)]
    rises, falls = [step for step in steps if step > 0], [b / a for a, b in pairwise(then) if b < a]
    wrong = []
    if not rises or median(rises) > 4:
        wrong.append(f"the window does not rise packet by packet: {rises[:10]}")
    if max(then, default=0) > 1.5 * QUEUE_PACKETS:
        wrong.append(f"the window rises to {max(then)} packets")
    if not falls or min(falls) > 0.7:
        wrong.append(f"the window does not halve: {falls[:10]}")
    return wrong


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the agents' rows."""
    return {
        "kills": len(rows),
        "ways": dict(sorted(Counter(row["way"] for row in rows).items())),
        "findings": dict(Counter(finding.partition(":")[0] for row in rows for finding in row["findings"])),
        "minutes": round(sum(row["seconds"] for row in rows) / 60, 1),
    }
