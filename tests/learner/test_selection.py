# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.learner.selection import Selection, Trajectories, sources, weights
from sagecc.learner.specification import Data, from_dict
from tests.helpers.messages import facts
from tests.helpers.specifications import SMALLEST
from tests.learner.conftest import scores

NAMES = [
    ("I-0.5bdp", "cubic", 2.0),
    ("I-0.5bdp", "vegas", 6.0),
    ("I-0.5bdp", "policy:models/a.b", 4.0),
    ("II-1bdp", "cubic", 5.0),
    ("II-1bdp", "vegas", 5.0),
]
POOL = Trajectories(
    np.array([f"{environment}.{scheme}.0" for environment, scheme, _ in NAMES]),
    np.array([environment.partition("-")[0] for environment, _, _ in NAMES]),
    np.array([scheme for _, scheme, _ in NAMES]),
    np.array([reward for _, _, reward in NAMES]),
)


def test_everything_by_default() -> None:
    assert weights(Selection(), POOL).tolist() == [1, 1, 1, 1, 1]


def test_schemes_and_sets() -> None:
    assert weights(Selection(schemes=("vegas",)), POOL).tolist() == [0, 1, 0, 0, 1]
    assert weights(Selection(sets=("I",)), POOL).tolist() == [1, 1, 1, 0, 0]
    assert weights(Selection(schemes=("vegas", "cubic"), sets=("II",)), POOL).tolist() == [0, 0, 0, 1, 1]


def test_weights_multiply() -> None:
    chosen = Selection(scheme_weights={"cubic": 3}, set_weights={"II": 0.5})
    assert weights(chosen, POOL).tolist() == [3, 1, 1, 1.5, 0.5]


def test_reward_weight_is_within_an_environment() -> None:
    assert POOL.environments().tolist() == [environment for environment, _, _ in NAMES]
    wanted = [math.exp(-2), 1, math.exp(-1), 1, 1]
    np.testing.assert_allclose(weights(Selection(reward_weight=2), POOL), wanted)


@pytest.mark.parametrize("folder", [True, False])
def test_winners_are_who_won_most_windows_of_an_environment(tmp_path: Path, folder: bool) -> None:
    path = scores(
        tmp_path / "results" / "scores.parquet",
        [
            ("I-0.5bdp", "cubic", 1, 4),
            ("I-0.5bdp", "vegas", 3, 4),
            ("I-0.5bdp", "reno", 4, 4),  # not in this pool
            ("I-0.5bdp", "policy:models/a.b", 3, 4),
            ("II-1bdp", "cubic", 0, 4),
            ("II-1bdp", "vegas", 0, 4),
            ("II-2bdp", "cubic", 4, 4),  # nor this
        ],
    )
    chosen = Selection(winners_of=str(path.parent if folder else path))
    assert weights(chosen, POOL).tolist() == [0, 1, 1, 0, 0]


def test_a_league_that_says_nothing(tmp_path: Path) -> None:
    path = scores(tmp_path / "scores.parquet", [("I-other", "cubic", 4, 4)])
    with pytest.raises(SageccError, match=facts("no trajectory… won")):
        weights(Selection(winners_of=str(path)), POOL)
    with pytest.raises(SageccError, match=r"nowhere .*'sagecc league'") as caught:
        weights(Selection(winners_of=str(tmp_path / "nowhere")), POOL)
    assert "\n" not in str(caught.value)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SageccError, match="is no league's scores"):
        weights(Selection(winners_of=str(tmp_path)), POOL)
    pq.write_table(pa.table({"scheme": ["cubic"]}), path)
    with pytest.raises(SageccError, match="is no league's scores"):
        weights(Selection(winners_of=str(tmp_path)), POOL)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (Selection(schemes=("cubic", "vagas")), "'vagas'…cubic, policy:models/a.b, vegas"),
        (Selection(sets=("III",)), "'III'…I, II"),
        (Selection(scheme_weights={"bbr9": 2}), "'bbr9'"),
        (Selection(schemes=("policy:models/a.b",), sets=("II",)), "nothing…5 trajectories"),
    ],
)
def test_a_choice_that_the_pool_cannot_meet(chosen: Selection, message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)) as caught:
        weights(chosen, POOL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("cubic", "data.selection must have fields…cubic"),
        ({"scheme": ["cubic"]}, "data.selection: unknown field scheme; known are schemes, sets,"),
        ({"schemes": "cubic"}, "data.selection.schemes…list…'cubic'"),
        ({"sets": [1]}, "each of data.selection.sets…str"),
        ({"winners_of": 3}, "data.selection.winners_of…str"),
        ({"scheme_weights": ["cubic"]}, "data.selection.scheme_weights…name: value"),
        ({"set_weights": {"I": 0}}, "set_weights…above 0…data.selection.sets"),
        ({"reward_weight": "much"}, "data.selection.reward_weight…float"),
        ({"reward_weight": float("inf")}, "data.selection.reward_weight…number"),
    ],
)
def test_bad_fields_are_one_clear_line(data: object, message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)) as caught:
        from_dict({**SMALLEST, "data": {"selection": data}})
    assert "\n" not in str(caught.value)


def test_a_configuration_says_which_data() -> None:
    selection = {"schemes": ["vegas", "bbr2"], "sets": ["I"], "set_weights": {"I": 2}}
    data = from_dict({**SMALLEST, "data": {"selection": selection}}).data
    assert data is not None and data.selection == Selection(
        schemes=("vegas", "bbr2"), sets=("I",), set_weights={"I": 2}
    )
    assert Data().selection == Selection()


def test_a_source_with_a_share_is_learned_from_whatever_else_is_said() -> None:
    own = {"policy:models/a.b": 0.25}
    assert weights(Selection(schemes=("vegas",), shares=own), POOL).tolist() == [0, 1, 1, 0, 1]
    ranked = weights(Selection(reward_weight=4, shares=own), POOL)
    assert ranked == pytest.approx([math.exp(-4), 1, 1, 1, 1])  # the others among themselves
    assert weights(Selection(sets=("II",), shares=own), POOL).tolist() == [0, 0, 0, 1, 1]
    assert sources(Selection(shares={"policy:*": 0.2, "vegas": 0.3}), POOL).tolist() == [0, 2, 1, 0, 2]


@pytest.mark.parametrize(
    ("shares", "fact"),
    [
        ({"policy:b*": 0.5}, "no scheme 'policy:b*'"),
        ({"policy:*": 0.2, "policy:models/*": 0.2}, "'policy:models/*'"),
        ({"cubic": 0.6, "vegas": 0.4}, "below 1"),
        ({"cubic": 0}, "above 0"),
    ],
)
def test_shares_that_say_nothing(shares: Any, fact: str) -> None:
    with pytest.raises(SageccError, match=re.escape(fact)):
        weights(Selection(shares=shares), POOL)
