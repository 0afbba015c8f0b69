// SPDX-License-Identifier: GPL-2.0-only
/*
 * C2TCP on Cubic, written from "C2TCP: A Flexible Cellular TCP to Meet Stringent Delay Requirements"
 * (S. Abbasloo, Y. Xu, H. J. Chao, IEEE JSAC 37(4), 2019, arXiv 1810.13241v2; "the paper").
 *
 * Cubic decides the window; beside it stands CoDel's question, asked of the RTT at the sender:
 *
 *   good: the RTT is within the setpoint. The window grows by setpoint / RTT packets an RTT more.
 *   in between: it is above, for less than an interval. Cubic alone.
 *   bad: it stayed above for an interval. A window of 1 and Cubic's ssthresh; again after
 *     interval / sqrt(n), the nth time in a row, until the RTT is within the setpoint.
 *
 * Setpoint and interval are alpha * (lowest RTT); alpha is tuned each half second, so that the mean RTT
 * lies between 85 % and all of the application's target. The paper leaves that target to the
 * application; twice the lowest RTT is what Orca's and Sage's evaluations set (Orca, SIGCOMM 2020,
 * section 5, footnote 6).
 *
 * Followed: the paper's conditions and window, and for what its description leaves open the authors'
 * published code (the kernel patch of the earlier version; the server of version 2.0 for the tuner):
 * the order of the conditions, ssthresh at a backoff, alpha's steps of 0.5 times how often the mean RTT
 * fits into the target or the target into it, within 1 and 10, from 1.5 on. Their tuner is a thread of
 * the server; here it runs at the first ACK after its period. The earlier version (IFIP Networking
 * 2018) has a fixed setpoint and interval of 100 ms in place of alpha.
 *
 * Cubic is the kernel's own: its hooks are called through its tcp_congestion_ops, and its state
 * (struct bictcp, 60 bytes) has the beginning of the private area to itself. HyStart is on, as in
 * Cubic. What the kernel gives is one RTT for each ACK, that of the newest packet it acknowledges;
 * growth counts packets, not ACKs, so that delayed ACKs do not halve it, and takes the ratio itself, not
 * the whole number below it. During loss recovery the window is the kernel's (PRR), as it is Cubic's.
 */
#include <linux/math64.h>
#include <net/tcp.h>

#include "lab.h"

#define CUBIC_SIZE 64 /* of the private area, for struct bictcp of net/ipv4/tcp_cubic.c */
#define UNIT 100 /* of alpha */

static const u32 target_min_rtts = 2;
static const u32 target_floor_percent = 85;
static const u32 alpha_start = 150;
static const u32 alpha_step = 50;
static const u32 alpha_min = 100;
static const u32 alpha_max = 1000;
static const u32 tuning_us = 500 * USEC_PER_MSEC;

/* Times are in microseconds modulo 2^32. */
struct c2tcp {
	u8 cubic[CUBIC_SIZE];
	u64 rtt_sum_us; /* of this tuning period */
	u32 rtt_count;
	u32 tuning_stamp;
	u32 deadline; /* when the condition is bad, where `above` */
	u32 growth; /* packets << 16 still to be added */
	u16 backoffs; /* since the RTT was within the setpoint */
	u16 alpha;
	bool above;
};

/* Cubic registers after the schemes of the lab, but before any socket is there. */
static const struct tcp_congestion_ops *cubic(void)
{
	static const struct tcp_congestion_ops *found __read_mostly;

	if (!found) {
		rcu_read_lock();
		found = tcp_ca_find("cubic");
		rcu_read_unlock();
	}
	return found;
}

static u32 now_us(const struct sock *sk)
{
	return (u32)tcp_sk(sk)->tcp_mstamp;
}

/* Setpoint and interval. */
static u32 setpoint_us(const struct sock *sk, const struct c2tcp *c)
{
	return div_u64((u64)c->alpha * tcp_min_rtt(tcp_sk(sk)), UNIT);
}

