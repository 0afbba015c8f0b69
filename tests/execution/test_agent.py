# SPDX-License-Identifier: Apache-2.0
"""The policy in charge of windows: its arithmetic, its view of the flow, and its failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab.controllers import Playing
from sagecc.policy.artefact import SPREAD_MAP, Control, PolicyArtefact
from sagecc.pool.features import Windows, derive
from sagecc.schemas import wire
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.policies import Fixed, save_policy
from tests.helpers.raw_episodes import samples, trajectory

Floats = npt.NDArray[np.float32]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "policy")


def agent_of(fixed: Fixed, flows: int = 1) -> PolicyAgent:
    return PolicyAgent(cast("PolicyArtefact", fixed), flows, step=fixed.step)


def sample(tick: int, cwnd: int, srtt_us: int = 40_000) -> np.void:
    record = np.zeros(1, wire.SAMPLE)
    record["t_ns"], record["cwnd_pkts"], record["srtt_us"] = tick * 10_000_000, cwnd, srtt_us
    record["min_rtt_us"], record["mss_bytes"] = 40_000, 1448
    return cast("np.void", record[0])


def drive(agent: PolicyAgent, ticks: int, cwnd: int = 10) -> list[int]:
    """Run a kernel that obeys; return the windows it is given."""
    given = []
    for tick in range(ticks):
        cwnd, _ = agent(sample(tick, cwnd))
        given.append(cwnd)
    return given


def test_fractions_of_a_packet_add_up() -> None:
    step = float(np.log2(1.04))
    assert drive(agent_of(Fixed([step] * 6)), 6) == [10, 10, 11, 11, 12, 12]  # 10.4 10.82 11.25 11.70 12.17 12.65


def test_window_stays_within_its_limits() -> None:
    assert drive(agent_of(Fixed([2.0] * 7)), 7) == [40, 160, 640, 2560, 10240, 20000, 20000]
    assert drive(agent_of(Fixed([-2.0] * 3)), 3) == [4, 4, 4]


def test_starts_again_from_the_kernels_window_when_that_is_another() -> None:
    agent = agent_of(Fixed([0.0, 0.5, 0.0, 0.0]))
    assert agent(sample(0, 10))[0] == 10
    assert agent(sample(1, 10))[0] == 14  # 14.14
    assert agent(sample(2, 7))[0] == 7  # not the 14 it was given
    assert agent(sample(3, 7))[0] == 7


def test_paces_one_window_an_srtt_and_not_before_the_first_sample() -> None:
    agent = agent_of(Fixed([0.0, 0.0, 1.0]))
    assert agent(sample(0, 10, srtt_us=0)) == (10, 0)
    assert agent(sample(1, 10)) == (10, 10 * 1448 * 25)  # 40 ms: 25 windows a second
    assert agent(sample(2, 10, srtt_us=80_000)) == (20, 20 * 1448 * 1_000_000 // 80_000)


def test_sees_what_the_pool_holds_in_the_order_the_card_asks_for() -> None:
    columns = trajectory(400, seed=7, start_s=5)
    features, _ = derive(columns, np.arange(400) == 0)
    for names in (FEATURE_NAMES, ("pre_act", "srtt", "rtt_l.avg", "dr")):
        fixed = Fixed([0.0] * 400, names)
        agent = agent_of(fixed)
        for record in samples(columns):
            agent(record)
        expected = features[[FEATURE_NAMES.index(name) for name in names]].T
        np.testing.assert_array_equal(np.concatenate(fixed.seen), expected)


@pytest.mark.parametrize("pool", [1.5, "small", {"windows": "many"}, {"windows": None}])
def test_a_card_whose_pool_is_none_is_one_line(pool: object, tmp_path: Path) -> None:
    folder = save_policy(tmp_path / "odd", provenance={"pool": pool})
    with pytest.raises(SageccError, match=rf"policy {folder}: .*: train it again or fetch it again$"):
        PolicyAgent.load(folder)


def test_windows_are_those_of_the_pool_it_learned_from(tmp_path: Path) -> None:
    columns = trajectory(60)
    folder = save_policy(tmp_path / "small", provenance={"pool": {"windows": "10,10,10"}})
    policy = PolicyArtefact.load(folder)
    features, _ = derive(columns, np.arange(60) == 0, Windows(10, 10, 10))
    agent, hidden = PolicyAgent(policy), policy.initial_state()
    for tick, record in enumerate(samples(columns)):
        agent(record)
        hidden = policy.step(features[None, :, tick], hidden)[-1]
    np.testing.assert_allclose(agent.hidden, hidden, atol=1e-5)


def test_many_flows_in_one_batch_are_as_many_single_ones(policy: Path) -> None:
    flows = [samples(trajectory(80, rtt_ms=rtt, seed=rtt)) for rtt in (10, 40, 80)]
    for exploration in (None, Exploration(seed=5), Exploration(sample=False, noise=0.1)):
        together = PolicyAgent.load(policy, 3, exploration)
        first = PolicyAgent.load(policy, 1, exploration)
        for tick in range(80):
            rows = np.array([flow[tick] for flow in flows])
            order = np.array([2, 0, 1]) if tick % 2 else np.array([0, 1, 2])
            cwnd, pacing = together.step(rows[order], order)
            alone = first(rows[0])
            at = list(order).index(0)
            assert (cwnd[at], pacing[at]) == alone
        np.testing.assert_array_equal(together.hidden[0], first.hidden[0])


def test_a_slot_can_be_used_again(policy: Path) -> None:
    rows = samples(trajectory(50))
    fresh, used = (PolicyAgent.load(policy, exploration=Exploration(seed=1)) for _ in range(2))
    for row in samples(trajectory(30, rtt_ms=80)):
        used(row)
    used.reset()
    assert [used(row) for row in rows] == [fresh(row) for row in rows]


def test_same_seed_same_draws_and_none_by_default(policy: Path) -> None:
    rows = samples(trajectory(120))

    def run(exploration: Exploration | None) -> list[tuple[int, int]]:
        agent = PolicyAgent.load(policy, exploration=exploration)
        return [agent(row) for row in rows]

    ways = [None, Exploration(seed=1), Exploration(seed=2), Exploration(noise=0.1, seed=1), Exploration(False, 0.1)]
    assert [run(way) for way in ways] == [run(way) for way in ways]
    assert len({tuple(run(way)) for way in ways}) == len(ways)


def test_draws_follow_the_mixture() -> None:
    fixed = Fixed([])
    exploration = Exploration(seed=3)
    agent = PolicyAgent(cast("PolicyArtefact", fixed), 1, exploration, step=fixed.step)
    logits = np.log(np.array([[0.25, 0.75]]))
    loc, scale = np.array([[-1.0, 1.0]]), np.array([[0.01, 0.02]])
    drawn = np.array([agent._draw(exploration, np.array([0]), logits, loc, scale)[0] for _ in range(4000)])
    assert (drawn > 0).mean() == pytest.approx(0.75, abs=0.03)
    assert drawn[drawn > 0].std() == pytest.approx(0.02, rel=0.1)
    noisy = Exploration(sample=False, noise=0.3)
    random = noisy.stream(0)
    drawn = np.array([noisy.draw(random, logits[0], loc[0], scale[0]) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(0.5, abs=0.02)  # the mixture's mean
    assert drawn.std() == pytest.approx(0.3, rel=0.05)
    agent._network = lambda observation, hidden: (logits, 9 * loc, scale, hidden)
    assert agent(sample(0, 100))[0] in (25, 400)  # clipped to what the learner saw


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_answer_that_is_no_number_names_the_policy(bad: float) -> None:
    agent = agent_of(Fixed([0.1, bad]))
    agent(sample(0, 10))
    with pytest.raises(SageccError, match=r"models/fixed computed an action or a state that .* number \(flow 0\)"):
        agent(sample(1, 10))


def test_policies_that_cannot_run_are_refused(policy: Path, tmp_path: Path) -> None:
    rows = np.atleast_1d(np.asarray(sample(0, 10)))
    assert Playing().agent(f"policy:{policy}").step(rows, np.array([0]))[0] >= 4
    with pytest.raises(SageccError, match="no policy at"):
        Playing().agent(f"policy:{tmp_path}/none")
    card = json.loads((policy / "card.json").read_text())
    others = {"source": "orca"}, {"source_version": "0.9"}, {"observations": ["sRTT", *FEATURE_NAMES[1:]]}
    for change, message in [
        ({"period_ms": 25}, "decides every 25 ms; only multiples of 10 ms"),
        ({"period_ms": 5}, "decides every 5 ms"),
        ({"underlying_scheme": "tahoe"}, "acts on top of 'tahoe', which this kernel has not: there are pure, westwood"),
        (
            {"inputs": card["inputs"] | others[0]},
            r"observes 'orca .*'; there is only astraea\.tcp 1\.0, .*orca\.tcp 1\.0, .*sagecc",
        ),
        ({"inputs": card["inputs"] | others[1]}, r"observes 'sagecc\.pool 0\.9'"),
        ({"inputs": card["inputs"] | others[2]}, "observes 'sRTT', which is no feature"),
    ]:
        (policy / "card.json").write_text(json.dumps(card | change))
        with pytest.raises(SageccError, match=message):
            Playing().agent(f"policy:{policy}")


def test_the_card_says_what_an_answer_does() -> None:
    """Another policy's map: 4**a, a within 1, a window up to 100."""
    fixed = Fixed([0.5, -1.0, 3.0, 1.0])
    fixed.control = Control(base=4.0, limits=(-1.0, 1.0), cwnd_packets=(4, 100))
    assert drive(agent_of(fixed), 4) == [20, 5, 20, 80]
    fixed.actions = [1.0]
    assert drive(agent_of(fixed), 1, cwnd=80) == [100]


