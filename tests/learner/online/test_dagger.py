# SPDX-License-Identifier: Apache-2.0
"""DAgger: its loss by hand, what it learns, and its network in every runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.execution.schemes.indigo.control import CONTROL
from sagecc.execution.schemes.indigo.observation import OBSERVATIONS, SOURCE
from sagecc.learner.online.config import OnlineConfig, load
from sagecc.learner.online.dagger import Dagger
from sagecc.learner.online.replay import ReplayBatch
from sagecc.policy import artefact, exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.export import export
from sagecc.policy.steps import ACTIONS

pytestmark = pytest.mark.tensorflow

CONFIG = replace(load("indigo"), batch=16, window=12, burn_in=2, gru=12, actor_rate=1e-2)
SEEN = 3


def batch(config: OnlineConfig, seed: int, count: int = 1) -> ReplayBatch:
    """An expert that does what the sum of the last two numbers seen says, which takes a memory."""
    random = np.random.default_rng(seed)
    seen = random.uniform(-1, 1, (count, config.window, config.batch, SEEN)).astype(np.float32)
    recent = seen[..., 0] + np.concatenate([np.zeros_like(seen[:, :1, :, 0]), seen[:, :-1, :, 0]], axis=1)
    expert = np.array(ACTIONS, np.float32)[np.digitize(recent, [-0.8, -0.25, 0.25, 0.8])]
    rows = np.zeros(seen.shape[:-1], np.float32)
    return ReplayBatch(*(tf.constant(x) for x in (seen, expert[..., None], rows, rows)))


def single(batches: ReplayBatch) -> ReplayBatch:
    return ReplayBatch(*(x[0] for x in batches))


def test_the_loss_is_the_cross_entropy_after_the_burn_in() -> None:
    tf.random.set_seed(0)
    dagger, seen = Dagger(CONFIG, SEEN), single(batch(CONFIG, 1))
    scores = dagger.chooser.scores(seen.observations).numpy().astype(np.float64)
    choices = np.array([[ACTIONS.index(a) for a in row] for row in np.asarray(seen.states)[:, :, 0].tolist()])
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    entropies = -np.take_along_axis(logs, choices[..., None], axis=-1)[2:]
    loss, disagreement = dagger.losses(seen)
    assert float(loss) == pytest.approx(entropies.mean(), rel=1e-5)
    assert float(disagreement) == pytest.approx((scores.argmax(axis=-1) != choices)[2:].mean())


def test_it_learns_what_takes_a_memory_and_every_runtime_chooses_alike(tmp_path: Path) -> None:
    tf.random.set_seed(0)
    dagger = Dagger(CONFIG, SEEN)
    first = dagger.learn(batch(CONFIG, 0, 10)).numpy()
    for seed in range(1, 25):
        last = dagger.learn(batch(CONFIG, seed, 10)).numpy()
    assert first[1] > 0.5
    assert last[1] < 0.2
    assert int(dagger.steps) == 250
    weights = {name: variable.numpy() for name, variable in dagger.exported().items()}
    sizes, scaling = CONFIG.sizes(SEEN), CONFIG.scaling(SEEN)
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
        whole, again = Dagger(CONFIG, SEEN), Dagger(CONFIG, SEEN)
        whole.learn(batch(CONFIG, 0))
        for name, variable in again.state().items():
            variable.assign(whole.state()[name])
        for dagger in (whole, again):
            dagger.learn(batch(CONFIG, 1))
        for name, variable in again.state().items():
            np.testing.assert_array_equal(variable, whole.state()[name], err_msg=name)
    finally:
        tf.config.run_functions_eagerly(False)


def test_indigos_configuration_is_its_papers() -> None:
    config = load("indigo")
    assert config.sizes(len(OBSERVATIONS)).parameters == 3 * 32 * (9 + 32 + 1) + 33 * 5
    assert (CONTROL.limits, CONTROL.period_ms, SOURCE[0]) == ((-1, 1), 10, "indigo.dagger")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": {}}, "dagger with one"),
        ({"algorithm": "td3", "critic_rate": 1e-3, "width": 8}, "goes with dagger"),
        ({"critic_rate": 1e-3}, "dagger has no critics"),
        ({"returns": "window"}, "dagger has no returns"),
        ({"width": 8}, "neither hidden layers nor a width"),
    ],
)
def test_what_is_no_dagger_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=message):
        replace(CONFIG, **changes)
