# SPDX-License-Identifier: Apache-2.0
"""Runs of the study with series that are made up: flows that share the link as told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from sagecc.common.errors import SageccError
from sagecc.leagues.flow_metrics import to_arrow
from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.collect import Outcome
from sagecc.leagues.study.experiments import StudyRun
from sagecc.schemas.environment import MTU_BYTES


def study_series(run: StudyRun, shares: Sequence[float] = ()) -> pl.DataFrame:
    """Return a run's series: each living flow has its share of 95 % of the capacity.

    Args:
        run: whose flows live as its environment says.
        shares: the flows' weights; unlike ones that also follow the repeat without.
    """
    environment, width_s = run.environment, run.interval_s
    t_s = np.arange(round(environment.duration_s / width_s)) * width_s
    weights = np.asarray(
        shares or [1 + 0.2 * flow + 0.1 * (run.repeat + 1) * (flow % 2) for flow in range(environment.flow_count)]
    )
    lives = np.array([(t_s >= flow.start_s) & (t_s < environment.stop_of(flow)) for flow in environment.all_flows])
    capacity = np.array([environment.bottleneck.rate_mbps_at(each) for each in t_s])
    living = lives * weights[:, None]
    goodputs = 0.95 * capacity * living / np.maximum(living.sum(axis=0), 1e-9)
    parts = []
    for flow, (alive, goodput) in enumerate(zip(lives, goodputs, strict=True)):
        rtt_ms = environment.min_rtt_ms * (1.5 + 0.1 * np.sin(t_s[alive] + run.repeat))
        packets = np.floor(goodput[alive] * 1e6 / 8 * width_s / MTU_BYTES).astype(np.int64)
        columns = {
            "flow": np.full(alive.sum(), flow, np.int32),
            "scheme": [run.schemes[flow]] * int(alive.sum()),
            "t_s": t_s[alive].round(6),
            "goodput_mbps": goodput[alive] * (1 + 0.02 * np.cos(t_s[alive])),
            "srtt_ms": rtt_ms,
            "cwnd_pkts": goodput[alive] * rtt_ms / 12,
            "pacing_mbps": goodput[alive],
            "sent_pkts": packets,
            "lost_pkts": packets // 100,
            "retransmitted_pkts": packets // 10,
            "queue_bytes": np.full(alive.sum(), 30_000.0),
            "capacity_mbps": capacity[alive],
        }
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts)


class MadeUpRunner:
    """Makes up series; remembers what it was asked for, and fails as told."""

    def __init__(self, failing: str = "", killed_after: int | None = None) -> None:
        self.asked: list[StudyRun] = []
        self._failing, self._killed_after = failing, killed_after

    def __call__(self, runs: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
        self.asked += runs
        for number, run in enumerate(runs):
            if number == self._killed_after:
                raise KeyboardInterrupt
            failed = SageccError("the guest panicked") if run.scheme == self._failing else None
            yield run, failed or to_arrow(study_series(run))


def study_runs_of(
    name: str, schemes: Sequence[str], repeats: int = 2, quick: bool = False
) -> list[tuple[StudyRun, pl.DataFrame]]:
    """Return an experiment's runs with their series."""
    return [(run, study_series(run)) for run in experiment(name).runs(schemes, repeats, quick)]
