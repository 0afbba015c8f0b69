# SPDX-License-Identifier: Apache-2.0
"""Going on in labs from a policy of a pool, with the pool in the replay; on labs without kernels."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sagecc.commands.train import command
from sagecc.common.errors import SageccError
from sagecc.execution.environments.task import LearningTask
from sagecc.learner.architectures import MlpNetwork
from sagecc.learner.core import Batch
from sagecc.learner.online.lab_source import LabExperience
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.online.pool_part import PoolPart, PoolWindowsBeside
from sagecc.learner.specification import PoolShare, RunSpecification, from_dict, load
from sagecc.policy import artefact
from sagecc.policy.artefact import OBSERVATION_SOURCE, SPREAD_MAP, Control, PolicyArtefact
from sagecc.policy.scaling import Scaling
from sagecc.pool.reward import reward_of
from sagecc.schemas.pool import POOL_VERSION
from tests.conftest import ROOT
from tests.helpers.fake_labs import fake_task
from tests.helpers.specifications import learner
from tests.learner.conftest import PoolMaker, write_pool
from tests.learner.online.test_online_train import digests, run, start, steps_logged

NAMES = ("srtt", "rttvar", "thr")
CONTROL = Control(base=1.5, limits=(-1.0, 1.0), period_ms=20.0, map=SPREAD_MAP)
NETWORK = MlpNetwork(hidden=(16, 8), input_transform="symlog", input_limit=5.0)
VALUES: dict[str, Any] = {
    "steps": 200,
    "batch": 16,
    "window": 4,
    "task": {"reward": "pool"},
    "network": {"kind": "mlp", "hidden": [16, 8], "input_transform": "symlog", "input_limit": 5},
    "algorithm": {
        "name": "td3",
        "policy_rate": 2e-3,
        "critic_rate": 2e-3,
        "discount": 0.3,
        "returns": "window",
        "average": 0.9,
        "policy_after": 40,
    },
    "labs": {"count": 2, "replay": 1000, "warm_up": 100, "round_steps": 20, "round_decisions": 40},
    "pool": {"share": 0.5, "share_steps": 100, "last_share": 0.125},
}


def task() -> OnlineTask:
    """Labs that show three of the pool's features."""
    return replace(
        fake_task(),
        observations=NAMES,
        source=(OBSERVATION_SOURCE, POOL_VERSION),
        states=0,
        control=CONTROL,
    )


def policy(folder: Path, network: MlpNetwork = NETWORK, **changes: Any) -> PolicyArtefact:
    """Write a policy with weights of its own and a scaling that is none of labs."""
    random = np.random.default_rng(7)
    sizes = network.sizes(len(NAMES))
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in sizes.shapes().items()}
    shift, scale = np.array([0.5, 0.1, 0.2], np.float32), np.array([0.7, 2.0, 1.0], np.float32)
    scaling = Scaling(network.input_transform, shift, scale, network.input_limit)
    of = {"observations": NAMES, "control": CONTROL, "source": (OBSERVATION_SOURCE, POOL_VERSION), **changes}
    artefact.write(folder, weights, sizes, scaling, of.pop("observations"), {}, exported=None, **of)
    return PolicyArtefact.load(folder)


def experience(folder: Path, specification: RunSpecification, found: PolicyArtefact | None = None) -> LabExperience:
    return LabExperience(specification, task(), 0, policy=found, pool=(folder / "pool", folder / "cache"))


def beside(pool: Path, cache: Path, values: dict[str, Any] = VALUES) -> PoolWindowsBeside:
    scaling = Scaling("symlog", np.zeros(3, np.float32), np.ones(3, np.float32), 5.0)
    return PoolPart(from_dict(values), task(), scaling, pool, cache, 0).open()


def replayed(updates: int, window: int = 4, size: int = 16) -> Batch:
    """Return batches of a replay, all of them 9."""
    shape = (updates, window, size)
    return Batch(*(np.full((*shape, *more), 9, np.float32) for more in ((3,), (), (), (0,), (), ())))


