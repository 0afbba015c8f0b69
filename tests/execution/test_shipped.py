# SPDX-License-Identifier: Apache-2.0
"""The policies that come with the repository, in charge of the real kernel's window."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sagecc.collector.lab.episode import run_episode
from sagecc.common.fairness import jain_index
from sagecc.common.shipped import SHIPPED
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab.controllers import play_episode, policy_controller
from sagecc.policy import runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.environment import Link
from tests.conftest import ROOT
from tests.helpers.networks import network
from tests.helpers.raw_episodes import samples, trajectory

SAFEST, LATER, POLICY = (ROOT / "models" / name for name in SHIPPED)


@pytest.mark.parametrize("path", [POLICY, LATER, SAFEST], ids=lambda path: path.name)
def test_its_files_are_whole_and_every_runtime_answers_alike(path: Path) -> None:
    policy = PolicyArtefact.load(path)
    random = np.random.default_rng(0)
    rows = random.uniform(0, 3, (50, 1, len(policy.observations))).astype(np.float32)
    answers = {}
    for name in ("exact", "numpy", "litert"):
        step, hidden, found = runtime.load(policy, name), policy.initial_state(), []
        for row in rows:
            logits, loc, _, hidden = step(row, hidden)
            found.append(np.concatenate([logits, loc], axis=-1))
        answers[name] = np.array(found)
    for name in ("exact", "litert"):
        np.testing.assert_allclose(answers[name], answers["numpy"], atol=1e-4)


def test_it_gives_the_windows_that_it_gave_when_it_was_made() -> None:
    """Of format 2.0; the digest of all that it does in 4 s was taken before there were other kinds of policies."""
    assert PolicyArtefact.load(POLICY).card["format_version"] == "2.0"
    agent = PolicyAgent.load(POLICY)
    given = np.array([agent(row) for row in samples(trajectory(400, seed=7, start_s=5))])
    digest = hashlib.sha256(given.astype("<i8").tobytes() + agent.hidden.tobytes()).hexdigest()
    assert digest == "4d8aa72f2bb9e0652a1fd6f95935ada55bb533c0d12674c02c4649a9a6e2942f"


@pytest.mark.parametrize("path", [POLICY, LATER, SAFEST], ids=lambda path: path.name)
@pytest.mark.parametrize(("bandwidth_mbps", "rtt_ms"), [(24, 20), (48, 40)])
def test_it_fills_a_link_and_keeps_its_queue_short(
    kernel: Path, path: Path, bandwidth_mbps: float, rtt_ms: float
) -> None:
    """From 10 s on: nine tenths of the link, and no loss, in a queue of four BDPs that Cubic would fill."""
    environment = network(duration_s=20, bandwidth_mbps=bandwidth_mbps, rtt_ms=rtt_ms, queue_bdp=4)
    scheme = f"policy:{path}"
    rows = run_episode(kernel, environment, scheme, 0, policy_controller(environment, scheme, 0)).rows
    time_s, received, delay_ns, packets, drops = (
        rows[name].to_numpy() for name in ("t_s", "received_bytes", "link_delay_ns", "link_packets", "link_drops")
    )
    first = int(np.searchsorted(time_s, 10))
    goodput_mbps = (received[-1] - received[first]) * 8e-6 / (time_s[-1] - time_s[first])
    delay_ms = (delay_ns[-1] - delay_ns[first]) / (packets[-1] - packets[first]) / 1e6
    assert goodput_mbps > 0.9 * bandwidth_mbps
    assert delay_ms - rtt_ms / 2 < rtt_ms / 2  # one way, of which half an RTT is propagation
    assert drops[-1] == drops[first]


def test_the_later_one_shares_with_itself_and_does_not_lock_in_behind_jitter(kernel: Path) -> None:
    """Behind a millisecond of jitter the earlier one loses two fifths of its packets with some seeds."""
    scheme = f"policy:{LATER}"
    both = play_episode(kernel, network(duration_s=20, cross=(scheme,)), scheme)
    assert (jain_index([flow.goodput_mbps for flow in both.flows]) or 0) > 0.98
    back = Link(delay_ms=10, jitter_ms=1)
    shaken = replace(network(duration_s=20, bandwidth_mbps=24, rtt_ms=20), return_links=(back,))
    assert all(play_episode(kernel, shaken, scheme, seed).flows[0].loss_rate < 0.01 for seed in range(2))
