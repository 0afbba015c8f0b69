# SPDX-License-Identifier: Apache-2.0
"""A policy in charge of flows: in the lab, in environments for reinforcement learning, on a stock kernel."""