def kicked(pool: Path, every: int) -> None:
    """Mark every so many rows as kicked."""
    for path in pool.glob("set=*/scheme=*/part-*.parquet"):
        table = pq.read_table(path)
        marks = np.arange(table.num_rows) % every == 0
        table = table.drop_columns(["is_kicked"]) if "is_kicked" in table.column_names else table
        pq.write_table(table.append_column("is_kicked", [marks]), path)


def test_the_share_of_the_pool_falls() -> None:
    share = PoolShare(0.5, 100, 0.125)
    assert [share.windows(step, 16) for step in (0, 50, 100, 1000)] == [8, 5, 2, 2]
    assert [PoolShare(1.0, 10).windows(step, 52) for step in (0, 5, 9, 10)] == [52, 26, 5, 0]


def test_as_many_windows_of_each_batch_are_the_pools(make_pool: PoolMaker, tmp_path: Path) -> None:
    """Their actions are in units of the control's base and as long as its period; the others are the replay's."""
    batches = replayed(120)
    with beside(make_pool(), tmp_path / "cache") as windows:
        windows.mix(batches, 0)
        assert windows.share == sum(PoolShare(0.5, 100, 0.125).windows(step, 16) for step in range(120)) / 120 / 16
    counts = (batches.rewards != 9).all(axis=1).sum(axis=-1)
    assert counts.tolist() == [round(16 * (0.5 - 0.375 * min(step, 100) / 100)) for step in range(120)]
    assert ((batches.rewards != 9) == (batches.actions != 9)).all()
    taken = np.abs(batches.actions[batches.actions != 9])
    unit = 1 / math.log2(CONTROL.base)  # two rows of log2 0.5 or -0.5 each: 1.7 units, which is clipped, or 0
    assert unit > 1
    assert set(taken.tolist()) == {0.0, 1.0}
    assert set(batches.rewards[batches.rewards != 9].tolist()) <= {2.0, 11.0, 20.0}
    np.testing.assert_allclose(
        np.unique(batches.observations[batches.observations[..., 0] != 9][:, 0]), np.log1p([0.5, 1.5])
    )


def test_a_batch_follows_from_the_update_alone(make_pool: PoolMaker, tmp_path: Path) -> None:
    whole, parts = replayed(30), [replayed(10), replayed(20)]
    with beside(make_pool(), tmp_path / "cache") as windows:
        windows.mix(whole, 0)
    with beside(tmp_path / "pool", tmp_path / "cache") as windows:
        windows.mix(parts[1], 10)
        windows.mix(parts[0], 0)
    for field in ("observations", "actions", "rewards"):
        joined = np.concatenate([getattr(part, field) for part in parts])
        np.testing.assert_array_equal(getattr(whole, field), joined)


