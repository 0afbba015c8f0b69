# SPDX-License-Identifier: Apache-2.0
"""Many episodes: the grid, tasks, engines that run them, the store that keeps them."""
