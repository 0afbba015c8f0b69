# SPDX-License-Identifier: Apache-2.0
"""Schemes over a real path: one host serves, the other measures."""
