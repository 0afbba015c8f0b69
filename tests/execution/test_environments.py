# SPDX-License-Identifier: Apache-2.0
"""The lab as Gymnasium's and PettingZoo's environments: the pool's numbers, their rules, nothing left behind."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList
from pettingzoo.test.parallel_test import parallel_api_test

from sagecc.collector.lab.boot import per_flow
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.grid import profile_environments
from sagecc.collector.run.set_file import load_set
from sagecc.common.errors import SageccError
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.environments.congestion import CongestionEnv
from sagecc.execution.environments.networks import DEFAULT, networks
from sagecc.execution.environments.parallel import CongestionParallelEnv
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.environments.vector import CongestionVectorEnv
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.pool.features import derive
from sagecc.pool.reward import friendliness, graded, power
from sagecc.pool.spaces import ENVIRONMENT
from sagecc.schemas.environment import CrossFlow, Environment, Flow
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.networks import network
from tests.helpers.policies import save_policy
from tests.helpers.processes import alive, guests

Actions = npt.NDArray[np.float64]

ALONE = network(12, 20, duration_s=3)
BESIDE_CUBIC = replace(network(12, 20, duration_s=4, cross=("cubic",), start_s=1), reward="friendliness")
HOLD = np.zeros(1)


@pytest.fixture(autouse=True)
def needs_a_kernel(kernel: Path) -> None:
    """The environments look for it themselves, where this finds it."""


class Player:
    """A policy as those use it who have only an environment: an action for each observation."""

    def __init__(self, folder: Path) -> None:
        self.policy = PolicyArtefact.load(folder)
        self.step, self.hidden = runtime.load(self.policy), self.policy.initial_state()

    def __call__(self, observation: npt.NDArray[np.float32]) -> Actions:
        logits, loc, _, self.hidden = self.step(observation[None], self.hidden)
        return exact.mean(logits, loc)


def play(env: gymnasium.Env[Any, Any], seed: int, actions: Iterator[Actions] | None = None) -> list[tuple[Any, ...]]:
    """Return (observation, reward, info) of an episode, its reset first."""
    observation, info = env.reset(seed=seed)
    seen, over = [(observation, 0.0, info)], False
    while not over:
        observation, reward, ended, over, info = env.step(next(actions) if actions else HOLD)
        assert not ended
        seen.append((observation, float(reward), info))
    return seen


def wobbling(seed: int = 0) -> Iterator[Actions]:
    random = np.random.default_rng(seed)
    while True:
        yield random.normal(0.02, 0.2, 1)


@pytest.mark.parametrize("environment", [ALONE, BESIDE_CUBIC], ids=["power", "friendliness"])
def test_a_policy_does_in_it_what_it_does_in_the_lab(kernel: Path, tmp_path: Path, environment: Environment) -> None:
    """Same windows, the pool's features, the pool's rewards one tick after the action."""
    policy = save_policy(tmp_path / "policy", seed=17)
    rows = run_episode(kernel, environment, f"policy:{policy}", 5, per_flow(PolicyAgent.load(policy))).rows
    player, env = Player(policy), CongestionEnv(environment)
    observation, info = env.reset(seed=5)
    seen = [(observation, info)]
    earned, over = [], False
    while not over:
        observation, reward, _, over, info = env.step(player(observation))
        seen.append((observation, info))
        earned.append(reward)

    columns = {name: rows[name].to_numpy() for name in rows.column_names if name not in ("episode_id", "step")}
    assert len(set(columns["cwnd_pkts"])) > 5
    for name, expected in columns.items():
        np.testing.assert_array_equal([info[name] for _, info in seen], expected)
    features, measured = derive(columns, np.arange(len(seen)) == 0)
    np.testing.assert_array_equal(np.array([features for features, _ in seen]), features.T)
    rate, loss, capacity, rtt_rate = measured
    if environment.reward == "power":
        expected = power(rate, loss, capacity, rtt_rate)
    else:
        expected = friendliness(rate, capacity, np.full(len(rate), 2.0))
    np.testing.assert_array_equal(earned, expected[1:])
    assert len(set(earned)) > 100

    player, env = Player(policy), CongestionEnv(environment, task=LearningTask(reward="pool-log"))
    observation, _ = env.reset(seed=5)
    for reward in graded(np.array(earned[:200])):
        observation, found, *_ = env.step(player(observation))
        assert found == reward
    env.close()


def test_gymnasium_finds_it_and_nothing_to_complain_of() -> None:
    env = gymnasium.make(ENVIRONMENT.id, environment=ALONE)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()
    complaints = {str(warning.message).partition("\x1b[0m")[0] for warning in said}
    # features have no upper end, and an action is within 2
    known = ("space maximum value is infinity", "we recommend using a symmetric and normalized space")
    assert not [text for text in complaints if not any(words in text for words in known)]


def test_spaces_are_the_features_and_the_learners_actions() -> None:
    env = CongestionEnv(ALONE)
    assert env.observation_space.shape == (len(FEATURE_NAMES),) == (69,)
    assert env.observation_space.dtype == np.float32
    assert (env.action_space.low, env.action_space.high) == (-2, 2)  # type: ignore[attr-defined]
    for observation, *_ in play(env, 1, wobbling()):
        assert observation in env.observation_space


def test_same_seed_and_actions_same_bytes() -> None:
    lossy = replace(ALONE, links=(replace(ALONE.links[0], loss=0.01),))
    env, other = CongestionEnv(lossy), CongestionEnv(lossy)
    first, again = play(env, 7, wobbling()), play(other, 7, wobbling())
    assert [o.tobytes() for o, *_ in first] == [o.tobytes() for o, *_ in again]
    assert [(r, i) for _, r, i in first] == [(r, i) for _, r, i in again]
    assert [r for _, r, _ in play(env, 8, wobbling())] != [r for _, r, _ in first]


def test_an_episode_ends_by_its_clock_with_its_last_sample() -> None:
    env = CongestionEnv(BESIDE_CUBIC)
    seen = play(env, 0)
    assert seen[0][2]["t_s"] == pytest.approx(1.03, abs=0.02)
    assert seen[-1][2]["t_s"] == 4
    with pytest.raises(SageccError, match="no episode runs: call reset"):
        env.step(HOLD)
    early = replace(ALONE, flow=Flow(0, 2))
    assert play(CongestionEnv(early), 0)[-1][2]["t_s"] == 2


def test_it_ends_earlier_where_it_is_told_to() -> None:
    assert len(play(CongestionEnv(ALONE, max_episode_steps=20), 0)) == 21
    assert len(play(gymnasium.make(ENVIRONMENT.id, environment=ALONE, max_episode_steps=30), 0)) == 31
    envs = gymnasium.make_vec(ENVIRONMENT.id, num_envs=2, environment=ALONE, max_episode_steps=3)
    envs.reset(seed=0)
    truncated = [envs.step(np.zeros((2, 1)))[3].tolist() for _ in range(8)]
    assert truncated == [[step % 4 == 2] * 2 for step in range(8)]
    envs.close()


def test_an_action_multiplies_the_window_and_is_cut_to_its_limits() -> None:
    env = CongestionEnv(network(96, 40, duration_s=1))
    env.reset(seed=0)
    actions = (1.0, 9.0, 0.5, 1.0, -50.0, -2.0, -2.0)
    windows = [int(env.step(np.array([action]))[4]["cwnd_pkts"]) for action in actions]
    assert windows == [20, 80, 113, 226, 56, 14, 4]
    env.close()


def test_an_action_takes_effect_after_its_latency() -> None:
    """The window is seen as ordered at once; more is sent only later, up to it after four RTTs."""
    sent = {}
    for latency_ms in (0, 25):
        env = CongestionEnv(network(96, 40, duration_s=1), latency_ms=latency_ms)
        env.reset(seed=0)
        infos = [env.step(np.array([1.0 if step == 3 else 0.0]))[4] for step in range(20)]
        windows, sent[latency_ms] = ([int(info[name]) for info in infos] for name in ("cwnd_pkts", "data_segs_out"))
        assert windows == [*windows[:1] * 3, *[2 * windows[0]] * 17]
        env.close()
    assert sent[0][3] > sent[25][3]
    assert sent[0][5] > sent[25][5]


def test_networks_are_drawn_by_the_seed_or_named_for_one_episode() -> None:
    short = tuple(network(mbps, 20, duration_s=1) for mbps in (6, 12, 24, 48))
    env = CongestionEnv(short)
    drawn = [env.reset(seed=seed)[1]["environment_id"] for seed in range(12)]
    assert set(drawn) == {environment.id for environment in short}
    assert drawn == [env.reset(seed=seed)[1]["environment_id"] for seed in range(12)]
    info = env.reset(options={"environment": DEFAULT.id})[1]
    assert info["environment_id"] == DEFAULT.id
    assert env.reset(seed=3)[1] | {"seed": 3} == env.reset(seed=3)[1]
    later = env.reset()[1]
    assert later["environment_id"] in drawn
    again = CongestionEnv(networks(later["environment_id"]) if later["environment_id"] == DEFAULT.id else short)
    again.reset(seed=3)
    assert again.reset()[1] == later
    env.close()
    again.close()


def test_a_network_is_a_value_a_file_an_id_or_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(ALONE.to_json())
    assert networks(file) == networks(str(file)) == networks(ALONE) == (ALONE,)
    assert networks("small") == profile_environments("small")
    assert networks(DEFAULT.id) == (DEFAULT,)
    assert networks([ALONE, "smoke"]) == (ALONE, *profile_environments("smoke"))


def test_networks_of_a_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nenvironments: [{ALONE.to_json()}]")
    assert networks(file) == networks(str(file)) == (replace(ALONE, set="mine"),)
    assert networks("aqm") == load_set("aqm").environments


def test_bad_input_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"unknown environment 'smal': use a profile .*did you mean small\?"):
        gymnasium.make(ENVIRONMENT.id, environment="smal")
    with pytest.raises(SageccError, match=r"there is no file gone\.yaml"):
        CongestionEnv("gone.yaml")
    with pytest.raises(SageccError, match="environment: there is none"):
        CongestionEnv([])
    with pytest.raises(SageccError, match="environment 5: give"):
        CongestionEnv(5)  # type: ignore[arg-type]
    with pytest.raises(SageccError, match=f"no kernel at {tmp_path}/linux: run 'sagecc kernel' first"):
        CongestionEnv(ALONE, kernel=tmp_path / "linux")
    with pytest.raises(SageccError, match="latency"):
        CongestionEnv(ALONE, latency_ms=-1)
    with pytest.raises(SageccError, match="latency_ms must be a number"):
        CongestionEnv(ALONE, latency_ms=float("nan"))
    with pytest.raises(SageccError, match=r"max_episode_steps.* 1 .*0"):
        CongestionEnv(ALONE, max_episode_steps=0)
    with pytest.raises(SageccError, match="num_envs must be a whole number"):
        CongestionVectorEnv(0)
    env = CongestionEnv(ALONE)
    with pytest.raises(SageccError, match="no episode runs: call reset"):
        env.step(HOLD)
    with pytest.raises(SageccError, match=r"9223372036854775808.*2\^63 - 1"):
        env.reset(seed=2**63)
    with pytest.raises(SageccError, match="reset has no option 'enviroment'"):
        env.reset(options={"enviroment": "small"})
    env.reset(seed=0)
    for bad, message in [
        (0.5, r"an action must be of shape \(1,\), not \(\)"),
        (np.zeros(2), r"must be of shape \(1,\), not \(2,\)"),
        (np.array([np.nan]), "an action must be finite"),
        (np.array([np.inf]), "an action must be finite"),
        ("up", r"an action must be an array of numbers of shape \(1,\), not 'up'"),
        (None, "an action must be"),
    ]:
        with pytest.raises(SageccError, match=message):
            env.step(bad)  # type: ignore[arg-type]
    env.step(HOLD)  # a refused action changes nothing
    env.close()
    with pytest.raises(SageccError, match="no episode runs"):
        env.step(HOLD)


def test_a_kernel_that_dies_is_named_and_a_reset_begins_again() -> None:
    env = CongestionEnv(ALONE)
    env.reset(seed=3)
    for pid in guests(os.getpid()):
        os.kill(pid, 9)
    with pytest.raises(SageccError, match=r"policy:environment\.3: the guest died in mid-episode"):
        for _ in range(3):
            env.step(HOLD)
    with pytest.raises(SageccError, match="no episode runs"):
        env.step(HOLD)
    assert len(play(env, 3)) > 290


def gone(pids: set[int]) -> bool:
    """Whether processes that were killed are gone, which may take a moment."""
    for _ in range(100):
        if not alive(pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("how", ["closed", "reset", "forgotten", "over"])
def test_no_kernel_outlives_its_episode(how: str) -> None:
    before = guests(os.getpid())
    env = CongestionEnv(ALONE)
    env.reset(seed=0)
    running = guests(os.getpid()) - before
    assert running
    if how == "closed":
        env.close()
    elif how == "reset":
        env.reset()
    elif how == "over":
        while not env.step(HOLD)[3]:
            pass
    else:
        del env
        gc.collect()
    assert gone(running)
    if how == "reset":
        env.close()


def test_no_kernel_outlives_a_process_that_never_closes() -> None:
    code = (
        "import os, gymnasium, sagecc.execution.environments\nfrom tests.helpers.processes import guests\n"
        "envs = gymnasium.make_vec('sagecc/Congestion-v0', num_envs=2)\nenvs.reset(seed=0)\n"
        "print(*guests(os.getpid()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pids = {int(word) for word in done.stdout.split()}
    assert len(pids) >= 2
    assert gone(pids)


def test_a_vector_is_what_its_environments_are_one_by_one() -> None:
    """Over several episodes of several lengths: observations, rewards, ends, infos."""
    among = (
        network(12, 20, duration_s=1),
        network(24, 40, duration_s=1.3),
        replace(network(24, 20, duration_s=1.1, cross=("cubic",)), reward="friendliness"),
    )
    together = gymnasium.make_vec(ENVIRONMENT.id, num_envs=3, environment=among)
    assert isinstance(together, CongestionVectorEnv)
    assert together.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    one_by_one = SyncVectorEnv([lambda: CongestionEnv(among)] * 3)
    assert together.observation_space == one_by_one.observation_space
    assert together.action_space == one_by_one.action_space
    alone, vector = DictInfoToList(one_by_one), DictInfoToList(together)
    expected: tuple[Any, ...] = alone.reset(seed=11)
    got: tuple[Any, ...] = vector.reset(seed=11)
    random, ends = np.random.default_rng(0), 0
    for _ in range(300):
        for one, other in zip(expected[:-1], got[:-1], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        assert expected[-1] == got[-1]
        actions = random.normal(0.02, 0.2, (3, 1)).astype(np.float32)
        expected, got = alone.step(actions), vector.step(actions)
        ends += int(got[3].sum())
    assert ends >= 6
    assert expected[-1][0].keys() >= {"t_s", "cwnd_pkts", "pacing_rate_bytes_s"}
    vector.close()
    alone.close()


def test_some_of_a_vector_begin_anew() -> None:
    envs = CongestionVectorEnv(2, ALONE)
    first, _ = envs.reset(seed=[4, 4])
    for _ in range(10):
        later, *_ = envs.step(np.full((2, 1), 0.1))
    observations, infos = envs.reset(seed=4, options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(observations, [first[0], later[1]])
    assert infos["_seed"].tolist() == infos["_t_s"].tolist() == [True, False]
    with pytest.raises(SageccError, match="reset_mask must be 2 booleans"):
        envs.reset(options={"reset_mask": [True, False]})
    with pytest.raises(SageccError, match="3 seeds for 2 environments"):
        envs.reset(seed=[1, 2, 3])
    envs.close()


def test_a_vector_refuses_bad_input() -> None:
    envs = CongestionVectorEnv(2, ALONE)
    with pytest.raises(SageccError, match="no episode runs: call reset"):
        envs.step(np.zeros((2, 1)))
    envs.reset(seed=0)
    with pytest.raises(SageccError, match=r"actions.*\(2, 1\).*\(2,\)"):
        envs.step(np.zeros(2))
    with pytest.raises(SageccError, match="actions must be finite"):
        envs.step(np.array([[0.0], [np.nan]]))
    for pid in guests(os.getpid()):
        os.kill(pid, 9)
    with pytest.raises(SageccError, match="the guest died"):
        for _ in range(3):
            envs.step(np.zeros((2, 1)))
    with pytest.raises(SageccError, match="no episode runs: call reset"):
        envs.step(np.zeros((2, 1)))
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1)))
    envs.close()
    over = CongestionVectorEnv(2, ALONE, max_episode_steps=1)
    over.reset(seed=0)
    assert over.step(np.zeros((2, 1)))[3].all()
    over.close()
    with pytest.raises(SageccError, match="no episode runs: call reset"):
        over.step(np.zeros((2, 1)))


def shared(*lives: tuple[float, float], duration_s: float = 2.0) -> Environment:
    """Flows that start and stop at given times on 12 Mbps, 20 ms."""
    own, *others = (Flow(start_s, stop_s) for start_s, stop_s in lives)
    base = network(12, 20, duration_s=duration_s)
    cross = tuple(CrossFlow("pure", flow) for flow in others)
    return replace(base, flow=own, cross=cross, reward="friendliness", windows_s=())


def lives(env: CongestionParallelEnv) -> dict[str, tuple[float, float]]:
    """Play an episode that holds its windows; return when each agent was seen first and last (s)."""
    observations, infos = env.reset(seed=0)
    seen: dict[str, list[float]] = {}
    while True:
        assert observations.keys() == infos.keys()
        for agent, info in infos.items():
            seen.setdefault(agent, []).append(float(info["t_s"]))
        if not env.agents:
            return {agent: (times[0], times[-1]) for agent, times in seen.items()}
        before = set(env.agents)
        observations, rewards, ended, over, infos = env.step(dict.fromkeys(env.agents, HOLD))
        assert observations.keys() == rewards.keys() == ended.keys() == over.keys()
        assert before <= observations.keys()
        assert not any(ended.values())
        assert set(env.agents) == {agent for agent in over if not over[agent]}
        assert all(rewards[agent] == 0 for agent in observations.keys() - before)


def test_pettingzoo_has_nothing_to_complain_of() -> None:
    changing = shared((0, 1), (0.03, 2), (0.06, 0.8))
    constant = CongestionParallelEnv(changing, constant_agents=True)
    for env in CongestionParallelEnv(), CongestionParallelEnv(changing), constant:
        for agent in env.possible_agents:
            env.action_space(agent).seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parallel_api_test(env, num_cycles=700)
        env.close()


def test_agents_come_and_go_with_their_flows() -> None:
    env = CongestionParallelEnv(shared((0, 1), (0.5, 2), (0.2, 0.8)))
    assert env.possible_agents == ["flow_0", "flow_1", "flow_2"]
    found = lives(env)
    for agent, (start_s, stop_s) in {"flow_0": (0, 1), "flow_1": (0.5, 2), "flow_2": (0.2, 0.8)}.items():
        assert found[agent][0] == pytest.approx(start_s + 0.03, abs=0.02)
        assert found[agent][1] == pytest.approx(stop_s)


def test_constant_agents_are_idle_while_their_flows_do_not_decide() -> None:
    """The same episode as without: the same bytes of whoever decides, and of the others what is nearest to zeros."""
    network = shared((0, 1), (0.5, 2), (0.2, 0.8))
    env, own = (CongestionParallelEnv(network, constant_agents=constant) for constant in (True, False))
    assert env.possible_agents == own.possible_agents
    (observations, infos), (expected, _) = (each.reset(seed=0) for each in (env, own))
    ended: set[str] = set()
    while env.agents:
        assert env.agents == env.possible_agents == list(observations) == list(infos)
        deciding = own.agents
        assert [agent for agent in infos if not infos[agent]["idle"]] == deciding
        for agent, observation in observations.items():
            space = env.observation_space(agent)
            assert isinstance(space, gymnasium.spaces.Box) and observation in space
            nothing = np.clip(np.zeros_like(observation), space.low, space.high)
            np.testing.assert_array_equal(observation, expected.get(agent, nothing))
        actions = {agent: HOLD if agent in deciding else np.full(1, np.nan) for agent in env.agents}
        observations, rewards, terminations, truncations, infos = env.step(actions)
        expected, earned, _, over, _ = own.step(dict.fromkeys(deciding, HOLD))
        assert rewards == dict.fromkeys(env.possible_agents, 0.0) | earned
        assert not any(terminations.values())
        assert truncations == dict.fromkeys(env.possible_agents, not own.agents)
        ended |= {agent for agent in over if over[agent]}
    assert ended == set(env.possible_agents)
    with pytest.raises(SageccError, match="no episode runs: call reset"):
        env.step(actions)


def test_who_decides_more_seldom_than_others_observes_what_it_did() -> None:
    """A period of three ticks: flows whose first ticks differ decide in turn."""
    task = LearningTask.of({"control": {"period_ms": 30.0}})
    env = CongestionParallelEnv(shared((0, 2), (0.2, 2)), task=task, constant_agents=True)
    observations, infos = env.reset(seed=0)
    turns = set()
    while env.agents:
        before, idle = observations, [agent for agent in infos if infos[agent]["idle"]]
        turns.add(tuple(idle))
        observations, rewards, _, truncations, infos = env.step(dict.fromkeys(env.agents, HOLD))
        for agent in env.possible_agents:
            if infos[agent]["idle"] and not truncations[agent] and "t_s" not in infos[agent]:
                assert rewards[agent] == 0
                np.testing.assert_array_equal(observations[agent], before[agent])
    assert {("flow_0",), ("flow_1",)} <= turns


def test_a_copy_is_a_new_environment(tmp_path: Path) -> None:
    """As those who want several make them: also of one whose episode runs, and each with random numbers of its own."""
    env = CongestionParallelEnv(shared((0, 1), (0, 1)), max_cycles=5, constant_agents=True)
    env.reset(seed=3)
    copies = [pickle.loads(pickle.dumps(env)) for _ in range(2)]
    assert all(copy.agents == [] and copy.max_cycles == 5 for copy in copies)
    (seen, infos), (again, _), (_, drawn) = env.reset(seed=3), copies[0].reset(seed=3), copies[1].reset()
    for agent in seen:
        np.testing.assert_array_equal(again[agent], seen[agent])
    assert infos["flow_0"]["seed"] == 3 != drawn["flow_0"]["seed"]
    env.render()
    assert env.render_mode is None
    for each in (env, *copies):
        each.close()


def test_while_no_flow_is_up_the_lab_runs_on() -> None:
    """The step in which one flow stops brings the next one's first observation."""
    env = CongestionParallelEnv(shared((0.0, 0.4), (1.0, 1.5)))
    env.reset(seed=0)
    over: dict[str, bool] = {}
    while not over.get("flow_0"):
        assert env.agents == ["flow_0"]
        _, _, _, over, infos = env.step({"flow_0": HOLD})
    assert over == {"flow_0": True, "flow_1": False}
    assert env.agents == ["flow_1"]
    assert infos["flow_0"]["t_s"] == pytest.approx(0.4)
    assert infos["flow_1"]["t_s"] == pytest.approx(1.03, abs=0.02)
    assert list(lives(env)) == ["flow_0", "flow_1"]


