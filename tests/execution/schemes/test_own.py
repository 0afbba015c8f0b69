# SPDX-License-Identifier: Apache-2.0
"""Schemes in user space wherever a scheme plays: one's own from a file, batches, identities, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sagecc.cli import cli
from sagecc.collector.lab.spec import driven_flows
from sagecc.collector.run.task import FinishedEpisode, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import play_episode, policy_controller, policy_drives
from sagecc.execution.lab.lockstep import lockstep
from sagecc.execution.schemes.agent import SchemeAgent
from sagecc.execution.schemes.registry import CLASSES, driver_sha256, scheme_class
from sagecc.execution.schemes.scheme import Sample, window_of_rate
from sagecc.schemas import raw, wire
from sagecc.schemas.schemes import OTHERS, SCHEMES, USER_SPACE, check_scheme, python_class
from tests.execution.schemes.samples import IDLE
from tests.helpers.networks import network

STEADY = '''
class Steady:
    """A pacing rate of 6 Mbps."""

    def __init__(self, random):
        self.ticks = 0

    def on_tick(self, sample):
        self.ticks += 1
        return 200, 750_000
'''


@pytest.fixture
def steady(tmp_path: Path) -> str:
    (tmp_path / "steady.py").write_text(STEADY)
    return f"python:{tmp_path}/steady.py:Steady"


def written(folder: Path, text: str, name: str = "Mine") -> str:
    (folder / "mine.py").write_text(text)
    return f"python:{folder}/mine.py:{name}"


def test_a_sample_has_the_raw_counters_of_a_sender() -> None:
    counters = [name for name, *_ in raw.COUNTERS if not name.startswith("link_") and name != "received_bytes"]
    assert list(Sample._fields) == ["t_s", *counters]


def test_every_name_has_a_class_and_none_is_the_kernels() -> None:
    assert CLASSES.keys() == USER_SPACE.keys()
    assert not USER_SPACE.keys() & {*SCHEMES, *OTHERS}


def test_what_is_driven() -> None:
    environment = network(cross=("vivace", "cubic", "python:a/b.py:C"))
    assert driven_flows(environment, "sprout") == {0: "sprout", 1: "vivace", 3: "python:a/b.py:C"}
    assert python_class("python:a/b.py:C") == ("a/b.py", "C")


@pytest.mark.parametrize("name", ["python:mine.py", "python:mine:Mine", "python:mine.py:9", "python:.py:"])
def test_a_name_without_file_or_class(name: str) -> None:
    with pytest.raises(SageccError, match=r"name a file and a class in it, such as python:mine\.py:Mine"):
        check_scheme(name)


def test_a_window_that_leaves_the_rate_to_decide() -> None:
    """12 Mbps and 40 ms are 41.4 packets: twice that."""
    assert window_of_rate(1_500_000, IDLE) == pytest.approx(2 * 60_000 / 1448)
    assert window_of_rate(1, IDLE) == 10


def test_one_of_ones_own_sends_at_its_own_rate(kernel: Path, steady: str) -> None:
    episode = play_episode(kernel, network(duration_s=4), steady)
    rows = episode.rows.slice(100)
    assert set(rows["pacing_rate_bytes_s"].to_pylist()) == {750_000}
    assert set(rows["cwnd_pkts"].to_pylist()) == {200}
    assert episode.flows[0].goodput_mbps == pytest.approx(6, rel=0.05)


def test_the_same_bytes_alone_and_in_a_batch(kernel: Path, steady: str) -> None:
    environments = [network(duration_s=1, cross=("sprout",)), network(duration_s=0.8, bandwidth_mbps=24)]
    schemes = ["vivace", "sprout-ewma", steady]
    drives = policy_drives([*schemes, "sprout"])
    tasks = [Task(each, name, 3, "", policy_controller, drives) for name in schemes for each in environments]
    alone = {task.id: attempt(kernel, task) for task in tasks}
    assert all(isinstance(result, FinishedEpisode) for result in alone.values())
    assert {task.id: result for task, result in lockstep(1, 4)(kernel, tasks[::-1])} == alone


def test_its_code_is_its_identity(tmp_path: Path) -> None:
    scheme = written(tmp_path, STEADY, "Steady")
    before = driver_sha256(scheme)
    written(tmp_path, "# a comment\n" + STEADY.replace("A pacing rate", "The rate"))
    assert driver_sha256(scheme) == before
    written(tmp_path, STEADY.replace("750_000", "75_000"))
    assert driver_sha256(scheme) != before
    assert policy_drives([scheme, "cubic"])[scheme].sha256 == driver_sha256(scheme)
    assert len({driver_sha256(name) for name in USER_SPACE}) == len(USER_SPACE)


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    first = scheme_class(written(tmp_path, STEADY, "Steady"))
    again = scheme_class(written(tmp_path, STEADY + "\nmore = 1\n", "Steady"))
    assert first is not again


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Other: ...\n", "mine.py has no class 'Mine'"),
        ("class Mine: ...\n", "class 'Mine' has no method on_tick"),
        ("class Mine:\n    def on_tick(self\n", "line 2: '(' was never closed"),
        ("x = 1\ny = x / 0\n", "line 2: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_without_a_scheme(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SageccError) as error:
        scheme_class(written(tmp_path, text))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_no_file() -> None:
    with pytest.raises(SageccError, match=r"nowhere.py cannot be read: No such file"):
        driver_sha256("python:nowhere.py:Mine")


@pytest.mark.parametrize("returned", ["None", "10", "(1, 2, 3)", "(float('nan'), 0)", "(10, -1)", "('a', 'b')"])
def test_a_bad_return(tmp_path: Path, returned: str) -> None:
    text = f"class Mine:\n    def __init__(self, random): ...\n    def on_tick(self, sample): return {returned}\n"
    scheme = written(tmp_path, text)
    agent = SchemeAgent(scheme, scheme_class(scheme))
    with pytest.raises(SageccError, match="it is to return"):
        agent.step(np.zeros(1, wire.SAMPLE), np.array([0]))


def test_a_scheme_that_fails_says_where(tmp_path: Path) -> None:
    scheme = written(tmp_path, "class Mine:\n    def __init__(self):\n        ...\n    def on_tick(self, s): ...\n")
    with pytest.raises(SageccError, match="TypeError"):
        SchemeAgent(scheme, scheme_class(scheme))
    scheme = written(tmp_path, STEADY.replace("200,", "sample.rtt,"), "Steady")
    agent = SchemeAgent(scheme, scheme_class(scheme))
    with pytest.raises(SageccError, match=r"mine.py:\d+: AttributeError: 'Sample' object has no attribute 'rtt'"):
        agent.step(np.zeros(1, wire.SAMPLE), np.array([0]))


def test_windows_and_rates_are_whole_and_within_limits(tmp_path: Path) -> None:
    text = "class Mine:\n    def __init__(self, random): ...\n    def on_tick(self, sample): return ORDER\n"
    for order, given in (("0.3, 7.9", (1, 7)), ("1e9, 1e30", (20_000, 2**53)), ("10.9, 0", (10, 0))):
        agent = SchemeAgent("mine", scheme_class(written(tmp_path, text.replace("ORDER", order))))
        windows, rates = agent.step(np.zeros(1, wire.SAMPLE), np.array([0]))
        assert (int(windows[0]), int(rates[0])) == given


def test_commands(kernel: Path, tmp_path: Path, steady: str) -> None:
    run = ["run", "--duration", "0.5", "--kernel", str(kernel)]
    found = CliRunner().invoke(cli, [*run, "--scheme", "cubic", "--cross", f"{steady}:2"])
    assert found.exit_code == 0 and found.output.count(f"beside it  {steady}") == 2
    refused = CliRunner().invoke(cli, [*run, "--scheme", "vivace", "--backend", "mahimahi"])
    assert "not vivace: use the lab" in str(refused.exception)


def test_collected_rows_say_by_which_code(kernel: Path, tmp_path: Path, steady: str) -> None:
    from sagecc.collector.run.collect import collect
    from sagecc.collector.run.engines import local
    from sagecc.user_space import players

    driving = players([steady])
    collect(
        [network(duration_s=1)],
        [steady],
        tmp_path / "raw",
        kernel,
        local(1),
        progress=False,
        controllers=driving.controllers,
        drives=driving.drives,
        players=driving.players,
    )
    [listing] = (tmp_path / "raw").glob("*/*/episodes.parquet")
    assert pq.read_schema(listing).metadata[b"sagecc.player"] == b'{"sha256": "%s"}' % driver_sha256(steady).encode()