def test_no_window_of_the_pool_holds_a_kick(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    kicked(pool, 40)
    with beside(pool, tmp_path / "cache") as windows:
        sampler = windows._sampler
        counts = []
        for step in range(20):
            chosen = sampler.undisturbed(step)
            counts.append(len(chosen))
            assert sampler.batch(step, chosen).labels[:-1].all()
        assert 0 < sum(counts) < 20 * 2 * 16


@pytest.mark.tensorflow
def test_the_actor_is_the_policy_until_its_first_update(tmp_path: Path) -> None:
    from sagecc.common.tensorflow_runtime import tf

    found = policy(tmp_path / "policy")
    specification = from_dict({**VALUES, "algorithm": {**VALUES["algorithm"], "policy_after": 3}})
    learns = learner(specification, 3, weights=found.weights)
    random = np.random.default_rng(0)

    def same(weights: dict[str, Any]) -> bool:
        return all(np.array_equal(weights[name].numpy(), value) for name, value in found.weights.items())

    networks = learns.networks
    for step in range(5):
        assert same(learns.acting()) == same(learns.exported()) == (step <= 4)
        assert same(networks.target_actor.weights()) == (step <= 4)
        batch = Batch(
            *(tf.constant(random.normal(size=(4, 16, *of)), tf.float32) for of in ((3,), (), (), (0,), (), ()))
        )
        learns.update(batch)
    assert not same(learns.acting())
    assert not same(learns.exported())


def test_labs_scale_as_the_policy_does_and_play_it_from_the_start(make_pool: PoolMaker, tmp_path: Path) -> None:
    make_pool()
    found = policy(tmp_path / "policy")
    specification = from_dict(VALUES)
    onward, new = experience(tmp_path, specification, found), experience(tmp_path, specification)
    assert onward.scaling == found.scaling
    assert onward.weights == found.weights
    assert new.weights is None
    (spec,), (other,) = onward.actor_specs(tmp_path), new.actor_specs(tmp_path)
    assert (vars(spec.exploration)["warm_up"], vars(other.exploration)["warm_up"]) == (0, 100)
    assert spec.scaling == found.scaling
    without = LabExperience(from_dict({**VALUES, "pool": None}), task(), 0)
    assert without.identity() == [task().identity, 1]  # as before there was a pool
    assert len({json.dumps(each.identity()) for each in (onward, new, without)}) == 3
    assert onward.provenance()["started_from"]["identity"] == onward.identity()[2]["policy"]
    assert onward.provenance()["pool"]["rows"] == 2 * (200 + 120 + 350)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"network": replace(NETWORK, hidden=(16, 4))}, r"its network is Mlp\(inputs=3, hidden=\(16, 4\)"),
        ({"network": replace(NETWORK, input_limit=0.0)}, "its input_limit is 0.0, this configuration's 5.0"),
        ({"control": replace(CONTROL, period_ms=50.0)}, r"its control\.period_ms is 50.0, this configuration's 20.0"),
        ({"control": replace(CONTROL, base=2.0)}, r"its control\.base is 2.0, this configuration's 1.5"),
        ({"control": replace(CONTROL, window_bound=1.4)}, r"its control\.window_bound is 1.4, this .* None"),
        ({"observations": ("srtt", "thr", "rttvar")}, "its list of observations is"),
        ({"source": ("orca.tcp", "1.0")}, "its observation is 'orca.tcp 1.0'"),
    ],
)
def test_a_policy_that_does_not_fit_is_said(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    found = policy(tmp_path / "policy", **changes)
    with pytest.raises(SageccError, match=text) as raised:
        experience(tmp_path, from_dict(VALUES), found)
    assert "\n" not in str(raised.value)


def test_a_pool_that_does_not_fit_is_said(make_pool: PoolMaker, tmp_path: Path) -> None:
    specification = from_dict(VALUES)
    with pytest.raises(SageccError, match=f"no pool at {tmp_path / 'pool'}"):
        experience(tmp_path, specification)
    with pytest.raises(SageccError, match="give the pool"):
        LabExperience(specification, task(), 0)
    pool = make_pool(), tmp_path / "cache"
    for changes, text in (
        ({"source": ("orca.tcp", "1.0")}, "the task observes orca.tcp"),
        ({"states": 1}, "a pool has no global_state"),
        ({"control": replace(CONTROL, period_ms=25.0)}, "whole ticks of 10 ms"),
        ({"control": replace(CONTROL, map=artefact.LINEAR_MAP)}, "needs the map power or spread"),
    ):
        with pytest.raises(SageccError, match=text):
            LabExperience(specification, replace(task(), **changes), 0, pool=pool)
    with pytest.raises(SageccError, match="there is no reward 'orca'"):
        LabExperience(from_dict({**VALUES, "task": {"reward": "orca"}}), task(), 0, pool=pool)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pool": {"share": 0.0, "share_steps": 1}}, "pool.share must be above 0"),
        ({"pool": {"share": 0.5, "share_steps": 0}}, "pool.share_steps must be at least 1"),
        ({"pool": {"share": 0.5, "share_steps": 1, "last_share": 0.6}}, "pool.last_share must be from 0 to pool.share"),
        ({"algorithm": {**VALUES["algorithm"], "policy_after": 200}}, "policy_after must be below the 200 steps"),
        ({"task": None, "labs": None, "data": {}}, "pool is for a run in labs"),
    ],
)
def test_a_share_out_of_range_is_said(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SageccError, match=text):
        from_dict({**VALUES, **changes})