def test_one_agent_of_several_flows_is_the_single_environments() -> None:
    """The other flow keeps its scheme; same seed and actions, same bytes as Gymnasium's form."""
    seen = play(CongestionEnv(BESIDE_CUBIC), 9, wobbling())
    env, actions = CongestionParallelEnv(BESIDE_CUBIC, flows=[0]), wobbling()
    assert env.possible_agents == ["flow_0"]
    observations, infos = env.reset(seed=9)
    for observation, reward, info in seen[1:]:
        observations, rewards, _, _, infos = env.step({"flow_0": next(actions)})
        np.testing.assert_array_equal(observations["flow_0"], observation)
        assert (rewards["flow_0"], infos["flow_0"]) == (reward, info)
    assert not env.agents


def test_each_agent_has_its_own_flows_window_and_reward() -> None:
    env = CongestionParallelEnv(shared((0, 4), (0, 4), duration_s=4))
    _, infos = env.reset(seed=0)
    wanted, earned = {"flow_0": 36, "flow_1": 9}, []
    while env.agents:
        actions = {agent: np.log2([wanted[agent] / infos[agent]["cwnd_pkts"]]) for agent in env.agents}
        _, rewards, _, _, infos = env.step(actions)
        earned.append(rewards)
    assert {agent: infos[agent]["cwnd_pkts"] for agent in wanted} == pytest.approx(wanted, abs=1)
    share = {agent: float(info["delivered_pkts"]) for agent, info in infos.items()}
    assert share["flow_0"] > 3 * share["flow_1"]
    rates = np.array([share[agent] * 1448 / 4 for agent in wanted])
    fair = friendliness(rates, np.full(2, 12e6 / 8), np.full(2, 2.0))
    late = {agent: np.mean([rewards[agent] for rewards in earned[200:]]) for agent in wanted}
    assert list(late.values()) == pytest.approx(fair, abs=1)


def test_a_parallel_environment_refuses_bad_input() -> None:
    two = shared((0, 2), (0, 2))
    with pytest.raises(SageccError, match=r"0 to 1.*\[0, 5\]"):
        CongestionParallelEnv(two, flows=[0, 5])
    with pytest.raises(SageccError, match="flows: there is no agent"):
        CongestionParallelEnv(two, flows=[])
    with pytest.raises(SageccError, match=r"1 flows.*2"):
        CongestionParallelEnv([two, ALONE])
    env = CongestionParallelEnv(two)
    with pytest.raises(SageccError, match="no episode runs: call reset"):
        env.step({})
    with pytest.raises(SageccError, match="has 1 flows"):
        env.reset(options={"environment": ALONE})
    env.reset(seed=0)
    with pytest.raises(SageccError, match="flow_1 has no action"):
        env.step({"flow_0": HOLD})
    with pytest.raises(SageccError, match="flow_2 is no agent now"):
        env.step(dict.fromkeys(("flow_0", "flow_1", "flow_2"), HOLD))
    with pytest.raises(SageccError, match="flow_1's action must be finite"):
        env.step({"flow_0": HOLD, "flow_1": np.array([np.nan])})
    env.close()
