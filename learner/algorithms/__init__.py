# SPDX-License-Identifier: Apache-2.0
"""The algorithms, a module each: its section of a specification, its losses, its update, its metrics.

A new one is a file here, a test beside tests/learner/test_iql.py, and a configuration that names it.
"""
