# SPDX-License-Identifier: Apache-2.0
"""Congestion control in user space: a Python class in charge of one flow's window and pacing rate, each tick."""
