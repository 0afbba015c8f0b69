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
	u16 flow : 15; /* of `flows`: its data; from `flows` + 1 on the ACKs of each; `flows`: neither */
	u16 plain_ack : 1; /* tells only how far; false where no queue asks */
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

/* Packets in the order of their coming, and what CoDel and DRR++ know of them. */
struct lane {
	struct sk_buff_head waiting;
	u64 bytes;
	struct codel_state codel;
	s64 deficit; /* RFC 8290's credits */
	struct lane *next; /* in its list of turns */
	bool active; /* in one of the two lists */
};

struct turns {
	struct lane *first;
	struct lane *last;
};

/* FQ-CoDel: a lane a flow, so that no two flows share one, as they may where they are hashed. */
struct fq {
	struct turns new;
	struct turns old;
	s64 quantum_bytes;
	u32 count;
	struct lane lanes[];
};

struct queue_counts {
	u64 drops;
	u64 marks;
};

struct link_queue {
	struct lane lane; /* of all flows, unless there is `fq` */
	struct fq *fq;
	enum wire_discipline discipline;
	bool ecn;
	bool ack_filter;
	u64 mark_packets;
	u64 limit_bytes;
	u64 limit_packets;
	u64 target_ns;
	u64 interval_ns;
	u64 bytes; /* waiting or being sent */
	u64 packets;
	struct pie_state pie;
	struct queue_counts *counts; /* by a packet's flow */
};

static inline struct link_packet *link_packet(const struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct link_packet) > QDISC_CB_PRIV_LEN);
	return (struct link_packet *)qdisc_skb_cb(skb)->data;
}

/* The packet that has waited longest, or with FQ-CoDel any; NULL: none waits. */
static inline struct sk_buff *link_queue_peek(const struct link_queue *q)
{
	struct sk_buff *skb = NULL;

	if (!q->fq)
		return skb_peek(&q->lane.waiting);
	for (struct lane *lane = q->fq->new.first; lane && !skb; lane = lane->next)
		skb = skb_peek(&lane->waiting);
	for (struct lane *lane = q->fq->old.first; lane && !skb; lane = lane->next)
		skb = skb_peek(&lane->waiting);
	return skb;
}

int link_queue_init(struct link_queue *q, const struct wire_link *link, const struct wire_extra *extra, u32 flows);
void link_queue_free(struct link_queue *q);
void link_queue_purge(struct link_queue *q);
bool link_queue_add(struct link_queue *q, struct sk_buff *skb, u64 now, struct sk_buff **to_free);
struct sk_buff *link_queue_take(struct link_queue *q, u64 now);
void link_queue_sent(struct link_queue *q, const struct link_packet *p);

#endif
