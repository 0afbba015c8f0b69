// SPDX-License-Identifier: GPL-2.0-only
/*
 * LEDBAT, written from RFC 6817, and LEDBAT++, written from draft-irtf-iccrg-ledbat-plus-plus ("the
 * draft"): transport for the background, that keeps a queue of a fixed delay and yields to others.
 *
 * Both compare the delay of late with the lowest of ten minutes:
 *
 *   ledbat: the one-way delay and 100 ms. The window moves by (target - queueing) / target packets an
 *     RTT, by 1 at most; a loss halves it.
 *   ledbatpp: the RTT and 60 ms. Below the target GAIN packets an RTT, above it
 *     max(GAIN - cwnd * (queueing / target - 1), -cwnd / 2); slow start by GAIN, the first one until
 *     three quarters of the target; 2 packets for two RTTs, two RTTs after that and then again after
 *     nine times what the last such slowdown took.
 *
 * Followed as written: RFC 6817, section 2.4.2 (the sender's pseudocode), with INIT_CWND 2, MIN_CWND 2,
 * GAIN 1, ALLOWED_INCREASE 1, BASE_HISTORY 10 minutes, and the minimum of the last 4 delays for
 * CURRENT_FILTER; no slow start, which the pseudocode does not have. The draft, section 4: RTT in
 * place of one-way delay, GAIN = 1 / min(16, ceil(2 target / base)), multiplicative decrease with
 * constant 1, modified slow start, initial and periodic slowdown.
 *
 * The one-way delay is the peer's timestamp less ours that it echoes (RFC 7323), as in tcp_lp.c. Linux
 * adds an offset to each by chance; they fall out, for only differences of delays are used, none of
 * them a share of another as there. What that leaves: a resolution of 1 ms; a peer's clock that must
 * tick in milliseconds, as Linux's does; the echo of a delayed ACK is that of the first packet it
 * acknowledges, so its delay holds the wait for the second, which the filter's minimum passes over.
 * Without timestamps it is the RTT, and the delay of the way back counts, too.
 *
 * Where they are silent: a timeout leaves the window of 1 that the RFC asks for, from which ledbat
 * goes on as ever, ledbatpp in slow start; a window counts packets, not bytes; the ACKs of a recovery
 * do not move it (PRR does); a slowdown that a loss or a timeout meets goes on to the lower ssthresh.
 */
#include <linux/math64.h>
#include <net/tcp.h>

#include "lab.h"

#define BASE_HISTORY 10 /* minutes */
#define CURRENT_FILTER 4 /* delays */
#define FRACTION 32 /* of a packet in the window */
#define NONE S32_MAX

static const u32 target_us = 100 * USEC_PER_MSEC;
static const u32 target_pp_us = 60 * USEC_PER_MSEC;
static const u32 init_cwnd = 2;
static const u32 min_cwnd = 2;
static const u32 allowed_increase = 1;
static const u32 minute_us = 60 * USEC_PER_SEC;

static const u32 gain_max_divisor = 16;
static const u32 slowdown_rtts = 2;
static const u32 slowdown_pause = 9;

enum phase {
	FIRST_START, /* slow start until three quarters of the target */
	AVOIDANCE,
	RESTART, /* after a timeout: slow start until ssthresh */
	SLOWDOWN, /* 2 packets */
	REGROWTH, /* slow start until ssthresh */
};

/* Times are in microseconds modulo 2^32, delays in microseconds from an unknown origin. */
struct ledbat {
	s32 base[BASE_HISTORY]; /* the lowest delay of each minute, this one's at base_now */
	s32 current_delays[CURRENT_FILTER];
	s64 fraction; /* packets << FRACTION that the window lacks */
	u32 minute_stamp; /* this minute began */
	u32 origin; /* the first one-way delay (ms) */
	u32 stamp; /* ledbatpp: AVOIDANCE, SLOWDOWN began */
	u32 pause_us; /* ledbatpp: from AVOIDANCE to SLOWDOWN */
	u8 base_now : 4, current_now : 2, has_origin : 1;
	u8 phase;
};

