# SPDX-License-Identifier: Apache-2.0
"""What held a flow in real time that its congestion window did not, from its sender's samples.

The receive window: TCP_INFO counts the time (tcpi_rwnd_limited). The send buffer and the application: ticks at which
the sender had nothing to send although its window let it. Was the buffer full, so that the kernel kept the program
waiting, it is the buffer's, else the program's. TCP_INFO's own tcpi_sndbuf_limited misses most of the first (a flow of
Cubic bound by 64 KB was seen with 1 %), and its tcpi_delivery_rate_app_limited counts both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.episode import Limits


def limits(sent: npt.NDArray[np.void], start_s: float, stop_s: float) -> Limits | None:
    """Return what held a flow between its start and stop; None where fewer than two samples tell of it.

    sent: record.SAMPLES of its sender.
    """
    t_s = sent["t_ns"] / 1e9
    own = sent[(t_s >= start_s) & (t_s < stop_s)]
    if len(own) < 2:
        return None
    info = own["info"]
    watched_us = (own["t_ns"][-1] - own["t_ns"][0]) / 1e3
    idle = _nothing_to_send(info)
    full = own["send_buffer_bytes"] < 1.5 * own["queued_bytes"]  # sk_stream_is_writeable: no wake-up yet
    return Limits(
        receive_window=float((info["rwnd_limited_us"][-1] - info["rwnd_limited_us"][0]) / watched_us),
        send_buffer=float((idle & full).mean()),
        application=float((idle & ~full).mean()),
    )


def _nothing_to_send(info: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Tell at which samples a flow could have sent and had nothing: as tcp_rate_check_app_limited does."""
    names = ("unacked_pkts", "sacked_pkts", "lost_pkts", "retrans_pkts", "cwnd_pkts")
    unacked, sacked, lost, retrans, cwnd = (info[name].astype(np.int64) for name in names)
    unsent = info["notsent_bytes"] >= info["mss_bytes"]
    starved: npt.NDArray[np.bool_] = ~unsent & (unacked - sacked - lost + retrans < cwnd) & (lost <= retrans)
    return starved
