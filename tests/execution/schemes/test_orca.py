# SPDX-License-Identifier: Apache-2.0
"""Orca in charge: what it observes, when it is asked, and what its actions do on top of Cubic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import sagecc.cli as entry
from sagecc.collector.lab.boot import per_flow
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.lab.spec import Drive
from sagecc.collector.run.store import read_table
from sagecc.common.errors import SageccError
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.flow.intervals import Intervals
from sagecc.execution.lab.controllers import Playing, play_episode, policy_controller
from sagecc.execution.schemes.orca.checkpoint import import_checkpoint
from sagecc.execution.schemes.orca.control import CONTROL
from sagecc.execution.schemes.orca.observation import OBSERVATIONS, SOURCE
from sagecc.execution.schemes.rivals import rewards
from sagecc.leagues.league import lab_runner
from sagecc.policy import artefact
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.mlp import Mlp
from sagecc.policy.scaling import Scaling
from sagecc.schemas import wire
from sagecc.schemas.partitions import EPISODES_FILE, partition
from tests.helpers.checkpoints import PUBLISHED, needs_published
from tests.helpers.networks import network

pytestmark = pytest.mark.tensorflow

Floats = npt.NDArray[np.float32]
Answer = Callable[[Floats], npt.NDArray[np.floating[Any]]]


def save_orca(folder: Path, seed: int = 0, gain: float = 1.0) -> Path:
    """Write a policy of Orca's description with random weights; `gain` is its answers' scale."""
    sizes, random = Mlp(70, (16, 16), 0.2), np.random.default_rng(seed)
    weights = {
        name: random.normal(0, 0.5 / np.sqrt(shape[0]), shape).astype(np.float32)
        for name, shape in sizes.shapes().items()
    }
    weights["answer.w"] *= np.float32(gain)
    weights["answer.b"] *= np.float32(gain)
    scaling = Scaling("none", np.zeros(70, np.float32), np.ones(70, np.float32), 0.0)
    artefact.write(folder, weights, sizes, scaling, OBSERVATIONS, {}, control=CONTROL, source=SOURCE)
    return folder


@pytest.fixture
def orca(tmp_path: Path) -> Path:
    return save_orca(tmp_path / "orca")


class Stub:
    """Orca's network, but for its answers; keeps what it saw."""

    def __init__(self, policy: Path, answer: Answer) -> None:
        self.seen: list[Floats] = []
        self._answer = answer
        self.agent = PolicyAgent(PolicyArtefact.load(policy), step=self._step)

    def _step(self, observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        self.seen.append(observation)
        loc = np.asarray(self._answer(observation), np.float32).reshape(-1, 1)
        return 0 * loc, loc, 0 * loc, hidden


def constant(value: float) -> Answer:
    return lambda observation: np.full(len(observation), value)


def row(tick: int, **changes: int) -> npt.NDArray[np.void]:
    """A row of a flow past its slow start that got 20 packets acknowledged in each tick."""
    record = np.zeros(1, wire.SAMPLE)
    record["t_ns"], record["mss_bytes"], record["delivered_pkts"] = tick * 10_000_000, 1448, 1 + 20 * tick
    record["cwnd_pkts"], record["ssthresh_pkts"], record["unacked_pkts"] = 100, 50, 90
    record["srtt_us"], record["min_rtt_us"], record["delivery_rate_bytes_s"] = 50_000, 40_000, 3_000_000
    for name, value in changes.items():
        record[name] = value
    return cast("npt.NDArray[np.void]", record)


def reports(stub: Stub) -> npt.NDArray[np.float64]:
    """Return the newest report of each observation that was seen."""
    return np.concatenate(stub.seen)[:, -7:].astype(np.float64)


def test_a_report_is_what_orcas_code_makes_of_the_counters(orca: Path) -> None:
    stub = Stub(orca, constant(0))
    for record in (
        row(0),
        row(1),  # reports: 20 packets in 10 ms
        row(2, delivery_rate_bytes_s=2_000_000, lost_total_pkts=2, ca_state=3),
        row(3, delivery_rate_bytes_s=4_000_000, lost_total_pkts=5, srtt_us=64_000, cwnd_pkts=80),
    ):
        stub.agent.step(record)
    pacing = 1500 * 100 / 0.05
    np.testing.assert_allclose(reports(stub)[0], [1, pacing / 3e6, 0, 10 / 100, 0.01, 0.8, 1], rtol=1e-6)
    pacing = 1500 * 90 / 0.064  # what is out is more than the window
    acks = 20 + 10  # one a packet in recovery
    loss = 5 * 1448 / 0.02
    expected = [1, pacing / 3e6, 5 * loss / 3e6, acks / 80, 0.02, 40 / 64, 1.25 * 40 / 64]
    np.testing.assert_allclose(reports(stub)[1], expected, rtol=1e-6)


def test_rates_are_shares_of_the_highest_so_far_and_pacing_is_bounded(orca: Path) -> None:
    stub = Stub(orca, constant(0))
    for tick, rate in enumerate((0, 4_000_000, 1_000_000, 1_000_000, 5_000_000, 5_000_000, 100, 100)):
        stub.agent.step(row(tick, delivery_rate_bytes_s=rate))
    np.testing.assert_allclose(reports(stub)[:, 0], [1, 0.25, 1, 100 / 5e6], rtol=1e-6)
    slow = Stub(orca, constant(0))
    for tick in range(2):
        slow.agent.step(row(tick, delivery_rate_bytes_s=1000))
    assert reports(slow)[0, 1] == 10
    silent = Stub(orca, constant(0))
    for tick in range(2):
        silent.agent.step(row(tick, delivery_rate_bytes_s=0))
    assert not reports(silent)[0, :3].any()


def test_an_observation_is_the_last_ten_reports_and_zeros_before_them(orca: Path) -> None:
    stub = Stub(orca, constant(0))
    for tick in range(26):
        stub.agent.step(row(tick, srtt_us=40_000 + 1000 * tick))
    assert len(stub.seen) == 13
    history = np.concatenate(stub.seen).reshape(13, 10, 7)
    assert not history[0, :9].any()
    assert history[0, 9].any()
    for later, earlier in zip(history[1:], history[:-1], strict=True):
        np.testing.assert_array_equal(later[:9], earlier[1:])
    np.testing.assert_allclose(history[12, :, 5], [40 / (47 + 2 * k) for k in range(10)], rtol=1e-6)


def test_counters_of_32_bits_wrap(orca: Path) -> None:
    plain, wrapped = Stub(orca, constant(0)), Stub(orca, constant(0))
    for tick in range(6):
        plain.agent.step(row(tick, lost_total_pkts=3 * tick))
        counts = {"delivered_pkts": 1 + 20 * tick - 50, "lost_total_pkts": 3 * tick - 7}
        wrapped.agent.step(row(tick, **{name: count % 2**32 for name, count in counts.items()}))
    np.testing.assert_array_equal(np.concatenate(plain.seen), np.concatenate(wrapped.seen))


def test_it_is_asked_every_20_ms_and_waits_for_an_acknowledgement(orca: Path) -> None:
    stub = Stub(orca, constant(0.5))
    delivered = [1, 21, 41, 61, 61, 61, 81, 101, 121]
    windows = [int(stub.agent.step(row(t, delivered_pkts=d))[0][0]) for t, d in enumerate(delivered)]
    assert windows == [0, 200, 0, 200, 0, 0, 200, 0, 200]  # 0: Cubic keeps its own
    np.testing.assert_allclose(reports(stub)[:, 4], [0.01, 0.02, 0.03, 0.02], rtol=1e-6)


@pytest.mark.parametrize(
    ("answer", "cwnd", "given"),
    [
        (1, 100, 400),
        (-1, 100, 25),
        (0, 100, 100),
        (0.3, 7, 10),
        (-0.01, 10, 9),
        (-1, 10, 4),
        (1, 9000, 10_000),
        (2, 5, 20),
    ],
)
def test_answers_are_cut_to_hundredths_and_windows_to_packets(orca: Path, answer: float, cwnd: int, given: int) -> None:
    """As int(100 * 4**a) * cwnd / 100 in whole numbers, at least 4; 1.51 * 7 = 10.57, 0.98 * 10 = 9.8."""
    stub = Stub(orca, constant(answer))
    stub.agent.step(row(0))
    windows, pacing = stub.agent.step(row(1, cwnd_pkts=cwnd, ssthresh_pkts=2))
    assert windows.tolist() == [given]
    assert pacing.tolist() == [given * 1448 * 20]  # one window an sRTT of 50 ms


def test_slow_start_grows_by_a_tenth_until_ssthresh_is_below_the_window(orca: Path) -> None:
    stub = Stub(orca, constant(0.5))
    free = {"ssthresh_pkts": 2**31 - 1}
    steps = [row(0, **free), row(1, **free), row(2, **free, cwnd_pkts=17), row(3, **free, delivered_pkts=41)]
    given = [stub.agent.step(record) for record in steps]
    assert [int(cwnd[0]) for cwnd, _ in given] == [0, 110, 18, 0]  # nothing acknowledged: nothing given
    assert not any(pacing.any() for _, pacing in given)
    assert not stub.seen
    assert int(stub.agent.step(row(4, cwnd_pkts=100, ssthresh_pkts=100))[0][0]) == 110
    assert int(stub.agent.step(row(5, cwnd_pkts=100, ssthresh_pkts=99))[0][0]) == 200  # over for good
    stub.agent.step(row(6))
    assert int(stub.agent.step(row(7, **free))[0][0]) == 200
    np.testing.assert_allclose(reports(stub)[:, 4], [0.01, 0.02], rtol=1e-6)  # each since the last step or report
    stub.agent.reset()
    stub.agent.step(row(0, **free))
    assert int(stub.agent.step(row(1, **free))[0][0]) == 110


def flow(seed: int, ticks: int = 60) -> npt.NDArray[np.void]:
    random = np.random.default_rng(seed)
    delivered = 1 + np.cumsum(random.integers(0, 30, ticks) * (random.uniform(size=ticks) < 0.7))
    lost = np.cumsum(random.integers(0, 3, ticks))
    rows = []
    for tick in range(ticks):
        changes = {"srtt_us": int(random.integers(40_000, 90_000)), "cwnd_pkts": int(random.integers(4, 300))}
        rate = int(random.integers(1, 6_000_000))
        counts = {"delivered_pkts": int(delivered[tick]), "lost_total_pkts": int(lost[tick]), "ssthresh_pkts": 150}
        rows.append(row(tick, delivery_rate_bytes_s=rate, **counts, **changes))
    return np.concatenate(rows)


def test_many_flows_in_one_batch_are_as_many_single_ones(orca: Path) -> None:
    flows = [flow(seed) for seed in range(4)]
    together = PolicyAgent.load(orca, flows=5)
    singles = [PolicyAgent.load(orca) for _ in flows]
    for tick in range(60):
        alive = [i for i in range(4) if not (i == 2 and tick < 20)]  # the third begins late, in another slot's company
        slots = np.array(alive)
        batch = np.stack([flows[i][tick] for i in alive])
        expected = [singles[i](flows[i][tick]) for i in alive]
        assert list(zip(*(part.tolist() for part in together.step(batch, slots)), strict=True)) == expected
    assert len({window for window, _ in expected}) > 1
    together.reset(1)
    fresh = PolicyAgent.load(orca)
    assert [together.step(flows[0][t : t + 1], np.array([1]))[0][0] for t in range(60)] == [
        fresh(record)[0] for record in flows[0]
    ]


def test_another_order_of_observations_is_refused(orca: Path) -> None:
    card = json.loads((orca / "card.json").read_text())
    card["inputs"]["observations"].reverse()
    (orca / "card.json").write_text(json.dumps(card))
    with pytest.raises(SageccError, match="does not observe 10 reports of thr/max, pacing/max"):
        Playing().agent(f"policy:{orca}")


class RecordingAgent:
    """An agent that keeps what it answered."""

    def __init__(self, agent: PolicyAgent) -> None:
        self.agent, self.given = agent, cast("list[int]", [])

    def __call__(self, sample: np.void) -> tuple[int, int]:
        answer = self.agent(sample)
        self.given.append(answer[0])
        return answer


def test_in_the_lab_cubic_goes_on_between_decisions_every_20_ms(kernel: Path, orca: Path) -> None:
    """An answer of 0 gives Cubic its own window back."""

    def play(answer: float, underlying: str) -> tuple[Episode, list[int]]:
        watched = RecordingAgent(Stub(orca, constant(answer)).agent)
        environment = network(duration_s=6)
        return run_episode(
            kernel, environment, "policy:x", 0, per_flow(watched), drives={"policy:x": Drive(underlying)}
        ), watched.given

    episode, given = play(0, "cubic")
    cwnd, ssthresh = (episode.rows[name].to_numpy() for name in ("cwnd_pkts", "ssthresh_pkts"))
    begun = int(np.argmax(ssthresh < cwnd))
    decided = np.flatnonzero(np.array(given)[begun:])
    assert decided[0] == 0
    assert set(np.diff(decided)) == {2}
    after = np.arange(begun, len(cwnd) - 1)
    idle = after[np.array(given)[after] == 0]
    assert (cwnd[idle + 1] > cwnd[idle]).sum() > 20  # its growth
    assert (cwnd[begun + 20 :] < 0.8 * cwnd[begun:-20]).any()  # its decrease after a loss, over an RTT
    assert play(0, "cubic")[0].sha256 == episode.sha256

    alone = run_episode(kernel, network(duration_s=6), "cubic", 0)
    own, theirs = alone.rows["cwnd_pkts"].to_numpy(), cwnd
    assert np.abs(own[-300:].mean() / theirs[-300:].mean() - 1) < 0.2  # in congestion avoidance it is Cubic
    held = play(0, "reno")[0]
    assert held.sha256 != episode.sha256
    lower, given = play(-0.2, "cubic")  # 0.75 times every 20 ms, below ssthresh, up to where Cubic hurries back
    cwnd, answers = lower.rows["cwnd_pkts"].to_numpy()[-300:], np.array(given)[-300:]
    decided = np.flatnonzero(answers[:-1])
    np.testing.assert_array_equal(answers[decided], np.floor(0.75 * cwnd[decided]))
    assert (answers[decided] <= cwnd[decided + 1]).all()
    assert (cwnd[decided + 1] < 0.95 * cwnd[decided]).all()


def test_receivers_acknowledge_every_second_packet_once_their_window_has_grown(kernel: Path) -> None:
    """What the reports count by: at 3,900 packets a second a tick then never brings an odd number."""
    rows = run_episode(kernel, network(bandwidth_mbps=47, duration_s=20), "cubic", 0).rows
    came = np.diff(rows["delivered_pkts"].to_numpy().astype(np.int64))
    ordered = rows["ca_state"].to_numpy()[1:] == 0
    assert (came[:500][ordered[:500]] % 2).any()
    late = came[-500:][ordered[-500:]]
    assert len(late) > 300
    assert late.min() > 30
    assert not (late % 2).any()


def test_a_league_lets_it_drive_on_top_of_cubic(kernel: Path, tmp_path: Path) -> None:
    scheme = f"policy:{save_orca(tmp_path / 'orca', gain=0.1)}"
    environment = network(duration_s=3)
    lab_runner(kernel, 1)([environment], [scheme], tmp_path / "raw")
    (found,) = read_table(tmp_path / "raw" / partition(environment.set, scheme) / EPISODES_FILE).to_pylist()
    alone = play_episode(kernel, environment, scheme)
    assert found["spec_sha256"] == alone.spec_sha256
    assert found["goodput_mbps"] == alone.flows[0].goodput_mbps
    pure = run_episode(kernel, environment, scheme, 0, policy_controller(environment, scheme, 0))
    assert pure.spec_sha256 != alone.spec_sha256


def test_the_command_runs_it_on_top_of_cubic(kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scheme = f"policy:{save_orca(tmp_path / 'orca', gain=0.1)}"
    network_options = ["--bandwidth", "48", "--rtt", "40", "--queue-bdp", "1", "--duration", "3"]
    with pytest.raises(SystemExit) as status:
        entry.main(["run", "--scheme", scheme, *network_options, "--kernel", str(kernel), "--json"])
    assert not status.value.code
    printed = json.loads(capsys.readouterr().out)
    environment = network(duration_s=3)
    alone = play_episode(kernel, environment, scheme)
    assert printed["sha256"] == alone.sha256


@needs_published
def test_the_published_actor_fills_a_link_at_a_fraction_of_cubics_delay(kernel: Path, tmp_path: Path) -> None:
    scheme = f"policy:{import_checkpoint(PUBLISHED, tmp_path / 'orca').folder}"
    environment = network(duration_s=15, queue_bdp=4)
    own = play_episode(kernel, environment, scheme).flows[0]
    cubic = run_episode(kernel, environment, "cubic", 0).flows[0]
    assert own.goodput_mbps > 0.9 * 48
    assert own.delay_mean_ms - 20 < 0.25 * (cubic.delay_mean_ms - 20)  # of which 20 ms is propagation


def earned(name: str, rate: float, lost: int, highest: float, srtt_us: int) -> float:
    """What Orca earns in a second with a delivery rate (bytes/s), lost packets of 1,000 bytes and an RTT of 40 ms."""
    intervals, slot = Intervals(1), np.zeros(1, np.int64)
    for tick in (0, 100):
        row = np.zeros(1, wire.SAMPLE)
        values = {"t_ns": tick * 10_000_000, "mss_bytes": 1000, "delivered_pkts": tick, "srtt_us": srtt_us}
        values |= {"min_rtt_us": 40_000, "delivery_rate_bytes_s": round(rate), "lost_total_pkts": lost * (tick > 0)}
        for counter, value in values.items():
            row[counter] = value
        intervals.update(row, slot)
    return float(rewards()[name].function(intervals.report(np.ones(1, np.bool_)), row, np.array([highest]))[0])


@pytest.mark.parametrize(
    ("srtt_ms", "by_code", "by_paper"), [(40, 1, 1), (50, 1, 1), (51, 50 / 51, 40 / 51), (80, 50 / 80, 0.5)]
)
def test_orcas_rewards_by_its_code_and_by_its_paper(srtt_ms: int, by_code: float, by_paper: float) -> None:
    """8 of 10 MB/s, 0.4 lost: net 0.6; RTTs at, within and beyond 1.25 times the lowest of 40 ms."""
    assert earned("orca", 8e6, 400, 10e6, 1000 * srtt_ms) == pytest.approx(0.6 * by_code)
    assert earned("orca-paper", 8e6, 400, 10e6, 1000 * srtt_ms) == pytest.approx(0.6 * by_paper)


def test_orcas_reward_is_0_before_anything_and_falls_five_times_by_what_is_lost() -> None:
    assert earned("orca", 0, 0, 0, 0) == earned("orca-paper", 0, 0, 0, 0) == 0
    assert earned("orca", 1e6, 1000, 1e6, 40_000) == pytest.approx(-4)
