# SPDX-License-Identifier: Apache-2.0
"""Conditions that a scheme must meet before one deploys it, each measured in the lab."""
