# SPDX-License-Identifier: Apache-2.0
"""The selector's league: what it chooses it has not learned there, and who stands in the result."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from evidence.leagues import selector
from evidence.leagues.selector import NAMES, crosswise, result
from sagecc.leagues.scores import SCORE_SCHEMA
from sagecc.leagues.standings import mark_winners

pytestmark = pytest.mark.heavy


def test_a_network_is_chosen_for_by_what_the_others_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector, "FOLDS", 4)
    features = np.eye(12, 69, dtype=np.float32)
    shares = np.zeros((12, len(NAMES)))
    shares[:, 1], shares[5, 2] = 0.5, 1.0  # one network is another's, and no other says so
    assert crosswise(features, shares) == [NAMES[1]] * 12


def test_the_result_has_who_chose_and_whom() -> None:
    rows = [
        dict.fromkeys(SCORE_SCHEMA)
        | {"set": set_name, "environment_id": set_name, "window": 0, "scheme": scheme, "status": "ok"}
        | {"metric": "power", "goodput_mbps": 1.0 + place, "delay_ms": 1.0, "score": (1.0 + place) ** 2}
        for set_name in ("I", "II")
        for place, scheme in enumerate(("vegas", "cubic"))
    ]
    wins = mark_winners(pl.DataFrame(rows, schema=SCORE_SCHEMA))
    found = result(wins, {"selector": {"I": "vegas", "II": "cubic"}, "oracle": {"I": "cubic", "II": "cubic"}})
    assert found["picked"] == {"I": {"vegas": 1}, "II": {"cubic": 1}}
    rates = {(row["set"], row["scheme"]): row["winning_rate"] for row in found["standings"]}
    assert rates["I", "selector"] == 0 and rates["II", "selector"] == rates["I", "oracle"] == 1
