# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from sagecc.leagues.colours import DASHES, PALETTE, stroke, strokes
from sagecc.schemas.schemes import OTHERS, SCHEMES, USER_SPACE
from tests.conftest import ROOT

NAMED = (*SCHEMES, *OTHERS, *USER_SPACE)


def test_no_two_schemes_look_alike() -> None:
    assert len(set(strokes([*NAMED, "policy:models/sagecc-10", "policy:sagecc-1"]).values())) == len(NAMED) + 2


@given(st.sets(st.sampled_from([*NAMED, "policy:sagecc-10", "policy:models/mine", "python:mine.py:Mine"]), min_size=1))
def test_a_named_scheme_looks_the_same_in_any_company(company: set[str]) -> None:
    found = strokes(company)
    assert found.keys() == company
    assert len(set(found.values())) == len(company)
    assert all(found[name] == stroke(name) for name in company if name in NAMED or name.endswith("sagecc-10"))


def test_a_policy_looks_the_same_wherever_it_lies() -> None:
    assert stroke("policy:sagecc-10") == stroke("policy:/home/me/models/sagecc-10/")
    assert stroke("cubic+kicks") == stroke("cubic")


def test_a_scheme_without_a_look_of_its_own_gets_a_free_hue() -> None:
    found = strokes(["cubic", "bbr2", "policy:mine", "policy:other"])
    assert len({each.colour for each in found.values()}) == 4
    assert found["policy:mine"].colour == PALETTE[0]


def test_there_is_a_look_for_any_number_of_schemes() -> None:
    found = strokes(map(str, range(100)))
    assert len(set(found.values())) == len(PALETTE) * len(DASHES)


def test_one_file_has_the_colours() -> None:
    """Of schemes: a picture that needs one asks for it."""
    found = subprocess.run(
        ["git", "grep", "-liE", "|".join(PALETTE), "--", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["leagues/colours.py"]
