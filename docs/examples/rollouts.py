# SPDX-License-Identifier: Apache-2.0
"""Several flows of a policy in labs in step, whose decisions come in one batch."""

import numpy as np

from sagecc.execution.environments.rollouts import Rollouts
from sagecc.execution.environments.task import LearningTask

task = LearningTask.of(
    {
        "observation": "astraea",
        "control": "astraea",
        "reward": "astraea",
        "global_state": True,
        "networks": {
            "rate_mbps": {"uniform": [40, 160]},
            "rtt_ms": {"uniform": [10, 140]},
            "queue_bdp": {"log_uniform": [0.1, 16]},
            "duration_s": 10,
            "flows": {"choice": [2, 3, 4, 5]},
            "gap_s": {"exponential": 1},
            "lifetime_s": {"exponential": 5},
        },
    }
)
rollouts = Rollouts(task, labs=2)
step = rollouts.reset(seeds=[1, 2])
for _ in range(100):
    step = rollouts.step(np.zeros(int((~step.over).sum())))  # one action for each row that is not over
    print(step.labs, step.flows, step.rewards, step.first, step.over, step.states.shape)
rollouts.close()
