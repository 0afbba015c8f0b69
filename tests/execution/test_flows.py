# SPDX-License-Identifier: Apache-2.0
"""Policies in any flow: beside themselves, beside each other, in batches, in environments; every flow's rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pyarrow.parquet as pq
import pytest

import sagecc.execution.environments  # noqa: F401 - registers ENVIRONMENT
from sagecc.cli import main
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.task import FinishedEpisode, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import play_episode, policy_controller, policy_drives
from sagecc.execution.lab.lockstep import lockstep
from sagecc.pool.spaces import ENVIRONMENT
from sagecc.schemas.environment import CrossFlow, Environment, Flow
from sagecc.schemas.flows import FLOWS_SCHEMA
from tests.helpers.networks import network
from tests.helpers.policies import save_policy, save_still_policy


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two whose windows grow without flooding: a flooded guest takes seconds of CPU per virtual second."""
    folder = tmp_path_factory.mktemp("policies")
    return f"policy:{save_policy(folder / 'one', seed=17)}", f"policy:{save_policy(folder / 'two', seed=36)}"


def among(*cross: str, start_s: float = 0.0) -> Environment:
    """A tested flow and competitors, which start later."""
    environment = network(duration_s=3)
    return replace(environment, cross=tuple(CrossFlow(scheme, Flow(start_s=start_s)) for scheme in cross))


def test_a_policy_competes_with_itself_with_another_and_with_the_kernels_schemes(
    kernel: Path, policies: tuple[str, str]
) -> None:
    one, two = policies
    episode = play_episode(kernel, among(one, two, "cubic"), one, every_flow=True)
    assert [flow.scheme for flow in episode.flows] == [one, one, two, "cubic"]
    assert episode.every_flow is not None
    assert set(episode.every_flow["flow"].to_pylist()) == {0, 1, 2, 3}
    again = play_episode(kernel, among(one, two, "cubic"), one)
    assert again.sha256 == episode.sha256
    # who competes decides the trajectory, and is part of its specification
    others = [play_episode(kernel, among(name, two, "cubic"), one) for name in (two, "cubic")]
    assert len({episode.sha256, *(other.sha256 for other in others)}) == 3
    assert len({episode.spec_sha256, *(other.spec_sha256 for other in others)}) == 3


def test_another_policy_at_the_same_place_is_another_competitor(kernel: Path, tmp_path: Path) -> None:
    tested, path = f"policy:{save_policy(tmp_path / 'tested', seed=17)}", tmp_path / "rival"
    before = play_episode(kernel, among(f"policy:{save_policy(path, seed=36)}"), tested)
    after = play_episode(kernel, among(f"policy:{save_policy(path, seed=17)}"), tested)
    assert before.spec_sha256 != after.spec_sha256
    assert before.sha256 != after.sha256


def test_each_flow_has_a_state_of_its_own(kernel: Path, tmp_path: Path) -> None:
    """Until another begins a flow has the windows that it has alone, and then the other begins as it did."""
    one = f"policy:{save_still_policy(tmp_path / 'slow', log2_ratio=0.01)}"
    own_link = replace(network(duration_s=3), cross=())
    alone = play_episode(kernel, own_link, one, every_flow=True).every_flow
    late = replace(own_link, cross=(CrossFlow(one, Flow(start_s=1.0)),))
    company = play_episode(kernel, late, one, every_flow=True).every_flow
    assert alone is not None
    assert company is not None
    first = [table.filter(np.asarray(table["flow"]) == 0) for table in (alone, company)]
    before = [table["cwnd_pkts"].to_numpy()[table["t_s"].to_numpy() < 1] for table in first]
    np.testing.assert_array_equal(*before)
    rival = company.filter(np.asarray(company["flow"]) == 1)["cwnd_pkts"].to_numpy()
    assert rival[0] == first[0]["cwnd_pkts"].to_numpy()[0]  # it begins as the first did
    assert len(set(rival.tolist())) > 3


