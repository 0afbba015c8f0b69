# SPDX-License-Identifier: Apache-2.0
"""A selector: which of some schemes to run in a network, from what a probe saw in its first seconds.

It is the simplest thing that a learned policy has to beat. A forest of trees learns from networks in which all of the
schemes have played what share of a network's scoring windows each wins. It sees the pool's features at the end of a
probe, the first seconds of one scheme's flow. In a league it has in each window what the scheme that it chose has
there, as if that had run from the start: no flow changes its scheme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from sagecc.common.arrays import Doubles, Floats
from sagecc.common.errors import SageccError
from sagecc.common.optional import requires_extra
from sagecc.pool.features import RAW_NEEDED, derive

with requires_extra("analysis"):
    from sklearn.ensemble import RandomForestRegressor

TREES = 300


@dataclass(frozen=True)
class Selector:
    """Chooses one of some schemes."""

    schemes: tuple[str, ...]
    """Whom it chooses from."""
    forest: Any
    """From features [n, 69] the shares of windows that each scheme wins [n, schemes]."""

    @classmethod
    def learn(cls, features: Floats, shares: Doubles, schemes: Sequence[str], seed: int = 0) -> Selector:
        """Learn from networks in which all schemes have played.

        Args:
            features: of each network's probe [n, 69].
            shares: of its windows, won by each scheme [n, schemes].
            schemes: their names.
            seed: of the forest.
        """
        forest = RandomForestRegressor(n_estimators=TREES, min_samples_leaf=2, random_state=seed)
        return cls(tuple(schemes), forest.fit(features, shares))

    def choose(self, features: Floats) -> list[str]:
        """Return the scheme that is to win most, by network; of equals the first.

        Args:
            features: of each network's probe [n, 69].
        """
        return [self.schemes[place] for place in np.argmax(self.forest.predict(features), axis=1)]


def probe_features(rows: pa.Table, seconds: float) -> Floats:
    """Return the features at the end of a probe [69].

    Args:
        rows: of a raw trajectory.
        seconds: how long the probe is, from the first row on.

    Raises:
        SageccError: The trajectory is shorter.
    """
    t_s = rows["t_s"].to_numpy()
    if t_s[-1] - t_s[0] < seconds - 0.1:
        raise SageccError(f"a probe of {seconds:g} s is longer than the flow, which lasts {t_s[-1] - t_s[0]:g} s")
    part = rows.slice(0, int(np.searchsorted(t_s, t_s[0] + seconds, side="right")))
    columns = {name: part[name].to_numpy() for name in ("t_s", *RAW_NEEDED)}
    features, _ = derive(columns, np.arange(len(part)) == 0)
    last: Floats = features[:, -1]
    return last


def shares_won(wins: pl.DataFrame, environments: Sequence[str], schemes: Sequence[str]) -> Doubles:
    """Return the share of its windows that each scheme wins in each network [environments, schemes].

    Args:
        wins: of leagues.standings.mark_winners.
        environments: the networks' ids, in order.
        schemes: names, in order.

    Raises:
        SageccError: A scheme has no windows in a network.
    """
    means = wins.group_by("environment_id", "scheme").agg(pl.col("win").mean())
    by_pair = {(environment, scheme): share for environment, scheme, share in means.iter_rows()}
    missing = [(e, s) for e in environments for s in schemes if (e, s) not in by_pair]
    if missing:
        raise SageccError(f"{missing[0][1]} has no windows in {missing[0][0]}, from which a selector is to learn")
    return np.array([[by_pair[e, s] for s in schemes] for e in environments], np.float64)


def best_choices(
    shares: npt.NDArray[np.floating], environments: Sequence[str], schemes: Sequence[str]
) -> dict[str, str]:
    """Return by network who wins most of its windows, of equals who wins more in all: no selector can choose better.

    Args:
        shares: of windows won [environments, schemes].
        environments: the networks' ids, in order.
        schemes: names, in order.
    """
    order = np.argsort(-shares.mean(axis=0), kind="stable")
    places = order[np.argmax(shares[:, order], axis=1)]
    return {environment: schemes[place] for environment, place in zip(environments, places, strict=True)}


def contestant(scores: pl.DataFrame, choices: Mapping[str, str], name: str) -> pl.DataFrame:
    """Return the rows of a contestant that has in each network what the scheme chosen there has.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA, perhaps with more columns.
        choices: by environment id the scheme chosen.
        name: the contestant's.
    """
    chosen = pl.DataFrame({"environment_id": list(choices), "scheme": list(choices.values())})
    rows = scores.join(chosen, on=["environment_id", "scheme"], how="semi", maintain_order="left")
    return rows.with_columns(scheme=pl.lit(name))
