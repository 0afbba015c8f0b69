# SPDX-License-Identifier: Apache-2.0
"""The learner: a congestion-control policy trained from the pool alone, with Critic-Regularized Regression."""
