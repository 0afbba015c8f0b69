# SPDX-License-Identifier: Apache-2.0
"""Protocol between host and guest: fixed-size little-endian records, defined once for both.

`c_header()` declares the records for the guest, with a static assertion on every size; the numpy dtypes
here are the host's. The first record in either direction carries MAGIC and VERSION.

Host to guest: one SPEC, then its arrays in this order: CABLE x cables, LINK x 2 per cable
(towards node b, towards node a), RATE x rates, DELAY x delays, OPPORTUNITY x opportunities,
ROUTE x routes, FLOW x flows, KICK x kicks (by time), where the specification is extended an EXTENSION with its
EXTRA x extras and TRANSFER x transfers and an APPLICATION with its WINDOW x windows and PAUSE x pauses, LOSS to the end
(by link and time). In lockstep, one ACTION per controlled flow after each tick.
Guest to host: HELLO, then for every record a RECORD header (kind, bytes that follow).
"""

from __future__ import annotations

import numpy as np

from sagecc.schemas.disturbance import FACTOR_ONE

MAGIC = 0x31434347_53  # "SGCC1" read as a little-endian number
VERSION = 2
"""Of specifications; their hashes stand in raw data."""

HELLO_VERSION = 5
"""Of what a guest understands and sends."""

PLAIN_HELLO_VERSION = 3
"""Of the oldest guest that understands a specification without an EXTENSION and an APPLICATION."""

NO_LIMIT = 2**64 - 1
"""Value of an unlimited rate, queue or pacing rate."""

FIRST_PORT = 10_000
"""Port of flow 0; flow i listens on FIRST_PORT + i, by which the link distinguishes flows."""

DELAY_UNIT_NS = 100
"""Unit of a packet's delay in a record: 32 bits of 100 ns hold 429 s."""

OPPORTUNITY_BYTES = 1500
"""Bytes that may leave at one opportunity of a trace."""

KICK_ONE = FACTOR_ONE
"""Unit of a kick's factor: this value leaves a window as it is."""

LOSS_ONE = 2**32
"""Unit of a link's loss probability: this value is probability 1."""

HAS_EXTENSION, HAS_APPLICATION = 1, 2
"""Bits of what a specification is extended by."""

DISCIPLINES = ("tail-drop", "head-drop", "codel", "pie", "bode", "fq-codel")
"""Queue disciplines in the order of their numbers (schemas.environment.Discipline)."""

