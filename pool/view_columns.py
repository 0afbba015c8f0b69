# SPDX-License-Identifier: Apache-2.0
"""The columns that the SQL views compute (views.sql, views_samples.sql), besides those of the files."""

from __future__ import annotations

import pyarrow as pa

from sagecc.schemas.pool import Column, description

_F64 = pa.float64()

OF_EPISODES: tuple[Column, ...] = (
    Column("capacity_mbps", _F64, "Mbps", "mean rate of the bottleneck while the flow runs; of a trace, its mean rate"),
    Column("utilisation", _F64, "ratio", "goodput_mbps / capacity_mbps; headers keep all flows' sum below 0.966"),
    Column("queueing_mean_ms", _F64, "ms", "delay_mean_ms - least one-way propagation delay; transmission included"),
    Column("queueing_p95_ms", _F64, "ms", "delay_p95_ms - least one-way propagation delay; transmission included"),
    Column(
        "competitor_mbps",
        _F64,
        "Mbps",
        "goodput left to the competitors: capacity_mbps x 1448/1500 - goodput_mbps, which they reach where the link is"
        " never idle; null of a flow alone",
        nullable=True,
    ),
    Column(
        "jain_index",
        _F64,
        "ratio",
        "(goodput + competitor)^2 / (flows x (goodput^2 + competitor^2 / (flows - 1))), 1: fair; null of a flow alone",
        nullable=True,
    ),
    Column(
        "completion_s",
        _F64,
        "s",
        "time of the flow's transfer until all is acknowledged; null where that did not happen, and without size_bytes",
        nullable=True,
    ),
)
"""Of `episodes`, after those of the file."""

OF_SAMPLES: tuple[Column, ...] = (
    Column("episode_id", pa.string(), "", "environment id, scheme and seed"),
    Column("set", pa.string(), "", "I: single flow; II: against Cubic"),
    Column("scheme", pa.string(), "", "what set the congestion window"),
    Column("step", pa.int32(), "ticks", "0 for the first row of the episode"),
    Column("t_s", _F64, "s", "virtual time since the episode began"),
    Column("cwnd_pkts", pa.uint32(), "packets", "congestion window"),
    Column("inflight_pkts", pa.uint32(), "packets", "sent and not yet acknowledged"),
    Column("srtt_ms", _F64, "ms", "smoothed RTT"),
    Column("min_rtt_ms", _F64, "ms", "least RTT so far, as the kernel keeps it; null before the first", nullable=True),
    Column("delivery_mbps", _F64, "Mbps", "payload delivered, by the kernel's last rate sample"),
    Column("lost_pkts", pa.uint32(), "packets", "held lost now"),
    Column("lost_total_pkts", pa.uint32(), "packets", "ever held lost (counter)"),
    Column("queue_bytes", pa.uint64(), "bytes", "of all flows in the bottleneck's queue now"),
    Column("ca_state", pa.string(), "", "the kernel's state: open, disorder, cwr, recovery or loss"),
    Column("action", pa.float32(), "ratio", "cwnd_(t+1) / cwnd_t"),
    Column("reward", pa.float32(), "", "measured at tick t+1: R1 (reward_kind power) or R2 (friendliness)"),
)
"""Of `samples`."""

OF_SCHEMES: tuple[Column, ...] = (
    Column("episodes", pa.int64(), "", "how many the scheme has"),
    Column("transitions", pa.int64(), "ticks", "their rows"),
    Column("reward_mean_set_i", _F64, "", "mean of reward_mean in Set I"),
    Column("reward_mean_set_ii", _F64, "", "mean of reward_mean in Set II"),
    Column("utilisation_set_i", _F64, "ratio", "mean of goodput_mbps / bandwidth_mbps on Set I's flat links"),
    Column("delay_ratio_set_i", _F64, "ratio", "mean of delay_mean_ms / (rtt_ms / 2) in Set I; 1 without a queue"),
    Column("loss_rate", _F64, "ratio", "lost_packets / sent_packets, of all episodes together"),
)
"""Of `schemes`, besides its name."""

COMPUTED = {"episodes": OF_EPISODES, "samples": OF_SAMPLES, "schemes": OF_SCHEMES}
"""By view."""


def computed() -> pa.Table:
    """Return the computed columns' rows of the data dictionary."""
    return description(COMPUTED)
