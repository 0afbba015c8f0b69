// SPDX-License-Identifier: GPL-2.0-only
/*
 * sagelink: one direction of a network link as a queueing discipline.
 *
 * Random loss, a policer (policer.h), a queue (link_queue.c), a transmitter that follows a schedule of rates or the
 * delivery opportunities of a trace, then a propagation delay with jitter. Every moment is computed in nanoseconds from
 * the arrival times and the schedule alone: the transmitter is brought up to date
 * ("served") whenever somebody looks, so a packet costs one timer event (its arrival at the far end)
 * and no tick distorts it.
 *
 * It sits on the sender's own device but behaves like a queue some hops away: packets are orphaned
 * on entry (TCP small queues do not see it) and a drop is not reported to the sender.
 */
#include <linux/ip.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <net/tcp.h>

#include "link_queue.h"
#include "policer.h"

struct flow_counters {
	u64 packets;
	u64 bytes;
	u64 delay_ns;
};

struct link_sched {
	const struct wire_link *link;
	const struct wire_rate *rates;
	const struct wire_delay *delays;
	const struct wire_opportunity *opportunities;
	const struct wire_loss *losses; /* later changes of the loss that have not come into force */
	const struct wire_loss *losses_end;
	u32 loss_share; /* in force */
	u32 id;
	u32 rate; /* the schedule's step in force at free_ns */
	u32 delay; /* likewise */
	u32 opportunity; /* the next one of the trace's present period */
	u64 period_begin_ns; /* since the episode began */
	u64 opportunities_past;
	u64 free_ns; /* when the transmitter has sent everything it took so far */
	u64 exit_ns; /* when the last packet reaches the far end */
	u32 left_bytes; /* of the packet being sent, on a trace */
	struct sk_buff *sending;
	struct sk_buff_head line; /* sent, on the way, by the time they reach the far end */
	struct rnd_state loss_random;
	struct rnd_state jitter;
	struct qdisc_watchdog watchdog;
	struct policer policer;
	struct link_queue queue;
	struct flow_counters *flows; /* of the episode */
};

static struct Qdisc *links[LAB_MAX_LINKS];

/* The flow's number from its port, and the size that counts: the IP packet. */
static void classify(struct sk_buff *skb, struct link_packet *p)
{
	const struct iphdr *ip = (struct iphdr *)(skb->data + skb_network_offset(skb));
	const struct tcphdr *tcp = (struct tcphdr *)((u8 *)ip + ip->ihl * 4);
	u32 flow = ntohs(tcp->dest) - WIRE_FIRST_PORT, flows = lab_episode()->head->flows;

	p->bytes = ntohs(ip->tot_len);
	if (ip->protocol != IPPROTO_TCP) {
		flow = flows;
	} else if (flow >= flows) {
		flow = ntohs(tcp->source) - WIRE_FIRST_PORT;
		flow = flow < flows ? flows + 1 + flow : flows;
	}
	p->flow = flow;
}

/* Whether a packet tells nothing but how far data have come: it has none, no SACK block and no flag but ACK. */
static bool is_plain_ack(const struct sk_buff *skb)
{
	const struct iphdr *ip = (struct iphdr *)(skb->data + skb_network_offset(skb));
	const struct tcphdr *tcp = (struct tcphdr *)((u8 *)ip + ip->ihl * 4);
	const __be32 timestamp = htonl(TCPOPT_NOP << 24 | TCPOPT_NOP << 16 | TCPOPT_TIMESTAMP << 8 | TCPOLEN_TIMESTAMP);
	const __be32 *options = (const __be32 *)(tcp + 1);

	if (ip->protocol != IPPROTO_TCP || ntohs(ip->tot_len) != (ip->ihl + tcp->doff) * 4)
		return false;
	if (!tcp->ack || tcp->syn || tcp->fin || tcp->rst || tcp->ece)
		return false;
	return tcp->doff == 5 || (tcp->doff == 8 && *options == timestamp);
}

static bool is_data(const struct link_packet *p)
{
	return p->flow < lab_episode()->head->flows;
}

/* Where the flow's packet entered its first link: a place by its IP identification, which the sender counts up. */
static u64 *entered_ns(const struct sk_buff *skb)
{
	const struct iphdr *ip = (struct iphdr *)(skb->data + skb_network_offset(skb));

	return lab_entered(link_packet(skb)->flow) + ntohs(ip->id);
}

