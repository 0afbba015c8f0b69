# SPDX-License-Identifier: Apache-2.0
"""From a flow's raw counters to its next congestion window, in the lab and on a stock kernel alike."""
