# SPDX-License-Identifier: Apache-2.0
"""Benchmarks measure speed: each writes benchmarks/results/NAME.json, which NAME.md.j2 beside it turns into text."""
