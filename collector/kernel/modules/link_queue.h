/* SPDX-License-Identifier: GPL-2.0-only */
/* The queue of a link: its limits and its discipline, in virtual time given by the caller. */
#ifndef SAGECC_LINK_QUEUE_H
#define SAGECC_LINK_QUEUE_H

#include <linux/prandom.h>
#include <net/pkt_sched.h>

#include "lab.h"

/* What a link knows of a packet; fits into what a qdisc owns of an skb. */
struct link_packet {
	u64 arrival_ns; /* entered the queue */
	u64 exit_ns; /* in the transmitter: when it is sent; on the line: when it reaches the far end */
	u16 bytes; /* of the IP packet */
	u16 flow; /* LAB_MAX_FLOWS: none */
} __packed;

/* CoDel, names of RFC 8289 section 5. */
struct codel_state {
	u64 first_above_ns;
	u64 drop_next_ns;
	u32 count;
	u32 last_count;
	bool dropping;
};

/* PIE, names of RFC 8033 section 4. */
struct pie_state {
	u64 updates; /* done so far */
	u64 qdelay_ns; /* of the packet last taken */
	u64 qdelay_old_ns;
	u64 burst_ns; /* allowance left */
	s64 drop_prob; /* share of PIE_ONE */
	struct rnd_state random;
};

struct link_queue {
	struct sk_buff_head waiting;
	enum wire_discipline discipline;
	u64 limit_bytes;
	u64 limit_packets;
	u64 target_ns;
	u64 interval_ns;
	u64 bytes; /* waiting or being sent */
	u64 packets;
	struct codel_state codel;
	struct pie_state pie;
	u64 drops[LAB_MAX_FLOWS + 1];
};

static inline struct link_packet *link_packet(const struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct link_packet) > QDISC_CB_PRIV_LEN);
	return (struct link_packet *)qdisc_skb_cb(skb)->data;
}

void link_queue_init(struct link_queue *q, const struct wire_link *link);
bool link_queue_add(struct link_queue *q, struct sk_buff *skb, u64 now, struct sk_buff **to_free);
struct sk_buff *link_queue_take(struct link_queue *q, u64 now);
void link_queue_sent(struct link_queue *q, const struct link_packet *p);

#endif
