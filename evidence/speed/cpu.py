# SPDX-License-Identifier: Apache-2.0
"""What a flow costs in CPU time, by scheme: on this machine's own kernel (root only), and in the lab.

On the kernel, flows share 200 Mbps between network namespaces. Counted are the sending process, as Orca's paper does,
and the policy's agent as `sagecc exec` starts it. In the lab, flows share the same rate; counted are the guest, which
has every sender, receiver and link, and the host's side. Two minutes; next to it stands what the papers say.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from evidence.machine import KERNEL, CpuTime, save
from evidence.speed.attach import RATE_MBPS, RUNTIME, end_if_refused, traffic
from evidence.speed.collect import flat
from sagecc.cli import errors_in_one_line
from sagecc.collector.realtime import host
from sagecc.common import shipped
from sagecc.common.shipped import BEST_POLICY, POOL_POLICY
from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.stock.supervisor import driving
from sagecc.schemas.environment import MTU_BYTES, CrossFlow
from sagecc.schemas.schemes import POLICY_PREFIX

POLICIES = tuple(f"{POLICY_PREFIX}{name}" for name in (BEST_POLICY, POOL_POLICY))
ON_KERNEL = ("cubic", "bbr", *POLICIES)
IN_LAB = ("cubic", "bbr2", *POLICIES)
FLOWS = (1, 10, 100)
SETTLE_S, MEASURE_S = 7.0, 8.0
"""All flows have begun after evidence.speed.attach.RAMP_S."""
LAB_S = 10.0
SCHEME = "sagecc_cpu"
"""In the kernel, of a policy's flows."""

PAPERS = (
    {
        "source": "Sage, section 8, footnote 11",
        "setting": "200 Mbps",
        "says": "Sage takes less than half of Aurora's CPU time and less than two thirds of Copa's",
    },
    {
        "source": "Orca, section 5.3, Fig. 10",
        "setting": "48 Mbps, 20 ms",
        "says": "Aurora and Vivace take more than a core; Orca takes less than Copa and other learned schemes",
    },
    {
        "source": "Astraea, section 5.4, Fig. 16a",
        "setting": "100 Mbps, 30 ms",
        "says": "Astraea takes 30 % less than Orca",
    },
    {
        "source": "Astraea, section 5.4, Fig. 16b",
        "setting": "1 to 1,000 flows",
        "says": "Orca's cost is linear in flows, and 80 cores do not serve 1,000; Astraea's, in batches, grows less",
    },
)
"""In words: the figures' numbers are not in their text."""


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process of one thread so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def sent_bytes(pid: int) -> int:
    """Return what the network devices of a process's namespace have sent, without loopback."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    devices = {name.strip(): counts.split() for name, counts in (line.split(":") for line in lines)}
    return sum(int(counts[8]) for name, counts in devices.items() if name != "lo")


def on_kernel(scheme: str, flows: int) -> dict[str, Any]:
    """Measure flows of a scheme of this machine's kernel, or of a policy under one agent."""
    is_policy = scheme.startswith(POLICY_PREFIX)
    with ExitStack() as stack:
        sender = stack.enter_context(traffic([SCHEME if is_policy else scheme] * flows))
        agent = None
        if is_policy:
            policy = shipped.policy(scheme.removeprefix(POLICY_PREFIX))
            agent, _, _ = stack.enter_context(driving(policy, RUNTIME, flows, SCHEME))
            os.sched_setscheduler(agent.pid, os.SCHED_FIFO, os.sched_param(host.PRIORITY))  # others may keep it waiting
        sender.send_line("go")
        time.sleep(SETTLE_S)
        if agent:
            agent.report()
        cpu_s, sent, began_s = process_cpu_s(sender.pid), sent_bytes(sender.pid), time.monotonic()
        time.sleep(MEASURE_S)
        wall_s = time.monotonic() - began_s
        cpu_s, sent = process_cpu_s(sender.pid) - cpu_s, sent_bytes(sender.pid) - sent
        timing = agent.report() if agent else None
    agent_s = timing.cpu_s * wall_s / timing.wall_s if timing else 0.0
    row = costs(scheme, flows, wall_s, sent, {"sender": cpu_s, "agent": agent_s})
    return row | ({"met": timing.met / timing.ticks} if timing else {})


def in_lab(scheme: str, flows: int) -> dict[str, Any]:
    """Measure one episode whose flows all begin at once."""
    environment = replace(flat(RATE_MBPS, LAB_S), cross=(CrossFlow(scheme),) * (flows - 1))
    begin = CpuTime.now()
    episode = play_episode(KERNEL, environment, scheme)
    end = CpuTime.now()
    packets = sum(flow.sent_packets - flow.lost_packets for flow in episode.flows)
    cpu_s = {"guest": end.children_s - begin.children_s, "host": end.own_s - begin.own_s}
    return costs(scheme, flows, LAB_S, packets * MTU_BYTES, cpu_s)


def costs(scheme: str, flows: int, seconds: float, carried: int, cpu_s: dict[str, float]) -> dict[str, Any]:
    """Return a row: each part's CPU time in ms per flow and second, and that of all parts in seconds per gigabyte.

    Args:
        scheme: of the flows.
        flows: how many.
        seconds: for how long (s).
        carried: by the link, of all flows (bytes).
        cpu_s: CPU seconds by part.
    """
    return {
        "scheme": scheme,
        "flows": flows,
        "carried_mbps": carried * 8 / 1e6 / seconds,
        "ms_per_flow_s": {part: spent * 1e3 / (flows * seconds) for part, spent in cpu_s.items()},
        "s_per_gb": sum(cpu_s.values()) / (carried / 1e9),
    }


def main() -> None:
    """Measure and save."""
    end_if_refused()
    for scheme in POLICIES:  # what runs a policy is compiled once
        in_lab(scheme, 1)
    begin, load = CpuTime.now(), os.getloadavg()[0]
    lab = [in_lab(scheme, flows) for scheme in tqdm(IN_LAB, desc="lab") for flows in FLOWS]
    kernel = [on_kernel(scheme, flows) for scheme in tqdm(ON_KERNEL, desc="kernel") for flows in FLOWS]
    result = {"rate_mbps": RATE_MBPS, "runtime": RUNTIME, "kernel": kernel, "lab": lab, "papers": PAPERS}
    result |= {"load_average": round(load, 1), "spent_s": round(CpuTime.now().since(begin))}
    save("cpu", result)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.cpu"):
        main()