/* ---- the schedule ---- */

static u64 step_end_ns(const struct link_sched *q, u32 step)
{
	return step + 1 < q->link->rates ? lab_epoch_ns + q->rates[step + 1].t_ns : U64_MAX;
}

/* When `bytes` that start at `from` are sent, following the schedule. */
static u64 sent_ns(struct link_sched *q, u64 from, u32 bytes)
{
	u64 bits = (u64)bytes * 8;

	if (!q->link->rates)
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

/* The trace's next delivery opportunity. */
static u64 opportunity_ns(const struct link_sched *q)
{
	return lab_epoch_ns + q->period_begin_ns + q->opportunities[q->opportunity].t_ns;
}

static void pass_opportunity(struct link_sched *q)
{
	q->opportunities_past++;
	if (++q->opportunity == q->link->opportunities) {
		q->opportunity = 0;
		q->period_begin_ns += q->link->period_ns;
	}
}

/* The first moment from `at` on at which the transmitter wakes: any, or a multiple of the grain. */
static u64 wake_ns(const struct link_sched *q, u64 at)
{
	u64 grain = q->link->grain_ns;

	return grain ? lab_epoch_ns + div64_u64(at - lab_epoch_ns + grain - 1, grain) * grain : at;
}

/* The last one up to `now`. */
static u64 woken_ns(const struct link_sched *q, u64 now)
{
	u64 grain = q->link->grain_ns;

	return grain ? lab_epoch_ns + div64_u64(now - lab_epoch_ns, grain) * grain : now;
}

static u32 delay_step(const struct link_sched *q, u64 at)
{
	u32 step = q->delay;

	while (step + 1 < q->link->delays && lab_epoch_ns + q->delays[step + 1].t_ns <= at)
		step++;
	return step;
}

/* Whether a packet that comes at `now` is lost before the queue. */
static bool lost(struct link_sched *q, u64 now)
{
	for (; q->losses < q->losses_end && lab_epoch_ns + q->losses->t_ns <= now; q->losses++)
		q->loss_share = q->losses->loss;
	return q->loss_share && prandom_u32_state(&q->loss_random) < q->loss_share;
}

/* ---- the transmitter ---- */

static void put_on_line(struct link_sched *q, struct sk_buff *skb)
{
	struct sk_buff *before;

	skb_queue_reverse_walk(&q->line, before) if (link_packet(before)->exit_ns <= link_packet(skb)->exit_ns) break;
	__skb_queue_after(&q->line, before, skb); /* the head where the walk found none */
}

/* The packet's last bit is sent: count it, and find out when it reaches the far end. */
static void leave(struct link_sched *q, struct sk_buff *skb, u64 sent)
{
	struct link_packet *p = link_packet(skb);
	u64 at = wake_ns(q, sent), jitter = q->link->jitter_ns;

	link_queue_sent(&q->queue, p);
	q->delay = delay_step(q, at);
	p->exit_ns = at + q->delays[q->delay].delay_ns;
	if (jitter) {
		u64 extra = mul_u64_u32_shr(2 * jitter + 1, prandom_u32_state(&q->jitter), 32);

		p->exit_ns = max(p->exit_ns + extra, at + jitter) - jitter;
	}
	if (!q->link->reorder)
		q->exit_ns = p->exit_ns = max(p->exit_ns, q->exit_ns);
	put_on_line(q, skb);
	if (is_data(p)) {
		const struct wire_flow *flow = lab_flow(p->flow);
		struct flow_counters *f = &q->flows[p->flow];
		u64 entered = flow->first_cable == flow->last_cable ? p->arrival_ns : *entered_ns(skb);

		f->packets++;
		f->bytes += p->bytes;
		f->delay_ns += p->exit_ns - entered;
		if (q->id == 2 * flow->last_cable)
			lab_packet(p->flow, p->exit_ns - entered);
	}
}

static void serve_rate(struct link_sched *q, u64 now)
{
	for (;;) {
		if (!q->sending) {
			struct sk_buff *next = link_queue_peek(&q->queue);
			u64 from;

			if (!next)
				return;
			from = max(q->free_ns, link_packet(next)->arrival_ns);
			if (from > now)
				return; /* it came after the last wake */
			q->sending = link_queue_take(&q->queue, wake_ns(q, from));
			if (!q->sending)
				return;
			link_packet(q->sending)->exit_ns = sent_ns(q, from, link_packet(q->sending)->bytes);
		}
		if (link_packet(q->sending)->exit_ns > now)
			return;
		q->free_ns = link_packet(q->sending)->exit_ns;
		leave(q, q->sending, q->free_ns);
		q->sending = NULL;
	}
}

/* Mahimahi's rule: an opportunity finishes the packet begun, then takes the next; what is left over is lost. */
static void serve_trace(struct link_sched *q, u64 now)
{
	for (u64 at; (at = opportunity_ns(q)) <= now; pass_opportunity(q)) {
		for (u32 budget = WIRE_OPPORTUNITY_BYTES, part; budget; budget -= part) {
			if (!q->sending) {
				struct sk_buff *next = link_queue_peek(&q->queue);

				if (!next || link_packet(next)->arrival_ns > at)
					break; /* none, or it came between the opportunity and the wake */
				q->sending = link_queue_take(&q->queue, wake_ns(q, at));
				if (!q->sending)
					break;
				q->left_bytes = link_packet(q->sending)->bytes;
			}
			part = min(budget, q->left_bytes);
			q->left_bytes -= part;
			if (!q->left_bytes) {
				leave(q, q->sending, at);
				q->sending = NULL;
			}
		}
	}
}

/* Let the transmitter do what it has done by `now`, or by its last wake: what it does later waits in the queue. */
static void serve(struct link_sched *q, u64 now)
{
	u64 woken = woken_ns(q, now);

	if (q->link->opportunities)
		serve_trace(q, woken);
	else
		serve_rate(q, woken);
}

/* ---- the queueing discipline ---- */

/* When the transmitter next has something to do; the queue is not empty. */
static u64 next_sent_ns(const struct link_sched *q)
{
	if (q->link->opportunities)
		return opportunity_ns(q);
	if (q->sending)
		return link_packet(q->sending)->exit_ns;
	return link_packet(link_queue_peek(&q->queue))->arrival_ns; /* it waits for a wake */
}

/* Wake up when the next packet reaches the far end: not later, perhaps in vain a little earlier. */
static void arm(struct link_sched *q)
{
	struct sk_buff *skb = skb_peek(&q->line);
	u64 when = skb ? link_packet(skb)->exit_ns : U64_MAX;

	if (q->queue.packets && (!skb || q->link->reorder)) {
		u64 sent = wake_ns(q, next_sent_ns(q)), least = 0;

		if (!q->link->reorder) /* else a packet behind may overtake it */
			least = q->delays[delay_step(q, sent)].delay_ns;
		when = min(when, sent + max(least, q->link->jitter_ns) - q->link->jitter_ns);
	}
	if (when != U64_MAX)
		qdisc_watchdog_schedule_ns(&q->watchdog, when);
}

static int link_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct link_sched *q = qdisc_priv(sch);
	struct link_packet *p = link_packet(skb);
	u64 now = ktime_get_ns();

	serve(q, now);
	classify(skb, p);
	p->plain_ack = q->queue.ack_filter && is_plain_ack(skb);
	if (lost(q, now) || !policer_passes(&q->policer, p->bytes, now)) {
		q->queue.counts[p->flow].drops++;
		__qdisc_drop(skb, to_free);
	} else if (link_queue_add(&q->queue, skb, now, to_free)) {
		skb_orphan(skb);
		if (is_data(p) && lab_entered(p->flow) && q->id == 2 * lab_flow(p->flow)->first_cable)
			*entered_ns(skb) = now;
		serve(q, now);
	}
	sch->q.qlen = q->queue.packets + skb_queue_len(&q->line);
	return NET_XMIT_SUCCESS; /* a sender does not hear of a drop some hops away */
}

