# SPDX-License-Identifier: Apache-2.0
"""Effective windows: what a scheme that sets its own pacing rate lets fly, which its congestion window does not say.

BBR's cwnd is only a bound, about twice what its pacing keeps in flight (draft-cardwell-iccrg-bbr-congestion-control-02,
4.6.4). A policy that paces one window per sRTT and imitates that cwnd builds another queue than BBR had. The effective
window is min(cwnd, pacing rate * sRTT / MSS), in whole packets. Of who paces one window per sRTT, as a policy does
(execution.flow.window), it is the window itself, so that a live flow's features need no such rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

PACED = ("bbr", "bbr2")
"""The schemes of schemas.schemes that set sk_pacing_rate themselves; of the others Linux paces none."""

COLUMNS = ("pacing_rate_bytes_s", "srtt_us", "mss_bytes", "cwnd_pkts")
"""The raw columns that an effective window comes from."""


def effective_windows(columns: Mapping[str, npt.NDArray[Any]] | npt.NDArray[np.void]) -> npt.NDArray[np.uint32]:
    """Return the effective windows of raw rows.

    Args:
        columns: COLUMNS by name, each [n]; or a structured array [n].

    Returns:
        Windows [n] (packets), at least 1; those of the kernel where there is no RTT, or no limit of the rate.
    """
    rate, srtt, mss, cwnd = (np.asarray(columns[name], np.float64) for name in COLUMNS)
    paced_pkts = np.where((srtt > 0) & (mss > 0), rate * srtt / np.maximum(mss * 1e6, 1), np.inf)
    return np.maximum(np.minimum(cwnd, np.floor(paced_pkts + 0.5)), 1).astype(np.uint32)