static u32 now_us(const struct sock *sk)
{
	return (u32)tcp_sk(sk)->tcp_mstamp;
}

static u32 srtt_us(const struct sock *sk)
{
	return max(tcp_sk(sk)->srtt_us >> 3, 1U);
}

static s32 lowest(const s32 *delays, int count)
{
	s32 least = NONE;

	while (count--)
		least = min(least, delays[count]);
	return least;
}

static s32 base_delay(const struct ledbat *l)
{
	return lowest(l->base, BASE_HISTORY);
}

static u32 queueing_us(const struct ledbat *l)
{
	return lowest(l->current_delays, CURRENT_FILTER) - base_delay(l);
}

static void add_delay(struct sock *sk, struct ledbat *l, s32 delay)
{
	if (now_us(sk) - l->minute_stamp >= minute_us) {
		l->minute_stamp = now_us(sk);
		l->base_now = (l->base_now + 1) % BASE_HISTORY;
		l->base[l->base_now] = delay;
	}
	l->base[l->base_now] = min(l->base[l->base_now], delay);
	l->current_now = (l->current_now + 1) % CURRENT_FILTER;
	l->current_delays[l->current_now] = delay;
}

static void one_way_acked(struct sock *sk, const struct ack_sample *sample)
{
	const struct tcp_options_received *options = &tcp_sk(sk)->rx_opt;
	struct ledbat *l = inet_csk_ca(sk);
	u32 delay_ms;

	if (options->saw_tstamp && options->rcv_tsecr) {
		delay_ms = options->rcv_tsval - options->rcv_tsecr;
		if (!l->has_origin)
			l->origin = delay_ms;
		l->has_origin = 1;
		add_delay(sk, l, (s32)(delay_ms - l->origin) * (s32)USEC_PER_MSEC);
	} else if (!l->has_origin && sample->rtt_us > 0) {
		add_delay(sk, l, sample->rtt_us);
	}
}

static void rtt_acked(struct sock *sk, const struct ack_sample *sample)
{
	if (sample->rtt_us > 0)
		add_delay(sk, inet_csk_ca(sk), sample->rtt_us);
}

/* Add packets << FRACTION to the window, up to `limit`. */
static void move_cwnd(struct sock *sk, struct ledbat *l, s64 change, u32 limit)
{
	struct tcp_sock *tp = tcp_sk(sk);
	s64 cwnd, bounded;

	l->fraction += change;
	cwnd = tcp_snd_cwnd(tp) + (l->fraction >> FRACTION);
	bounded = clamp_t(s64, min_t(s64, cwnd, limit), min_cwnd, tp->snd_cwnd_clamp);
	l->fraction = bounded == cwnd ? l->fraction & U32_MAX : 0;
	tcp_snd_cwnd_set(tp, bounded);
}

static void ledbat_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ledbat *l = inet_csk_ca(sk);
	u32 flight = tcp_packets_in_flight(tp) + acked; /* before this ACK */
	s64 off_target;

	if (lowest(l->current_delays, CURRENT_FILTER) == NONE)
		return;
	off_target = div_s64(((s64)target_us - queueing_us(l)) << FRACTION, target_us);
	move_cwnd(sk, l, div_s64(off_target * acked, tcp_snd_cwnd(tp)), flight + allowed_increase);
}

static void enter(struct sock *sk, struct ledbat *l, enum phase phase)
{
	l->phase = phase;
	l->stamp = now_us(sk);
	l->fraction = 0;
}

static u32 gain_divisor(const struct ledbat *l)
{
	return min_t(u32, DIV_ROUND_UP(2 * target_pp_us, max(base_delay(l), 1)), gain_max_divisor);
}

/* Below the target by GAIN, above it in proportion to window and excess, by half at most; of an RTT. */
static s64 change_pp(const struct ledbat *l, u32 cwnd)
{
	s64 gain = div_s64(1LL << FRACTION, gain_divisor(l)), whole = (s64)cwnd << FRACTION;
	u32 queueing = queueing_us(l);

	if (queueing <= target_pp_us)
		return gain;
	return max(gain - div_s64(whole, target_pp_us) * (queueing - target_pp_us), -whole / 2);
}

