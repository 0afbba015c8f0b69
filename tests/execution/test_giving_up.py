# SPDX-License-Identifier: Apache-2.0
"""Episodes that are given up: when, by whom, and what becomes of the others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import pytest
from click.testing import CliRunner

from sagecc.cli import cli
from sagecc.collector.run.task import FinishedEpisode, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab.controllers import Playing, play_episode, policy_controller
from sagecc.execution.lab.giving_up import GivenUpError, GiveUp, LossWatch
from sagecc.execution.lab.lockstep import lockstep
from sagecc.leagues import league
from sagecc.leagues.league import EpisodesGivenUpError, PlayOptions, lab_runner
from sagecc.policy.artefact import Control
from sagecc.schemas import wire
from tests.helpers.networks import network
from tests.helpers.policies import save_still_policy

LINK = network(12, 20, 1, duration_s=4)
SOON = GiveUp(0.3, 1.0)


@pytest.fixture(scope="module")
def flooding(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy that holds a window of 200 packets where 40 fit: four of five are lost."""
    control = Control(cwnd_packets=(4, 200))
    return f"policy:{save_still_policy(tmp_path_factory.mktemp('flood'), 0.5, control)}"


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"policy:{save_still_policy(tmp_path_factory.mktemp('still'))}"


def tick(t_s: float, passed: int, lost: int, flow: int = 0) -> npt.NDArray[np.void]:
    row = np.zeros(1, wire.SAMPLE)
    row["t_ns"], row["flow"], row["link_packets"], row["link_drops"] = round(t_s * 1e9), flow, passed, lost
    return row


def first_given_up(ticks: list[tuple[float, int, int]], give_up: GiveUp) -> tuple[float, str] | None:
    watch = LossWatch("e", give_up)
    for t_s, passed, lost in ticks:
        try:
            watch.check(tick(t_s, passed, lost))
        except GivenUpError as error:
            return t_s, str(error)
    return None


