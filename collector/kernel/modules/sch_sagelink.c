// SPDX-License-Identifier: GPL-2.0-only
/*
 * sagelink: one direction of a network link as a queueing discipline.
 *
 * A tail-drop queue in bytes, a transmitter whose rate follows a schedule, then a propagation
 * delay. Every moment is computed in nanoseconds from the arrival times and the schedule alone:
 * the transmitter is brought up to date ("served") whenever somebody looks, so a packet costs one
 * timer event (its arrival at the far end) and no tick distorts it.
 *
 * It sits on the sender's own device but behaves like a queue some hops away: packets are orphaned
 * on entry (TCP small queues do not see it) and a drop is not reported to the sender.
 */
#include <linux/ip.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/tcp.h>
#include <net/pkt_sched.h>

#include "lab.h"

struct link_packet {
	u64 arrival_ns; /* entered the queue */
	u64 exit_ns; /* in the queue: 0 or when sent; on the line: when it reaches the far end */
	u16 bytes;
	u16 flow;
} __packed; /* fits into what a qdisc owns of an skb */

struct flow_counters {
	u64 packets;
	u64 bytes;
	u64 drops;
	u64 delay_ns;
};

struct link_sched {
	struct wire_link link;
	struct wire_rate *rates;
	u32 id;
	u32 rate; /* the schedule's step in force at free_ns */
	u64 free_ns; /* when the transmitter has sent everything it took so far */
	u64 backlog_bytes;
	struct sk_buff_head queue; /* waiting or being sent */
	struct sk_buff_head line; /* sent, on the way */
	struct qdisc_watchdog watchdog;
	struct flow_counters flows[LAB_MAX_FLOWS];
};

static struct Qdisc *links[LAB_MAX_LINKS];

static struct link_packet *packet(const struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct link_packet) > QDISC_CB_PRIV_LEN);
	return (struct link_packet *)qdisc_skb_cb(skb)->data;
}

/* The flow's number from its port, and the size that counts: the IP packet. */
static void classify(struct sk_buff *skb, struct link_packet *p)
{
	const struct iphdr *ip = (struct iphdr *)(skb->data + skb_network_offset(skb));
	const struct tcphdr *tcp = (struct tcphdr *)((u8 *)ip + ip->ihl * 4);
	u32 flow = ntohs(tcp->dest) - WIRE_FIRST_PORT;

	p->bytes = ntohs(ip->tot_len);
	if (ip->protocol != IPPROTO_TCP || flow >= LAB_MAX_FLOWS)
		flow = LAB_MAX_FLOWS;
	p->flow = flow;
}

static u64 step_end_ns(const struct link_sched *q, u32 step)
{
	return step + 1 < q->link.rates ? lab_epoch_ns + q->rates[step + 1].t_ns : U64_MAX;
}

/* When `bytes` that start at `from` are sent, following the schedule. */
static u64 sent_ns(struct link_sched *q, u64 from, u32 bytes)
{
	u64 bits = (u64)bytes * 8;

	if (!q->link.rates)
		return from;
	while (step_end_ns(q, q->rate) <= from)
		q->rate++;
	for (u32 step = q->rate;; step++) {
		u64 end = step_end_ns(q, step), rate = q->rates[step].bits_per_s;
		u64 needed = div64_u64(bits * NSEC_PER_SEC + rate - 1, rate);

		if (needed <= end - from)
			return from + needed;
		bits -= mul_u64_u64_div_u64(end - from, rate, NSEC_PER_SEC);
		from = end;
	}
}

/* Let the transmitter do what it has done by `now`. */
static void serve(struct link_sched *q, u64 now)
{
	struct sk_buff *skb;

	while ((skb = skb_peek(&q->queue))) {
		struct link_packet *p = packet(skb);
		u64 delay;

		if (!p->exit_ns)
			p->exit_ns = sent_ns(q, max(q->free_ns, p->arrival_ns), p->bytes);
		if (p->exit_ns > now)
			break;
		q->free_ns = p->exit_ns;
		__skb_unlink(skb, &q->queue);
		q->backlog_bytes -= p->bytes;
		p->exit_ns += q->link.delay_ns;
		delay = p->exit_ns - p->arrival_ns;
		if (p->flow < LAB_MAX_FLOWS) {
			struct flow_counters *f = &q->flows[p->flow];

			f->packets++;
			f->bytes += p->bytes;
			f->delay_ns += delay;
			lab_packet(q->id, p->flow, delay);
		}
		__skb_queue_tail(&q->line, skb);
	}
}

