// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copa, written from "Copa: Practical Delay-Based Congestion Control for the Internet" (V. Arun,
 * H. Balakrishnan, NSDI 2018; "the paper").
 *
 * The window moves towards the rate 1 / (delta * dq), dq being the queueing delay: 1 / delta packets
 * in the queue for each flow. In default mode delta is 0.5; beside flows that fill the queue
 * (competitive mode) 1 / delta follows AIMD, as a NewReno window does.
 *
 * Followed as written (sections 2 and 2.1): RTTmin over 10 s, RTTstanding over half an sRTT, dq as
 * their difference; on each packet acknowledged, v / (delta * cwnd) towards the target; the velocity v,
 * decided once a window and doubled once the direction has held for three RTTs; pacing at
 * 2 cwnd / RTTstanding; slow start until the rate exceeds the target. Section 2.2: default mode while
 * the queue was nearly empty (dq within a tenth of RTTmax - RTTmin, RTTmax over four RTTs) in the last
 * five RTTs. Losses do not move the window in default mode.
 *
 * What the kernel gives, and what stands in for the rest:
 *  - one RTT for each ACK, of the newest packet that it acknowledges; a receiver acknowledges every
 *    other packet, so the bottom of an oscillation of a few packets is seen to a packet at best. So dq
 *    is also nearly empty within RTTstanding / cwnd, less than one packet of the flow's own queued (at
 *    the target it has 1 / delta): several Copa flows would take each other for buffer-fillers.
 *  - no window per packet sent: cwnd is compared with that one round of acknowledgements ago; the five
 *    RTTs are five such rounds, for an sRTT is shorter than the RTTs of a full queue.
 *  - extrema of a moving window take three samples (lib/win_minmax.c): a minimum may leave its window
 *    up to a quarter early.
 *
 * Where the paper is silent: v is at most what empties or doubles the window in an RTT (the authors'
 * implementation in user space bounds it likewise), and falls to 1 within a window, too, where the step
 * is against its direction (Meta's implementation for QUIC); 1 / delta is at least 2, grows by 1 for
 * each round without recovery and is halved when one begins; the window is at least 2 packets, that
 * the receiver need not wait; after a timeout slow start begins anew.
 */
#include <linux/math64.h>
#include <linux/win_minmax.h>
#include <net/tcp.h>

#include "lab.h"

#define CWND_SHIFT 24 /* fraction of a packet in the window */

static const u32 default_packets = 2; /* 1 / delta in default mode */
static const u32 min_cwnd = 2;
static const u32 min_rtt_window_us = 10 * USEC_PER_SEC;
static const u32 max_rtt_window_rtts = 4;
static const u32 nearly_empty_rounds = 5;
static const u32 nearly_empty_part = 10; /* 1 / 10 of the oscillation */
static const u32 steady_rounds = 3; /* of one direction, before v doubles */

/* Times are in microseconds modulo 2^32. */
struct copa {
	struct minmax min_rtt;
	struct minmax standing_rtt;
	struct minmax max_rtt;
	u64 cwnd; /* packets << CWND_SHIFT */
	u32 next_round_delivered;
	u32 round_cwnd; /* at the start of the round */
	u16 packets; /* 1 / delta */
	u16 velocity;
	u8 rounds; /* of this direction */
	u8 filled_rounds; /* since the queue was nearly empty */
	u8 slow_start : 1, up : 1, competitive : 1;
};

static u32 now_us(const struct sock *sk)
{
	return (u32)tcp_sk(sk)->tcp_mstamp;
}

static u32 srtt_us(const struct sock *sk)
{
	return max(tcp_sk(sk)->srtt_us >> 3, 1U);
}

static u32 cwnd_packets(const struct copa *c)
{
	return c->cwnd >> CWND_SHIFT;
}

static void set_direction(struct copa *c, bool up)
{
	c->up = up;
	c->velocity = 1;
	c->rounds = 1;
}

static void enter_slow_start(struct sock *sk, struct copa *c)
{
	c->cwnd = (u64)tcp_snd_cwnd(tcp_sk(sk)) << CWND_SHIFT;
	c->slow_start = 1;
	set_direction(c, true);
}

static void set_pacing(struct sock *sk, const struct copa *c, u32 rtt_us)
{
	u64 rate = div_u64((u64)2 * cwnd_packets(c) * tcp_sk(sk)->mss_cache * USEC_PER_SEC, rtt_us);

	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
}

static void update_rtt(struct sock *sk, struct copa *c, u32 rtt_us)
{
	u32 now = now_us(sk), srtt = srtt_us(sk);

	if (!minmax_get(&c->min_rtt)) /* its window may reach back beyond the clock's zero */
		minmax_reset(&c->min_rtt, now, rtt_us);
	minmax_running_min(&c->min_rtt, min_rtt_window_us, now, rtt_us);
	minmax_running_min(&c->standing_rtt, srtt / 2, now, rtt_us);
	minmax_running_max(&c->max_rtt, max_rtt_window_rtts * srtt, now, rtt_us);
}

static u32 queueing_us(const struct copa *c)
{
	return minmax_get(&c->standing_rtt) - minmax_get(&c->min_rtt);
}

static void update_mode(struct copa *c)
{
	u32 oscillation = minmax_get(&c->max_rtt) - minmax_get(&c->min_rtt);
	u32 packet_us = minmax_get(&c->standing_rtt) / cwnd_packets(c);

	if (queueing_us(c) <= max(oscillation / nearly_empty_part, packet_us))
		c->filled_rounds = 0;
	c->competitive = c->filled_rounds > nearly_empty_rounds;
	if (!c->competitive)
		c->packets = default_packets;
}

/* Once for each window: which way it went, how fast it may go on, and a packet more beside others. */
static void update_round(struct sock *sk, struct copa *c, const struct rate_sample *rs)
{
	bool up = cwnd_packets(c) > c->round_cwnd;

	if (rs->delivered <= 0 || before(rs->prior_delivered, c->next_round_delivered))
		return;
	c->next_round_delivered = tcp_sk(sk)->delivered;
	c->round_cwnd = cwnd_packets(c);
	if (up != c->up)
		set_direction(c, up);
	else if (c->rounds < steady_rounds)
		c->rounds++;
	else
		c->velocity = min_t(u32, 2 * c->velocity, max(cwnd_packets(c) / c->packets, 1U));
	c->filled_rounds = min(c->filled_rounds + 1U, nearly_empty_rounds + 1);
	if (c->competitive && inet_csk(sk)->icsk_ca_state < TCP_CA_CWR)
		c->packets = min_t(u32, c->packets + 1, U16_MAX);
}

/* Is cwnd / RTTstanding at most 1 / (delta * dq)? */
static bool below_target(const struct copa *c)
{
	return (c->cwnd >> CWND_SHIFT) * queueing_us(c) <= (u64)c->packets * minmax_get(&c->standing_rtt);
}

static void update_cwnd(struct sock *sk, struct copa *c, u32 acked)
{
	bool up = below_target(c);
	u64 step;

	if (c->slow_start && up) {
		c->cwnd += tcp_is_cwnd_limited(sk) ? (u64)acked << CWND_SHIFT : 0;
		return;
	}
	if (c->slow_start) {
		c->slow_start = 0;
		tcp_sk(sk)->snd_ssthresh = cwnd_packets(c);
		set_direction(c, false);
	}
	if (up != c->up && c->velocity > 1)
		set_direction(c, up);
	step = div_u64(((u64)acked * c->velocity * c->packets) << CWND_SHIFT, cwnd_packets(c));
	if (!up)
		c->cwnd -= min(step, c->cwnd);
	else if (tcp_is_cwnd_limited(sk))
		c->cwnd += step;
}

static void copa_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct copa *c = inet_csk_ca(sk);

	if (!c->cwnd) /* the ACK of the SYN comes before init() */
		return;
	if (rs->rtt_us > 0)
		update_rtt(sk, c, rs->rtt_us);
	if (!minmax_get(&c->standing_rtt))
		return;
	update_mode(c);
	update_round(sk, c, rs);
	if (rs->acked_sacked > 0)
		update_cwnd(sk, c, rs->acked_sacked);
	c->cwnd = clamp_t(u64, c->cwnd, (u64)min_cwnd << CWND_SHIFT, (u64)tp->snd_cwnd_clamp << CWND_SHIFT);
	tcp_snd_cwnd_set(tp, cwnd_packets(c));
	set_pacing(sk, c, minmax_get(&c->standing_rtt));
}

