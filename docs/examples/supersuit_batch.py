# SPDX-License-Identifier: Apache-2.0
"""Flows of several networks as one batch of SuperSuit."""

import supersuit

from sagecc.execution.environments.parallel import CongestionParallelEnv

env = supersuit.frame_stack_v1(CongestionParallelEnv(constant_agents=True), 4)
vector = supersuit.concat_vec_envs_v1(supersuit.pettingzoo_env_to_vec_env_v1(env), 2)
observations, infos = vector.reset(seed=1)  # [6, 276]: three flows each, four observations of 69 features
for _ in range(100):
    observations, rewards, terminations, truncations, infos = vector.step([vector.action_space.sample()] * 6)
