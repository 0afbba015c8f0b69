// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue of a link. Tail-drop and head-drop act when a packet does not fit; PIE (RFC 8033, its
 * section 4 without the options of section 5) drops at the door, CoDel (RFC 8289) and BoDe (Abbasloo
 * and Chao, arXiv 1908.00953) when the transmitter takes the next packet. FQ-CoDel (RFC 8290) chooses
 * whose packet that is. ECN-capable packets may be marked instead of dropped, or for a threshold.
 * ACKs may be filtered (RFC 3449).
 *
 * Not the kernel's own codel, fq_codel and pie: those read the clock themselves, and this queue is
 * brought up to date for moments that have passed.
 */
#include <linux/math64.h>
#include <linux/mm.h>
#include <net/inet_ecn.h>

#include "link_queue.h"

#define PIE_ONE (1LL << 32)
#define PIE_MAX_BURST_NS (150 * NSEC_PER_MSEC)

static struct fq *new_fq(u64 quantum_bytes, u32 lanes)
{
	struct fq *fq = kvzalloc(struct_size(fq, lanes, lanes), GFP_KERNEL);

	if (!fq)
		return NULL;
	fq->quantum_bytes = quantum_bytes;
	fq->count = lanes;
	for (u32 i = 0; i < lanes; i++)
		__skb_queue_head_init(&fq->lanes[i].waiting);
	return fq;
}

/* `extra`: NULL for a link without one; `flows`: of the episode. */
int link_queue_init(struct link_queue *q, const struct wire_link *link, const struct wire_extra *extra, u32 flows)
{
	u32 kinds = 2 * flows + 1;

	*q = (struct link_queue){
		.discipline = link->discipline,
		.ecn = extra && extra->ecn,
		.ack_filter = extra && extra->ack_filter,
		.mark_packets = extra ? extra->mark_packets : WIRE_NO_LIMIT,
		.limit_bytes = link->limit_bytes,
		.limit_packets = link->limit_packets,
		.target_ns = link->target_ns,
		.interval_ns = link->interval_ns,
		.pie.burst_ns = PIE_MAX_BURST_NS,
	};
	__skb_queue_head_init(&q->lane.waiting);
	prandom_seed_state(&q->pie.random, link->seed + 2);
	q->counts = kvcalloc(kinds, sizeof(*q->counts), GFP_KERNEL);
	if (q->discipline == WIRE_FQ_CODEL)
		q->fq = new_fq(extra->quantum_bytes, kinds);
	return q->counts && (q->fq || q->discipline != WIRE_FQ_CODEL) ? 0 : -ENOMEM;
}

void link_queue_free(struct link_queue *q)
{
	kvfree(q->counts);
	kvfree(q->fq);
}

/* Forget what waits. */
void link_queue_purge(struct link_queue *q)
{
	__skb_queue_purge(&q->lane.waiting);
	for (u32 i = 0; q->fq && i < q->fq->count; i++)
		__skb_queue_purge(&q->fq->lanes[i].waiting);
	q->bytes = q->packets = 0;
}

static void drop(struct link_queue *q, struct sk_buff *skb, struct sk_buff **to_free)
{
	q->counts[link_packet(skb)->flow].drops++;
	if (to_free)
		__qdisc_drop(skb, to_free);
	else
		kfree_skb(skb);
}

static bool fits(const struct link_queue *q, u32 bytes)
{
	return bytes <= q->limit_bytes - q->bytes && q->packets < q->limit_packets;
}

/* A packet is gone: sent, or dropped after it had been let in. */
void link_queue_sent(struct link_queue *q, const struct link_packet *p)
{
	q->bytes -= p->bytes;
	q->packets--;
}

static struct sk_buff *pop(struct lane *lane)
{
	struct sk_buff *skb = __skb_dequeue(&lane->waiting);

	if (skb)
		lane->bytes -= link_packet(skb)->bytes;
	return skb;
}

/* Mark a packet Congestion Experienced; false where its sender does not speak ECN. */
static bool mark(struct link_queue *q, struct sk_buff *skb)
{
	if (!INET_ECN_set_ce(skb))
		return false;
	q->counts[link_packet(skb)->flow].marks++;
	return true;
}

static void drop_waiting(struct link_queue *q, struct sk_buff *skb, struct sk_buff **to_free)
{
	link_queue_sent(q, link_packet(skb));
	drop(q, skb, to_free);
}

/* RFC 3449 section 5.2.2: the ACK of that connection that waits says less than the one that comes. */
static void drop_older_ack(struct link_queue *q, struct lane *lane, u32 flow, struct sk_buff **to_free)
{
	struct sk_buff *skb;

	skb_queue_walk(&lane->waiting, skb)
	{
		const struct link_packet *p = link_packet(skb);

		if (p->flow != flow || !p->plain_ack)
			continue;
		__skb_unlink(skb, &lane->waiting);
		lane->bytes -= p->bytes;
		drop_waiting(q, skb, to_free);
		return; /* each that came has dropped the one before */
	}
}