def test_onward_goes_on_as_the_offline_policy_plays_and_learns() -> None:
    onward, offline = load("onward"), load("offline")
    assert onward.network == offline.network
    assert onward.steps * 3 == load("sagecc-10").steps
    assert offline.data is not None
    task = LearningTask.of(onward.task or {})
    assert task.observations == offline.data.observations
    period_ms, base = float(offline.data.period_ms), offline.data.action_base or 0.0
    decides = Control(period_ms=period_ms, base=base, limits=(-1.0, 1.0), map=SPREAD_MAP)
    assert onward.control.around(task.control) == offline.control.around(decides)
    assert onward.task == load(str(ROOT / "evidence/training/recipes/labs-third.yaml")).task
    assert reward_of((onward.task or {})["reward"]) is reward_of(offline.data.reward)


def test_the_command_trains_onward_from_a_policy_and_from_a_pool_not(kernel: Path, tmp_path: Path) -> None:
    words = ["--from", "sagecc-10", "--pool", "/none", "--kernel", str(kernel)]
    assert "list of observations" in str(CliRunner().invoke(command, words).exception)
    config = tmp_path / "like-it.yaml"
    config.write_text("base: sagecc-10\npool: {share: 0.5, share_steps: 10}\n")
    done = CliRunner().invoke(command, [*words, "--config", str(config)])
    assert str(done.exception).startswith("no pool at /none")
    done = CliRunner().invoke(command, ["--from", "sagecc-10", "--config", "small"])
    assert str(done.exception) == "small learns from a pool, --from goes on in labs: choose one such as onward"


CALL = """
import pathlib, sys
from tests.learner.online.test_onward import once

if __name__ == "__main__":
    print(once(pathlib.Path(sys.argv[1])))
"""


def once(folder: Path) -> int:
    """Train in this process from the policy and pool in a folder; return the steps taken."""
    from sagecc.learner.train import train

    specification = from_dict(VALUES)
    learned = experience(folder, specification, PolicyArtefact.load(folder / "policy"))
    outcome = train(specification, learned, folder / "model", folder / "logs", checkpoint_s=0.0)
    assert outcome is not None
    return outcome.trained_steps


def made(folder: Path) -> list[str]:
    """Make a folder to train in; return the words that do."""
    folder.mkdir()
    write_pool(folder)
    policy(folder / "policy")
    (folder / "call.py").write_text(CALL)
    return [sys.executable, str(folder / "call.py"), str(folder)]


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_run_that_was_killed_comes_to_the_same_bytes(tmp_path: Path) -> None:
    whole, killed = made(tmp_path / "whole"), made(tmp_path / "killed")
    code, out, err = run(whole)
    assert (code, out) == (0, "200\n"), err
    process = start(killed)
    while steps_logged(tmp_path / "killed") < 4 and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    code, out, err = run(killed)
    assert code == 0, err
    assert 0 < int(out) < 200
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    card = json.loads((tmp_path / "whole" / "model" / "card.json").read_text())
    assert card["inputs"]["shift"] == pytest.approx([0.5, 0.1, 0.2])
    lines = [json.loads(x) for x in (tmp_path / "whole" / "logs" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["pool_share"] > lines[-1]["pool_share"] == 2 / 16
