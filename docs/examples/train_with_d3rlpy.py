# SPDX-License-Identifier: Apache-2.0
"""Train TD3+BC of d3rlpy on a pool exported for Minari: pip install d3rlpy "minari[hdf5]" pillow, without sagecc."""

import d3rlpy
import minari
import numpy as np

episodes = list(minari.load_dataset("sagecc-pool-v1"))
data = d3rlpy.dataset.MDPDataset(
    observations=np.concatenate([episode.observations[:-1] for episode in episodes]),
    actions=np.clip(np.concatenate([episode.actions for episode in episodes]), -2, 2),  # as the project's learner
    rewards=np.concatenate([episode.rewards for episode in episodes]),
    terminals=np.concatenate([episode.terminations for episode in episodes]),
    timeouts=np.concatenate([episode.truncations for episode in episodes]),
)
config = d3rlpy.algos.TD3PlusBCConfig(
    observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(),
    action_scaler=d3rlpy.preprocessing.MinMaxActionScaler(),
)
config.create(device="cpu").fit(data, n_steps=1000, n_steps_per_epoch=500)
