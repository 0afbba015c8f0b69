# SPDX-License-Identifier: Apache-2.0
"""Sage in charge: what it observes, when it is asked, and what its actions do, as its public code has it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.run.store import read_table
from sagecc.common.errors import SageccError
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.schemes.sage.control import CONTROL, control
from sagecc.execution.schemes.sage.observation import OBSERVATIONS, RULES, PublicReports
from sagecc.leagues.league import lab_runner
from sagecc.policy.artefact import Control, PolicyArtefact
from sagecc.policy.residual import NetworkSizes
from sagecc.schemas import wire
from sagecc.schemas.partitions import EPISODES_FILE, partition
from tests.helpers.networks import network
from tests.helpers.sage_model import save_sage

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.void]

SLOT = np.array([0])


def row(tick: int, **changes: int) -> Rows:
    """Return a row of a flow of which 20 packets are acknowledged in each tick."""
    record = np.zeros(1, wire.SAMPLE)
    record["t_ns"], record["mss_bytes"], record["delivered_pkts"] = (tick + 1) * 10_000_000, 1000, 1 + 20 * tick
    record["bytes_acked"], record["bytes_sent"] = 20_000 * tick, 10_000 + 20_000 * tick
    record["cwnd_pkts"], record["unacked_pkts"], record["ssthresh_pkts"] = 10, 10, 2**31 - 1
    record["srtt_us"], record["min_rtt_us"], record["delivery_rate_bytes_s"] = 50_000, 40_000, 2_000_000
    for name, value in changes.items():
        record[name] = value
    return cast("Rows", record)


def flow(ticks: int = 5600, seed: int = 0) -> Rows:
    """Return rows of a flow that waits for acknowledgements now and then, in numbers that look like a kernel's."""
    random = np.random.default_rng(seed)
    rows = np.zeros(ticks, wire.SAMPLE)
    rows["t_ns"] = 10_000_000 * (1 + np.arange(ticks))
    came = random.integers(0, 40, ticks) * (random.uniform(size=ticks) < 0.9)
    came[0] = 0
    rows["delivered_pkts"] = 1 + np.cumsum(came)
    rows["mss_bytes"], rows["min_rtt_us"] = 1448, 30_000
    rows["bytes_acked"] = 1448 * np.cumsum(came)
    rows["unacked_pkts"] = random.integers(1, 300, ticks)
    rows["bytes_sent"] = rows["bytes_acked"] + 1448 * rows["unacked_pkts"].astype(np.uint64)
    rows["bytes_sent"] = np.maximum.accumulate(rows["bytes_sent"])
    rows["lost_pkts"] = random.integers(0, 9, ticks) * (random.uniform(size=ticks) < 0.2)
    rows["lost_total_pkts"] = np.cumsum(rows["lost_pkts"])
    rows["cwnd_pkts"] = random.integers(4, 400, ticks)
    rows["srtt_us"] = random.integers(30_000, 90_000, ticks)
    rows["rttvar_us"] = random.integers(1, 5_000, ticks)
    rows["delivery_rate_bytes_s"] = random.integers(10_000, 6_000_000, ticks)
    rows["ca_state"] = random.integers(0, 5, ticks)
    return cast("Rows", rows)


def actions(ticks: int, seed: int = 1) -> npt.NDArray[np.float64]:
    """Return actions in thousandths, one for each tick."""
    return np.random.default_rng(seed).integers(-300, 301, ticks) / 1000


