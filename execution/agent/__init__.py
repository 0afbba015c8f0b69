# SPDX-License-Identifier: Apache-2.0
"""From what a flow reports to its next congestion window, wherever the flow is."""
