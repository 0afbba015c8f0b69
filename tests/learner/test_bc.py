# SPDX-License-Identifier: Apache-2.0
"""Behaviour cloning of every kind of network: its loss by hand, and what it learns."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.specification import from_dict
from sagecc.policy.artefact import SPREAD_MAP, PolicyArtefact
from tests.conftest import ROOT
from tests.helpers import specifications
from tests.helpers.specifications import pool_batch, varied
from tests.helpers.training import command
from tests.helpers.updates import assert_moves_alike
from tests.learner.conftest import PoolMaker

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp", "hidden": [12, 8]},
    "recurrent": {"kind": "recurrent", "width": 8, "gru": 7},
    "sage": {"kind": "sage", "width": 8, "gru": 8},
}
WINDOW, WINDOWS, SEEN = 5, 3, 4


def config(kind: str, **changes: Any) -> Any:
    values = {
        "steps": 10,
        "batch": WINDOWS,
        "window": WINDOW,
        "data": {"action_base": 2.0},
        "network": NETWORKS[kind],
        "algorithm": {"name": "bc", "policy_rate": 1e-3},
    }
    return varied(from_dict(values), **changes)


def batch() -> Any:
    random, shape = np.random.default_rng(0), (WINDOW, WINDOWS)
    found = pool_batch(
        *(tf.constant(random.uniform(-1, 1, size=of), tf.float32) for of in ((*shape, SEEN), shape, shape))
    )
    labels = np.ones(shape, np.float32)
    labels[1, 2] = labels[-2, 0] = 0
    return found._replace(labels=tf.constant(labels), examples=tf.constant(labels))


def learner(of: Any) -> Any:
    tf.random.set_seed(0)
    return specifications.learner(of, SEEN)


@pytest.mark.parametrize("burn_in", [0, 2])
@pytest.mark.parametrize("kind", list(NETWORKS))
def test_the_loss_is_worked_out_by_hand_from_what_the_policy_says(kind: str, burn_in: int) -> None:
    of = config(kind, burn_in=burn_in)
    bc, data = learner(of), batch()
    said = bc.policy.unroll(data.observations[:-1], tf.zeros([WINDOWS, of.network.memory]))[0]
    actions, labels = np.asarray(data.actions[:-1]), np.asarray(data.labels[:-1])
    each = -np.asarray(said.log_prob(actions)) if kind == "sage" else (np.asarray(said) - actions) ** 2
    wanted = (labels * each)[burn_in:].mean()
    assert float(bc.losses(data).policy) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("kind", list(NETWORKS))
def test_an_update_moves_every_weight_and_is_a_function_of_the_seed(kind: str) -> None:
    of = config(kind, average=0.9, final_rate=0.1)
    found = assert_moves_alike(lambda: learner(of), batch(), resting="head.logits")
    assert found.transitions["action"].shape == (WINDOW - 1, WINDOWS)


def test_a_dense_policy_learns_the_mean_of_a_pools_actions_and_says_what_they_do(
    make_pool: PoolMaker, tmp_path: Path
) -> None:
    """Its schemes toss a coin between log2 ratios of 0.5 and -0.5: 1 and -1 in units of the base."""
    changes: dict[str, Any] = {
        "steps": 200,
        "batch": 64,
        "window": 2,
        "data": {"period_ms": 20, "action_base": 1.4142},
        "network": {**NETWORKS["mlp"], "input_transform": "symlog", "input_limit": 5},
        "algorithm": {"name": "bc", "policy_rate": 1e-3},
    }
    done = subprocess.run(
        command(tmp_path, make_pool((2000, 2000)), **changes), cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    policy = PolicyArtefact.load(tmp_path / "models" / "a")
    assert len(policy.intact_files()) == 3
    control = policy.control
    assert (control.base, control.limits, control.period_ms, control.map) == (1.4142, (-1.0, 1.0), 20.0, SPREAD_MAP)
    assert policy.card["metrics"]["action_error"] == pytest.approx(0.5, abs=0.1)
