# SPDX-License-Identifier: Apache-2.0
"""Limits of a flow in real time other than its congestion window, from its sender's samples.

Receive window: TCP_INFO counts the time (tcpi_rwnd_limited). Send buffer and application: ticks at which the sender had
nothing to send although its window allowed it; they count for the buffer if it was full, so that the kernel kept the
program waiting, else for the program. TCP_INFO's own tcpi_sndbuf_limited misses most of the former (it showed 1 % for a
flow of Cubic limited by 64 KB), and its tcpi_delivery_rate_app_limited counts both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.episode import Limits


def limits(sent: npt.NDArray[np.void], start_s: float, stop_s: float) -> Limits | None:
    """Return a flow's limits over its lifetime, or None where there are fewer than two samples.

    Args:
        sent: record.SAMPLES of its sender.
        start_s: when it starts (s).
        stop_s: when it stops (s).
    """
    t_s = sent["t_ns"] / 1e9
    samples = sent[(t_s >= start_s) & (t_s < stop_s)]
    if len(samples) < 2:
        return None
    info = samples["info"]
    sampled_us = (samples["t_ns"][-1] - samples["t_ns"][0]) / 1e3
    idle = _nothing_to_send(info)
    full = samples["send_buffer_bytes"] < 1.5 * samples["queued_bytes"]  # sk_stream_is_writeable: no wake-up yet
    return Limits(
        receive_window=float((info["rwnd_limited_us"][-1] - info["rwnd_limited_us"][0]) / sampled_us),
        send_buffer=float((idle & full).mean()),
        application=float((idle & ~full).mean()),
    )


def _nothing_to_send(info: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Tell at which samples a flow could have sent but had no data, as tcp_rate_check_app_limited does."""
    names = ("unacked_pkts", "sacked_pkts", "lost_pkts", "retrans_pkts", "cwnd_pkts")
    unacked, sacked, lost, retrans, cwnd = (info[name].astype(np.int64) for name in names)
    unsent = info["notsent_bytes"] >= info["mss_bytes"]
    is_starved: npt.NDArray[np.bool_] = ~unsent & (unacked - sacked - lost + retrans < cwnd) & (lost <= retrans)
    return is_starved
