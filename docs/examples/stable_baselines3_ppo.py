# SPDX-License-Identifier: Apache-2.0
"""Learn a window with PPO of Stable-Baselines3, without the extra `train`: tried with 2.9.2 and PyTorch 2.15.0."""

import gymnasium
from gymnasium.wrappers import ClipReward, NormalizeObservation, NormalizeReward, RescaleAction
from stable_baselines3 import PPO

env = gymnasium.make("sagecc/Congestion-v0", environment="I-12mbps-20ms-1bdp-682fb6", max_episode_steps=400)
env = ClipReward(RescaleAction(env, -40.0, 40.0), min_reward=-25.0)
env = NormalizeReward(NormalizeObservation(env), gamma=0.99)
model = PPO("MlpPolicy", env, n_steps=2000, batch_size=100, gamma=0.99, learning_rate=1e-3, seed=0, device="cpu")
model.learn(10_000)