def test_on_top_of_another_scheme_a_window_is_left_to_it_between_decisions() -> None:
    fixed = Fixed([1.0, -1.0])
    fixed.control = Control(period_ms=20, underlying_scheme="cubic")
    agent = agent_of(fixed)
    given = [agent(sample(tick, cwnd)) for tick, cwnd in enumerate((10, 20, 23, 12))]
    assert [cwnd for cwnd, _ in given] == [20, 0, 11, 0]
    assert [pacing > 0 for _, pacing in given] == [True, False, True, False]


def test_a_longer_period_asks_once_and_acts_at_once_or_in_parts() -> None:
    fixed = Fixed([1.0, -1.0])
    fixed.control = Control(period_ms=30)
    assert drive(agent_of(fixed), 6) == [20, 20, 20, 10, 10, 10]
    assert len(fixed.seen) == 2

    fixed = Fixed([1.5, -1.5])
    fixed.control = Control(period_ms=30, map=SPREAD_MAP)
    windows = [1414, 2000, 2828, 2000, 1414, 1000]  # times or by the square root of 2
    assert drive(agent_of(fixed), 6, cwnd=1000) == pytest.approx(windows, abs=1)
    assert len(fixed.seen) == 2


def test_flows_of_one_agent_keep_their_own_periods() -> None:
    fixed = Fixed([1.0, 2.0, -1.0])
    fixed.control = Control(period_ms=20)
    agent = agent_of(fixed, flows=2)
    assert agent.step(np.array([sample(0, 10)]), np.array([1]))[0].tolist() == [20]
    both = np.array([sample(1, 10), sample(1, 20)])
    assert agent.step(both)[0].tolist() == [40, 20]  # the first begins; the second waits
    assert agent.step(np.array([sample(2, 40), sample(2, 20)]))[0].tolist() == [40, 10]
    assert [len(seen) for seen in fixed.seen] == [1, 1, 1]


def test_takes_rows_of_the_pools_own_making(policy: Path) -> None:
    """Raw rows as a structured array with `t_s`: how a stock kernel's agent or an environment may hold them."""
    columns = trajectory(20)
    dtype = [("t_s", "<f8"), *((name, wire.SAMPLE[name]) for name in wire.SAMPLE.names or () if name in columns)]
    rows = np.zeros(20, dtype)
    for name in rows.dtype.names or ():
        rows[name] = columns[name]
    from_pool, from_lab = PolicyAgent.load(policy), PolicyAgent.load(policy)
    assert [from_pool(row) for row in rows] == [from_lab(row) for row in samples(columns)]
