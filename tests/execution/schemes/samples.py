# SPDX-License-Identifier: Apache-2.0
"""Samples of a flow that nothing happens to but what a test says."""

from __future__ import annotations

from sagecc.execution.schemes.scheme import Sample

IDLE = Sample(0.0, *[0] * (len(Sample._fields) - 1))._replace(mss_bytes=1448, min_rtt_us=40_000, srtt_us=40_000)


def after(ticks: int, sent: int = 0, delivered: int = 0, lost: int = 0) -> Sample:
    """Return the sample of a tick; what was sent and neither delivered nor lost is in flight."""
    counters = {"data_segs_out": sent, "delivered_pkts": delivered, "lost_total_pkts": lost}
    return IDLE._replace(t_s=ticks / 100, unacked_pkts=sent - delivered, lost_pkts=lost, **counters)