@pytest.mark.parametrize(("jobs", "batch"), [(1, 1), (1, 3), (2, 2)])
def test_flows_have_the_same_bytes_in_any_batch_order_and_number_of_processes(
    kernel: Path, policies: tuple[str, str], jobs: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sagecc.execution.lab.lockstep.MIN_WORKER_CPU_S", 0.01)
    one, two = policies
    drives = policy_drives(policies)
    rivals = ((one, one), (two,), ("cubic", two))
    tasks = [Task(among(*cross), scheme, 3, "", policy_controller, drives) for cross in rivals for scheme in policies]
    tasks.append(Task(among(one), "cubic", 3, "", policy_controller, drives))
    alone = {task.id: attempt(kernel, task) for task in tasks}
    assert all(isinstance(result, FinishedEpisode) for result in alone.values())
    order = tasks[::-1] if batch == 3 else tasks
    assert {task.id: result for task, result in lockstep(jobs, batch)(kernel, order)} == alone


def test_drawn_actions_are_each_flows_own(kernel: Path, policies: tuple[str, str]) -> None:
    one, _ = policies
    runs = [play_episode(kernel, among(one), one, 3, sample=True, every_flow=True).every_flow for _ in range(2)]
    assert runs[0] is not None
    assert runs[0].equals(runs[1])
    windows = [runs[0].filter(np.asarray(runs[0]["flow"]) == flow)["cwnd_pkts"].to_numpy() for flow in (0, 1)]
    assert not np.array_equal(windows[0][:100], windows[1][:100])


def test_every_flows_rows_are_the_kernels(kernel: Path) -> None:
    """Of the tested flow just those of a collection; of each flow in order of time, numbered from 0."""
    episode = run_episode(kernel, among("reno", start_s=1.0), "cubic", every_flow=True)
    table = episode.every_flow
    assert table is not None
    assert table.schema.equals(FLOWS_SCHEMA)
    own = table.filter(np.asarray(table["flow"]) == 0).drop_columns(["flow", "scheme"])
    assert own.equals(episode.rows.select(own.column_names))
    rival = table.filter(np.asarray(table["flow"]) == 1)
    assert set(rival["scheme"].to_pylist()) == {"reno"}
    assert rival["step"].to_pylist() == list(range(len(rival)))
    assert rival["t_s"].to_numpy()[0] > 1
    assert np.all(np.diff(rival["t_s"].to_numpy()) > 0)
    assert run_episode(kernel, among("reno", start_s=1.0), "cubic").every_flow is None


def test_the_command_runs_policies_in_any_flow(
    kernel: Path, tmp_path: Path, policies: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = policies
    flows = tmp_path / "flows.parquet"
    command = ["run", "--scheme", one, "--cross", f"{two}:2", "--cross", "cubic", "--duration", "2"]
    with pytest.raises(SystemExit) as status:
        main([*command, "--flows", str(flows), "--kernel", str(kernel), "--json"])
    assert not status.value.code
    told = json.loads(capsys.readouterr().out)
    assert [flow["scheme"] for flow in told["flows"]] == [one, two, two, "cubic"]
    table = pq.read_table(flows)
    assert set(table["flow"].to_pylist()) == {0, 1, 2, 3}


def test_a_competitor_that_is_no_policy_is_named(kernel: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=f"no policy at {tmp_path}/none"):
        play_episode(kernel, among(f"policy:{tmp_path}/none"), "cubic")


def test_an_agent_competes_with_a_policy_in_an_environment(kernel: Path, tmp_path: Path) -> None:
    """It drives its flow before the agent's is up, and after."""
    still = f"policy:{save_still_policy(tmp_path / 'still', log2_ratio=0.005)}"
    environment = replace(among(still), flow=Flow(start_s=1.0))
    env = gymnasium.make(ENVIRONMENT.id, environment=environment, kernel=kernel)
    episodes = []
    for _ in range(2):  # the policy is read once, and begins anew with each episode
        observation, _ = env.reset(seed=1)
        observations = [observation]
        while True:
            observation, reward, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
            assert np.isfinite(observation).all()
            assert np.isfinite(float(reward))
            observations.append(observation)
            if bool(terminated) or bool(truncated):
                break
        assert len(observations) == pytest.approx(200, abs=8)
        episodes.append(np.array(observations))
    np.testing.assert_array_equal(episodes[0], episodes[1])
    env.close()
