/* SPDX-License-Identifier: GPL-2.0-only */
/* What the lab, the link and the pure scheme share inside the guest kernel. */
#ifndef SAGECC_LAB_H
#define SAGECC_LAB_H

#include <linux/types.h>
#include "wire.h"

#define LAB_MAX_FLOWS 64
#define LAB_MAX_LINKS 32

struct sock;

/* Counters of one flow at one link; a packet counts when its last bit has left. */
struct link_counters {
	u64 packets;
	u64 bytes;
	u64 drops;
	u64 delay_ns;
	u64 queue_bytes; /* of all flows, now */
	u64 capacity_bytes; /* what the link could have sent since the episode began */
};

/* TCA_OPTIONS of a sagelink qdisc: this, then `link.rates` times struct wire_rate. */
struct link_options {
	u32 id;
	u32 pad;
	struct wire_link link;
};

/* Virtual time (ns) at which the episode began; rate schedules count from it. */
extern u64 lab_epoch_ns;

void link_read(u32 id, u32 flow, struct link_counters *out);
void lab_packet(u32 link, u32 flow, u64 delay_ns);
void pure_set(struct sock *sk, u32 cwnd, u64 pacing_bytes_s);

#endif
