# SPDX-License-Identifier: Apache-2.0
"""What a condition measures of one run: from its series of every flow (flow_metrics.SERIES_SCHEMA) to a number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from sagecc.common import fairness
from sagecc.schemas.environment import Environment

INTERVAL_S = 0.5
"""Of the series of a run."""

RECOVERED_SHARE = 0.5
"""Share of the goodput before an outage from which on a flow has recovered."""

Measure = Callable[[pl.DataFrame, Environment], float]


def goodput_mbps(series: pl.DataFrame, environment: Environment) -> float:
    """Return the mean goodput of the tested flow over the scoring windows (Mbps)."""
    return float(np.mean(_goodputs(_scored(series, environment), 0)))


def fair_shares(series: pl.DataFrame, environment: Environment) -> float:
    """Return the tested flow's goodput over the mean of all flows' over the scoring windows."""
    means = _means(_scored(series, environment))
    return means[0] / max(float(np.mean(means)), 1e-9)


def jain_index(series: pl.DataFrame, environment: Environment) -> float:
    """Return Jain's index of the flows' mean goodputs over the scoring windows."""
    return fairness.jain_index(_means(_scored(series, environment))) or 0.0


def lost_percent(series: pl.DataFrame, environment: Environment) -> float:
    """Return the share of the tested flow's packets that the links dropped over the scoring windows (percent)."""
    tested = _scored(series, environment).filter(pl.col("flow") == 0)
    return 100 * float(tested["lost_pkts"].sum()) / max(float(tested["sent_pkts"].sum()), 1)


def recovery_s(series: pl.DataFrame, environment: Environment) -> float:
    """Return the time from the end of the outage until the tested flow has recovered (s).

    It has at the end of the first interval in which its goodput is RECOVERED_SHARE of that before the outage; infinity
    where there is none.
    """
    _, down, up = environment.links[0].rates
    goodputs = np.array(_goodputs(series, 0))
    first, end = round(down.t_s / INTERVAL_S), round(up.t_s / INTERVAL_S)
    before = goodputs[first // 2 : first].mean()
    recovered = np.flatnonzero(goodputs[end:] >= RECOVERED_SHARE * before)
    return float((recovered[0] + 1) * INTERVAL_S) if before > 0 and len(recovered) else float("inf")


def _scored(series: pl.DataFrame, environment: Environment) -> pl.DataFrame:
    begin_s, end_s = environment.windows_s[0][0], environment.windows_s[-1][1]
    return series.filter((pl.col("t_s") >= begin_s) & (pl.col("t_s") < end_s))


def _goodputs(series: pl.DataFrame, flow: int) -> list[float]:
    return series.filter(pl.col("flow") == flow).sort("t_s")["goodput_mbps"].to_list()


def _means(series: pl.DataFrame) -> list[float]:
    return series.group_by("flow").agg(pl.col("goodput_mbps").mean()).sort("flow")["goodput_mbps"].to_list()