KIND_SAMPLE, KIND_PACKETS, KIND_TICK, KIND_END, KIND_ERROR, KIND_COMPLETION = range(1, 7)

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
    ("packet_delays", "u8"),  # 1: stream the delay of every data packet
    ("extended", "u8"),  # HAS_EXTENSION and HAS_APPLICATION, of what follows the kicks
    ("kicks", "u16"),
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
    ("loss", "u32"),  # in units of 1 / LOSS_ONE, up to the first LOSS of this link
    ("discipline", "u16"),
    ("reorder", "u16"),  # 1: packets leave the line in the order of their delays, not of their coming
)
RATE_FIELDS: Fields = (("t_ns", "u64"), ("bits_per_s", "u64"))
DELAY_FIELDS: Fields = (("t_ns", "u64"), ("delay_ns", "u64"))
OPPORTUNITY_FIELDS: Fields = (("t_ns", "u64"),)
LOSS_FIELDS: Fields = (("t_ns", "u64"), ("link", "u32"), ("loss", "u32"))  # a later change of a link's loss
EXTENSION_FIELDS: Fields = (("extras", "u32"), ("transfers", "u32"))
EXTRA_FIELDS: Fields = (  # more of a link, for those few that need it
    ("link", "u32"),
    ("ecn", "u16"),  # 1: CoDel marks ECN-capable packets instead of dropping them
    ("ack_filter", "u16"),  # 1: an ACK that comes takes the place of an older one of its connection
    ("mark_packets", "u64"),  # an ECN-capable packet that finds more is marked
    ("policer_bits_per_s", "u64"),  # 0: no policer
    ("policer_burst_bytes", "u64"),
    ("quantum_bytes", "u64"),  # of FQ-CoDel
)
TRANSFER_FIELDS: Fields = (("flow", "u32"), ("pad", "u32"), ("bytes", "u64"))  # all that a flow has to send
APPLICATION_FIELDS: Fields = (("windows", "u32"), ("pauses", "u32"))
WINDOW_FIELDS: Fields = (("flow", "u32"), ("bytes", "u32"))  # the most that its receiver announces
PAUSE_FIELDS: Fields = (("flow", "u32"), ("pad", "u32"), ("from_ns", "u64"), ("until_ns", "u64"))  # nothing to send
KICK_FIELDS: Fields = (("t_ns", "u64"), ("flow", "u32"), ("factor", "u32"))  # in units of 1 / KICK_ONE
ROUTE_FIELDS: Fields = (("node", "u32"), ("destination", "u32"), ("cable", "u32"), ("pad", "u32"))
FLOW_FIELDS: Fields = (
    ("scheme", "char16"),
    ("source", "u32"),
    ("destination", "u32"),
    ("start_ns", "u64"),
    ("stop_ns", "u64"),
    ("sndbuf_bytes", "u32"),
    ("lockstep", "u32"),  # 1: the host sends an ACTION for every sample of this flow
    ("first_cable", "u32"),  # first of the cables whose counters its samples sum: a chain towards node b
    ("last_cable", "u32"),
    ("bottleneck", "u32"),  # the cable of them whose capacity its samples report
    ("sampled", "u16"),  # 1: send a sample each tick
    ("ecn", "u16"),  # 1: its connection negotiates ECN
)
HELLO_FIELDS: Fields = (("magic", "u64"), ("version", "u32"), ("sample_bytes", "u32"))
RECORD_FIELDS: Fields = (("kind", "u32"), ("bytes", "u32"))
SAMPLE_FIELDS: Fields = (
    ("t_ns", "u64"),
    ("flow", "u32"),
    ("ca_state", "u8"),
    ("app_limited", "u8"),
    ("kick", "u16"),  # by what the window was multiplied after this sample, in units of 1 / KICK_ONE; 0: not at all
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
    ("link_marks", "u32"),
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
COMPLETION_FIELDS: Fields = (("t_ns", "u64"), ("flow", "u32"), ("pad", "u32"))  # all of a transfer is acknowledged
END_FIELDS: Fields = (("t_ns", "u64"), ("samples", "u64"), ("packets", "u64"))
ACTION_FIELDS: Fields = (
    ("cwnd_pkts", "u32"),  # 0: left to the flow's scheme
    ("delay_us", "u32"),  # from the sample until the action takes effect
    ("pacing_bytes_s", "u64"),  # 0: no pacing with `pure`, left to the scheme with any other
)

_STRUCTS: dict[str, Fields] = {
    "spec": SPEC_FIELDS,
    "cable": CABLE_FIELDS,
    "link": LINK_FIELDS,
    "rate": RATE_FIELDS,
    "delay": DELAY_FIELDS,
    "opportunity": OPPORTUNITY_FIELDS,
    "loss": LOSS_FIELDS,
    "kick": KICK_FIELDS,
    "extension": EXTENSION_FIELDS,
    "extra": EXTRA_FIELDS,
    "transfer": TRANSFER_FIELDS,
    "application": APPLICATION_FIELDS,
    "window": WINDOW_FIELDS,
    "pause": PAUSE_FIELDS,
    "route": ROUTE_FIELDS,
    "flow": FLOW_FIELDS,
    "hello": HELLO_FIELDS,
    "record": RECORD_FIELDS,
    "sample": SAMPLE_FIELDS,
    "packet": PACKET_FIELDS,
    "completion": COMPLETION_FIELDS,
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
KICK = _dtype(KICK_FIELDS)
EXTENSION = _dtype(EXTENSION_FIELDS)
EXTRA = _dtype(EXTRA_FIELDS)
TRANSFER = _dtype(TRANSFER_FIELDS)
APPLICATION = _dtype(APPLICATION_FIELDS)
WINDOW = _dtype(WINDOW_FIELDS)
PAUSE = _dtype(PAUSE_FIELDS)
ROUTE = _dtype(ROUTE_FIELDS)
FLOW = _dtype(FLOW_FIELDS)
HELLO = _dtype(HELLO_FIELDS)
RECORD = _dtype(RECORD_FIELDS)
SAMPLE = _dtype(SAMPLE_FIELDS)
PACKET = _dtype(PACKET_FIELDS)
COMPLETION = _dtype(COMPLETION_FIELDS)
END = _dtype(END_FIELDS)
ACTION = _dtype(ACTION_FIELDS)


def c_header() -> str:
    """Return the C header that declares these records, for kernel and user space."""
    lines = [
        "/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */",
        "/* Made by schemas/wire.py: change it there. */",
        "#ifndef SAGECC_WIRE_H",
        "#define SAGECC_WIRE_H",
        "#include <linux/types.h>",
        f"#define WIRE_MAGIC {MAGIC:#x}ULL",
        f"#define WIRE_VERSION {VERSION}",
        f"#define WIRE_HELLO_VERSION {HELLO_VERSION}",
        f"#define WIRE_NO_LIMIT {NO_LIMIT:#x}ULL",
        f"#define WIRE_FIRST_PORT {FIRST_PORT}",
        f"#define WIRE_DELAY_UNIT_NS {DELAY_UNIT_NS}",
        f"#define WIRE_OPPORTUNITY_BYTES {OPPORTUNITY_BYTES}",
        f"#define WIRE_KICK_ONE {KICK_ONE}",
        f"#define WIRE_HAS_EXTENSION {HAS_EXTENSION}",
        f"#define WIRE_HAS_APPLICATION {HAS_APPLICATION}",
    ]
    names = (name.upper().replace("-", "_") for name in DISCIPLINES)
    lines.append(f"enum wire_discipline {{ {', '.join(f'WIRE_{name}' for name in names)} }};")
    kinds = (("SAMPLE", KIND_SAMPLE), ("PACKETS", KIND_PACKETS), ("TICK", KIND_TICK), ("END", KIND_END))
    rest = (("ERROR", KIND_ERROR), ("COMPLETION", KIND_COMPLETION))
    lines += [f"#define WIRE_KIND_{name} {value}" for name, value in (*kinds, *rest)]
    for name, fields in _STRUCTS.items():
        lines.append(f"struct wire_{name} {{")
        for field, kind in fields:
            lines.append(f"\tchar {field}[16];" if kind == "char16" else f"\t__{kind} {field};")
        lines.append("};")
        size = _dtype(fields).itemsize
        lines.append(f'_Static_assert(sizeof(struct wire_{name}) == {size}, "wire_{name}");')
    lines.append("#endif")
    return "\n".join(lines) + "\n"
