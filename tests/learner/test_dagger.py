# SPDX-License-Identifier: Apache-2.0
"""DAgger: its loss by hand, what it learns, and its network in every runtime."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.execution.schemes.indigo.control import CONTROL
from sagecc.execution.schemes.indigo.observation import OBSERVATIONS, SOURCE
from sagecc.learner.core import Batch
from sagecc.learner.optimisers import compiled, in_turn
from sagecc.learner.specification import RunSpecification, load
from sagecc.policy import artefact, exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.export import export
from sagecc.policy.scaling import Scaling
from sagecc.policy.steps import ACTIONS
from tests.helpers.specifications import learner, varied

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

CONFIG = varied(load("indigo"), batch=16, window=12, burn_in=2, gru=12, policy_rate=1e-2)
SEEN = 3


@cache
def graph(dagger: Any) -> Any:
    return compiled(in_turn(dagger.update, len(dagger.metrics)))


def learn(dagger: Any, batches: Batch) -> Any:
    return graph(dagger)(batches).metrics


def batch(config: RunSpecification, seed: int, count: int = 1) -> Batch:
    """An expert that does what the sum of the last two numbers seen says, which takes a memory."""
    random = np.random.default_rng(seed)
    seen = random.uniform(-1, 1, (count, config.window, config.batch, SEEN)).astype(np.float32)
    recent = seen[..., 0] + np.concatenate([np.zeros_like(seen[:, :1, :, 0]), seen[:, :-1, :, 0]], axis=1)
    expert = np.array(ACTIONS, np.float32)[np.digitize(recent, [-0.8, -0.25, 0.25, 0.8])]
    rows = np.zeros(seen.shape[:-1], np.float32)
    return Batch(*(tf.constant(x) for x in (seen, rows, rows, expert[..., None], rows + 1, rows + 1)))


def single(batches: Batch) -> Batch:
    return Batch(*(x[0] for x in batches))


def test_the_loss_is_the_cross_entropy_after_the_burn_in() -> None:
    tf.random.set_seed(0)
    dagger, seen = learner(CONFIG, SEEN), single(batch(CONFIG, 1))
    scores = dagger.chooser.scores(seen.observations).numpy().astype(np.float64)
    choices = np.array([[ACTIONS.index(a) for a in row] for row in np.asarray(seen.states)[:, :, 0].tolist()])
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    entropies = -np.take_along_axis(logs, choices[..., None], axis=-1)[2:]
    loss, disagreement = dagger.losses(seen)
    assert float(loss) == pytest.approx(entropies.mean(), rel=1e-5)
    assert float(disagreement) == pytest.approx((scores.argmax(axis=-1) != choices)[2:].mean())


def test_it_learns_what_takes_a_memory_and_every_runtime_chooses_alike(tmp_path: Path) -> None:
    tf.random.set_seed(0)
    dagger = learner(CONFIG, SEEN)
    first = learn(dagger, batch(CONFIG, 0, 10)).numpy()
    for seed in range(1, 25):
        last = learn(dagger, batch(CONFIG, seed, 10)).numpy()
    assert first[1] > 0.5
    assert last[1] < 0.2
    assert int(dagger.steps) == 250
    weights = {name: variable.numpy() for name, variable in dagger.exported().items()}
    sizes = CONFIG.network.sizes(SEEN)
    scaling = Scaling("none", np.zeros(SEEN, np.float32), np.ones(SEEN, np.float32), CONFIG.network.input_limit)
    exported = export(sizes, weights)
    artefact.write(tmp_path, weights, sizes, scaling, ("a", "b", "c"), {}, exported=exported)
    policy, seen = PolicyArtefact.load(tmp_path), single(batch(CONFIG, 99))
    wanted = np.array(ACTIONS)[np.asarray(dagger.chooser.scores(seen.observations)).argmax(axis=-1)]
    for name in ("exact", "numpy", "litert", "onnx"):
        step, hidden = runtime.load(policy, name), policy.initial_state(CONFIG.batch)
        for t, observation in enumerate(np.asarray(seen.observations)):
            logits, loc, _, hidden = step(observation, hidden)
            np.testing.assert_allclose(exact.mean(logits, loc), wanted[t], atol=1e-6, err_msg=name)
    assert exported.errors["policy.onnx"]["loc"] == 0


def test_its_state_is_all_that_a_continued_run_needs() -> None:
    tf.config.run_functions_eagerly(True)
    try:
        whole, again = learner(CONFIG, SEEN), learner(CONFIG, SEEN)
        learn(whole, batch(CONFIG, 0))
        for name, variable in again.state().items():
            variable.assign(whole.state()[name])
        for dagger in (whole, again):
            learn(dagger, batch(CONFIG, 1))
        for name, variable in again.state().items():
            np.testing.assert_array_equal(variable, whole.state()[name], err_msg=name)
    finally:
        tf.config.run_functions_eagerly(False)


def test_indigos_configuration_is_its_papers() -> None:
    config = load("indigo")
    assert config.network.sizes(len(OBSERVATIONS)).parameters == 3 * 32 * (9 + 32 + 1) + 33 * 5
    assert (CONTROL.limits, CONTROL.period_ms, SOURCE[0]) == ((-1, 1), 10, "indigo.dagger")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": {"expert": False}}, "dagger learns from an expert"),
        ({"network": {"kind": "mlp", "hidden": [8]}}, "dagger needs a network of kind choice, not mlp"),
        ({"network": {"kind": "recurrent", "width": 8, "gru": 8}}, "dagger needs a network of kind choice"),
        ({"network": {"width": 8}}, "network: unknown field width"),
        ({"algorithm": {"critic_rate": 1e-3}}, "algorithm: unknown field critic_rate"),
        ({"algorithm": {"returns": "window"}}, "algorithm: unknown field returns"),
    ],
)
def test_what_is_no_dagger_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=message):
        CONFIG.changed(**changes)


def test_an_expert_goes_with_dagger_alone() -> None:
    changes = {"network": {"kind": "mlp", "hidden": [8]}, "window": 2, "burn_in": 0}
    algorithm = {"name": "td3", "policy_rate": 1e-3, "critic_rate": 1e-3}
    with pytest.raises(SageccError, match="an expert in the task goes with dagger"):
        CONFIG.changed(**changes, algorithm=algorithm)