PUBLIC = {
    0: """
    0.88638 3.548 0.0779491 3 0.88638 0.88638 0.88638 0.88638 0.88638 0.88638 0.88638 0.88638 0.88638 0.0779491
    0.0779491 0.0779491 0.0779491 0.0779491 0.0779491 0.0779491 0.0779491 0.0779491 0.3384553 0.3384553
    0.3384553 0.3384553 0.3384553 0.3384553 0.3384553 0.3384553 0.3384553 3.548 3.548 3.548 3.548 3.548 3.548
    3.548 3.548 3.548 0.071 0.071 0.071 0.071 0.071 0.071 0.071 0.071 0.071 0 0 0 0 0 0 0 0 0 0.3333333
    0.3384553 0 0 1.1584 0.0098361 0.011584 1 1.1584 0.011584 0
    """,
    7: """
    0.56885 1.979 0.2052179 4 0.6090825 0.3586 0.88638 0.6090825 0.3586 0.88638 0.6090825 0.3586 0.88638
    0.1764352 0.0021862 0.4201355 0.1764352 0.0021862 0.4201355 0.1764352 0.0021862 0.4201355 0.5340896
    0.3384553 0.8365867 0.5340896 0.3384553 0.8365867 0.5340896 0.3384553 0.8365867 2.884875 1.459 4.457
    2.884875 1.459 4.457 2.884875 1.459 4.457 0.094375 0.008 0.262 0.094375 0.008 0.262 0.094375 0.008 0.262
    0.00875 0 0.07 0.00875 0 0.07 0.00875 0 0.07 0.3333333 0.5273798 0.0081088 0.342246 1.3298507 0.1538462
    0.1146816 0.2967767 1 0.1776213 -0.151
    """,
    260: """
    0.48093 0.58 0.046167 1 0.499266 0.35665 0.71306 0.5793538 0.30389 0.89948 0.5820818 0.30389 0.89948
    0.2193106 0.0008847 0.4449462 0.2309476 0.0008847 0.4791184 0.2283969 0.0008847 0.4791184 0.6330862 0.420722
    0.8411608 0.5764463 0.333526 0.9871993 0.5729938 0.333526 0.9871993 1.8504 0.071 4.81 2.417395 0.026 4.974
    2.4841533 0.026 4.974 0.1335 0.032 0.292 0.147235 0.001 0.298 0.1492567 0.001 0.298 0.004 0 0.03 0.00665 0
    0.08 0.0065517 0 0.08 0.3333333 0.6237914 0.0053708 0.0049261 0.9817734 1.639312 0.209881 0.0748339 1
    0.2342074 0.276
    """,
    4898: """
    0.84197 0.249 0.2275286 4 0.618366 0.37067 0.84197 0.5980419 0.30931 0.8912 0.5944282 0.30047 0.8995
    0.2049228 0.0027164 0.4414346 0.2235482 0.0015501 0.474997 0.2397572 0.0015501 0.4794174 0.5281895 0.3563072
    0.8093452 0.5463178 0.3366248 0.9699007 0.553097 0.3335186 0.9984358 1.8121 0.249 4.707 2.51502 0.07 4.934
    2.577688 0.002 4.996 0.0888 0.001 0.24 0.14963 0.001 0.299 0.148755 0.001 0.299 0.015 0 0.07 0.0077 0 0.08
    0.00651 0 0.08 0.3333333 0.3563072 0.0066194 0.0506329 0.9925962 0.4408649 0.1957599 0.0749998 1 0.2127908
    0.178
    """,
}
"""By number of a report what the authors' own lines (src/sage.cc, 675 to 979) print, compiled and fed with `flow`."""


def reported(source: PublicReports, rows: Rows, given: npt.NDArray[np.float64] | None = None) -> list[Floats]:
    """Return a flow's reports; after each it asks for what is given for that tick."""
    reports = []
    for tick, record in enumerate(rows):
        ready = source.update(np.atleast_1d(record), SLOT)
        if ready[0]:
            reports.append(source.report(ready)[0])
            source.acted(SLOT, np.zeros(1) if given is None else given[tick : tick + 1])
    return reports


def public(*without: str) -> PublicReports:
    return PublicReports(OBSERVATIONS, 1, frozenset(without))


def test_reports_are_those_of_the_public_codes_own_lines() -> None:
    rows = flow()
    reports = reported(public(), rows, actions(len(rows)))
    assert len(reports) == 4899
    for number, text in PUBLIC.items():
        printed = np.array(text.split(), np.float32)
        np.testing.assert_allclose(reports[number], printed, rtol=0, atol=1.5e-7)


def column(reports: list[Floats], name: str) -> npt.NDArray[np.float64]:
    return np.array([report[OBSERVATIONS.index(name)] for report in reports], np.float64)


def test_without_acknowledged_there_is_a_report_at_each_tick() -> None:
    rows = flow(200)
    assert len(reported(public(), rows)) < 190
    reports = reported(public("acknowledged"), rows)
    assert len(reports) == 200
    np.testing.assert_allclose(column(reports, "time_delta"), 1 / 3, atol=1e-6)