/* Bring the mean RTT to between 85 % and all of the target. */
static void tune(struct sock *sk, struct c2tcp *c, u32 rtt_us)
{
	u32 target = target_min_rtts * tcp_min_rtt(tcp_sk(sk)),
	    floor = div_u64((u64)target * target_floor_percent, 100);
	u32 mean, alpha = c->alpha;

	c->rtt_sum_us += rtt_us;
	c->rtt_count++;
	if (now_us(sk) - c->tuning_stamp < tuning_us)
		return;
	mean = max_t(u32, div_u64(c->rtt_sum_us, c->rtt_count), 1);
	if (mean > target)
		alpha -= min(mean / target * alpha_step, alpha - alpha_min);
	else if (mean < floor)
		alpha += min(floor / mean * alpha_step, alpha_max - alpha);
	c->alpha = alpha;
	c->rtt_sum_us = 0;
	c->rtt_count = 0;
	c->tuning_stamp = now_us(sk);
}

static bool in_recovery(const struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_state >= TCP_CA_CWR;
}

static void grow(struct sock *sk, struct c2tcp *c, u32 acked, u32 rtt_us)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (in_recovery(sk) || !tcp_is_cwnd_limited(sk))
		return;
	c->growth += div_u64(((u64)setpoint_us(sk, c) << 16) / rtt_us * acked, tcp_snd_cwnd(tp));
	tcp_snd_cwnd_set(tp, min(tcp_snd_cwnd(tp) + (c->growth >> 16), tp->snd_cwnd_clamp));
	c->growth &= 0xffff;
}

static void back_off(struct sock *sk, struct c2tcp *c)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (in_recovery(sk))
		return;
	tp->snd_ssthresh = cubic()->ssthresh(sk);
	tcp_snd_cwnd_set(tp, 1);
	tp->snd_cwnd_cnt = 0;
	c->growth = 0;
}

static void c2tcp_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	struct c2tcp *c = inet_csk_ca(sk);
	u32 rtt_us = sample->rtt_us, interval = setpoint_us(sk, c);

	cubic()->pkts_acked(sk, sample);
	if (sample->rtt_us <= 0)
		return;
	tune(sk, c, rtt_us);
	if (rtt_us <= interval) {
		c->above = false;
		grow(sk, c, sample->pkts_acked, rtt_us);
	} else if (!c->above) {
		c->above = true;
		c->backoffs = 0;
		c->deadline = now_us(sk) + interval;
	} else if ((s32)(now_us(sk) - c->deadline) > 0) {
		c->backoffs = min(c->backoffs + 1, U16_MAX);
		c->deadline = now_us(sk) + div_u64((u64)interval << 8, int_sqrt((u32)c->backoffs << 16));
		back_off(sk, c);
	}
}

static void c2tcp_init(struct sock *sk)
{
	struct c2tcp *c = inet_csk_ca(sk);

	*c = (struct c2tcp){ .alpha = alpha_start, .tuning_stamp = now_us(sk) };
	cubic()->init(sk);
}

static u32 c2tcp_ssthresh(struct sock *sk)
{
	return cubic()->ssthresh(sk);
}

static void c2tcp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	cubic()->cong_avoid(sk, ack, acked);
}

static void c2tcp_set_state(struct sock *sk, u8 new_state)
{
	cubic()->set_state(sk, new_state);
}

static void c2tcp_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	cubic()->cwnd_event(sk, event);
}

static u32 c2tcp_undo_cwnd(struct sock *sk)
{
	return cubic()->undo_cwnd(sk);
}

static struct tcp_congestion_ops c2tcp_ops __read_mostly = {
	.name = "c2tcp",
	.init = c2tcp_init,
	.ssthresh = c2tcp_ssthresh,
	.cong_avoid = c2tcp_cong_avoid,
	.set_state = c2tcp_set_state,
	.undo_cwnd = c2tcp_undo_cwnd,
	.cwnd_event = c2tcp_cwnd_event,
	.pkts_acked = c2tcp_pkts_acked,
};

static_assert(sizeof(struct c2tcp) <= ICSK_CA_PRIV_SIZE);
lab_scheme(c2tcp_ops);
