# SPDX-License-Identifier: Apache-2.0
"""Compilation of what runs a policy by two processes, where the cache of compiled code lacks it.

An agent compiles as it is called: first the features, then half as long the rest. Meanwhile a second process compiles
from the network back, so that the agent finds the rest in the cache.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from sagecc.common.processes import end_with_parent
from sagecc.execution.agent.actions import action_map
from sagecc.execution.agent.bound import window_bound
from sagecc.execution.agent.recovery import recovery_floor
from sagecc.execution.flow.outage import Outages
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.wire import SAMPLE


def compile_from_the_network_back(policy: PolicyArtefact) -> None:
    """Compile what decides, bounds, multiplies and outlasts an outage, by calling each with zeros; not the features."""
    observation = np.zeros((1, len(policy.observations)), np.float32)
    logits, loc, *_ = runtime.load(policy)(observation, policy.initial_state(1))
    exact.mean(logits, loc)
    samples, slots, zeros = np.zeros(1, SAMPLE), np.zeros(1, np.int64), np.zeros(1, np.int64)
    control = policy.control
    if bound := window_bound(control, 1):
        bound.apply(samples, slots, zeros, zeros)
    if floor := recovery_floor(control, 1):
        floor.apply(samples, slots, zeros, zeros)
    action_map(control, 1).step(samples, slots, np.ones(1, np.bool_), np.zeros(1))
    Outages().step(samples, slots)


def started(path: str) -> subprocess.Popen[bytes]:
    """Start a process that compiles so for the policy in a folder; it ends with this one."""
    command = [sys.executable, "-P", "-m", __name__, path]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)


def ended(process: subprocess.Popen[bytes]) -> None:
    """End it, whether it is done or not."""
    process.kill()
    process.wait()


if __name__ == "__main__":
    end_with_parent()
    compile_from_the_network_back(PolicyArtefact.load(sys.argv[1]))
