# SPDX-License-Identifier: Apache-2.0
"""The lab against the host's own kernel: the same networks in virtual time and in real time (root only).

Half an hour; each episode in real time is kept under build/fidelity as it ends, so that a killed run goes on.
`python -m evidence.behaviour.fidelity --again` measures everything anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.realtime.host import run_on_host, why_not
from sagecc.collector.run.grid import bottleneck
from sagecc.common.files import write_atomically
from sagecc.schemas.environment import Environment, dumbbell

KEPT = Path("build/fidelity")
SCHEMES = ("reno", "cubic", "bbr")
KINDS = {"reno and cubic": ("reno", "cubic"), "bbr": ("bbr",)}
RATES_MBPS = (12.0, 48.0)
RTTS_MS = (20.0, 40.0)
QUEUES_BDP = (1.0, 2.0)
DURATION_S = 30.0
REPEATS = 3

Run = dict[str, Any]


def network(rate_mbps: float, rtt_ms: float, queue_bdp: float, duration_s: float = DURATION_S) -> Environment:
    """Return a flat dumbbell, half of its RTT in each direction."""
    link = bottleneck(rate_mbps, 1, rtt_ms, queue_bdp, duration_s)
    return dumbbell("custom", link, rtt_ms / 2, duration_s, ((0.0, duration_s),))


def in_real_time(environment: Environment, scheme: str, repeat: int) -> Run:
    """Run one episode on the host's kernel, or return it as it was kept."""
    path = KEPT / f"{environment.id}.{scheme}.{repeat}.json"
    if path.exists():
        earlier: Run = json.loads(path.read_text())
        return earlier
    load = os.getloadavg()[0]
    run = run_on_host(environment, scheme, repeat)
    flow = run.episode.flows[0]
    tell(run.episode)
    result: Run = {
        "goodput_mbps": flow.goodput_mbps,
        "queueing_ms": run.queueing_ms,
        "drops": flow.lost_packets,
        "notice": flow.notice,
        "stalled_ms": run.stalled_ms,
        "there": asdict(run.data_error),
        "back": asdict(run.ack_error),
        "load": load,
    }
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(result))
    return result


def tell(episode: Episode) -> None:
    """Print a line for each flow of an episode in real time that something else than its window bound."""
    for flow in episode.flows:
        if flow.notice:
            tqdm.write(f"{episode.id}: {flow.scheme} was {flow.notice}")


def in_virtual_time(environment: Environment, scheme: str) -> Run:
    """Run one episode in the lab."""
    episode = run_episode(KERNEL, environment, scheme)
    return {
        "goodput_mbps": episode.flows[0].goodput_mbps,
        "queueing_ms": queueing_ms(episode),
        "drops": episode.flows[0].lost_packets,
    }


def queueing_ms(episode: Episode) -> float:
    """Return the mean delay beyond propagation: queue and transmission."""
    return episode.flows[0].delay_mean_ms - episode.environment.bottleneck.delay_ms


def with_jitter(environment: Environment, runs: Sequence[Run]) -> Environment:
    """Return the network with jitter on both ways, as far to either side as 99 % of the delay line's packets were."""
    there, back = (round(median(run[way]["p99_us"] for run in runs) / 1000, 3) for way in ("there", "back"))
    return replace(
        environment,
        links=(replace(environment.links[0], jitter_ms=there),),
        return_links=(replace(environment.return_links[0], jitter_ms=back),),
    )


def compare(scheme: str, rate_mbps: float, rtt_ms: float, queue_bdp: float, runs: Sequence[Run]) -> Run:
    """Return a row of the table: lab and host, and how far the lab is from the host's median and calmest run.

    The calmest is the run in which tbf stalled least.
    """
    environment = network(rate_mbps, rtt_ms, queue_bdp)
    lab = in_virtual_time(environment, scheme)
    jittered = in_virtual_time(with_jitter(environment, runs), scheme)
    row: Run = {"scheme": scheme, "rate_mbps": rate_mbps, "rtt_ms": rtt_ms, "queue_bdp": queue_bdp}
    row |= {"lab": lab, "lab_with_jitter": jittered, "host": list(runs)}
    calmest = min(runs, key=stalled_ms)
    for figure in ("goodput_mbps", "queueing_ms"):
        row[f"{figure}_apart"] = lab[figure] / median(run[figure] for run in runs) - 1
        row[f"{figure}_apart_calmest"] = lab[figure] / calmest[figure] - 1
    return row


def by_calmness(rows: Sequence[Run], schemes: Sequence[str]) -> list[Run]:
    """Return, for each quarter of the runs of `schemes` from the calmest on, the median distance of lab and host."""
    runs = [(row["lab"], run) for row in rows if row["scheme"] in schemes for run in row["host"]]
    runs.sort(key=lambda pair: stalled_ms(pair[1]))
    quarters = [runs[len(runs) * i // 4 : len(runs) * (i + 1) // 4] for i in range(4)]
    return [
        {
            "stalled_ms": [stalled_ms(run) for _, run in (quarter[0], quarter[-1])],
            **{
                f"{figure}_apart": median(abs(lab[figure] / run[figure] - 1) for lab, run in quarter)
                for figure in ("goodput_mbps", "queueing_ms")
            },
        }
        for quarter in quarters
    ]


def stalled_ms(run: Run) -> float:
    """Return how long tbf stalled in a run (ms): the less, the calmer."""
    return float(run["stalled_ms"])


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--again", action="store_true")
    again = parser.parse_args().again
    reason = why_not()
    if reason:
        sys.exit(f"this machine cannot run episodes on its own kernel: {reason}")
    if again:
        shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    cases = tuple(product(SCHEMES, RATES_MBPS, RTTS_MS, QUEUES_BDP))
    runs: dict[tuple[str, float, float, float], list[Run]] = {case: [] for case in cases}
    for repeat, case in tqdm(tuple(product(range(REPEATS), cases)), desc="real time"):
        runs[case].append(in_real_time(network(*case[1:]), case[0], repeat))
    rows = [compare(*case, runs[case]) for case in tqdm(cases, desc="virtual time")]
    calmness = {name: by_calmness(rows, schemes) for name, schemes in KINDS.items()}
    save("fidelity", {"duration_s": DURATION_S, "repeats": REPEATS, "episodes": rows, "calmness": calmness})


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.fidelity"):
        main()
