# SPDX-License-Identifier: Apache-2.0
"""Many episodes: the grid of environments, tasks, engines that run them, the store of their trajectories."""
