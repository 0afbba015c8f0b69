# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from sagecc.collector.run.grid import PROFILES, SHAPES, midway, profile_environments
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment, step_rates


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


def test_held_out_environments_share_nothing_with_the_others() -> None:
    held_out = profile_environments("heldout")
    others = [e for profile in PROFILES[:4] for e in profile_environments(profile)]
    assert PROFILES[4:] == ("heldout", "bench-1")  # which has some of them
    assert [sum(e.set == name for e in held_out) for name in ("I", "II")] == [24, 12]
    assert len({e.id for e in held_out}) == 36
    kinds: tuple[Callable[[Environment], float | None], ...] = (
        lambda e: e.bandwidth_mbps,
        lambda e: e.min_rtt_ms,
        lambda e: round(e.queue_bdp, 2),
        lambda e: e.step if e.step != 1 else None,
    )
    for of in kinds:
        ours, theirs = ({of(e) for e in environments} - {None} for environments in (held_out, others))
        assert ours
        assert not ours & theirs
    rates, known = ({r.rate_mbps for e in es for r in e.bottleneck.rates} for es in (held_out, others))
    assert not rates & known
    assert max(rates) <= 192


def test_held_out_environments_cover_every_value_evenly() -> None:
    one = [e for e in profile_environments("heldout") if e.set == "I"]
    two = [e for e in profile_environments("heldout") if e.set == "II"]
    assert len({(e.bandwidth_mbps, e.min_rtt_ms) for e in one}) == 24
    assert {Counter(e.min_rtt_ms for e in part)[15] for part in (one, two)} == {4, 2}
    assert set(Counter(round(e.queue_bdp, 2) for e in one).values()) <= {4, 5, 6}
    assert Counter(round(e.queue_bdp, 2) for e in two) == {1.5: 3, 3: 3, 6: 3, 12: 3}
    assert {e.step for e in one} == {0.375, 0.75, 1, 1.5, 3}
    assert [len(e.cross) for e in two] == [1] * 12
    assert {e.cross[0].scheme for e in two} == {"cubic"}


def test_spread_has_each_value_of_the_grid_about_as_often() -> None:
    spread, full = profile_environments("spread"), {e.id for e in profile_environments("full")}
    assert {e.id for e in spread} <= full
    one, two = ([e for e in spread if e.set == name] for name in ("I", "II"))
    assert (len(one), len(two), len({e.id for e in spread})) == (66, 25, 91)
    assert Counter((e.bandwidth_mbps, e.step) for e in one) == dict.fromkeys(SHAPES, 3)
    assert set(Counter(e.min_rtt_ms for e in one).values()) == {9, 10}
    assert set(Counter(round(e.queue_bdp, 2) for e in one).values()) == {11}
    assert len({(e.min_rtt_ms, round(e.queue_bdp, 2)) for e in one}) == 42
    assert len({(e.bandwidth_mbps, round(e.queue_bdp, 2)) for e in two}) == 25
    assert set(Counter(e.min_rtt_ms for e in two).values()) == {3, 4}


def test_midway() -> None:
    assert midway((12, 24, 48)) == (18, 36)


def test_unknown_profile() -> None:
    with pytest.raises(SageccError, match=r"'huge'.*smoke, small, spread, full, heldout"):
        profile_environments("huge")
