# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.growth.settings import LEAST_REST, Growth
from sagecc.learner.specification import load
from sagecc.schemas.schemes import is_grown
from tests.helpers.specifications import SMALLEST, spec

GROWTH = Growth("mine", load("tiny"), round_steps=50)


def test_a_round_trains_on_with_the_rounds_before_it() -> None:
    first, third = GROWTH.specification_of(0), GROWTH.specification_of(2)
    assert first == GROWTH.specification
    assert third.steps == GROWTH.specification.steps + 100
    assert third.record()["data"]["selection"]["shares"] == pytest.approx({"policy:mine@0": 0.1, "policy:mine@1": 0.2})
    assert replace(third, steps=first.steps, data=first.data) == first


@given(number=st.integers(1, 30), own=st.floats(1e-3, 1 - LEAST_REST), decay=st.floats(0.05, 1, exclude_min=True))
def test_the_others_keep_their_least_share(number: int, own: float, decay: float) -> None:
    shares = (
        replace(GROWTH, own_share=own, decay=decay).specification_of(number).record()["data"]["selection"]["shares"]
    )
    assert len(shares) == number
    assert sum(shares.values()) == pytest.approx(own)
    assert 1 - sum(shares.values()) > LEAST_REST - 1e-9
    assert list(shares.values()) == sorted(shares.values())


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"own_share": 0.81}, "never drop out"),
        ({"own_share": 0}, "above 0"),
        ({"decay": 0}, "above 0"),
        ({"name": "a/b"}, "'a/b'"),
        ({"name": "a@1"}, "'a@1'"),
        ({"round_steps": 0}, "at least 1"),
        ({"specification": spec(SMALLEST, selection={"shares": {"vegas": 0.5}})}, "data.selection.shares"),
        ({"specification": load("orca")}, "learns in labs"),
    ],
)
def test_choices_that_do_not_go(change: dict[str, Any], fact: str) -> None:
    with pytest.raises(SageccError, match=fact):
        replace(GROWTH, **change)


def test_names_of_rounds() -> None:
    assert GROWTH.scheme(3) == "policy:mine@3"
    assert is_grown("policy:mine@3") and is_grown("policy:a@b@12")
    assert not any(map(is_grown, ("policy:mine", "policy:mine@", "policy:mine@x", "cubic", "cubic@1")))


def test_a_round_draws_the_rounds_before() -> None:
    assert GROWTH.specification_of(1).record()["data"]["selection"]["shares"] == {"policy:mine@0": 0.3}
