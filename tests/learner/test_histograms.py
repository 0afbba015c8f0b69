# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner import histograms

pytestmark = pytest.mark.tensorflow


def test_values_are_counted_in_their_buckets_and_at_the_ends() -> None:
    wanted = [[0, 1, 3], [1, 2, 2]]
    np.testing.assert_array_equal(histograms.buckets([-9, 0, 0.5, 1.5, 7], [0, 1, 2]), wanted)
    with_range = histograms.buckets([[2.0, 4.0], [2.0, 3.96]])
    assert with_range.shape == (histograms.BUCKETS, 3)
    assert (with_range[0, 0], with_range[-1, 1], with_range[0, 2], with_range[-1, 2]) == (2, 4, 2, 2)


@given(st.lists(st.floats(-5, 5), min_size=1))
def test_no_action_is_lost(actions: list[float]) -> None:
    found = histograms.buckets(actions, histograms.ACTION_EDGES)
    assert found[:, 2].sum() == len(actions)
    assert (found[:, 0] < found[:, 1]).all()


def test_actions_by_scheme_are_those_of_the_windows_transitions() -> None:
    """Five rows, of which three are transitions: the first warms up, the last has none."""
    action = np.array([[9, 9], [0, 1], [0, 1], [0.5, 1], [9, 9]], np.float32)
    drawn = np.array([[0, -1], [0, -1], [0, -1]], np.float32)
    ones = np.ones((3, 2), np.float32)
    found = histograms.of_step(
        np.array(["cubic", "vegas"]), action, {"advantage": ones, "filter_weight": 2 * ones, "action": drawn}
    )
    assert set(found) == {
        "advantage",
        "filter_weight",
        *(f"action/{scheme}/{whose}" for scheme in ("cubic", "vegas") for whose in ("pool", "policy")),
    }

    def counts(name: str, value: float) -> int:
        left, right, count = found[name].T
        return int(count[(left <= value) & (value < right)].sum())

    assert (counts("action/cubic/pool", 0), counts("action/cubic/pool", 0.5)) == (2, 1)
    assert (counts("action/vegas/pool", 1), counts("action/vegas/policy", -1)) == (3, 3)
    assert found["action/vegas/policy"][:, 2].sum() == 3


@pytest.mark.parametrize(("steps", "wanted"), [(200, 50), (2000, 50), (100_000, 500), (10_000_000, 50_000)])
def test_long_runs_have_no_more_of_them(steps: int, wanted: int) -> None:
    assert histograms.period(steps) == wanted


def test_tensorboard_reads_them(tmp_path: Path) -> None:
    wanted = histograms.buckets([0.0, 0.1, 1.0], histograms.ACTION_EDGES)
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(7):
        histograms.write("action/cubic/pool", wanted)
    writer.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.SummaryMetadata("action/cubic/pool").plugin_data.plugin_name == "histograms"
    (event,) = events.Tensors("action/cubic/pool")
    assert event.step == 7
    np.testing.assert_array_equal(tensor_util.make_ndarray(event.tensor_proto), wanted)
