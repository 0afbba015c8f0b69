# SPDX-License-Identifier: Apache-2.0
"""How long a flow takes to recover from an outage, with and without the rule of execution/flow/outage.py.

A link of 40 ms sends nothing for a while, one flow, virtual time: the figures depend on the kernel's bytes and the
policies' files, not on the machine.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any
from unittest.mock import patch

import polars as pl
from tqdm import tqdm

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.common.shipped import BEST_POLICY, SHIPPED
from sagecc.execution.flow.outage import Outages
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.flow_metrics import flow_series
from sagecc.leagues.vetting.conditions import outage_network
from sagecc.leagues.vetting.measures import recovery_s
from sagecc.schemas.schemes import POLICY_PREFIX, is_driven

SCHEMES = ("cubic", *(f"{POLICY_PREFIX}models/{name}" for name in SHIPPED))
OUTAGES_S = (1, 5, 10, 30)
LINKS = ((12, 0.5), (12, 2.5))
"""Rates (Mbps) and queues (BDP)."""
AFTER_S = 30.0
SHOWN_S = (0.5, 1, 2, 3, 5, 10, 20)
"""After an outage of SHOWN, when a trajectory is shown (s)."""
SHOWN = (f"{POLICY_PREFIX}models/{BEST_POLICY}", 10, (12, 2.5))
INTERVAL_S = 0.1


@dataclass(frozen=True)
class OutageRun:
    """One outage for one scheme, with the rule or without."""

    scheme: str
    outage_s: float
    link: tuple[float, float]
    rule: bool

    def measure(self) -> dict[str, Any]:
        """Return the time until the flow has recovered, and its goodputs after the outage."""
        environment = outage_network(*self.link, self.outage_s, after_s=AFTER_S)
        if self.rule:
            episode = play_episode(KERNEL, environment, self.scheme, every_flow=True)
        else:
            with patch.object(Outages, "step", return_value=None):
                episode = play_episode(KERNEL, environment, self.scheme, every_flow=True)
        recovered_s = recovery_s(flow_series(episode.every_flow, 0.5), environment)
        row = {
            "scheme": self.scheme.rpartition(":")[2],
            "outage_s": self.outage_s,
            "rate_mbps": self.link[0],
            "queue_bdp": self.link[1],
            "rule": self.rule,
            "recovery_s": recovered_s if recovered_s < AFTER_S else None,
        }
        if (self.scheme, self.outage_s, self.link) == SHOWN:
            row["trajectory"] = self._trajectory(flow_series(episode.every_flow, INTERVAL_S), environment.duration_s)
        return row

    @staticmethod
    def _trajectory(series: pl.DataFrame, duration_s: float) -> list[dict[str, Any]]:
        end_s = duration_s - AFTER_S
        rows = []
        for after_s in SHOWN_S:
            past = series.filter(pl.col("t_s").is_between(end_s + after_s - 0.45, end_s + after_s - 0.05))
            rows.append(
                {
                    "after_s": after_s,
                    "goodput_mbps": past["goodput_mbps"].mean(),
                    "srtt_ms": past["srtt_ms"].mean(),
                    "cwnd_pkts": past["cwnd_pkts"].mean(),
                    "pacing_mbps": past["pacing_mbps"].mean(),
                }
            )
        return rows


def cases() -> list[OutageRun]:
    """Return every case; Cubic has no rule."""
    return [
        OutageRun(scheme, outage_s, link, rule)
        for scheme, outage_s, link, rule in product(SCHEMES, OUTAGES_S, LINKS, (False, True))
        if is_driven(scheme) or rule
    ]


def main() -> None:
    """Measure and save."""
    everything = cases()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(tqdm(pool.map(OutageRun.measure, everything), total=len(everything), desc="outages"))
    save("outages", {"rows": rows})


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.outages"):
        main()
