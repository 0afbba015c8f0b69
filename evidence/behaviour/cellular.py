# SPDX-License-Identifier: Apache-2.0
"""What policies do on cellular links, of which `sagecc vet` has one; virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from evidence.machine import KERNEL, save
from evidence.rivals.networks import cellular
from sagecc.cli import errors_in_one_line
from sagecc.common.shipped import SHIPPED
from sagecc.execution.lab.controllers import play_episode
from sagecc.schemas.environment import Link, dumbbell
from sagecc.schemas.schemes import POLICY_PREFIX

POLICIES = tuple(f"{POLICY_PREFIX}models/{name}" for name in SHIPPED)
SCHEMES = ("cubic", "bbr2", "sprout")
"""What plays besides the policies."""
RTT_MS, DURATION_S, SEEDS, QUEUE_PACKETS = 40, 60, range(3), 100


def main() -> None:
    """Measure and save."""
    save("cellular", {"duration_s": DURATION_S, "queue_packets": QUEUE_PACKETS, "cellular": list(cellular_links())})


def cellular_links() -> Iterable[dict[str, Any]]:
    """Run policies and schemes alone on cellular downlinks; `used` is the goodput's share of what a link can carry."""
    for seed in tqdm(SEEDS, desc="cellular links"):
        trace = cellular(seed, DURATION_S)
        link = Link(delay_ms=RTT_MS / 2, queue_packets=QUEUE_PACKETS, trace=trace)
        environment = dumbbell("custom", link, RTT_MS / 2, DURATION_S, ((0, DURATION_S),))
        for scheme in (*POLICIES, *SCHEMES):
            flow = play_episode(KERNEL, environment, scheme, seed).flows[0]
            yield {
                "scheme": scheme.removeprefix(POLICY_PREFIX),
                "seed": seed,
                "used": flow.goodput_mbps / trace.mean_mbps,
                "queueing_ms": flow.delay_mean_ms - RTT_MS / 2,
                "queueing_p95_ms": flow.delay_p95_ms - RTT_MS / 2,
                "loss": flow.loss_rate,
            }


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.cellular"):
        main()
