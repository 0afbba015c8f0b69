# SPDX-License-Identifier: Apache-2.0
"""What holds of an update of any learner (learner.core)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sagecc.learner.core import Batch, Update


def assert_moves_alike(make: Callable[[], Any], *batches: Batch, resting: str | None = None) -> Update:
    """Two learners update on some batches: every weight moves, in both to the same number; return the last update.

    Args:
        make: makes a learner.
        batches: an update is taken on each.
        resting: what is in the names of weights that need not move.
    """
    ends = []
    for _ in range(2):
        made = make()
        before = numbers(made)
        for data in batches:
            found: Update = made.update(data)  # as it is: tracing takes seconds
            assert np.isfinite(found.metrics).all()
            assert found.metrics.shape == (len(made.metrics),)
        ends.append(numbers(made))
    still = [name for name, value in before.items() if np.array_equal(value, ends[0][name])]
    assert [name for name in still if resting is None or resting not in name] == []
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name], err_msg=name)
    return found


def numbers(learner: Any) -> dict[str, Any]:
    """Return a learner's state, by name."""
    return {name: variable.numpy() for name, variable in learner.state().items()}