/* Loss recovery or a timeout begins. */
static u32 copa_ssthresh(struct sock *sk)
{
	struct copa *c = inet_csk_ca(sk);

	if (c->competitive)
		c->packets = max_t(u32, c->packets / 2, default_packets);
	return tcp_sk(sk)->snd_ssthresh;
}

/* The kernel has cut the window to what is left in flight and one packet more. */
static void copa_set_state(struct sock *sk, u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		enter_slow_start(sk, inet_csk_ca(sk));
}

/* Nothing was lost after all. */
static u32 copa_undo_cwnd(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct copa *c = inet_csk_ca(sk);
	u32 cwnd = max(tcp_snd_cwnd(tp), tp->prior_cwnd);

	c->cwnd = (u64)cwnd << CWND_SHIFT;
	return cwnd;
}

static void copa_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct copa *c = inet_csk_ca(sk);

	if (event == CA_EVENT_TX_START) /* an idle flow has seen no queue of others */
		c->filled_rounds = 0;
}

static void copa_init(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct copa *c = inet_csk_ca(sk);

	*c = (struct copa){
		.packets = default_packets,
		.next_round_delivered = tp->delivered,
		.round_cwnd = tcp_snd_cwnd(tp),
	};
	enter_slow_start(sk, c);
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	if (tp->srtt_us)
		set_pacing(sk, c, srtt_us(sk));
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static struct tcp_congestion_ops copa_ops __read_mostly = {
	.name = "copa",
	.init = copa_init,
	.cong_control = copa_cong_control,
	.cwnd_event = copa_cwnd_event,
	.set_state = copa_set_state,
	.ssthresh = copa_ssthresh,
	.undo_cwnd = copa_undo_cwnd,
};

static_assert(sizeof(struct copa) <= ICSK_CA_PRIV_SIZE);
lab_scheme(copa_ops);
