# SPDX-License-Identifier: Apache-2.0
"""The lab as an environment for reinforcement learning; importing this registers `sagecc/Congestion-v0` with Gymnasium.

`gymnasium.make` gives one flow on one network (environments.congestion), `gymnasium.make_vec` several networks side by
side (environments.vector); environments.parallel is PettingZoo's API, several learned flows on one network.
"""

from __future__ import annotations

from gymnasium.envs.registration import register

from sagecc.pool.spaces import ENVIRONMENT

register(ENVIRONMENT.id, entry_point=ENVIRONMENT.entry_point, vector_entry_point=ENVIRONMENT.vector_entry_point)