static struct sk_buff *link_dequeue(struct Qdisc *sch)
{
	struct link_sched *q = qdisc_priv(sch);
	u64 now = ktime_get_ns();
	struct sk_buff *skb;

	serve(q, now);
	skb = skb_peek(&q->line);
	if (skb && link_packet(skb)->exit_ns <= now) {
		__skb_unlink(skb, &q->line);
		sch->q.qlen = q->queue.packets + skb_queue_len(&q->line);
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

/* The link's own changes of loss lie together. */
static void find_losses(struct link_sched *q, const struct lab_layout *episode)
{
	const struct wire_loss *end = episode->losses + episode->loss_count;

	for (q->losses = episode->losses; q->losses < end && q->losses->link != q->id; q->losses++)
		;
	for (q->losses_end = q->losses; q->losses_end < end && q->losses_end->link == q->id; q->losses_end++)
		;
}

static const struct wire_extra *find_extra(u32 link, const struct lab_layout *episode)
{
	for (u32 i = 0; episode->extension && i < episode->extension->extras; i++) {
		if (episode->extras[i].link == link)
			return &episode->extras[i];
	}
	return NULL;
}

static int link_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct link_sched *q = qdisc_priv(sch);
	const struct lab_layout *episode = lab_episode();
	const struct wire_extra *extra;

	__skb_queue_head_init(&q->line);
	qdisc_watchdog_init(&q->watchdog, sch);
	__skb_queue_head_init(&q->queue.lane.waiting);
	if (!opt || nla_len(opt) != sizeof(q->id) || !episode)
		return -EINVAL;
	q->id = nla_get_u32(opt);
	if (q->id >= 2 * episode->head->cables || q->id >= LAB_MAX_LINKS)
		return -EINVAL;
	q->link = &episode->links[q->id];
	q->rates = episode->rates + q->link->first_rate;
	q->delays = episode->delays + q->link->first_delay;
	q->opportunities = episode->opportunities + q->link->first_opportunity;
	q->loss_share = q->link->loss;
	find_losses(q, episode);
	prandom_seed_state(&q->loss_random, q->link->seed);
	prandom_seed_state(&q->jitter, q->link->seed + 1);
	extra = find_extra(q->id, episode);
	q->policer = policer_of(extra);
	q->flows = kvcalloc(episode->head->flows, sizeof(*q->flows), GFP_KERNEL);
	if (!q->flows || link_queue_init(&q->queue, q->link, extra, episode->head->flows))
		return -ENOMEM;
	links[q->id] = sch;
	return 0;
}

static void link_reset(struct Qdisc *sch)
{
	struct link_sched *q = qdisc_priv(sch);

	link_queue_purge(&q->queue);
	__skb_queue_purge(&q->line);
	kfree_skb(q->sending);
	q->sending = NULL;
	qdisc_watchdog_cancel(&q->watchdog);
}

static void link_destroy(struct Qdisc *sch)
{
	struct link_sched *q = qdisc_priv(sch);

	if (links[q->id] == sch)
		links[q->id] = NULL;
	qdisc_watchdog_cancel(&q->watchdog);
	link_queue_free(&q->queue);
	kvfree(q->flows);
}

/* What the link could have sent since the episode began; 0 where it has no limit. */
static u64 capacity_bytes(const struct link_sched *q, u64 now)
{
	u64 bytes = q->opportunities_past * WIRE_OPPORTUNITY_BYTES, from = lab_epoch_ns;

	for (u32 step = 0; step < q->link->rates && from < now; step++) {
		u64 end = min(step_end_ns(q, step), now);

		bytes += mul_u64_u64_div_u64(end - from, q->rates[step].bits_per_s, 8 * NSEC_PER_SEC);
		from = end;
	}
	return bytes;
}

/* Add one flow's counters at the link of a cable's data direction, as of now. */
static void read_cable(u32 cable, u32 flow, struct link_counters *sum)
{
	struct Qdisc *sch = links[2 * cable];
	struct link_sched *q = qdisc_priv(sch);
	u64 now = ktime_get_ns();

	spin_lock_bh(qdisc_lock(sch));
	serve(q, now);
	sum->packets = q->flows[flow].packets;
	sum->bytes = q->flows[flow].bytes;
	sum->delay_ns = q->flows[flow].delay_ns;
	sum->drops += q->queue.counts[flow].drops;
	sum->marks += q->queue.counts[flow].marks;
	sum->queue_bytes += q->queue.bytes;
	if (cable == lab_flow(flow)->bottleneck)
		sum->capacity_bytes = capacity_bytes(q, now);
	spin_unlock_bh(qdisc_lock(sch));
}

/* Read a flow's counters along its path: what left the last link, drops and queues of all. */
void link_read(u32 flow, struct link_counters *out)
{
	const struct wire_flow *f = lab_flow(flow);

	*out = (struct link_counters){};
	for (u32 cable = f->first_cable; cable <= f->last_cable; cable++)
		read_cable(cable, flow, out);
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
