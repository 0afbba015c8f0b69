# SPDX-License-Identifier: Apache-2.0
"""Who plays the study's runs: in step, alone and in several processes come the same series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.runner import lab_runner, play
from sagecc.schemas.environment import CrossFlow
from tests.helpers.networks import network
from tests.helpers.policies import save_still_policy


def short_runs(schemes: list[str]) -> list[StudyRun]:
    """One of each scheme, beside itself and beside Cubic, for 2 s; their series have two intervals."""
    planned = experiment("dynamics").runs(schemes, 1)
    first = {scheme: next(run for run in planned if run.scheme == scheme) for scheme in schemes}
    short = network(12, 20, duration_s=2)
    runs = []
    for scheme, run in first.items():
        for competitor, interval_s in ((scheme, 1.0), ("cubic", 0.5)):
            environment = replace(short, cross=(CrossFlow(competitor),))
            runs.append(replace(run, environment=environment, interval_s=interval_s))
    return runs


def test_in_step_and_alone_are_the_same_series(kernel: Path, tmp_path: Path) -> None:
    policies = [f"policy:{save_still_policy(tmp_path / name, x)}" for name, x in (("a", 0.01), ("b", -0.01))]
    runs = short_runs([*policies, "cubic"])
    expected = {run: play(kernel, run) for run in runs}
    for jobs in (1, 2):
        played = dict(lab_runner(kernel, jobs)(runs))
        assert played.keys() == expected.keys()
        for run, series in expected.items():
            other = played[run]
            assert not isinstance(series, SageccError) and not isinstance(other, SageccError)
            assert series.num_rows > 2
            assert other.equals(series)