def test_golden_by_hand() -> None:
    """100 packets a second, of which a third is lost from 4 s on: over 2 s, a fifth at 5.2 s."""
    ticks = [(t / 10, 10 * t - max(0, t - 40) * 10 // 3, max(0, t - 40) * 10 // 3) for t in range(101)]
    given_up = first_given_up(ticks, GiveUp(0.2, 2))
    assert given_up is not None and given_up[0] == 5.3  # 43 of 200: at 5.2 s it was 40, no more than a fifth
    assert given_up[1] == "episode e: given up after 5.3 s: 22 % of its packets were lost in 2 s, more than 20 %"
    assert first_given_up(ticks, GiveUp(0.34, 2)) is None
    assert first_given_up(ticks, GiveUp(0.2, 20)) is None  # the episode is shorter


def test_a_short_burst_a_late_start_and_another_flow_do_not_count() -> None:
    burst = [(t / 10, 100 * t, 90 * (t > 20)) for t in range(101)]
    assert first_given_up(burst, GiveUp(0.2, 5)) is None
    late = [(t / 10, 10, 90) for t in range(50, 90)]  # nothing moves any more, and not yet 5 s
    assert first_given_up(late, GiveUp(0.2, 5)) is None
    watch = LossWatch("e", GiveUp(0.2, 1))
    for t in range(30):
        watch.check(tick(t / 10, 0, 100 * t, flow=1))


@pytest.mark.parametrize(("share", "time_s"), [(0, 5), (1, 5), (0.2, 0), (0.2, float("inf")), (float("nan"), 5)])
def test_what_is_no_rule(share: float, time_s: float) -> None:
    with pytest.raises(SageccError, match="an episode is given up"):
        GiveUp(share, time_s)


def test_a_flood_ends_early_beside_another(kernel: Path, flooding: str, still: str) -> None:
    tasks = [Task(LINK, scheme, 0, "", policy_controller) for scheme in (flooding, still)]
    results = {task.scheme: result for task, result in lockstep(1, 2, Playing(give_up=SOON))(kernel, tasks)}
    error = results[flooding]
    assert isinstance(error, GivenUpError)
    found = re.search(r"given up after ([\d.]+) s: (\d+) % of its packets were lost in 1 s, more than 30 %", str(error))
    assert found and 1 <= float(found[1]) < 2 and int(found[2]) > 30
    assert isinstance(results[still], FinishedEpisode) and results[still] == attempt(kernel, tasks[1])


@pytest.mark.parametrize("keep", [False, True])
def test_a_flood_that_is_run_again_alone_is_given_up_alike(
    kernel: Path, flooding: str, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Its policy fails for another episode of the batch at once: this one is run again, and ends as ever."""
    playing, ahead = Playing(give_up=SOON, keep=keep), network(12, 40, 1, duration_s=4)
    tasks = [Task(environment, flooding, 0, "", policy_controller) for environment in (LINK, ahead)]
    [(_, expected)] = lockstep(1, 1, playing)(kernel, tasks[:1])
    step = PolicyAgent.step

    def fails(agent: PolicyAgent, samples: Any, slots: Any) -> Any:
        if len(samples) > 1:
            raise SageccError("no number")
        return step(agent, samples, slots)

    monkeypatch.setattr(PolicyAgent, "step", fails)
    result = {task.environment: result for task, result in lockstep(1, 2, playing)(kernel, tasks)}[LINK]
    assert isinstance(result, FinishedEpisode if keep else GivenUpError)
    assert result == expected if keep else str(result) == str(expected)


def test_what_was_played_of_a_flood_can_be_kept(kernel: Path, flooding: str) -> None:
    task = Task(LINK, flooding, 0, "", policy_controller)
    [(_, kept)] = lockstep(1, 1, Playing(give_up=SOON, keep=True))(kernel, [task])
    assert isinstance(kept, FinishedEpisode) and 100 <= kept.rows < 200
    rows = pa.ipc.open_file(kept.file).read_all()
    summary = json.loads(rows.schema.metadata[b"sagecc.episode"])
    assert summary["rows"] == kept.rows
    received, seconds = int(rows["received_bytes"][-1].as_py()), rows["t_s"][-1].as_py()
    assert summary["goodput_mbps"] == pytest.approx(received * 8e-6 / seconds)
    whole = play_episode(kernel, LINK, flooding).rows
    assert rows.replace_schema_metadata(None).equals(whole.slice(0, kept.rows).replace_schema_metadata(None))


def test_unless_told_an_episode_is_played_to_its_end(kernel: Path, flooding: str) -> None:
    task = Task(LINK, flooding, 0, "", policy_controller)
    [(_, result)] = lockstep(1, 1)(kernel, [task])
    assert isinstance(result, FinishedEpisode) and result.rows > 390
    flow = play_episode(kernel, LINK, flooding).flows[0]
    assert flow.loss_rate > 0.3


def test_a_leagues_runner_tells_which_were_given_up(kernel: Path, flooding: str, still: str, tmp_path: Path) -> None:
    run = lab_runner(kernel, 1, options=PlayOptions(give_up=SOON))
    with pytest.raises(EpisodesGivenUpError, match="given up after") as raised:
        run([LINK], [flooding, still], tmp_path)
    assert raised.value.given_up == raised.value.failures.keys() == {f"{LINK.id}.{flooding}.0"}
    run([LINK], [still], tmp_path)


def test_a_given_up_episode_is_not_played_again(
    kernel: Path, flooding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until what decides it changes, here the rule."""
    with pytest.raises(EpisodesGivenUpError) as first:
        lab_runner(kernel, 1, options=PlayOptions(give_up=SOON))([LINK], [flooding], tmp_path)
    played = []

    def engine(*arguments: Any, **options: Any) -> Any:
        run = lockstep(*arguments, **options)

        def noting(kernel: Path, tasks: Any) -> Any:
            played.append(len(tasks))
            return run(kernel, tasks)

        return noting

    monkeypatch.setattr(league, "lockstep", engine)
    with pytest.raises(EpisodesGivenUpError) as again:
        lab_runner(kernel, 1, options=PlayOptions(give_up=SOON))([LINK], [flooding], tmp_path)
    assert (again.value.failures, again.value.given_up) == (first.value.failures, first.value.given_up)
    assert not played
    with pytest.raises(EpisodesGivenUpError, match="more than 25 %"):
        lab_runner(kernel, 1, options=PlayOptions(give_up=GiveUp(0.25, 1.0)))([LINK], [flooding], tmp_path)
    assert played == [1]


def test_the_option_is_told() -> None:
    told = CliRunner().invoke(cli, ["league", "--help"]).output
    assert "--give-up" in told and "more than 20 % lost in 5 s" in " ".join(told.split())
