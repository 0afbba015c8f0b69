# SPDX-License-Identifier: Apache-2.0
"""What host and guest say to each other: fixed-size little-endian records, written down once.

`c_header()` gives the guest the same layout with a static assertion on every size; the numpy dtypes
here are what the host reads. The first record in either direction carries MAGIC and VERSION.

Host to guest: one SPEC, then its arrays in this order: CABLE x cables, LINK x 2 a cable
(towards node b, towards node a), RATE x rates, DELAY x delays, OPPORTUNITY x opportunities,
ROUTE x routes, FLOW x flows, LOSS to the end (by link and time). In lockstep, one ACTION per controlled flow after
each tick.
Guest to host: HELLO, then for every record a RECORD header (kind, bytes that follow).
"""

from __future__ import annotations

import numpy as np

MAGIC = 0x31434347_53  # "SGCC1" read as a little-endian number
VERSION = 2

NO_LIMIT = 2**64 - 1
"""A rate without limit, an unlimited queue, an unlimited pacing rate."""

FIRST_PORT = 10_000
"""Flow i listens on FIRST_PORT + i: the link tells flows apart by it."""

DELAY_UNIT_NS = 100
"""Unit of a packet's delay on the wire: 32 bits of 100 ns hold 429 s."""

OPPORTUNITY_BYTES = 1500
"""What may leave at one moment of a trace."""

LOSS_ONE = 2**32
"""A link's loss probability is a share of this."""

DISCIPLINES = ("tail-drop", "head-drop", "codel", "pie", "bode")
"""A link's discipline is an index into these (schemas.environment.Discipline)."""

KIND_SAMPLE, KIND_PACKETS, KIND_TICK, KIND_END, KIND_ERROR = range(1, 6)

Fields = tuple[tuple[str, str], ...]

SPEC_FIELDS: Fields = (
    ("magic", "u64"),
    ("version", "u32"),
    ("bytes", "u32"),  # of the whole specification, this header included
    ("tick_ns", "u64"),
    ("duration_ns", "u64"),
    ("nodes", "u32"),
    ("cables", "u32"),
    ("rates", "u32"),
    ("delays", "u32"),
    ("opportunities", "u32"),
    ("routes", "u32"),
    ("flows", "u32"),
    ("packet_delays", "u32"),  # 1: stream the delay of every data packet
)
CABLE_FIELDS: Fields = (("node_a", "u32"), ("node_b", "u32"))
LINK_FIELDS: Fields = (
    ("first_rate", "u32"),
    ("rates", "u32"),  # 0: no rate limit, unless there is a trace
    ("first_delay", "u32"),
    ("delays", "u32"),  # at least 1
    ("first_opportunity", "u32"),
    ("opportunities", "u32"),  # 0: no trace
    ("period_ns", "u64"),  # after which the trace repeats
    ("limit_bytes", "u64"),
    ("limit_packets", "u64"),
    ("target_ns", "u64"),
    ("interval_ns", "u64"),
    ("jitter_ns", "u64"),
    ("grain_ns", "u64"),
    ("seed", "u64"),  # of loss, jitter and PIE
    ("loss", "u32"),  # share of LOSS_ONE, up to the first LOSS of this link
    ("discipline", "u16"),
    ("reorder", "u16"),  # 1: packets leave the line in the order of their delays, not of their coming
)
RATE_FIELDS: Fields = (("t_ns", "u64"), ("bits_per_s", "u64"))
DELAY_FIELDS: Fields = (("t_ns", "u64"), ("delay_ns", "u64"))
OPPORTUNITY_FIELDS: Fields = (("t_ns", "u64"),)
LOSS_FIELDS: Fields = (("t_ns", "u64"), ("link", "u32"), ("loss", "u32"))  # a later change of a link's loss
ROUTE_FIELDS: Fields = (("node", "u32"), ("destination", "u32"), ("cable", "u32"), ("pad", "u32"))
FLOW_FIELDS: Fields = (
    ("scheme", "char16"),
    ("source", "u32"),
    ("destination", "u32"),
    ("start_ns", "u64"),
    ("stop_ns", "u64"),
    ("sndbuf_bytes", "u32"),
    ("lockstep", "u32"),  # 1: the host answers every sample of this flow with an ACTION
    ("first_cable", "u32"),  # the cables whose counters go into this flow's samples: a chain, towards node b
    ("last_cable", "u32"),
    ("bottleneck", "u32"),  # the one of them whose capacity is reported
    ("sampled", "u32"),  # 1: send a sample each tick
)
HELLO_FIELDS: Fields = (("magic", "u64"), ("version", "u32"), ("sample_bytes", "u32"))
RECORD_FIELDS: Fields = (("kind", "u32"), ("bytes", "u32"))
SAMPLE_FIELDS: Fields = (
    ("t_ns", "u64"),
    ("flow", "u32"),
    ("ca_state", "u8"),
    ("app_limited", "u8"),
    ("pad", "u16"),
    ("cwnd_pkts", "u32"),
    ("ssthresh_pkts", "u32"),
    ("srtt_us", "u32"),
    ("rttvar_us", "u32"),
    ("min_rtt_us", "u32"),
    ("mss_bytes", "u32"),
    ("unacked_pkts", "u32"),
    ("sacked_pkts", "u32"),
    ("lost_pkts", "u32"),
    ("retrans_pkts", "u32"),
    ("lost_total_pkts", "u32"),
    ("retrans_total_pkts", "u32"),
    ("delivered_pkts", "u32"),
    ("data_segs_out", "u32"),
    ("rto_total", "u32"),
    ("pad2", "u32"),
    ("bytes_acked", "u64"),
    ("bytes_sent", "u64"),
    ("delivery_rate_bytes_s", "u64"),
    ("pacing_rate_bytes_s", "u64"),
    ("received_bytes", "u64"),
    ("link_packets", "u64"),
    ("link_bytes", "u64"),
    ("link_drops", "u64"),
    ("link_delay_ns", "u64"),
    ("link_queue_bytes", "u64"),
    ("link_capacity_bytes", "u64"),
)
PACKET_FIELDS: Fields = (("flow", "u32"), ("delay", "u32"))
END_FIELDS: Fields = (("t_ns", "u64"), ("samples", "u64"), ("packets", "u64"))
ACTION_FIELDS: Fields = (
    ("cwnd_pkts", "u32"),  # 0: leave it to the flow's scheme
    ("delay_us", "u32"),  # from the sample to when this takes effect
    ("pacing_bytes_s", "u64"),  # 0: no pacing with `pure`, and left to any other scheme
)

