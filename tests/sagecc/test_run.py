# SPDX-License-Identifier: Apache-2.0
"""`sagecc run`: the network its options or a file describe, and what it prints."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sagecc.collector.lab.episode import Limits, run_episode
from sagecc.commands.environments import command as environments
from sagecc.commands.run import command as run
from sagecc.common.errors import SageccError
from sagecc.network import environment_from, network_options
from sagecc.options import MILLISECONDS
from sagecc.schemas.environment import CrossFlow, Environment, Link, RateStep, Trace, dumbbell
from sagecc.schemas.environment_file import load_environment
from tests.conftest import ROOT
from tests.helpers.messages import facts

EXAMPLES = ROOT / "schemas" / "environments"


@click.command()
@network_options
def describe(**network: Any) -> Environment:
    return environment_from(**network)


def network(*options: str) -> Environment:
    found = describe.main(list(options), standalone_mode=False)
    assert isinstance(found, Environment)
    return found


def played(kernel: Path, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(run, [*options, "--json", "--kernel", str(kernel)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_the_defaults_are_a_dumbbell() -> None:
    assert network() == dumbbell("custom", Link((RateStep(0, 48),), 20, 240_000), 20, 30, ((0, 30),))


def test_options_of_the_bottleneck_and_the_way_back() -> None:
    link_options = "--bandwidth 12 --rtt 20 --queue-packets 40 --aqm pie --loss 0.01 --grain-ms 0.5"
    options = f"{link_options} --jitter-ms 2 --jitter-reorders --start 5 --duration 20"
    environment = network(*options.split())
    link = Link((RateStep(0, 12),), 10, queue_packets=40, discipline="pie", loss=0.01, grain_ms=0.5)
    assert environment.links == (link,)
    assert environment.return_links == (Link(delay_ms=10, jitter_ms=2, jitter_reorders=True),)
    assert (environment.start_s, environment.windows_s) == (5, ((5, 20),))


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ("--bandwidth 12mbps --rtt 20ms --duration 5s", "--bandwidth 12 --rtt 20 --duration 5"),
        ("--bandwidth 0.012Gbps --rtt 0.02s --duration 0.01h", "--bandwidth 12 --rtt 20 --duration 36"),
        ("--bandwidth 500kbps --rtt 1500us --queue-packets 9", "--bandwidth 0.5 --rtt 1.5 --queue-packets 9"),
        ("--loss 1% --jitter-ms 2ms --start 500ms", "--loss 0.01 --jitter-ms 2 --start 0.5"),
    ],
)
def test_a_number_may_have_its_unit(options: str, same: str) -> None:
    assert network(*options.split()) == network(*same.split())


@given(st.floats(0.01, 1e6), st.sampled_from([("us", 1e-3), ("ms", 1.0), ("s", 1e3)]))
def test_any_time_is_read(number: float, unit: tuple[str, float]) -> None:
    assert MILLISECONDS.convert(f"{number}{unit[0]}", None, None) == number * unit[1]


@pytest.mark.parametrize("value", ["12x", "12 m bps", "ms", "1.2.3mbps", "12%"])
def test_what_is_no_rate(value: str) -> None:
    with pytest.raises(click.BadParameter, match=re.escape(f"'{value}'")):
        network("--bandwidth", value)


def test_a_trace_that_comes_along_is_found_by_its_name() -> None:
    trace = network("--trace", "cellular.down").links[0].trace
    assert trace is not None and trace.name == "cellular"


@pytest.mark.parametrize(
    ("options", "meant"),
    [("--trace cellular.dow", "cellular.down"), ("--environment parking-lot", "parking-lot.yaml")],
)
def test_a_file_that_is_not_there(options: str, meant: str) -> None:
    with pytest.raises(SageccError, match=f"there is no such file.*; did you mean {re.escape(meant)}\\?"):
        network(*options.split())


def test_a_policy_that_comes_along_is_a_scheme_by_its_mere_name() -> None:
    assert network("--cross", "sagecc-10:2").cross == (CrossFlow("policy:sagecc-10"),) * 2


def test_competitors_with_counts() -> None:
    environment = network("--cross", "cubic:3", "--cross", "bbr")
    assert environment.cross == (CrossFlow("cubic"),) * 3 + (CrossFlow("bbr"),)
    assert environment.reward == "friendliness"


def test_a_trace_counts_its_queue_with_its_mean(tmp_path: Path) -> None:
    """Three packets in 4 ms are 9 Mbps; for 40 ms 45,000 bytes."""
    trace = tmp_path / "up.down"
    trace.write_text("1\n2\n4\n")
    assert network("--trace", str(trace), "--queue-bdp", "2").links == (
        Link(trace=Trace("up", (1, 2, 4)), delay_ms=20, queue_bytes=90_000),
    )
    packets = network("--trace", str(trace), "--queue-packets", "7").links[0]
    assert (packets.queue_bytes, packets.queue_packets) == (None, 7)


def test_a_limit_in_packets_needs_none_in_bdps(tmp_path: Path) -> None:
    """Of 0.3 Mbps and 20 ms a BDP is half a packet; so is that of a trace with a gap."""
    trace = tmp_path / "gap.down"
    trace.write_text("1\n2\n500000\n")
    for options in (("--bandwidth", "0.3"), ("--trace", str(trace))):
        link = network(*options, "--rtt", "20", "--queue-packets", "100").links[0]
        assert (link.queue_bytes, link.queue_packets) == (None, 100)
        with pytest.raises(SageccError, match=facts("--queue-bdp 1…less than a packet…--queue-packets")):
            network(*options, "--rtt", "20")


def test_a_file() -> None:
    path = EXAMPLES / "parking-lot.yaml"
    assert network("--environment", str(path)) == load_environment(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--environment a.yaml --rtt 40 --loss 0", "--environment excludes --rtt, --loss"),
        ("--environment a.yaml --cross cubic", "--environment excludes --cross"),
        ("--environment a.yaml --jitter-reorders", "--environment excludes --jitter-reorders"),
        ("--trace a --bandwidth 4", "--trace excludes --bandwidth"),
        ("--trace a --step 2", "--trace excludes --step"),
        ("--queue-packets 4 --queue-bdp 1", "--queue-packets excludes --queue-bdp"),
        ("--step 0", "--step…above 0…0"),
        ("--cross cubic:0", "--cross cubic:0…cubic:10"),
        ("--cross cubic:-1", "--cross cubic:-1: …scheme"),
        ("--cross cubic:", "--cross cubic:: …scheme"),
        ("--cross cubic:many", "--cross cubic:many: …cubic:10"),
        ("--cross cubic:1024", "1024 flows…1025"),
        ("--jitter-reorders", "jitter_reorders…jitter_ms"),
        ("--loss 1", "loss…0…1"),
        ("--queue-bdp 1e300", "queue…1500 bytes…2^40"),
        ("--queue-bdp 0", "queue…1500 bytes"),
    ],
)
def test_options_that_make_no_network(options: str, message: str) -> None:
    with pytest.raises(SageccError) as raised:
        network(*options.split())
    assert re.search(facts(message), str(raised.value))


def test_ticks_before_the_first_rtt_count_in_no_mean(kernel: Path) -> None:
    found = played(kernel, "--scheme", "cubic", "--rtt", "1200", "--duration", "3", "--bandwidth", "12")
    assert found["rtt_mean_ms"] >= 1200


def test_a_flow_that_got_nothing_through_has_no_delay(kernel: Path, tmp_path: Path) -> None:
    """It starts half an RTT before the end: as JSON, as text and as the summary that Python gets."""
    file = tmp_path / "late.yaml"
    file.write_text(
        "links: [{rate_mbps: 12, queue_packets: 50}]\nrtt_ms: 40\nduration_s: 1\ncross: [{scheme: bbr, start_s: 0.98}]"
    )
    own, late = played(kernel, "--scheme", "cubic", "--environment", str(file))["flows"]
    absent = ("delay_mean_ms", "delay_p95_ms", "loss_rate", "cwnd_mean")
    assert all(own[name] > 0 for name in absent if name != "loss_rate")
    assert [late[name] for name in absent] == [None] * 4
    options = ["--scheme", "cubic", "--environment", str(file), "--kernel", str(kernel)]
    text = CliRunner().invoke(run, options, catch_exceptions=False).output
    assert "beside it  bbr: 0.00 Mbps, delay none, loss none\n" in text
    summary = run_episode(kernel, load_environment(file), "cubic").flows[1]
    assert all(math.isnan(getattr(summary, name)) for name in absent)


@pytest.mark.parametrize("option", ["--bandwidth", "--rtt", "--loss", "--duration", "--jitter-ms"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_that_are_none(option: str, value: str) -> None:
    with pytest.raises(click.BadParameter, match=f"{value} is not finite"):
        network(option, value)


def test_a_competitor_that_the_kernel_lacks(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    text = (EXAMPLES / "parking-lot.yaml").read_text()
    for scheme, message in (("tahoe", "unknown scheme 'tahoe'"), ("cubic:2", "unknown scheme 'cubic:2'")):
        file.write_text(text.replace("scheme: cubic", f"scheme: '{scheme}'"))
        with pytest.raises(SageccError, match=rf"a\.yaml: cross\[0\]: .*{message}"):
            CliRunner().invoke(run, ["--scheme", "reno", "--environment", str(file)], catch_exceptions=False)
    with pytest.raises(SageccError, match="--cross: unknown scheme 'tahoe'"):
        network("--cross", "tahoe")


def test_mahimahi_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SageccError, match=facts("mm-delay…mm-link…PATH…Mahimahi")):
        CliRunner().invoke(run, ["--scheme", "cubic", "--backend", "mahimahi"], catch_exceptions=False)


def test_a_flow_that_was_bound_is_told_of_in_one_line(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As text and as JSON, for every flow; of flows that nothing bound, and of the lab's, nothing is said."""
    options = ["--scheme", "cubic", "--bandwidth", "12", "--duration", "1", "--cross", "reno"]
    episode = run_episode(kernel, network(*options[2:]), "cubic")
    own, beside = episode.flows
    free = replace(own, limits=Limits(0.0, 0.0, 0.01))
    bound = replace(beside, limits=Limits(0.75, 0.0, 0.0))
    line = "bound by its receive window (75% of its life): raise net.ipv4.tcp_rmem"
    assert played(kernel, *options)["limits"] is None
    for flows, notices in (((free, bound), [None, line]), ((own, beside), [None, None]), ((bound, free), [line, None])):
        monkeypatch.setattr("sagecc.commands.run.run_mahimahi", lambda *_, f=flows: replace(episode, flows=f))
        found = played(kernel, *options, "--backend", "mahimahi")
        assert [flow["notice"] for flow in found["flows"]] == notices
        assert found["notice"] == notices[0]
        assert found["limits"] == (asdict(flows[0].limits) if flows[0].limits else None)
        text = CliRunner().invoke(run, [*options, "--backend", "mahimahi"], catch_exceptions=False).output
        said = [f"notice     {flow.scheme} was {line}" for flow in flows if flow is bound]
        assert [row for row in text.splitlines() if row.startswith("notice")] == said


