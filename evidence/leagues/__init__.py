# SPDX-License-Identifier: Apache-2.0
"""Contests of policies, heuristics and rivals, beside what papers say of theirs."""
