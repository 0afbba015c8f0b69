# SPDX-License-Identifier: Apache-2.0
"""Policies in charge of flows in the lab, one guest alone or many in step."""