/* Wake up when the next packet reaches the far end. */
static void arm(struct link_sched *q)
{
	struct sk_buff *skb = skb_peek(&q->line);

	if (skb)
		qdisc_watchdog_schedule_ns(&q->watchdog, packet(skb)->exit_ns);
	else if ((skb = skb_peek(&q->queue)))
		qdisc_watchdog_schedule_ns(&q->watchdog, packet(skb)->exit_ns + q->link.delay_ns);
}

static int link_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct link_sched *q = qdisc_priv(sch);
	struct link_packet *p = packet(skb);
	u64 now = ktime_get_ns();

	serve(q, now);
	classify(skb, p);
	if (p->bytes > q->link.limit_bytes - q->backlog_bytes) {
		if (p->flow < LAB_MAX_FLOWS)
			q->flows[p->flow].drops++;
		qdisc_qstats_drop(sch);
		__qdisc_drop(skb, to_free);
		return NET_XMIT_SUCCESS; /* a sender does not hear of a drop some hops away */
	}
	skb_orphan(skb);
	p->arrival_ns = now;
	p->exit_ns = 0;
	q->backlog_bytes += p->bytes;
	__skb_queue_tail(&q->queue, skb);
	sch->q.qlen++;
	serve(q, now);
	return NET_XMIT_SUCCESS;
}

static struct sk_buff *link_dequeue(struct Qdisc *sch)
{
	struct link_sched *q = qdisc_priv(sch);
	u64 now = ktime_get_ns();
	struct sk_buff *skb;

	serve(q, now);
	skb = skb_peek(&q->line);
	if (skb && packet(skb)->exit_ns <= now) {
		__skb_unlink(skb, &q->line);
		sch->q.qlen--;
		qdisc_bstats_update(sch, skb);
		return skb;
	}
	arm(q);
	return NULL;
}

static struct sk_buff *link_peek(struct Qdisc *sch)
{
	return NULL; /* a root qdisc is never peeked into */
}

static int link_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct link_sched *q = qdisc_priv(sch);
	const struct link_options *options;
	size_t rates;

	__skb_queue_head_init(&q->queue);
	__skb_queue_head_init(&q->line);
	qdisc_watchdog_init(&q->watchdog, sch);
	if (!opt || nla_len(opt) < sizeof(*options))
		return -EINVAL;
	options = nla_data(opt);
	rates = options->link.rates * sizeof(struct wire_rate);
	if (options->id >= LAB_MAX_LINKS || nla_len(opt) != sizeof(*options) + rates)
		return -EINVAL;
	q->link = options->link;
	q->id = options->id;
	q->rates = kmemdup(options + 1, rates, GFP_KERNEL);
	if (!q->rates)
		return -ENOMEM;
	links[q->id] = sch;
	return 0;
}

static void link_reset(struct Qdisc *sch)
{
	struct link_sched *q = qdisc_priv(sch);

	__skb_queue_purge(&q->queue);
	__skb_queue_purge(&q->line);
	q->backlog_bytes = 0;
	qdisc_watchdog_cancel(&q->watchdog);
}

static void link_destroy(struct Qdisc *sch)
{
	struct link_sched *q = qdisc_priv(sch);

	links[q->id] = NULL;
	qdisc_watchdog_cancel(&q->watchdog);
	kfree(q->rates);
}

static u64 capacity_bytes(const struct link_sched *q, u64 now)
{
	u64 bytes = 0, from = lab_epoch_ns;

	for (u32 step = 0; step < q->link.rates && from < now; step++) {
		u64 end = min(step_end_ns(q, step), now);

		bytes += mul_u64_u64_div_u64(end - from, q->rates[step].bits_per_s, 8 * NSEC_PER_SEC);
		from = end;
	}
	return bytes;
}

/* Read one flow's counters at a link, as of now. */
void link_read(u32 id, u32 flow, struct link_counters *out)
{
	struct Qdisc *sch = links[id];
	struct link_sched *q = qdisc_priv(sch);
	u64 now = ktime_get_ns();

	spin_lock_bh(qdisc_lock(sch));
	serve(q, now);
	*out = (struct link_counters){
		.packets = q->flows[flow].packets,
		.bytes = q->flows[flow].bytes,
		.drops = q->flows[flow].drops,
		.delay_ns = q->flows[flow].delay_ns,
		.queue_bytes = q->backlog_bytes,
		.capacity_bytes = capacity_bytes(q, now),
	};
	spin_unlock_bh(qdisc_lock(sch));
}

static struct Qdisc_ops link_ops __read_mostly = {
	.id = "sagelink",
	.priv_size = sizeof(struct link_sched),
	.enqueue = link_enqueue,
	.dequeue = link_dequeue,
	.peek = link_peek,
	.init = link_init,
	.reset = link_reset,
	.destroy = link_destroy,
	.owner = THIS_MODULE,
};

static int __init link_module_init(void)
{
	return register_qdisc(&link_ops);
}
device_initcall(link_module_init);
