# SPDX-License-Identifier: Apache-2.0
"""Judging a policy without playing: what a pool's trajectories of environments that it did not learn from say of it."""