/* ---- PIE ---- */

/* RFC 8033 section 4.2: gains 1/8 and 5/4 a second, scaled down while the probability is small. */
static void pie_update(struct link_queue *q)
{
	static const struct {
		s64 below;
		u32 divisor;
	} scales[] = {
		{ PIE_ONE / 1000000, 2048 }, { PIE_ONE / 100000, 512 }, { PIE_ONE / 10000, 128 },
		{ PIE_ONE / 1000, 32 },	     { PIE_ONE / 100, 8 },	{ PIE_ONE / 10, 2 },
	};
	struct pie_state *pie = &q->pie;
	const s64 second = NSEC_PER_SEC;
	s64 above = clamp((s64)(pie->qdelay_ns - q->target_ns), -second, second);
	s64 rise = clamp((s64)(pie->qdelay_ns - pie->qdelay_old_ns), -second, second);
	s64 p = div_s64(above * PIE_ONE / 8, NSEC_PER_SEC) + div_s64(rise * (PIE_ONE / 4), NSEC_PER_SEC) * 5;

	for (size_t i = 0; i < ARRAY_SIZE(scales); i++) {
		if (pie->drop_prob < scales[i].below) {
			p = div_s64(p, scales[i].divisor);
			break;
		}
	}
	pie->drop_prob += p;
	if (!pie->qdelay_ns && !pie->qdelay_old_ns)
		pie->drop_prob -= div_s64(pie->drop_prob, 50); /* decays by 2 % when idle */
	pie->drop_prob = clamp(pie->drop_prob, 0LL, PIE_ONE);
	pie->burst_ns -= min(pie->burst_ns, q->interval_ns);
	if (!pie->drop_prob && max(pie->qdelay_ns, pie->qdelay_old_ns) < q->target_ns / 2)
		pie->burst_ns = PIE_MAX_BURST_NS;
	pie->qdelay_old_ns = pie->qdelay_ns;
}

static void pie_advance(struct link_queue *q, u64 now)
{
	while (lab_epoch_ns + (q->pie.updates + 1) * q->interval_ns <= now) {
		pie_update(q);
		q->pie.updates++;
	}
}

static bool pie_drops(struct link_queue *q)
{
	struct pie_state *pie = &q->pie;

	if (pie->burst_ns)
		return false;
	if (pie->qdelay_old_ns < q->target_ns / 2 && pie->drop_prob < PIE_ONE / 5)
		return false;
	if (q->bytes <= 2 * WIRE_OPPORTUNITY_BYTES)
		return false;
	return prandom_u32_state(&pie->random) < pie->drop_prob;
}

/* ---- CoDel ---- */

static u64 codel_next(const struct link_queue *q, const struct codel_state *c, u64 from)
{
	return from + div64_u64(q->interval_ns << 16, int_sqrt64((u64)c->count << 32));
}

/* RFC 8289 section 5.5: the next packet, and whether the delay has been too long for an interval. */
static struct sk_buff *codel_pop(struct link_queue *q, struct lane *lane, u64 now, bool *may_drop)
{
	struct codel_state *c = &lane->codel;
	struct sk_buff *skb = pop(lane);

	*may_drop = false;
	if (!skb) {
		c->first_above_ns = 0;
		return NULL;
	}
	if (now - link_packet(skb)->arrival_ns < q->target_ns || lane->bytes <= WIRE_OPPORTUNITY_BYTES)
		c->first_above_ns = 0;
	else if (!c->first_above_ns)
		c->first_above_ns = now + q->interval_ns;
	else
		*may_drop = now >= c->first_above_ns;
	return skb;
}

/* RFC 8289 section 5.5, deque(); a packet that is marked instead of dropped is sent, as Linux's codel does. */
static struct sk_buff *codel_take(struct link_queue *q, struct lane *lane, u64 now)
{
	struct codel_state *c = &lane->codel;
	struct sk_buff *skb;
	bool may_drop;

	skb = codel_pop(q, lane, now, &may_drop);
	if (c->dropping) {
		c->dropping = may_drop;
		while (c->dropping && now >= c->drop_next_ns) {
			c->count++;
			if (q->ecn && mark(q, skb)) {
				c->drop_next_ns = codel_next(q, c, c->drop_next_ns);
				break;
			}
			drop_waiting(q, skb, NULL);
			skb = codel_pop(q, lane, now, &may_drop);
			c->dropping = may_drop;
			if (may_drop)
				c->drop_next_ns = codel_next(q, c, c->drop_next_ns);
		}
	} else if (may_drop) {
		u32 recent = c->count - c->last_count;

		if (!q->ecn || !mark(q, skb)) {
			drop_waiting(q, skb, NULL);
			skb = codel_pop(q, lane, now, &may_drop);
		}
		c->dropping = true;
		c->count = recent > 1 && now - c->drop_next_ns < 16 * q->interval_ns ? recent : 1;
		c->drop_next_ns = codel_next(q, c, now);
		c->last_count = c->count;
	}
	return skb;
}

