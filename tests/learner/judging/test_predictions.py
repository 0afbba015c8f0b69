# SPDX-License-Identifier: Apache-2.0
"""What policies would have done: in the recorder's place, with a memory of the trajectory, within their limits."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.judging.decisions import RecordedDecisions
from sagecc.learner.judging.predictions import check, predict
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import LINEAR_MAP, RATE_MAP, SPREAD_MAP, STEPS_MAP, Control, PolicyArtefact, write
from sagecc.policy.mlp import Mlp
from sagecc.policy.recurrent import Recurrent
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.policies import save_policy, save_still_policy
from tests.learner.conftest import PoolMaker

NARROW = Control(base=1.0718, limits=(-1, 1), period_ms=50, map=SPREAD_MAP)


def recorded(lengths: tuple[int, ...] = (3, 5, 4), actions: float = 0.0) -> RecordedDecisions:
    count = sum(lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return RecordedDecisions(
        features=np.random.default_rng(0).normal(0, 1, (count, len(FEATURE_NAMES))).astype(np.float32),
        actions=np.full(count, actions),
        rewards=np.zeros(count),
        labels=np.ones(count, np.bool_),
        starts=starts,
        lengths=np.array(lengths),
        environments=np.arange(len(lengths)),
        sets=("I",) * len(lengths),
        period_ms=50,
    )


def still(folder: Path, log2_ratio: float, control: Control | None = None) -> PolicyArtefact:
    return PolicyArtefact.load(save_still_policy(folder / "policy", log2_ratio, control))


def dense(folder: Path, answer: float, control: Control, observations: tuple[str, ...] = ("thr",)) -> PolicyArtefact:
    """A policy whose action is tanh of the first observation, or of `answer`."""
    sizes = Mlp(len(observations), (), 0.2)
    weights = {"answer.w": np.zeros((len(observations), 1), np.float32), "answer.b": np.array([answer], np.float32)}
    weights["answer.w"][0] = 1 if answer == 0 else 0
    ones = np.ones(len(observations), np.float32)
    write(folder / "dense", weights, sizes, Scaling("none", 0 * ones, ones, 0.0), observations, {}, control=control)
    return PolicyArtefact.load(folder / "dense")


def test_an_action_is_log2_of_what_it_multiplies_by(tmp_path: Path) -> None:
    assert predict(still(tmp_path, 0.25), recorded()).actions == pytest.approx(0.25)
    power = predict(dense(tmp_path, 9.0, NARROW), recorded())
    assert power.actions == pytest.approx(math.log2(1.0718), rel=1e-4) and power.at_limits.all()
    linear = predict(dense(tmp_path, -9.0, replace(NARROW, map=LINEAR_MAP, base=1.025)), recorded())
    assert linear.actions == pytest.approx(-math.log2(1.025), rel=1e-4)


def test_actions_stay_within_the_limits(tmp_path: Path) -> None:
    beyond = predict(still(tmp_path, 3.5), recorded())
    assert beyond.actions == pytest.approx(2.0) and beyond.at_limits.all()
    assert not predict(still(tmp_path, 1.9), recorded()).at_limits.any()


def test_a_policy_sees_its_own_observations(tmp_path: Path) -> None:
    seen = recorded()
    policy = dense(tmp_path, 0.0, NARROW, ("pre_act", "srtt"))
    wanted = np.tanh(seen.features[:, FEATURE_NAMES.index("pre_act")].astype(np.float64))
    assert predict(policy, seen).actions == pytest.approx(wanted * math.log2(1.0718), abs=1e-6)


@pytest.mark.parametrize("kind", ["sage", "recurrent"])
def test_its_memory_is_that_of_each_trajectory(tmp_path: Path, kind: str) -> None:
    seen = recorded((3, 5, 4))
    if kind == "sage":
        policy = PolicyArtefact.load(save_policy(tmp_path / "sage"))
    else:
        sizes = Recurrent(len(FEATURE_NAMES), 8, 6, 1)
        random = np.random.default_rng(1)
        weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in sizes.shapes().items()}
        ones = np.ones(len(FEATURE_NAMES), np.float32)
        write(tmp_path / "r", weights, sizes, Scaling("none", 0 * ones, ones, 10.0), FEATURE_NAMES, {}, control=NARROW)
        policy = PolicyArtefact.load(tmp_path / "r")
    together = predict(policy, seen)
    step, unit = runtime.load(policy), math.log2(policy.control.base)
    for start, length in zip(seen.starts, seen.lengths, strict=True):
        hidden: Floats = policy.initial_state()
        for row in range(start, start + length):
            logits, loc, _, hidden = step(seen.features[row : row + 1], hidden)
            action = np.clip(exact.mean(logits, loc)[0], *policy.control.limits)
            assert together.actions[row] == pytest.approx(action * unit, abs=1e-12)
    assert (together.log_densities is None) == (kind == "recurrent")


def test_the_likelihood_is_the_mixtures_density_per_log2(tmp_path: Path) -> None:
    """A single Gaussian: -ln p = ln(deviation sqrt(2 pi)) + (a - mean)^2 / (2 deviation^2), and the base's unit."""
    deviation = math.log(2) + 0.01  # softplus(0) and the least scale
    for base in (2.0, 4.0):
        policy = still(tmp_path, 0.25, Control(base=base))
        found = predict(policy, recorded(actions=0.5)).log_densities
        action = 0.5 / math.log2(base)
        by_hand = -math.log(deviation * math.sqrt(2 * math.pi)) - (action - 0.25) ** 2 / (2 * deviation**2)
        assert found == pytest.approx(by_hand - math.log(math.log2(base)), rel=1e-5)


