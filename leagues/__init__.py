# SPDX-License-Identifier: Apache-2.0
"""Leagues: schemes scored over environments, ranked by winning rates."""
