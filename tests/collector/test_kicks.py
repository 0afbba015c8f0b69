# SPDX-License-Identifier: Apache-2.0
"""Kicks on the real kernel: where they come, what they do, and that nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sagecc.cli import main
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.lab.spec import episode_spec
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.commands import collect as collect_command
from sagecc.schemas import wire
from sagecc.schemas.partitions import partition
from sagecc.schemas.raw import DISTURBED_SCHEMA, RAW_SCHEMA
from sagecc.schemas.schemes import SCHEMES, undisturbed
from tests.helpers.networks import network

NETWORK = network(duration_s=12)
SCHEME = "cubic+kicks:1:0.25"


@pytest.fixture(scope="module")
def kicked(kernel: Path) -> Episode:
    return run_episode(kernel, NETWORK, SCHEME)


@pytest.fixture(scope="module")
def plain(kernel: Path) -> Episode:
    return run_episode(kernel, NETWORK, "cubic")


def test_an_undisturbed_specification_is_what_it_was() -> None:
    """Its hash stands in every raw file."""
    spec = episode_spec(NETWORK, "cubic", 0)
    header = np.frombuffer(spec.wire[: wire.SPEC.itemsize], wire.SPEC)[0]
    assert (header["version"], header["packet_delays"], header["kicks"]) == (2, 1, 0)
    assert spec.wire[wire.SPEC.itemsize - 4 : wire.SPEC.itemsize] == b"\1\0\0\0"


def test_kicks_come_when_the_schedule_says(kicked: Episode) -> None:
    _, disturbance = undisturbed(SCHEME)
    schedule = disturbance.schedule(NETWORK, kicked.id)
    marked = kicked.rows.filter(kicked.rows["kick"].to_numpy() != 1)
    assert marked["t_s"].to_pylist() == pytest.approx([kick.t_s for kick in schedule])
    assert marked["kick"].to_pylist() == [kick.factor for kick in schedule]
    assert len(schedule) >= 3


def test_a_kick_multiplies_the_window_once(kicked: Episode) -> None:
    cwnd, kick = (kicked.rows[name].to_numpy() for name in ("cwnd_pkts", "kick"))
    before = np.flatnonzero(kick[:-1] != 1)
    ratio = cwnd[before + 1] / cwnd[before]
    assert ((ratio > 0.2) & (ratio < 0.5)).all()  # a tick of the scheme's own growth on top


def test_up_to_the_first_kick_nothing_differs(kicked: Episode, plain: Episode) -> None:
    first = int(np.argmax(kicked.rows["kick"].to_numpy() != 1)) + 1
    columns = [name for name in RAW_SCHEMA.names if name != "episode_id"]
    assert kicked.rows.select(columns).slice(0, first).equals(plain.rows.select(columns).slice(0, first))
    assert kicked.rows["cwnd_pkts"][first] != plain.rows["cwnd_pkts"][first]


def test_kicks_are_the_same_bytes_each_time(kernel: Path, kicked: Episode) -> None:
    assert run_episode(kernel, NETWORK, SCHEME).sha256 == kicked.sha256


def test_a_scheme_recovers_by_its_own_rules(kicked: Episode) -> None:
    """A kick is no loss: the slow-start threshold stays, so Cubic grows back exponentially up to it."""
    kick, ssthresh = (kicked.rows[name].to_numpy() for name in ("kick", "ssthresh_pkts"))
    before = np.flatnonzero(kick[:-1] != 1)
    assert (ssthresh[before + 1] == ssthresh[before]).all()


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_scheme_of_the_pool_survives_kicks(kernel: Path, scheme: str) -> None:
    episode = run_episode(kernel, network(duration_s=8), f"{scheme}+kicks:0.5:0.125:4")
    assert (episode.rows["kick"].to_numpy() != 1).sum() >= 2
    assert episode.flows[0].goodput_mbps > 0


def test_jitter_and_late_starts_are_told_apart(kernel: Path, plain: Episode) -> None:
    jittered = run_episode(kernel, NETWORK, "cubic+jitter")
    late = run_episode(kernel, NETWORK, "cubic+starts")
    assert jittered.environment == late.environment == NETWORK
    assert jittered.rows["srtt_us"].to_numpy().std() != plain.rows["srtt_us"].to_numpy().std()
    assert late.rows["t_s"][0].as_py() > plain.rows["t_s"][0].as_py()
    assert (late.rows["kick"].to_numpy() == 1).all()


def test_kicked_trajectories_lie_beside_the_plain_ones(kernel: Path, tmp_path: Path) -> None:
    environment = network(duration_s=4)
    collect([environment], ["cubic"], tmp_path, kernel, local(1), progress=False)
    folders = {name: tmp_path / partition(environment.set, name) for name in ("cubic", "cubic+kicks")}
    before = {path.name: path.read_bytes() for path in folders["cubic"].iterdir()}
    collect([environment], ["cubic+kicks"], tmp_path, kernel, local(1), progress=False)
    assert {path.name: path.read_bytes() for path in folders["cubic"].iterdir()} == before
    assert pq.read_schema(next(folders["cubic"].glob("part-*"))).equals(RAW_SCHEMA)
    assert pq.read_schema(next(folders["cubic+kicks"].glob("part-*"))).equals(DISTURBED_SCHEMA)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--kicks"], ["cubic+kicks", "vegas+kicks"]),
        (["--kicks", "3.5:0.25", "--starts"], ["cubic+kicks:3.5:0.25+starts", "vegas+kicks:3.5:0.25+starts"]),
        (["--jitter", "1", "--starts", "5"], ["cubic+jitter+starts", "vegas+jitter+starts"]),
    ],
)
def test_options_name_the_disturbed_schemes(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], names: list[str]
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(collect_command, "collect", lambda environments, schemes, *rest, **named: asked.append(schemes))
    run_cli("collect", "--profile", "smoke", "--schemes", "cubic,vegas", "--out", str(tmp_path / "raw"), *options)
    assert asked == [tuple(names)]


@pytest.mark.parametrize(
    ("options", "text"),
    [(["--kicks", "often"], "by numbers"), (["--schemes", "vivace", "--kicks"], "unknown scheme 'vivace\\+kicks'")],
)
def test_what_cannot_be_disturbed_so_is_one_line(
    kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], text: str
) -> None:
    assert run_cli("collect", "--profile", "smoke", "--out", str(tmp_path / "raw"), *options) == 2
    assert re.search(text, capsys.readouterr().err)
    assert not (tmp_path / "raw").exists()


def run_cli(*args: str) -> object:
    with pytest.raises(SystemExit) as stopped:
        main(args)
    return stopped.value.code