def test_without_held_lost_the_counter_says_what_is_lost() -> None:
    rows = [row(0), row(1, lost_pkts=2, lost_total_pkts=5), row(2, lost_pkts=2, lost_total_pkts=7)]
    held = column(reported(public(), np.concatenate(rows)), "loss_db")
    np.testing.assert_allclose(held, [0, 8e-8 * 2000 / 0.02, 8e-8 * 2000 / 0.03], rtol=1e-5)
    counted = column(reported(public("held-lost"), np.concatenate(rows)), "loss_db")
    np.testing.assert_allclose(counted, [0, 8e-8 * 5000 / 0.02, 8e-8 * 7000 / 0.03], rtol=1e-5)


def test_without_report_rates_acknowledgements_are_counted_over_100_reports() -> None:
    rows = [row(0), row(1), row(2, bytes_acked=20_000, bytes_sent=30_000, delivered_pkts=22)]
    assert column(reported(public(), np.concatenate(rows)), "acked_rate").tolist() == [0, 1, 0]
    rates = column(reported(public("report-rates"), np.concatenate(rows)), "acked_rate")
    np.testing.assert_allclose(rates, [0, (20 / 0.02) / (30 / 0.02), (20 / 0.03) / (30 / 0.02)], atol=1e-6)


def test_without_mean_unacked_what_is_unacknowledged_now_counts() -> None:
    rows = np.concatenate([row(0), row(1, unacked_pkts=40)])
    assert column(reported(public(), rows), "cwnd_unacked_rate")[1] == pytest.approx(25 / 30)
    assert column(reported(public("mean-unacked"), rows), "cwnd_unacked_rate")[1] == pytest.approx(40 / 30)


def test_without_requested_the_previous_action_is_that_of_the_real_windows() -> None:
    rows = np.concatenate([row(0), row(1, cwnd_pkts=20), row(2, cwnd_pkts=15)])
    given = np.array([0.5, -0.25, 0])
    assert column(reported(public(), rows, given), "pre_act").tolist() == [0, 0.5, -0.25]
    real = column(reported(public("requested"), rows, given), "pre_act")
    np.testing.assert_allclose(real, [0, 1, round(math.log2(0.75), 3)], rtol=1e-6)


def test_without_decimals_numbers_are_as_they_are() -> None:
    rows = flow(60)
    whole, cut = (np.array(reported(public(*rule), rows), np.float64) for rule in (("decimals",), ()))
    assert 0 < np.abs(whole - cut).max() < 6e-8 * max(1, np.abs(whole).max())


def test_each_rule_of_observations_changes_something() -> None:
    rows = flow(60)
    usual = np.concatenate(reported(public(), rows, actions(60)))
    for rule in RULES:
        other = np.concatenate(reported(public(rule), rows, actions(60)))
        assert other.shape != usual.shape or (other != usual).any(), rule


def test_a_flow_that_is_met_later_brings_no_rates_from_before() -> None:
    (met,) = reported(public(), row(5000))
    (new,) = reported(public(), row(0))
    assert met[OBSERVATIONS.index("dr")] == new[OBSERVATIONS.index("dr")]
    assert met[OBSERVATIONS.index("cwnd_unacked_rate")] == 1


def test_many_flows_in_one_source_are_as_many_single_ones() -> None:
    flows = [flow(120, seed) for seed in range(3)]
    together = PublicReports(OBSERVATIONS, 4)
    slots = np.array([3, 0, 1])
    found: list[list[Floats]] = [[], [], []]
    for tick in range(120):
        ready = together.update(np.stack([rows[tick] for rows in flows]), slots)
        for place, report in zip(np.flatnonzero(ready), together.report(ready), strict=True):
            found[place].append(report)
        together.acted(slots[ready], np.full(ready.sum(), 0.125))
    for rows, reports in zip(flows, found, strict=True):
        np.testing.assert_array_equal(reports, reported(public(), rows, np.full(120, 0.125)))
    together.reset(3)
    together.update(flows[0][:1], SLOT + 3)
    np.testing.assert_array_equal(together.report(np.array([True])), reported(public(), flows[0][:1]))


def test_other_observations_and_rules_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="does not observe the 69 numbers"):
        PublicReports(OBSERVATIONS[::-1], 1)
    policy = PolicyArtefact.load(save_sage(tmp_path / "sage", SMALL))
    with pytest.raises(SageccError, match=r"observes 'sage\.public' without 'speed', which is no rule of it"):
        PolicyAgent(replace(policy, without=("speed",)))


