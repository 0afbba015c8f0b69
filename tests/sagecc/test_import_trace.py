# SPDX-License-Identifier: Apache-2.0
"""`sagecc import trace`: what is written is what was measured, and an episode has the path's capacity and no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sagecc.cli as entry
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.set_file import load_set
from sagecc.leagues.flow_metrics import flow_series, utilisation_over_time
from sagecc.leagues.plots import plot_episode
from sagecc.pool.features import RAW_NEEDED, derive
from sagecc.pool.reward import friendliness, power
from sagecc.schemas.environment import Trace
from sagecc.schemas.environment_file import load_environment
from sagecc.schemas.trace_file import read_trace
from sagecc.traces import MAX_OPPORTUNITIES, MAX_YAML_STEPS, SET_FILE
from tests.helpers.traces import columns

SECONDS_MBPS = "".join(f"{t_s} {mbps}\n" for t_s, mbps in enumerate((12, 9, 0, 0, 0, 0.0004, 6, 24, 3, 12)))
"""10 s, of which 4 are an outage."""

SATELLITE = "time,mbps,rtt,loss\n0,20,40,0\n6,5,48,0.01\n9,0,,1\n12,30,36,0\n"
SATELLITE_COLUMNS = "time_s=time,rate_mbps=mbps,rtt_ms=rtt,loss=loss"

OTHERS: dict[str, Callable[[], str]] = {
    "long.txt": lambda: "0 1\n100000 1\n",
    "fast.txt": lambda: "0 10000\n10 10000\n",
    "fine.txt": lambda: alternating(40_000),
    "finer.txt": lambda: alternating(100_001),
    "\x1b[2J.txt": lambda: SECONDS_MBPS,
}

Sagecc = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sagecc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sagecc:
    """Run `sagecc import` where path.txt and satellite.csv are; return exit status, output and error."""
    monkeypatch.chdir(tmp_path)
    Path("path.txt").write_text(SECONDS_MBPS)
    Path("satellite.csv").write_text(SATELLITE)

    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            entry.main(["import", *map(str, args)])
        assert isinstance(ended.value.code, int)
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def alternating(steps: int) -> str:
    return "".join(f"{step / 10} {1 + step % 2}\n" for step in range(steps))


def test_seconds_and_mbps_become_an_environment(sagecc: Sagecc) -> None:
    said = sagecc("trace", "path.txt", "--out", "env.yaml")
    assert said == (0, "path: 10 s, mean 6.6 Mbps, outages 4 s\nenvironment env.yaml\n", "")
    environment = load_environment(Path("env.yaml"))
    assert [(step.t_s, step.rate_mbps) for step in environment.bottleneck.rates] == [
        *((0, 12), (1, 9), (2, 0), (6, 6), (7, 24), (8, 3), (9, 12))
    ]
    assert (environment.duration_s, environment.windows_s, environment.min_rtt_ms) == (10, ((0, 10),), 40)
    assert environment.bottleneck.queue_packets == 150
    sagecc("trace", "path.txt", "--out", "env.json")
    assert load_environment(Path("env.json")) == environment


def test_as_many_steps_as_yaml_takes_are_read(sagecc: Sagecc) -> None:
    Path("fine.txt").write_text(alternating(MAX_YAML_STEPS))
    sagecc("trace", "fine.txt", "--out", "env.yaml")
    assert len(load_environment(Path("env.yaml")).bottleneck.rates) == MAX_YAML_STEPS


def test_a_part_with_a_queue_of_its_mean_bdp(sagecc: Sagecc) -> None:
    """From 6 to 9 s 11 Mbps; with 80 ms 110,000 bytes."""
    assert (
        sagecc("trace", "path.txt", "--out", "e.yaml", "--from", 6, "--for", 3, "--rtt", 80, "--queue-bdp", 2)[0] == 0
    )
    environment = load_environment(Path("e.yaml"))
    assert environment.bottleneck.queue_bytes == 220_000
    assert (environment.duration_s, environment.min_rtt_ms, environment.bandwidth_mbps) == (3, 80, 6)


def test_several_traces_become_a_set(sagecc: Sagecc) -> None:
    Path("other.txt").write_text("0 3\n1 0\n")
    code, out, _ = sagecc("trace", "path.txt", "other.txt", "--out", "3g")
    assert (code, out.splitlines()[-1]) == (0, "set 3g/set.yaml")
    assert sorted(path.name for path in Path("3g").iterdir()) == ["other.json", "path.json", SET_FILE]
    networks = load_set("3g/set.yaml")
    assert networks.name == "3g"
    assert [environment.duration_s for environment in networks.environments] == [10, 2]
    assert [tags["trace"] for tags in networks.tags.values()] == ["path", "other"]


def test_traces_for_mahimahi_are_those_that_the_set_cellular_takes(sagecc: Sagecc) -> None:
    """What leaves by any moment is what could have left, less a packet; it ends as the path does."""
    assert sagecc("trace", "path.txt", "--out", "3g", "--mahimahi") == (
        *(0, "path: 10 s, mean 6.6 Mbps, outages 4 s\ntraces 3g\n", ""),
    )
    trace = read_trace(Path("3g/path.down"))
    times_ms = np.array(trace.opportunities_ms)
    assert trace.opportunities_ms[-1] == 10_000
    assert all(time_ms % 1 == 0 for time_ms in trace.opportunities_ms)
    assert not ((times_ms > 2000) & (times_ms < 6000)).any()
    moments_ms = np.arange(0, 10_001, 1.0)
    could = np.interp(moments_ms, np.arange(11) * 1000, np.cumsum([0, 12, 9, 0, 0, 0, 0, 6, 24, 3, 12]) * 1e3 / 12)
    left = np.searchsorted(times_ms, moments_ms, side="right")
    assert (left <= could + 1e-9).all()
    assert (left > could - 3).all()
    assert [environment.bottleneck.trace for environment in load_set("cellular:3g").environments] == [trace] * 2
    sagecc("trace", "path.txt", "--out", "one.up", "--mahimahi")
    assert read_trace(Path("one.up")) == Trace("one", trace.opportunities_ms)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("path.txt",), "Missing option '-o' / '--out'"),
        (("--out", "e.yaml"), "Missing argument"),
        (("gone.txt", "--out", "e.yaml"), "gone.txt"),
        (("satellite.csv", "--out", "e.yaml"), "satellite.csv, line 1"),
        (("path.txt", "satellite.csv", "--out", "3g"), "satellite.csv, line 1"),
        (("path.txt", "--out", "e.txt"), "--out e.txt: an environment file ends in .yaml, .yml, .json"),
        (("path.txt", "path.txt", "--out", "e.yaml"), "--out e.yaml: is one file for 2 traces"),
        (("path.txt", "path.txt", "--out", "3g"), "--out 3g: several traces are called path"),
        (("path.txt", "--out", "3 g"), "--out 3 g: its name becomes the set's"),
        (("path.txt", "--out", "full"), "--out full: is there already"),
        (("path.txt", "--out", "e.yaml", "--for", 11), "path lasts 10 s: 0 to 11 s is no part of it"),
        (("path.txt", "--out", "e.yaml", "--for", "nan"), "nan is not finite"),
        (("path.txt", "--out", "e.yaml", "--from", 2, "--for", 4), "path: bandwidth must be above 0 at some time"),
        (("path.txt", "--out", "e.yaml", "--rtt", -1), "path: a delay must be"),
        (("path.txt", "--out", "e.yaml", "--queue-bdp", 1e-9), "path: the queue must hold"),
        (
            ("path.txt", "--out", "e.yaml", "--queue-bdp", 1, "--queue-packets", 9),
            "--queue-bdp excludes --queue-packets",
        ),
        (
            ("satellite.csv", "--out", "e.yaml", "--columns", SATELLITE_COLUMNS, "--rtt", 40),
            "--rtt: an RTT was measured",
        ),
        (("path.txt", "--out", "e.yaml", "--columns", "time=1"), "--columns: the rate is missing"),
        (("path.txt", "--out", "a.down", "--mahimahi", "--rtt", 40), "--mahimahi: …neither"),
        (("path.txt", "--out", "a.down", "--mahimahi", "--from", 2, "--for", 4), "path: less than a packet"),
        (("long.txt", "--out", "e.yaml"), "long lasts 200000 s, a network 86400 at most: …--for"),
        (("fast.txt", "--out", "a.down", "--mahimahi"), f"fast: needs 16,666,667 lines, {MAX_OPPORTUNITIES:,} at most"),
        (("fine.txt", "--out", "e.yaml"), "--out e.yaml: 40,000 steps are too many for YAML; …json"),
        (("finer.txt", "--out", "e.json"), "finer: a schedule has at most 100000 steps"),
        (("\x1b[2J.txt", "--out", "e.yaml"), "a name of 128 printable characters"),
        (("pipe", "--out", "e.yaml"), "pipe is a pipe, where a file is expected"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(
    sagecc: Sagecc, args: tuple[object, ...], message: str
) -> None:
    for name in OTHERS.keys() & set(map(str, args)):
        Path(name).write_text(OTHERS[name]())
    os.mkfifo("pipe")
    Path("full").mkdir()
    Path("full/mine").write_text("mine")
    before = sorted(Path().rglob("*"))
    code, _, error = sagecc("trace", *args)
    assert code == 2
    assert error.count("\n") == 1
    assert all(part in error for part in message.split("…")), error
    assert sorted(Path().rglob("*")) == before


def test_an_import_without_a_kind_is_one_line(sagecc: Sagecc) -> None:
    assert sagecc() == (2, "", "sagecc import: Missing command (see 'sagecc import --help')\n")


def test_an_episode_has_the_capacity_of_the_path_and_no_more(sagecc: Sagecc, kernel: Path, tmp_path: Path) -> None:
    """Nothing passes in the outage, the flow is there again after it, and no figure of it is NaN."""
    sagecc("trace", "path.txt", "--out", "env.yaml")
    episode = run_episode(kernel, load_environment(Path("env.yaml")), "cubic", every_flow=True)
    c = columns(episode)
    t_s, sent, could = c["t_s"], c["link_bytes"], c["link_capacity_bytes"]
    measured_mbps = np.array([12, 9, 0, 0, 0, 0, 6, 24, 3, 12])
    expected = np.interp(t_s, np.arange(11), np.concatenate([[0], np.cumsum(measured_mbps)])) * 1e6 / 8
    assert could == pytest.approx(expected, abs=2e-5 * 24e6 / 8)
    for ticks in (1, 10, 100, 300):  # in any window: what left is what could leave, and the packet being sent before it
        assert np.all(sent[ticks:] - sent[:-ticks] <= could[ticks:] - could[:-ticks] + 1500)
    outage = (t_s > 2 + 1e-6) & (t_s <= 6)
    assert len(set(sent[outage])) == 1
    assert sent[t_s > 7][0] > sent[outage][0]
    assert sent[-1] - sent[t_s > 7][0] > 0.9 * (could[-1] - could[t_s > 7][0])
    assert 0.85 * 6.6 < episode.flows[0].goodput_mbps < 6.6

    first = np.arange(len(t_s)) == 0
    features, (rate, loss, capacity, rtt_rate) = derive({name: c[name] for name in ("t_s", *RAW_NEEDED)}, first)
    assert 0 in capacity
    rewards = (power(rate, loss, capacity, rtt_rate), friendliness(rate, capacity, np.full(len(rate), 2.0)))
    assert all(np.isfinite(values).all() for values in (features, *rewards))
    assert episode.every_flow is not None
    used = utilisation_over_time(flow_series(episode.every_flow))["utilisation"]
    assert used.null_count() == 4
    assert used.drop_nulls().is_finite().all()
    plot_episode(episode.rows, tmp_path / "episode.png", "cubic")


def test_a_satellite_path_changes_its_rate_rtt_and_loss(sagecc: Sagecc, kernel: Path) -> None:
    sagecc("trace", "satellite.csv", "--out", "env.yaml", "--columns", SATELLITE_COLUMNS)
    environment = load_environment(Path("env.yaml"))
    assert environment.min_rtt_ms == 40
    c = columns(run_episode(kernel, environment, "cubic"))

    def between(name: str, start_s: float, end_s: float) -> np.ndarray[Any, Any]:
        return c[name][(c["t_s"] > start_s + 1e-6) & (c["t_s"] <= end_s)]

    assert between("min_rtt_us", 1, 6)[-1] == pytest.approx(40_000, rel=0.03)
    assert between("srtt_us", 7, 9).min() > 48_000
    assert between("min_rtt_us", 13, 15)[-1] == pytest.approx(36_000, rel=0.03)
    assert len(set(between("link_packets", 9, 12))) == 1
    assert between("link_drops", 9, 12)[-1] > between("link_drops", 6, 9)[-1]  # each of the outage's retransmissions
    assert between("link_bytes", 13, 15)[-1] - between("link_bytes", 13, 15)[0] > 0.4 * 30e6 / 8 * 2