static void slow_start_pp(struct sock *sk, struct ledbat *l, u32 acked)
{
	if (tcp_is_cwnd_limited(sk))
		move_cwnd(sk, l, div_s64((s64)acked << FRACTION, gain_divisor(l)), tcp_sk(sk)->snd_ssthresh);
}

static void avoid_pp(struct sock *sk, struct ledbat *l, u32 acked)
{
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));
	u32 limit = tcp_is_cwnd_limited(sk) ? U32_MAX : cwnd;

	move_cwnd(sk, l, div_s64(change_pp(l, cwnd) * acked, cwnd), limit);
}

static void ledbatpp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ledbat *l = inet_csk_ca(sk);
	u32 since = now_us(sk) - l->stamp;

	if (lowest(l->current_delays, CURRENT_FILTER) == NONE)
		return;
	switch (l->phase) {
	case FIRST_START:
		slow_start_pp(sk, l, acked);
		if (tcp_in_slow_start(tp) && queueing_us(l) <= target_pp_us / 4 * 3)
			break;
		l->pause_us = slowdown_rtts * srtt_us(sk);
		enter(sk, l, AVOIDANCE);
		break;
	case AVOIDANCE:
		avoid_pp(sk, l, acked);
		if (since < l->pause_us)
			break;
		tp->snd_ssthresh = tcp_snd_cwnd(tp);
		tcp_snd_cwnd_set(tp, min_cwnd);
		enter(sk, l, SLOWDOWN);
		break;
	case RESTART:
		slow_start_pp(sk, l, acked);
		if (!tcp_in_slow_start(tp))
			l->phase = AVOIDANCE;
		break;
	case SLOWDOWN:
		if (since < slowdown_rtts * srtt_us(sk))
			break;
		l->pause_us = since;
		enter(sk, l, REGROWTH);
		break;
	case REGROWTH:
		slow_start_pp(sk, l, acked);
		if (tcp_in_slow_start(tp))
			break;
		l->pause_us = slowdown_pause * (l->pause_us + since);
		enter(sk, l, AVOIDANCE);
		break;
	}
}

/* A timeout: the window is 1. */
static void ledbatpp_set_state(struct sock *sk, u8 new_state)
{
	struct ledbat *l = inet_csk_ca(sk);

	if (new_state == TCP_CA_Loss && l->phase == AVOIDANCE)
		l->phase = RESTART;
}

static u32 ledbat_ssthresh(struct sock *sk)
{
	return max(tcp_snd_cwnd(tcp_sk(sk)) / 2, min_cwnd);
}

static void ledbat_init(struct sock *sk)
{
	struct ledbat *l = inet_csk_ca(sk);

	*l = (struct ledbat){ .minute_stamp = now_us(sk), .phase = FIRST_START, .stamp = now_us(sk) };
	for (int i = 0; i < BASE_HISTORY; i++)
		l->base[i] = NONE;
	for (int i = 0; i < CURRENT_FILTER; i++)
		l->current_delays[i] = NONE;
	tcp_snd_cwnd_set(tcp_sk(sk), init_cwnd);
}

static struct tcp_congestion_ops ledbat_ops __read_mostly = {
	.name = "ledbat",
	.init = ledbat_init,
	.pkts_acked = one_way_acked,
	.cong_avoid = ledbat_cong_avoid,
	.ssthresh = ledbat_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
};

static struct tcp_congestion_ops ledbatpp_ops __read_mostly = {
	.name = "ledbatpp",
	.init = ledbat_init,
	.pkts_acked = rtt_acked,
	.cong_avoid = ledbatpp_cong_avoid,
	.set_state = ledbatpp_set_state,
	.ssthresh = ledbat_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
};

static_assert(sizeof(struct ledbat) <= ICSK_CA_PRIV_SIZE);
lab_scheme(ledbat_ops);
lab_scheme(ledbatpp_ops);
