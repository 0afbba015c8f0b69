# SPDX-License-Identifier: Apache-2.0
"""What holds of an update of any learner (learner.core)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sagecc.learner.core import Batch, Update
from sagecc.learner.optimisers import compiled


def assert_moves_alike(make: Callable[[], Any], *batches: Batch) -> Update:
    """Updates on some batches move every weight, each time from the same state to the same numbers; return the last.

    One graph does it twice, from the state of two learners that `make` made: tracing it takes most of the time.
    """
    made, other = make(), make()
    begin = numbers(made)
    assert_same(begin, numbers(other))
    step, ends = compiled(made.update), []
    for _ in range(2):
        for name, variable in made.state().items():
            variable.assign(begin[name])
        for data in batches:
            found = step(data)
            assert np.isfinite(found.metrics).all()
            assert found.metrics.shape == (len(made.metrics),)
        ends.append(numbers(made))
    still = [name for name, value in begin.items() if np.array_equal(value, ends[0][name])]
    assert [name for name in still if "head.logits" not in name] == []  # a mixture of one has no weight to move
    assert_same(*ends)
    return found


def numbers(learner: Any) -> dict[str, Any]:
    """Return a learner's state, by name."""
    return {name: variable.numpy() for name, variable in learner.state().items()}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two states are equal, number by number."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
