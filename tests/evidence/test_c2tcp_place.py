# SPDX-License-Identifier: Apache-2.0
"""C2TCP's place, of scores that can be worked out by hand."""

from __future__ import annotations

import polars as pl
import pytest

from evidence.leagues.c2tcp_place import CHANGES, SCHEME, main, places
from sagecc.common.errors import SageccError
from sagecc.leagues.scores import SCORE_SCHEMA


def test_a_place_is_told_with_its_distance_from_the_winner() -> None:
    """Vegas wins both windows of Set I, where C2TCP has its rate at twice its delay. In Set II it has its share."""
    power = {"vegas": (10.0, 20.0), SCHEME: (10.0, 40.0), "ledbat": (5.0, 40.0)}
    share = {"vegas": 1.0, SCHEME: 6.0, "ledbat": 2.0}
    rows = [
        {"set": "I", "environment_id": "a", "window": window, "scheme": name, "metric": "power", "goodput_mbps": rate,
         "delay_ms": delay, "score": rate**2 / delay}
        for window in (0, 1) for name, (rate, delay) in power.items()
    ] + [
        {"set": "II", "environment_id": "b", "window": 0, "scheme": name, "metric": "friendliness",
         "goodput_mbps": rate, "delay_ms": 30.0, "score": abs(6 - rate), "fair_share_mbps": 6.0}
        for name, rate in share.items()
    ]  # fmt: skip
    filled = [{"seed": 0, "status": "ok", "from_s": 0.0, "to_s": 1.0, "capacity_mbps": 12.0, **row} for row in rows]
    found = places(pl.DataFrame(filled, schema=SCORE_SCHEMA))
    assert found["league"]["I"] == {"rank": 2, "winning_rate": 0.0, "of": 3}
    assert found["league"]["II"] == {"rank": 1, "winning_rate": 1.0, "of": 3}
    assert found["paper"]["of"] == 3
    assert found["of_the_best"] == {"goodput_mbps": 1.0, "delay_ms": 2.0}


def test_every_change_needs_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["c2tcp_place", f"{next(iter(CHANGES))}=kernel"])
    with pytest.raises(SageccError, match=r"name a kernel for each of target of 1\.25 lowest RTTs, fixed 100 ms"):
        main()