@pytest.fixture
def pool(make_pool: PoolMaker, tmp_path: Path) -> CompiledPool:
    return compile_pool(make_pool(), tmp_path / "cache")


def test_rows_of_a_decision(pool: CompiledPool, tmp_path: Path) -> None:
    assert check(still(tmp_path, 0), pool, 10.0) == 1
    assert check(dense(tmp_path, 1, NARROW), pool, 10.0) == 5


@pytest.mark.parametrize(
    ("control", "message"),
    [
        (Control(map=RATE_MAP), "does not multiply windows"),
        (Control(map=STEPS_MAP, limits=(-1, 1)), "does not multiply windows"),
        (Control(period_ms=25), "does not decide every so many ticks of 10 ms"),
        (Control(period_ms=5), "does not decide every so many ticks of 10 ms"),
        (Control(period_min_rtts=1.0), "does not decide every so many ticks of 10 ms"),
    ],
)
def test_what_a_pool_cannot_tell_of(pool: CompiledPool, tmp_path: Path, control: Control, message: str) -> None:
    with pytest.raises(SageccError, match=message) as caught:
        check(dense(tmp_path, 1, control), pool, 10.0)
    assert "policy" in str(caught.value) and "let it play instead" in str(caught.value)


def test_other_observations(pool: CompiledPool, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"models/aurora-1 sees aurora\.\S+ \S+, not a pool's features"):
        check(PolicyArtefact.load("aurora-1"), pool, 10.0)
    with pytest.raises(SageccError, match="sees 'window', which is no feature"):
        check(dense(tmp_path, 1, NARROW, ("window",)), pool, 10.0)
    other = PolicyArtefact.load(save_policy(tmp_path / "a", provenance={"pool": {"windows": "5,100,500"}}))
    with pytest.raises(SageccError, match=r"learned from a pool with observation windows 5,100,500, this one has 10,"):
        check(other, pool, 10.0)
    paced = PolicyArtefact.load(save_policy(tmp_path / "b", provenance={"pool": {"effective_windows": "bbr2"}}))
    with pytest.raises(SageccError, match="effective windows of bbr2, this one has none"):
        check(paced, pool, 10.0)
    assert check(PolicyArtefact.load("sagecc-10"), pool, 10.0) == 5
