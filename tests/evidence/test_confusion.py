# SPDX-License-Identifier: Apache-2.0
"""Where critics and policies disagree, and which inputs tell why: by hand."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.leagues.confusion import LEAST_DEVIATION, Opinions, cues


def opinions(share: list[float], inputs: list[list[float]], slope: float = 1.0) -> Opinions:
    of = np.asarray(share, np.float32)
    return Opinions(of, np.full_like(of, slope), np.full_like(of, 0.5), np.asarray(inputs, np.float32))


def test_a_bin_counts_states_in_which_critics_would_go_up() -> None:
    first, *others = opinions([0.1, 0.2, 0.5], [[0.0]] * 3).bins()
    assert first == {"low": 0.0, "high": 0.3, "states": 2, "up": 1.0, "action": 0.5}
    assert [of["states"] for of in others] == [1, 0, 0]
    assert others[-1]["up"] is None


def test_inputs_that_differ_where_a_flow_has_little_are_named_by_their_difference() -> None:
    pool = opinions([0.2, 0.4, 2.0], [[0.0, 1.0, 5.0, 2.0], [2.0, 1.0, 5.0, 2.0], [9.0, 9.0, 9.0, 9.0]])
    own = opinions([0.3, 0.4], [[4.0, 1.0, 4.0, 2.3], [4.0, 1.0, 4.0, 2.3]])
    names = ("rate", "same", "low", "high")
    assert cues(names, pool, own) == [
        {"input": "low", "differs": pytest.approx(-1 / LEAST_DEVIATION)},
        {"input": "high", "differs": pytest.approx(0.3 / LEAST_DEVIATION)},
        {"input": "rate", "differs": pytest.approx(3 / (1 + LEAST_DEVIATION))},
    ]
