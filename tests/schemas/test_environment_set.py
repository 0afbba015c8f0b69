# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagecc.collector.run.grid import profile_set, set_one, set_two
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment, Link, RateStep, dumbbell
from sagecc.schemas.environment_set import EnvironmentSet, Repeat, repeated
from sagecc.schemas.repeats import delayed, repeat
from tests.helpers.strategies import environments

ALONE, BESIDE = set_one(24, 1, 20, 1), set_two(12, 20, 1)
TWO = EnvironmentSet("two", "--environments two", (ALONE, BESIDE), {BESIDE.id: {"kind": "shared"}})


def test_by_hand() -> None:
    draws = random.Random(3)
    late, early = draws.random() * 0.02, draws.random() * 0.02
    third = repeat(BESIDE, 3)
    assert third.flow.start_s == pytest.approx(5 + late, abs=1e-6)
    (cubic,) = third.cross
    assert cubic.scheme == "cubic"
    assert cubic.flow.start_s == pytest.approx(early, abs=1e-6)
    assert (third.links, third.windows_s, third.return_links) == (BESIDE.links, BESIDE.windows_s, BESIDE.return_links)


@settings(max_examples=40)
@given(environments(), st.integers(1, 50))
def test_only_starts_differ_and_by_less_than_an_rtt(environment: Environment, number: int) -> None:
    assert repeat(environment, 0, 5) is environment
    try:
        other = repeat(environment, number)
    except SageccError as error:
        assert "must start and stop within the episode" in str(error)
        return
    for before, after in zip(environment.all_flows, other.all_flows, strict=True):
        assert 0 <= after.start_s - before.start_s <= environment.min_rtt_ms / 1000 + 1e-6
    assert other.to_json() != environment.to_json()
    assert repeat(environment, number) == other


def test_jitter_where_it_is_asked_for() -> None:
    assert repeat(BESIDE, 1, 2).return_links == (Link(delay_ms=10, jitter_ms=2),)
    assert repeat(BESIDE, 0, 2) == BESIDE


def test_the_plan_stays() -> None:
    assert delayed([3.0, 1.5], 100, 0) == [3.0, 1.5]


def test_a_set_with_repeats() -> None:
    three = repeated(TWO, 3, 1.5)
    assert three.environments[:2] == three.planned == TWO.environments
    assert len({environment.id for environment in three.environments}) == 6
    assert {environment.set for environment in three.environments} == {"I", "II"}
    assert sorted(three.repeats.values(), key=lambda each: (each.number, each.network)) == sorted(
        (Repeat(plan.id, number) for plan in TWO.environments for number in (1, 2)),
        key=lambda each: (each.number, each.network),
    )
    assert three.option == "--environments two --repeats 3 --jitter-ms 1.5"
    assert three.tags.keys() == {environment.id for environment in three.environments if environment.cross}
    seeds = three.seeds(10)
    assert sorted(seeds.values()) == [11, 11, 12, 12]
    assert seeds.keys() == three.repeats.keys()


def test_once_is_the_set_itself() -> None:
    assert repeated(TWO, 1) is TWO
    assert profile_set("smoke").seeds(5) == {}


@pytest.mark.parametrize(
    ("count", "jitter_ms", "message"),
    [
        (0, 0, "--repeats must be 1 or more, not 0"),
        (-3, 0, "--repeats must be 1 or more, not -3"),
        (50_001, 0, "--repeats 50001: of 2 networks; it makes 100,000 at most"),
        (1, 2, "--jitter-ms needs --repeats of 2 or more"),
        (2, -1, "--jitter-ms must be at least 0 and at most 1000, not -1"),
        (2, float("nan"), "--jitter-ms must be at least 0 and at most 1000, not nan"),
    ],
)
def test_what_cannot_be_repeated(count: int, jitter_ms: float, message: str) -> None:
    with pytest.raises(SageccError, match=message):
        repeated(TWO, count, jitter_ms)


def test_a_flow_that_lives_shorter_than_the_delay() -> None:
    brief = dumbbell("custom", Link((RateStep(0, 12),), 400, 60_000), 400, 0.01, ((0, 0.01),))
    with pytest.raises(SageccError, match=f"repeat 1 of {brief.id}: the flow must start and stop within the episode"):
        repeat(brief, 1)
