/* SPDX-License-Identifier: GPL-2.0-only */
/* What the lab, the link and the pure scheme share inside the guest kernel. */
#ifndef SAGECC_LAB_H
#define SAGECC_LAB_H

#include <linux/types.h>
#include "lab_ioctl.h"

#define LAB_MAX_FLOWS 1024
#define LAB_MAX_LINKS (2 * (LAB_MAX_FLOWS + 8)) /* an access cable a flow, and the chain */

struct sock;
struct tcp_congestion_ops;

/* Makes a scheme known to the kernel; lab_init() does it. An initcall of its own would read the clock
 * at boot and add what it read to the entropy, and every scheme's trajectories would be others. */
#define lab_scheme(ops) static struct tcp_congestion_ops *const ops##_entry __used __section("lab_schemes") = &(ops)

/* Counters of one flow along its path; a packet counts when its last bit has left the last link. */
struct link_counters {
	u64 packets;
	u64 bytes;
	u64 drops;
	u64 marks; /* Congestion Experienced */
	u64 delay_ns; /* from entering the first link to the far end of the last */
	u64 queue_bytes; /* of all flows, now */
	u64 capacity_bytes; /* what the bottleneck could have sent since the episode began */
};

/* Virtual time (ns) at which the episode began; schedules count from it. */
extern u64 lab_epoch_ns;

const struct lab_layout *lab_episode(void);
const struct wire_flow *lab_flow(u32 flow);
u64 *lab_entered(u32 flow);
void lab_packet(u32 flow, u64 delay_ns);
void link_read(u32 flow, struct link_counters *out);
void pure_set(struct sock *sk, u32 cwnd, u64 pacing_bytes_s);

#endif
