# SPDX-License-Identifier: Apache-2.0
"""The selector: what it sees, what it learns, how it scores, and that nobody chooses better than the oracle."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sagecc.common.errors import SageccError
from sagecc.leagues.scores import SCORE_SCHEMA
from sagecc.leagues.selector import Selector, best_choices, contestant, probe_features, shares_won
from sagecc.leagues.standings import mark_winners, standings
from sagecc.pool.features import FeatureTracker
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.raw_episodes import samples, table, trajectory

SCHEMES = ("vegas", "cubic", "reno")


def test_a_probe_is_what_a_live_flow_sees_at_its_end() -> None:
    columns = trajectory(500)
    tracker = FeatureTracker()
    for row in samples(columns)[:301]:
        seen = tracker.update(row)
    np.testing.assert_array_equal(probe_features(table("e", columns), 3.0), seen)
    with pytest.raises(SageccError, match=r"a probe of 9 s is longer than the flow, which lasts 4\.99 s"):
        probe_features(table("e", columns), 9.0)


def wins() -> pl.DataFrame:
    """Two networks of two windows: Vegas has all of the first, in the second Cubic one and Reno the other."""
    goodputs = {("a", "vegas"): (9, 9), ("a", "cubic"): (1, 1), ("a", "reno"): (1, 1)}
    goodputs |= {("b", "vegas"): (1, 1), ("b", "cubic"): (9, 1), ("b", "reno"): (1, 9)}
    rows = [
        dict.fromkeys(SCORE_SCHEMA)
        | {"set": "I", "environment_id": network, "window": window, "scheme": scheme, "status": "ok", "metric": "power"}
        | {"goodput_mbps": float(goodput), "delay_ms": 1.0, "score": float(goodput) ** 2}
        for (network, scheme), both in goodputs.items()
        for window, goodput in enumerate(both)
    ]
    return mark_winners(pl.DataFrame(rows, schema=SCORE_SCHEMA))


def test_the_oracle_takes_who_wins_most_windows_of_a_network() -> None:
    shares = shares_won(wins(), ("a", "b"), SCHEMES)
    assert shares.tolist() == [[1, 0, 0], [0, 0.5, 0.5]]
    assert best_choices(shares, ("a", "b"), SCHEMES) == {"a": "vegas", "b": "cubic"}
    assert best_choices(shares * [1, 1, 1.1], ("a", "b"), SCHEMES)["b"] == "reno"
    with pytest.raises(SageccError, match="bbr2 has no windows in a, from which a selector is to learn"):
        shares_won(wins(), ("a", "b"), (*SCHEMES, "bbr2"))


def test_a_contestant_has_the_windows_of_whom_it_chose() -> None:
    marked = wins()
    rows = pl.concat([marked, contestant(marked, {"a": "vegas", "b": "cubic"}, "oracle")])
    rates = {row["scheme"]: row["winning_rate"] for row in standings(rows).to_dicts()}
    assert rates == {"oracle": 0.75, "vegas": 0.5, "cubic": 0.25, "reno": 0.25}


def test_it_learns_who_wins_where() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(80, len(FEATURE_NAMES))).astype(np.float32)
    slow = features[:, 0] > 0
    shares = np.stack([slow, ~slow, np.full(80, 0.4)], axis=1).astype(np.float64)
    selector = Selector.learn(features[:60], shares[:60], SCHEMES)
    chosen = selector.choose(features[60:])
    right = [choice == ("vegas" if is_slow else "cubic") for choice, is_slow in zip(chosen, slow[60:], strict=True)]
    assert np.mean(right) > 0.9
    assert Selector.learn(features[:60], shares[:60], SCHEMES).choose(features[60:]) == chosen
