# SPDX-License-Identifier: Apache-2.0
"""Learns a rule of four numbers for the window by the cross-entropy method: twelve kernels try one each."""

import gymnasium
import numpy as np

import sagecc.execution.environments  # noqa: F401 - registers sagecc/Congestion-v0
from sagecc.schemas.pool import FEATURE_NAMES

CANDIDATES, ELITE, GENERATIONS, STEPS = 12, 3, 6, 200
SEEN = [FEATURE_NAMES.index(name) for name in ("rtt_rate", "bdp_cwnd", "loss_db")]

envs = gymnasium.make_vec("sagecc/Congestion-v0", num_envs=CANDIDATES, environment="I-12mbps-20ms-1bdp-682fb6")
random = np.random.default_rng(0)
mean, deviation = np.zeros(len(SEEN) + 1), np.full(len(SEEN) + 1, 0.1)
for generation in range(GENERATIONS):
    rules = random.normal(mean, deviation, (CANDIDATES, len(mean)))
    rules[0] = mean
    observations, _ = envs.reset(seed=0)
    returns = np.zeros(CANDIDATES)
    for _ in range(STEPS):
        seen = np.c_[observations[:, SEEN], np.ones(CANDIDATES)]
        observations, rewards, *_ = envs.step((seen * rules).sum(axis=1, keepdims=True))
        returns += rewards
    best = rules[np.argsort(returns)[-ELITE:]]
    print(f"generation {generation}: mean reward {returns[0] / STEPS:.2f}, of the best {returns.max() / STEPS:.2f}")
    mean, deviation = best.mean(axis=0), best.std(axis=0) + 0.01
envs.close()