SMALL = NetworkSizes(inputs=69, width=4, gru=4, residual_blocks=1, mixture=1, min_scale=1e-4)


class Stub:
    """Sage's agent with answers that are given."""

    def __init__(self, folder: Path, answers: list[float], *without: str) -> None:
        self.seen: list[Floats] = []
        self._answers = answers
        policy = PolicyArtefact.load(save_sage(folder / "-".join(("sage", *without)), SMALL, without))
        self.agent = PolicyAgent(policy, step=self._step)

    def _step(self, observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        self.seen.append(observation)
        loc = np.full((1, 1), self._answers.pop(0), np.float32)
        return 0 * loc, loc, 0 * loc, hidden

    def play(self) -> list[tuple[int, int]]:
        """Return windows and pacing rates, where the kernel does as it is told."""
        given, cwnd, tick = [], 10, 0
        while self._answers:
            windows, pacing = self.agent.step(row(tick, cwnd_pkts=cwnd))
            cwnd, tick = int(windows[0]), tick + 1
            given.append((cwnd, int(pacing[0])))
        return given


def test_windows_are_rounded_up_and_their_fractions_carried_on(tmp_path: Path) -> None:
    """As cwnd_precise of src/sage.cc; below 4 and above 20,000 the fraction is lost (1090 to 1100)."""
    answers = [0.1, 0.1, 0.0004, -1.5, -0.35, -0.1, 2, 3, 2, 2, 2, 2, 2, -0.001]
    precise, wanted = 10.0, []
    for answer in answers:
        precise *= 2 ** float(np.round(np.float32(min(answer, 2)), 3))
        cwnd = math.ceil(precise)
        if cwnd < 4 or cwnd > 20_000:
            precise = cwnd = min(max(cwnd, 4), 20_000)
        wanted.append(cwnd)
    given = Stub(tmp_path, answers).play()
    assert [cwnd for cwnd, _ in given] == wanted
    assert 4 in wanted and 20_000 in wanted
    assert [pacing for _, pacing in given] == [cwnd * 1000 * 20 for cwnd in wanted]  # one window an sRTT of 50 ms


def test_each_rule_of_actions_can_be_left_out(tmp_path: Path) -> None:
    answers = [0.1, 0.0504]
    assert [cwnd for cwnd, _ in Stub(tmp_path, list(answers)).play()] == [11, 12]
    assert [cwnd for cwnd, _ in Stub(tmp_path, list(answers), "ceiling").play()] == [10, 11]
    assert [pacing for _, pacing in Stub(tmp_path, list(answers), "pacing").play()] == [0, 0]
    fine = Stub(tmp_path, [0.0004] * 900, "thousandths").play()
    assert fine[-1][0] == math.ceil(10 * 2**0.36)
    assert Stub(tmp_path, [0.0004] * 20).play()[-1][0] == 10
    assert control() == CONTROL


def test_it_is_told_what_it_asked_for(tmp_path: Path) -> None:
    stub = Stub(tmp_path, [3, -0.12345, 0])
    stub.play()
    np.testing.assert_allclose([seen[0, -1] for seen in stub.seen], [0, 2, -0.123], rtol=1e-6)


@pytest.mark.parametrize("fields", [{"decimals": 7}, {"decimals": 1.0}, {"paced": 1}, {"decimals": True}])
def test_strange_controls_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"decimals|paced"):
        Control(**fields)  # type: ignore[arg-type]


def test_a_random_sage_plays_in_the_lab_and_in_a_league(kernel: Path, tmp_path: Path) -> None:
    scheme = f"policy:{save_sage(tmp_path / 'sage', gain=0.05)}"
    environment = network(duration_s=2)
    alone = play_episode(kernel, environment, scheme)
    windows = alone.rows["cwnd_pkts"].to_numpy()
    assert len(np.unique(windows)) > 10 and windows.min() >= 4
    lab_runner(kernel, 1)([environment], [scheme], tmp_path / "raw")
    (found,) = read_table(tmp_path / "raw" / partition(environment.set, scheme) / EPISODES_FILE).to_pylist()
    assert found["goodput_mbps"] == alone.flows[0].goodput_mbps