def test_a_policy_runs_in_the_lab_only() -> None:
    with pytest.raises(SageccError, match="--backend mahimahi runs schemes of this machine's kernel, not policy:x"):
        CliRunner().invoke(run, ["--scheme", "policy:x", "--backend", "mahimahi"], catch_exceptions=False)


CROWDED = ("fifty-flows", "thousand-flows")
FILES = [path for path in sorted(EXAMPLES.glob("*.yaml")) if path.stem not in CROWDED]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_examples_run(kernel: Path, path: Path) -> None:
    check(load_environment(path), played(kernel, "--scheme", "cubic", "--environment", str(path)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CROWDED)
def test_many_flows(kernel: Path, name: str) -> None:
    path = EXAMPLES / f"{name}.yaml"
    found = played(kernel, "--scheme", "cubic", "--environment", str(path))
    check(load_environment(path), found)
    assert found["jain_index"] is not None


def check(environment: Environment, found: dict[str, Any]) -> None:
    """Hold what came out to what each link could carry and how long its propagation takes."""
    lives = environment.all_flows
    carried_mbit = [0.0] * len(environment.links)
    for flow, life in zip(found["flows"], lives, strict=True):
        path = environment.path(life)
        assert flow["links"] == list(path)
        assert (flow["start_s"], flow["stop_s"]) == (life.start_s, environment.stop_of(life))
        assert (flow["completion_s"] is None) == (life.size_bytes is None)
        assert flow["extra_rtt_ms"] == life.extra_rtt_ms
        crossed = (environment.links[index] for index in path)
        least_ms = sum(min((link.delay_ms, *(step.delay_ms for step in link.delays))) for link in crossed)
        assert least_ms < flow["delay_mean_ms"] < flow["delay_p95_ms"] * 1.5
        assert flow["goodput_mbps"] > 0
        for index in path:
            life_s = flow["completion_s"] or flow["stop_s"] - flow["start_s"]
            carried_mbit[index] += flow["goodput_mbps"] * life_s
    for link, mbit in zip(environment.links, carried_mbit, strict=True):
        most_mbps = min(link.base_mbps, link.policer.rate_mbps) if link.policer else link.base_mbps
        capacity_mbit = most_mbps * environment.duration_s * 1448 / 1500
        assert 0.4 * capacity_mbit < mbit < 1.05 * capacity_mbit


def test_what_the_disciplines_are_for(kernel: Path) -> None:
    """Each keeps Cubic's queueing near its target, in queues of 8 BDP (320 ms)."""
    queueing = {}
    for name in ("codel", "pie", "bode"):
        found = played(kernel, "--scheme", "cubic", "--environment", str(EXAMPLES / f"{name}.yaml"))
        queueing[name] = (found["delay_mean_ms"] - 20, found["delay_p95_ms"] - 20)
    packet_ms = 1500 * 8 / 24_000
    assert queueing["codel"][0] < 5 + packet_ms
    assert queueing["pie"][0] < 15 + packet_ms
    assert queueing["bode"][1] < 20 + 2 * packet_ms


def test_jitter_keeps_flows_out_of_step(kernel: Path, tmp_path: Path) -> None:
    """docs/guide/collect.md, some jitter: the long flow of a parking lot is nearly shut out without jitter."""
    path = EXAMPLES / "parking-lot.yaml"
    shaken = played(kernel, "--scheme", "cubic", "--environment", str(path))
    still = tmp_path / "still.yaml"
    still.write_text(path.read_text().replace(", jitter_ms: 1", ""))
    assert load_environment(still).return_links[0].jitter_ms == 0
    locked = played(kernel, "--scheme", "cubic", "--environment", str(still))
    assert locked["loss_rate"] > 10 * shaken["loss_rate"]
    assert locked["goodput_mbps"] < shaken["goodput_mbps"] / 3


def test_environments_refuses_what_run_refuses(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("links: [{rate_mbps: 12}]\nrtt_ms: 20\nduration_s: 5\ncross: [{scheme: cubic}, {scheme: CUBIC}]")
    for command, options in ((environments, [str(file)]), (run, ["--scheme", "cubic", "--environment", str(file)])):
        with pytest.raises(SageccError, match=facts("a.yaml: cross[1]: unknown scheme 'CUBIC'")):
            CliRunner().invoke(command, options, catch_exceptions=False)


def test_environments_lists_and_takes_files(tmp_path: Path) -> None:
    paths = [str(path) for path in sorted(EXAMPLES.glob("*.yaml"))]
    listed = CliRunner().invoke(environments, paths, catch_exceptions=False).output
    assert all(load_environment(Path(path)).id in listed for path in paths)
    line = CliRunner().invoke(environments, ["--json", paths[-1]], catch_exceptions=False).output
    again = tmp_path / "again.json"
    again.write_text(line)
    assert load_environment(again) == load_environment(Path(paths[-1]))
    assert CliRunner().invoke(environments, ["--profile", "full", "--count"]).output == "1099\n"
