# SPDX-License-Identifier: Apache-2.0
"""Columns of raw trajectories: one row per tick of 10 ms, counters as the kernel holds them, nothing derived."""

from __future__ import annotations

import pyarrow as pa

RAW_VERSION = "1.0"
"""Major.minor: a reader refuses another major version and reads any minor one."""

TICK_S = 0.01
"""Virtual time between rows (s)."""

KEYS = (
    ("episode_id", pa.string(), "", "environment id, scheme and seed"),
    ("step", pa.int32(), "ticks", "0 for the first tick after the flow is established"),
    ("t_s", pa.float64(), "s", "virtual time since the episode began"),
)

COUNTERS = (
    ("ca_state", pa.uint8(), "", "icsk_ca_state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss"),
    ("app_limited", pa.uint8(), "", "tp->rate_app_limited: the last rate sample was limited by the application"),
    ("cwnd_pkts", pa.uint32(), "packets", "tp->snd_cwnd"),
    ("ssthresh_pkts", pa.uint32(), "packets", "tp->snd_ssthresh"),
    ("srtt_us", pa.uint32(), "us", "tcpi_rtt: tp->srtt_us / 8"),
    ("rttvar_us", pa.uint32(), "us", "tcpi_rttvar: tp->mdev_us / 4"),
    ("min_rtt_us", pa.uint32(), "us", "tcpi_min_rtt (all ones before the first sample)"),
    ("mss_bytes", pa.uint32(), "bytes", "tcpi_snd_mss: payload bytes of a full packet"),
    ("unacked_pkts", pa.uint32(), "packets", "tcpi_unacked: tp->packets_out"),
    ("sacked_pkts", pa.uint32(), "packets", "tcpi_sacked"),
    ("lost_pkts", pa.uint32(), "packets", "tcpi_lost: packets held lost now (an estimate, not a counter)"),
    ("retrans_pkts", pa.uint32(), "packets", "tcpi_retrans: retransmissions in flight"),
    ("lost_total_pkts", pa.uint32(), "packets", "tp->lost: every packet ever marked lost (counter)"),
    ("retrans_total_pkts", pa.uint32(), "packets", "tcpi_total_retrans (counter)"),
    ("delivered_pkts", pa.uint32(), "packets", "tcpi_delivered, SACKed packets included (counter)"),
    ("data_segs_out", pa.uint32(), "packets", "tcpi_data_segs_out, retransmissions included (counter)"),
    ("rto_total", pa.uint32(), "", "tcpi_total_rto: retransmission timeouts (counter)"),
    ("bytes_acked", pa.uint64(), "bytes", "tcpi_bytes_acked (counter)"),
    ("bytes_sent", pa.uint64(), "bytes", "tcpi_bytes_sent, retransmissions included (counter)"),
    ("delivery_rate_bytes_s", pa.uint64(), "bytes/s", "tcpi_delivery_rate: bytes a second of the last rate sample"),
    ("pacing_rate_bytes_s", pa.uint64(), "bytes/s", "tcpi_pacing_rate; all ones when unlimited"),
    ("received_bytes", pa.uint64(), "bytes", "tcpi_bytes_received at the receiver, in order (counter)"),
    ("link_packets", pa.uint64(), "packets", "data packets of this flow that left the bottleneck (counter)"),
    ("link_bytes", pa.uint64(), "bytes", "their IP bytes (counter)"),
    ("link_drops", pa.uint64(), "packets", "data packets of this flow dropped by the bottleneck (counter)"),
    ("link_delay_ns", pa.uint64(), "ns", "their one-way delays summed: queue, transmission, propagation (counter)"),
    ("link_queue_bytes", pa.uint64(), "bytes", "bytes of all flows in the bottleneck's queue now"),
    ("link_capacity_bytes", pa.uint64(), "bytes", "bytes the bottleneck could have sent since the start (counter)"),
)

RAW_SCHEMA = pa.schema(
    [
        pa.field(name, dtype, nullable=False, metadata={"unit": unit, "meaning": meaning})
        for name, dtype, unit, meaning in (*KEYS, *COUNTERS)
    ]
)

KICK = pa.field(
    "kick",
    pa.float32(),
    nullable=False,
    metadata={
        "unit": "",
        "meaning": "of disturbed schemes alone: by what the lab multiplied the window right after this row, or 1",
    },
)

DISTURBED_SCHEMA = RAW_SCHEMA.append(KICK)
"""Of disturbed schemes' trajectories (schemas.disturbance)."""


def raw_schema(disturbed: bool) -> pa.Schema:
    """Return the columns of a scheme's trajectories."""
    return DISTURBED_SCHEMA if disturbed else RAW_SCHEMA


EPISODE_SCHEMA = pa.schema(
    [
        pa.field("episode_id", pa.string()),
        pa.field("environment_id", pa.string()),
        pa.field("set", pa.string()),
        pa.field("scheme", pa.string()),
        pa.field("seed", pa.int64()),
        pa.field("environment", pa.string(), metadata={"meaning": "Environment.to_json"}),
        pa.field("spec_sha256", pa.string(), metadata={"meaning": "of what the guest was started with"}),
        pa.field("rows", pa.int64()),
        pa.field("goodput_mbps", pa.float64(), metadata={"unit": "Mbps", "meaning": "in-order bytes at the receiver"}),
        pa.field("delay_mean_ms", pa.float64(), metadata={"unit": "ms", "meaning": "one-way, data packets"}),
        pa.field("delay_p95_ms", pa.float64(), metadata={"unit": "ms", "meaning": "one-way, data packets"}),
        pa.field("sent_packets", pa.int64()),
        pa.field("lost_packets", pa.int64(), metadata={"meaning": "data packets dropped by the bottleneck"}),
        pa.field("cwnd_mean", pa.float64(), metadata={"unit": "packets"}),
    ]
)
"""One row per episode, beside the raw rows (`episodes.parquet` in each partition)."""
