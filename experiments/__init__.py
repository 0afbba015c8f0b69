# SPDX-License-Identifier: Apache-2.0
"""Runs that are compared: each is trained, plays in leagues, and leaves one file under experiments/results/."""