_STRUCTS: dict[str, Fields] = {
    "spec": SPEC_FIELDS,
    "cable": CABLE_FIELDS,
    "link": LINK_FIELDS,
    "rate": RATE_FIELDS,
    "delay": DELAY_FIELDS,
    "opportunity": OPPORTUNITY_FIELDS,
    "loss": LOSS_FIELDS,
    "route": ROUTE_FIELDS,
    "flow": FLOW_FIELDS,
    "hello": HELLO_FIELDS,
    "record": RECORD_FIELDS,
    "sample": SAMPLE_FIELDS,
    "packet": PACKET_FIELDS,
    "end": END_FIELDS,
    "action": ACTION_FIELDS,
}
_NUMPY = {"u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "char16": "S16"}


def _dtype(fields: Fields) -> np.dtype[np.void]:
    return np.dtype([(name, _NUMPY[kind]) for name, kind in fields])


SPEC = _dtype(SPEC_FIELDS)
CABLE = _dtype(CABLE_FIELDS)
LINK = _dtype(LINK_FIELDS)
RATE = _dtype(RATE_FIELDS)
DELAY = _dtype(DELAY_FIELDS)
OPPORTUNITY = _dtype(OPPORTUNITY_FIELDS)
LOSS = _dtype(LOSS_FIELDS)
ROUTE = _dtype(ROUTE_FIELDS)
FLOW = _dtype(FLOW_FIELDS)
HELLO = _dtype(HELLO_FIELDS)
RECORD = _dtype(RECORD_FIELDS)
SAMPLE = _dtype(SAMPLE_FIELDS)
PACKET = _dtype(PACKET_FIELDS)
END = _dtype(END_FIELDS)
ACTION = _dtype(ACTION_FIELDS)


def c_header() -> str:
    """Return the C header (kernel and user space) that declares the same records."""
    lines = [
        "/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */",
        "/* Made by schemas/wire.py: change it there. */",
        "#ifndef SAGECC_WIRE_H",
        "#define SAGECC_WIRE_H",
        "#include <linux/types.h>",
        f"#define WIRE_MAGIC {MAGIC:#x}ULL",
        f"#define WIRE_VERSION {VERSION}",
        f"#define WIRE_NO_LIMIT {NO_LIMIT:#x}ULL",
        f"#define WIRE_FIRST_PORT {FIRST_PORT}",
        f"#define WIRE_DELAY_UNIT_NS {DELAY_UNIT_NS}",
        f"#define WIRE_OPPORTUNITY_BYTES {OPPORTUNITY_BYTES}",
    ]
    names = (name.upper().replace("-", "_") for name in DISCIPLINES)
    lines.append(f"enum wire_discipline {{ {', '.join(f'WIRE_{name}' for name in names)} }};")
    kinds = (("SAMPLE", KIND_SAMPLE), ("PACKETS", KIND_PACKETS), ("TICK", KIND_TICK), ("END", KIND_END))
    lines += [f"#define WIRE_KIND_{name} {value}" for name, value in (*kinds, ("ERROR", KIND_ERROR))]
    for name, fields in _STRUCTS.items():
        lines.append(f"struct wire_{name} {{")
        for field, kind in fields:
            lines.append(f"\tchar {field}[16];" if kind == "char16" else f"\t__{kind} {field};")
        lines.append("};")
        size = _dtype(fields).itemsize
        lines.append(f'_Static_assert(sizeof(struct wire_{name}) == {size}, "wire_{name}");')
    lines.append("#endif")
    return "\n".join(lines) + "\n"
