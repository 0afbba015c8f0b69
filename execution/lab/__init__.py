# SPDX-License-Identifier: Apache-2.0
"""Policies in charge of flows in the lab, many guests in step."""
