# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from collector.grid import PROFILES, SHAPES, profile_environments, step_rates
from schemas.environment import Environment
from schemas.errors import SageccError


def test_full_grid_is_the_papers_1099_environments() -> None:
    environments = profile_environments("full")
    assert len(environments) == 1099
    assert sum(e.set == "I" for e in environments) == 924
    assert sum(e.set == "II" for e in environments) == 175
    assert len({e.id for e in environments}) == 1099
    assert len(SHAPES) == 22


@pytest.mark.parametrize("profile", PROFILES)
def test_environments_survive_json(profile: str) -> None:
    for environment in profile_environments(profile):
        again = Environment.from_json(environment.to_json())
        assert again == environment
        assert again.id == environment.id


def test_no_rate_above_192_mbps() -> None:
    rates = {r.rate_mbps for e in profile_environments("full") for r in e.bottleneck.rates}
    assert max(rates) == 192
    assert min(rates) == 3


def test_step_schedule_alternates_every_7_s_from_17_s() -> None:
    rates = [(r.t_s, r.rate_mbps) for r in step_rates(24, 4, 34)]
    assert rates == [(0, 24), (17, 96), (24, 24), (31, 96)]
    assert [r.t_s for r in step_rates(24, 1, 34)] == [0]


def test_queue_in_bdp() -> None:
    flat_48 = [e for e in profile_environments("full") if e.id.startswith("I-48mbps-40ms-1bdp")]
    assert [e.bottleneck.queue_bytes for e in flat_48] == [240_000]


def test_unknown_profile() -> None:
    with pytest.raises(SageccError, match="unknown profile 'huge': use one of smoke, small, full"):
        profile_environments("huge")