/* ---- FQ-CoDel ---- */

static void append(struct turns *turns, struct lane *lane)
{
	lane->next = NULL;
	if (turns->first)
		turns->last->next = lane;
	else
		turns->first = lane;
	turns->last = lane;
}

static void remove_first(struct turns *turns)
{
	turns->first = turns->first->next;
}

/* RFC 8290 section 4.1.3: a queue that becomes active is a new one, with a quantum of credits. */
static void fq_activate(struct fq *fq, struct lane *lane)
{
	if (lane->active)
		return;
	lane->active = true;
	lane->deficit = fq->quantum_bytes;
	append(&fq->new, lane);
}

/* RFC 8290 section 4.2: deficit round robin over new queues first, then over old ones. */
static struct sk_buff *fq_take(struct link_queue *q, u64 now)
{
	struct fq *fq = q->fq;

	for (;;) {
		bool is_new = fq->new.first;
		struct turns *turns = is_new ? &fq->new : &fq->old;
		struct lane *lane = turns->first;
		struct sk_buff *skb;

		if (!lane)
			return NULL;
		if (lane->deficit <= 0) {
			lane->deficit += fq->quantum_bytes;
			remove_first(turns);
			append(&fq->old, lane);
			continue;
		}
		skb = codel_take(q, lane, now);
		if (skb) {
			lane->deficit -= link_packet(skb)->bytes;
			return skb;
		}
		remove_first(turns);
		if (is_new)
			append(&fq->old, lane);
		else
			lane->active = false;
	}
}

/* RFC 8290 section 4.1.2: what does not fit is the head of the longest queue; false if that was `added`. */
static bool fq_shrink(struct link_queue *q, const struct sk_buff *added, struct sk_buff **to_free)
{
	bool is_in = true;

	while (q->bytes > q->limit_bytes || q->packets > q->limit_packets) {
		struct lane *longest = q->fq->lanes;
		struct sk_buff *head;

		for (u32 i = 1; i < q->fq->count; i++) {
			if (q->fq->lanes[i].bytes > longest->bytes)
				longest = &q->fq->lanes[i];
		}
		head = pop(longest);
		is_in &= head != added;
		drop_waiting(q, head, to_free);
	}
	return is_in;
}

/* ---- BoDe ---- */

/* Drop what has waited longer than the bound, but never the last packet. */
static struct sk_buff *bode_take(struct link_queue *q, u64 now)
{
	struct sk_buff *skb = pop(&q->lane);

	while (skb && now - link_packet(skb)->arrival_ns > q->target_ns && !skb_queue_empty(&q->lane.waiting)) {
		drop_waiting(q, skb, NULL);
		skb = pop(&q->lane);
	}
	return skb;
}

/* ---- the two doors ---- */

/* Let a packet in at `now`, or drop what the discipline says; false if it was the packet itself. */
bool link_queue_add(struct link_queue *q, struct sk_buff *skb, u64 now, struct sk_buff **to_free)
{
	struct link_packet *p = link_packet(skb);
	struct lane *lane = q->fq ? &q->fq->lanes[p->flow] : &q->lane;

	if (q->discipline == WIRE_PIE) {
		pie_advance(q, now);
		if (pie_drops(q)) {
			drop(q, skb, to_free);
			return false;
		}
	}
	if (q->ack_filter && p->plain_ack)
		drop_older_ack(q, lane, p->flow, to_free);
	if (q->discipline == WIRE_HEAD_DROP)
		while (!fits(q, p->bytes) && !skb_queue_empty(&lane->waiting))
			drop_waiting(q, pop(lane), to_free);
	if (!q->fq && !fits(q, p->bytes)) {
		drop(q, skb, to_free);
		return false;
	}
	if (q->packets > q->mark_packets)
		mark(q, skb);
	p->arrival_ns = now;
	q->bytes += p->bytes;
	q->packets++;
	lane->bytes += p->bytes;
	__skb_queue_tail(&lane->waiting, skb);
	if (!q->fq)
		return true;
	fq_activate(q->fq, lane);
	return fq_shrink(q, skb, to_free);
}

/* The packet that the transmitter sends next; it counts until link_queue_sent(). */
struct sk_buff *link_queue_take(struct link_queue *q, u64 now)
{
	struct sk_buff *skb;

	switch (q->discipline) {
	case WIRE_CODEL:
		return codel_take(q, &q->lane, now);
	case WIRE_FQ_CODEL:
		return fq_take(q, now);
	case WIRE_BODE:
		return bode_take(q, now);
	case WIRE_PIE:
		pie_advance(q, now);
		skb = pop(&q->lane);
		if (skb)
			q->pie.qdelay_ns = skb_queue_empty(&q->lane.waiting) ? 0 : now - link_packet(skb)->arrival_ns;
		return skb;
	default:
		return pop(&q->lane);
	}
}
