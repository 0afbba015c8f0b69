# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: each writes benchmarks/results/<name>.json; render.py makes docs/measured/benchmarks.md of them."""
