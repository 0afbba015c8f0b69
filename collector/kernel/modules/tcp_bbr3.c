// SPDX-License-Identifier: GPL-2.0-only
/*
 * BBRv3, written from draft-ietf-ccwg-bbr-06 ("the draft").
 *
 * A model of the path (the bandwidth it delivers, its propagation delay, how much may be in flight
 * before it drops) sets pacing rate and window:
 *
 *   STARTUP -> DRAIN -> DOWN -> CRUISE -> REFILL -> UP -> DOWN ...; PROBE_RTT from any, every 5 s
 *
 * Followed as written: the states with their gains and conditions (5.3), precautionary probing
 * (5.3.3.6), min_rtt and its probing (5.3.4.3), idle restarts (5.4), rounds and the bandwidth
 * filter over two cycles (5.5.1 to 5.5.6), aggregation (5.5.9), the short-term model (5.5.10.3),
 * undoing (5.5.11), pacing, quantum and window (5.6). Names are the draft's.
 *
 * What Linux 6.12 does not give a module, and what is done instead:
 *  - P.tx_in_flight, in no rate sample. Links keep the order: what was in flight when a packet was
 *    sent is delivered or lost when it is acknowledged, so it is rs->delivered plus the losses
 *    since. Losses not marked yet (RACK waiting for reordering) are missing, then in RS.lost too.
 *  - P.lost (C.lost at transmit), in none either. tp->lost is noted where a round of loss counting
 *    and the one before begin, and interpolated by rs->prior_delivered. It is exact if nothing was
 *    lost in between, as when a probe for bandwidth meets its first losses.
 *  - a call for each packet marked lost. HandleLostPacket() (5.5.10.2) runs for each ACK that
 *    reports losses, as if they were one packet, sent with the newest one acknowledged.
 *    A timeout marks its packets on no ACK: they are noted (NoteLoss), but end no probe.
 *  - a call when a tail-loss probe repaired a loss. Nothing is marked then: it goes unnoticed.
 *  - the lost ranges of a round (5.3.1.3). ACKs that report losses are counted.
 *  - a say in the size of TSO bursts. The hook for the least size has the draft's 2 packets; above,
 *    Linux takes what the pacing rate sends in a millisecond, as the draft does, and on short paths
 *    more (tcp_tso_rtt_log).
 *  - room. Counts of losses, ACKed packets within a round and packets ACKed early have 16 bits.
 *
 * Where the draft says two things or nothing: DRAIN is not capped by inflight_longterm
 * (BoundCwndForModel(), not the table of 5.6.1); C.inflight is what was in flight as the ACK came,
 * for after it less than the window always is; a cycle without a sample of bandwidth does not
 * forget the one before; the window of 10 rounds for aggregation is two of 5, that of 1 round in
 * STARTUP two of 1. ECN is left out: the draft does not specify it.
 */
#include <linux/math64.h>
#include <linux/random.h>
#include <net/tcp.h>
#include "lab.h"

#define BW_SCALE 24 /* bandwidth: packets a microsecond << 24, as in BBRv1 */
#define GAIN_UNIT 1000
#define UNBOUNDED U32_MAX

enum bbr3_state {
	STARTUP, /* double the rate each round */
	DRAIN, /* let go of the queue that made */
	DOWN, /* ProbeBW: slower than delivery, until there is room */
	CRUISE, /* ProbeBW: as fast as delivery */
	REFILL, /* ProbeBW: fill the pipe for a round */
	UP, /* ProbeBW: faster than delivery, until no more arrives or too much is lost */
	PROBE_RTT, /* half the BDP in flight, to see the delay of an empty queue */
};

/* The state that a loss ended, to return to if nothing was lost after all. */
enum bbr3_undo { UNDO_NONE, UNDO_STARTUP, UNDO_UP };

static const u16 pacing_gain[] = {
	[STARTUP] = 2770, /* the least that doubles the rate each round */
	[DRAIN] = 500, /* empties STARTUP's queue in less than a round */
	[DOWN] = 900,	  [CRUISE] = 1000, [REFILL] = 1000, [UP] = 1250, [PROBE_RTT] = 1000,
};

static const u32 default_cwnd_gain = 2000;
static const u32 up_cwnd_gain = 2250;
static const u32 probe_rtt_cwnd_gain = 500;
static const u32 pacing_percent = 99; /* a margin of 1 % lets queues drain */

static const u32 min_pipe_cwnd = 4;
static const u32 min_quantum = 2;
static const u32 full_bw_growth_percent = 125;
static const u32 full_bw_rounds = 3;
static const u32 startup_full_loss_cnt = 6;
static const u32 drain_max_rounds = 3;
static const u32 loss_thresh_percent = 2;
static const u32 beta_percent = 70;
static const u32 headroom_percent = 15;

static const u32 probe_wait_base_ms = 2000;
static const u32 probe_wait_random_ms = 1000;
static const u32 probe_wait_max_rounds = 63;
static const u32 probe_up_max_rounds = 30;

static const u32 min_rtt_filter_us = 10 * USEC_PER_SEC;
static const u32 probe_rtt_interval_us = 5 * USEC_PER_SEC;
static const u32 probe_rtt_duration_us = 200 * USEC_PER_MSEC;

/* Counts are in packets, times in microseconds modulo 2^32. */
struct bbr3 {
	/* long-term model */
	u32 max_bw[2]; /* of the previous ProbeBW cycle and of this one */
	u32 inflight_longterm;
	u32 min_rtt_us;
	u32 min_rtt_stamp;
	u32 probe_rtt_min_us;
	u32 probe_rtt_min_stamp;
	u32 extra_acked_stamp; /* start of the interval that is measured */
	u16 extra_acked_delivered;
	u16 extra_acked[2];
	u16 probe_up_acked; /* in UP, towards one more in inflight_longterm, */
	u16 probe_up_acked_per_inc; /* which takes so many */
	/* rounds */
	u16 loss_round_lost; /* tp->lost as this round of loss counting began, */
	u16 prev_loss_round_lost; /* and as the one before did */
	u16 prev_loss_round_span; /* what was delivered between the two beginnings */
	u32 loss_round_delivered; /* tp->delivered as this one began */
	u32 next_round_delivered;
	/* short-term model */
	u32 bw_shortterm;
	u32 inflight_shortterm;
	u32 bw_latest;
	u32 inflight_latest;
	/* state machine */
	u32 phase_stamp; /* DOWN (then CRUISE) began; PROBE_RTT reached its target */
	u32 full_bw;
	u32 prior_cwnd;
	u32 undo_bw_shortterm;
	u32 undo_inflight_shortterm;
	u32 undo_inflight_longterm;
	u32 state : 3;
	u32 undo_state : 2;
	u32 prev_ca_state : 3;
	u32 has_seen_rtt : 1;
	u32 round_start : 1;
	u32 loss_round_start : 1;
	u32 loss_in_round : 1;
	u32 loss_events : 3; /* of this round, in STARTUP */
	u32 drain_rounds : 3;
	u32 full_bw_reached : 1;
	u32 full_bw_now : 1;
	u32 full_bw_count : 2;
	u32 idle_restart : 1;
	u32 probe_sample : 1; /* ACKs are of packets sent while probing, no reaction to them yet */
	u32 probe_stopping : 1; /* this round's ACKs are the last of the probe */
	u32 prev_probe_too_high : 1;
	u32 prev_probe_precautionary : 1;
	u32 probe_rtt_at_target : 1;
	u32 probe_rtt_round_done : 1;
	u32 extra_acked_now : 1; /* the window that is being filled */
	u32 extra_acked_age : 3; /* of that window, in rounds */
	u32 probe_wait_ms : 12;
	u32 rounds_since_probe : 7;
	u32 probe_up_rounds : 5;
};

/* What one ACK says; no delivery rate if `bw` is 0. */
struct bbr3_ack {
	const struct rate_sample *rs;
	u32 bw;
	u32 delivered; /* since the newest packet ACKed was sent */
	u32 lost; /* since the same moment */
	u32 tx_in_flight; /* at that moment, that packet included */
	u32 inflight; /* as the ACK came */
};

static u32 percent_of(u32 value, u32 percent)
{
	return div_u64((u64)value * percent, 100);
}

static u32 now_us(const struct sock *sk)
{
	return (u32)tcp_sk(sk)->tcp_mstamp;
}

static bool elapsed(const struct sock *sk, u32 since, u32 us)
{
	return now_us(sk) - since > us;
}

static bool probes_bw(const struct bbr3 *b)
{
	return b->state >= DOWN && b->state <= UP;
}

/* Does this state send more than the path is known to take? */
static bool accelerates(const struct bbr3 *b)
{
	return b->state == STARTUP || b->state == REFILL || b->state == UP;
}

static u32 bbr3_max_bw(const struct bbr3 *b)
{
	return max(b->max_bw[0], b->max_bw[1]);
}

static u32 bbr3_bw(const struct bbr3 *b)
{
	return min(bbr3_max_bw(b), b->bw_shortterm);
}

/* ---- control parameters ---- */

static void bbr3_pace(struct sock *sk, const struct bbr3 *b, u32 bw, u32 gain)
{
	u32 factor = gain * (USEC_PER_SEC / GAIN_UNIT / 100) * pacing_percent;
	u64 rate = mul_u64_u32_shr((u64)bw * tcp_sk(sk)->mss_cache, factor, BW_SCALE);

	rate = min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate));
	if (b->full_bw_reached || rate > READ_ONCE(sk->sk_pacing_rate))
		WRITE_ONCE(sk->sk_pacing_rate, rate);
}

/* The first rate: the initial window over the first RTT, or over 1 ms as long as there is none. */
static void bbr3_init_pacing(struct sock *sk)
{
	u32 srtt_us = tcp_sk(sk)->srtt_us >> 3;
	struct bbr3 *b = inet_csk_ca(sk);

	b->has_seen_rtt = srtt_us > 0;
	WRITE_ONCE(sk->sk_pacing_rate, 0);
	bbr3_pace(sk, b, div_u64((u64)tcp_snd_cwnd(tcp_sk(sk)) << BW_SCALE, srtt_us ?: USEC_PER_MSEC),
		  pacing_gain[STARTUP]);
}

static u32 bbr3_min_tso_segs(struct sock *sk)
{
	return min_quantum;
}

static u32 send_quantum(struct sock *sk)
{
	u64 bytes = min_t(u64, READ_ONCE(sk->sk_pacing_rate) / MSEC_PER_SEC, GSO_LEGACY_MAX_SIZE);

	return max_t(u32, div_u64(bytes, tcp_sk(sk)->mss_cache), min_quantum);
}

static u32 bdp_multiple(const struct bbr3 *b, u32 bw, u32 gain)
{
	u64 milli;

	if (b->min_rtt_us == UNBOUNDED)
		return TCP_INIT_CWND;
	milli = mul_u64_u32_shr((u64)bw * b->min_rtt_us, gain, BW_SCALE);
	return min_t(u64, div_u64(milli + GAIN_UNIT - 1, GAIN_UNIT), S32_MAX);
}

static u32 quantization_budget(struct sock *sk, const struct bbr3 *b, u32 inflight)
{
	inflight = max3(inflight, 3 * send_quantum(sk), min_pipe_cwnd);
	return b->state == UP ? inflight + 2 : inflight;
}

/* A BDP, and what it takes to keep it in flight. */
static u32 bbr3_inflight(struct sock *sk, const struct bbr3 *b, u32 bw)
{
	return quantization_budget(sk, b, bdp_multiple(b, bw, GAIN_UNIT));
}

static u32 target_inflight(struct sock *sk, const struct bbr3 *b)
{
	return min(bdp_multiple(b, bbr3_bw(b), GAIN_UNIT), tcp_snd_cwnd(tcp_sk(sk)));
}

static u32 inflight_with_headroom(const struct bbr3 *b)
{
	u32 headroom = max(1U, percent_of(b->inflight_longterm, headroom_percent));

	if (b->inflight_longterm == UNBOUNDED)
		return UNBOUNDED;
	return max(b->inflight_longterm - min(b->inflight_longterm, headroom), min_pipe_cwnd);
}

static u32 probe_rtt_cwnd(const struct bbr3 *b)
{
	return max(bdp_multiple(b, bbr3_bw(b), probe_rtt_cwnd_gain), min_pipe_cwnd);
}

static void save_cwnd(struct sock *sk, struct bbr3 *b)
{
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));
	bool good = b->prev_ca_state < TCP_CA_Recovery && b->state != PROBE_RTT;

	b->prior_cwnd = good ? cwnd : max(b->prior_cwnd, cwnd);
}

static void restore_cwnd(struct sock *sk, struct bbr3 *b)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_snd_cwnd_set(tp, max(tcp_snd_cwnd(tp), b->prior_cwnd));
}

/* ---- rounds ---- */

static void start_round(const struct sock *sk, struct bbr3 *b)
{
	b->next_round_delivered = tcp_sk(sk)->delivered;
}

static void update_round(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	b->round_start = a->bw && !before(a->rs->prior_delivered, b->next_round_delivered);
	if (!b->round_start)
		return;
	start_round(sk, b);
	b->rounds_since_probe = min(b->rounds_since_probe + 1U, probe_wait_max_rounds);
	b->drain_rounds = min(b->drain_rounds + 1U, drain_max_rounds + 1);
}

/* tp->lost, modulo 2^16, when `delivered` packets had been delivered. */
static u16 lost_at(const struct bbr3 *b, u32 delivered)
{
	u32 ago = b->loss_round_delivered - delivered;
	u16 lost = b->loss_round_lost - b->prev_loss_round_lost;

	if (!before(delivered, b->loss_round_delivered))
		return b->loss_round_lost;
	if (ago >= b->prev_loss_round_span)
		return b->prev_loss_round_lost;
	return b->loss_round_lost - (u32)lost * ago / b->prev_loss_round_span;
}

static struct bbr3_ack read_ack(const struct sock *sk, const struct bbr3 *b, const struct rate_sample *rs)
{
	struct bbr3_ack a = { .rs = rs, .inflight = rs->prior_in_flight };

	if (rs->delivered <= 0 || rs->interval_us <= 0)
		return a;
	a.bw = min_t(u64, div64_u64((u64)rs->delivered << BW_SCALE, rs->interval_us), U32_MAX - 1);
	a.delivered = rs->delivered;
	a.lost = (u16)(tcp_sk(sk)->lost - lost_at(b, rs->prior_delivered));
	a.tx_in_flight = a.delivered + a.lost;
	return a;
}

/* ---- model ---- */

static bool inflight_too_high(const struct bbr3_ack *a)
{
	return (u64)a->lost * 100 > (u64)a->tx_in_flight * loss_thresh_percent;
}

static void reset_congestion_signals(struct bbr3 *b)
{
	b->loss_in_round = 0;
	b->bw_latest = 0;
	b->inflight_latest = 0;
}

static void reset_short_term_model(struct bbr3 *b)
{
	b->bw_shortterm = UNBOUNDED;
	b->inflight_shortterm = UNBOUNDED;
}

static void reset_full_bw(struct bbr3 *b, u32 bw)
{
	b->full_bw = bw;
	b->full_bw_count = 0;
	b->full_bw_now = 0;
}

static void save_state_upon_loss(struct sock *sk, struct bbr3 *b)
{
	save_cwnd(sk, b);
	b->undo_state = UNDO_NONE;
	b->undo_bw_shortterm = b->bw_shortterm;
	b->undo_inflight_shortterm = b->inflight_shortterm;
	b->undo_inflight_longterm = b->inflight_longterm;
}

/* The first loss of a round begins the round anew; what was lost until just before it is noted. */
static void note_loss(struct sock *sk, struct bbr3 *b, u32 losses)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 span = tp->delivered - b->loss_round_delivered;

	if (!b->loss_in_round) {
		b->prev_loss_round_span = min_t(u32, b->prev_loss_round_span + span, U16_MAX);
		b->loss_round_delivered = tp->delivered;
		b->loss_round_lost = tp->lost - losses;
		save_state_upon_loss(sk, b);
	}
	b->loss_in_round = 1;
}

static void update_loss_round(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	b->loss_round_start = a->bw && !before(a->rs->prior_delivered, b->loss_round_delivered);
	if (!b->loss_round_start)
		return;
	b->prev_loss_round_span = min_t(u32, tp->delivered - b->loss_round_delivered, U16_MAX);
	b->prev_loss_round_lost = b->loss_round_lost;
	b->loss_round_delivered = tp->delivered;
	b->loss_round_lost = tp->lost;
}

/* Losses while not probing: adapt to what was delivered, by 0.7 a round at most. */
static void adapt_lower_bounds(struct sock *sk, struct bbr3 *b)
{
	if (b->bw_shortterm == UNBOUNDED)
		b->bw_shortterm = bbr3_max_bw(b);
	if (b->inflight_shortterm == UNBOUNDED)
		b->inflight_shortterm = tcp_snd_cwnd(tcp_sk(sk));
	b->bw_shortterm = max(b->bw_latest, percent_of(b->bw_shortterm, beta_percent));
	b->inflight_shortterm = max(b->inflight_latest, percent_of(b->inflight_shortterm, beta_percent));
}

static void update_congestion_signals(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	b->bw_latest = max(b->bw_latest, a->bw);
	b->inflight_latest = max(b->inflight_latest, a->delivered);
	update_loss_round(sk, b, a);
	update_round(sk, b, a);
	if (!a->rs->is_app_limited || a->bw >= bbr3_max_bw(b))
		b->max_bw[1] = max(b->max_bw[1], a->bw);
	if (!b->loss_round_start)
		return;
	if (b->loss_in_round && !accelerates(b))
		adapt_lower_bounds(sk, b);
	b->loss_in_round = 0;
}

static void advance_latest_delivery_signals(struct bbr3 *b, const struct bbr3_ack *a)
{
	if (!b->loss_round_start)
		return;
	b->bw_latest = a->bw;
	b->inflight_latest = a->delivered;
}

static void advance_max_bw_filter(struct bbr3 *b)
{
	if (!b->max_bw[1])
		return;
	b->max_bw[0] = b->max_bw[1];
	b->max_bw[1] = 0;
}

/* How many more packets than expected arrive at once? */
static void update_aggregation(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	u32 window_rounds = b->full_bw_reached ? 5 : 1;
	u64 expected;
	u32 extra;

	if (!a->bw)
		return;
	if (b->round_start && ++b->extra_acked_age >= window_rounds) {
		b->extra_acked_age = 0;
		b->extra_acked_now ^= 1;
		b->extra_acked[b->extra_acked_now] = 0;
	}
	expected = (u64)bbr3_bw(b) * (now_us(sk) - b->extra_acked_stamp) >> BW_SCALE;
	if (b->extra_acked_delivered <= expected) {
		b->extra_acked_delivered = 0;
		b->extra_acked_stamp = now_us(sk);
		expected = 0;
	}
	b->extra_acked_delivered = min_t(u32, b->extra_acked_delivered + a->rs->acked_sacked, U16_MAX);
	extra = min_t(u32, b->extra_acked_delivered - expected, tcp_snd_cwnd(tcp_sk(sk)));
	b->extra_acked[b->extra_acked_now] = max_t(u32, extra, b->extra_acked[b->extra_acked_now]);
}

/* Returns whether the minimum of the last 5 s is due for another look. */
static bool update_min_rtt(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	bool expired = elapsed(sk, b->probe_rtt_min_stamp, probe_rtt_interval_us);
	long rtt_us = a->rs->rtt_us;

	if (rtt_us >= 0 && (rtt_us < b->probe_rtt_min_us || expired)) {
		b->probe_rtt_min_us = rtt_us;
		b->probe_rtt_min_stamp = now_us(sk);
	}
	if (b->probe_rtt_min_us < b->min_rtt_us || elapsed(sk, b->min_rtt_stamp, min_rtt_filter_us)) {
		b->min_rtt_us = b->probe_rtt_min_us;
		b->min_rtt_stamp = b->probe_rtt_min_stamp;
	}
	return expired;
}

/* ---- state machine ---- */

static void start_down(struct sock *sk, struct bbr3 *b)
{
	reset_congestion_signals(b);
	b->rounds_since_probe = get_random_u32_below(2);
	b->probe_wait_ms = probe_wait_base_ms + get_random_u32_below(probe_wait_random_ms + 1);
	b->phase_stamp = now_us(sk);
	b->probe_stopping = 1;
	start_round(sk, b);
	b->state = DOWN;
}

static void start_refill(struct sock *sk, struct bbr3 *b)
{
	reset_short_term_model(b);
	b->probe_up_rounds = 0;
	b->probe_up_acked = 0;
	b->prev_probe_precautionary = 0;
	b->probe_stopping = 0;
	start_round(sk, b);
	b->state = REFILL;
}

/* inflight_longterm grows by 1, 2, 4, ... packets in each round of UP. */
static void raise_inflight_longterm_slope(const struct sock *sk, struct bbr3 *b)
{
	u32 cwnd = min_t(u32, tcp_snd_cwnd(tcp_sk(sk)), U16_MAX);

	b->probe_up_acked_per_inc = max(cwnd >> b->probe_up_rounds, 1U);
	b->probe_up_rounds = min(b->probe_up_rounds + 1U, probe_up_max_rounds);
}

static void start_up(struct sock *sk, struct bbr3 *b, u32 bw)
{
	b->probe_sample = 1;
	start_round(sk, b);
	reset_full_bw(b, bw);
	b->state = UP;
	raise_inflight_longterm_slope(sk, b);
}

static void probe_inflight_longterm_upward(const struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	u32 acked = b->probe_up_acked + a->rs->acked_sacked;

	if (!tcp_sk(sk)->is_cwnd_limited || tcp_snd_cwnd(tcp_sk(sk)) < b->inflight_longterm)
		return;
	b->inflight_longterm += acked / b->probe_up_acked_per_inc;
	b->probe_up_acked = acked % b->probe_up_acked_per_inc;
	if (b->round_start)
		raise_inflight_longterm_slope(sk, b);
}

/* What was in flight when the losses that this ACK reports crossed the threshold? */
static u32 inflight_at_loss(const struct bbr3_ack *a)
{
	u32 size = min_t(u32, a->rs->losses, a->lost);
	u32 inflight_prev = a->tx_in_flight - size;
	u64 allowed = (u64)inflight_prev * loss_thresh_percent, lost_prev = (u64)(a->lost - size) * 100;

	return inflight_prev + (allowed > lost_prev ? div_u64(allowed - lost_prev, 100 - loss_thresh_percent) : 0);
}

/* HandleLostPacket() and HandleInflightTooHigh(), once a probe. */
static void handle_losses(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	if (a->rs->losses <= 0)
		return;
	note_loss(sk, b, a->rs->losses);
	if (!b->probe_sample || !a->bw || !inflight_too_high(a))
		return;
	b->prev_probe_too_high = 1;
	b->probe_sample = 0;
	if (!a->rs->is_app_limited)
		b->inflight_longterm = max(inflight_at_loss(a), percent_of(target_inflight(sk, b), beta_percent));
	if (b->state == UP) {
		b->undo_state = UNDO_UP;
		start_down(sk, b);
	}
}

/* Returns whether it has decided on the next state. */
static bool adapt_long_term_model(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	if (b->probe_stopping && b->round_start) {
		b->probe_stopping = 0;
		b->probe_sample = 0;
		if (probes_bw(b) && !a->rs->is_app_limited)
			advance_max_bw_filter(b);
		if (probes_bw(b) && b->prev_probe_precautionary && !b->prev_probe_too_high) {
			start_refill(sk, b);
			return true;
		}
	}
	if (a->bw && !inflight_too_high(a) && b->inflight_longterm != UNBOUNDED) {
		b->inflight_longterm = max(b->inflight_longterm, a->tx_in_flight);
		if (b->state == UP)
			probe_inflight_longterm_upward(sk, b, a);
	}
	return false;
}

static bool time_to_probe_bw(struct sock *sk, const struct bbr3 *b)
{
	return elapsed(sk, b->phase_stamp, b->probe_wait_ms * USEC_PER_MSEC) ||
	       b->rounds_since_probe >= min(target_inflight(sk, b), probe_wait_max_rounds);
}

static bool time_to_go_down(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (b->prev_probe_too_high && a->inflight >= b->inflight_longterm) {
		b->prev_probe_precautionary = 1;
		return true;
	}
	if (tp->is_cwnd_limited && tcp_snd_cwnd(tp) >= b->inflight_longterm) {
		reset_full_bw(b, a->bw);
		return false;
	}
	return b->full_bw_now;
}

static void update_cycle(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	if (!b->full_bw_reached || adapt_long_term_model(sk, b, a))
		return;
	switch (b->state) {
	case DOWN:
	case CRUISE:
		if (time_to_probe_bw(sk, b))
			start_refill(sk, b);
		else if (b->state == DOWN && a->inflight <= inflight_with_headroom(b) &&
			 a->inflight <= bbr3_inflight(sk, b, bbr3_max_bw(b)))
			b->state = CRUISE;
		break;
	case REFILL:
		if (b->round_start)
			start_up(sk, b, a->bw);
		break;
	case UP:
		if (time_to_go_down(sk, b, a)) {
			b->prev_probe_too_high = 0; /* until the probe's losses show */
			start_down(sk, b);
		}
		break;
	}
}

static void check_full_bw_reached(struct bbr3 *b, const struct bbr3_ack *a)
{
	if (b->full_bw_now || !b->round_start || a->rs->is_app_limited)
		return;
	if (a->bw >= percent_of(b->full_bw, full_bw_growth_percent)) {
		reset_full_bw(b, a->bw);
		return;
	}
	b->full_bw_now = ++b->full_bw_count >= full_bw_rounds;
	b->full_bw_reached |= b->full_bw_now;
}

/* The first loss began the round of loss counting: where that ends in recovery, all of it was. */
static void check_startup_high_loss(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	if (a->rs->losses > 0)
		b->loss_events = min(b->loss_events + 1U, startup_full_loss_cnt);
	if (!b->loss_round_start)
		return;
	if (inet_csk(sk)->icsk_ca_state == TCP_CA_Recovery && b->loss_events >= startup_full_loss_cnt &&
	    inflight_too_high(a)) {
		b->undo_state = UNDO_STARTUP;
		b->full_bw_reached = 1;
		b->inflight_longterm = max(bdp_multiple(b, bbr3_bw(b), GAIN_UNIT), b->inflight_latest);
	}
	b->loss_events = 0;
}

static void check_startup_and_drain_done(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a)
{
	if (b->state == STARTUP) {
		check_startup_high_loss(sk, b, a);
		if (b->full_bw_reached) {
			b->state = DRAIN;
			b->drain_rounds = 0;
		}
	}
	if (b->state == DRAIN &&
	    (a->inflight <= bbr3_inflight(sk, b, bbr3_bw(b)) || b->drain_rounds > drain_max_rounds))
		start_down(sk, b);
}

static void check_probe_rtt_done(struct sock *sk, struct bbr3 *b)
{
	if (!b->probe_rtt_at_target || !elapsed(sk, b->phase_stamp, probe_rtt_duration_us))
		return;
	b->probe_rtt_min_stamp = now_us(sk); /* the next one in 5 s */
	restore_cwnd(sk, b);
	reset_short_term_model(b);
	if (b->full_bw_reached) {
		start_down(sk, b);
		b->state = CRUISE; /* less than a BDP is in flight */
	} else {
		b->state = STARTUP;
	}
}

static void check_probe_rtt(struct sock *sk, struct bbr3 *b, const struct bbr3_ack *a, bool expired)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (b->state != PROBE_RTT && expired && !b->idle_restart) {
		save_cwnd(sk, b);
		b->state = PROBE_RTT;
		b->probe_rtt_at_target = 0;
		b->probe_stopping = 1;
		start_round(sk, b);
	}
	if (b->state == PROBE_RTT) {
		tp->app_limited = (tp->delivered + tcp_packets_in_flight(tp)) ?: 1; /* ignore its low rates */
		if (!b->probe_rtt_at_target) {
			if (tcp_packets_in_flight(tp) <= probe_rtt_cwnd(b)) {
				b->probe_rtt_at_target = 1;
				b->probe_rtt_round_done = 0;
				b->phase_stamp = now_us(sk);
				start_round(sk, b);
			}
		} else {
			b->probe_rtt_round_done |= b->round_start;
			if (b->probe_rtt_round_done)
				check_probe_rtt_done(sk, b);
		}
	}
	if (a->delivered)
		b->idle_restart = 0;
}

/* ---- window ---- */

static u32 max_inflight(struct sock *sk, const struct bbr3 *b)
{
	u32 gain = b->state == UP ? up_cwnd_gain : default_cwnd_gain;
	u32 extra_acked = max(b->extra_acked[0], b->extra_acked[1]);

	return quantization_budget(sk, b, bdp_multiple(b, bbr3_bw(b), gain) + extra_acked);
}

static u32 volume_cap(const struct bbr3 *b)
{
	u32 cap = UNBOUNDED;

	if (b->state == CRUISE || b->state == PROBE_RTT)
		cap = inflight_with_headroom(b);
	else if (probes_bw(b))
		cap = b->inflight_longterm;
	cap = max(min(cap, b->inflight_shortterm), min_pipe_cwnd);
	return b->state == PROBE_RTT ? min(cap, probe_rtt_cwnd(b)) : cap;
}

static void set_cwnd(struct sock *sk, struct bbr3 *b, const struct rate_sample *rs)
{
	u8 ca_state = inet_csk(sk)->icsk_ca_state;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd, target;

	if (ca_state < TCP_CA_Recovery && b->prev_ca_state >= TCP_CA_Recovery)
		restore_cwnd(sk, b);
	b->prev_ca_state = ca_state;
	if (rs->acked_sacked) {
		target = max_inflight(sk, b);
		cwnd = tcp_snd_cwnd(tp);
		if (b->full_bw_reached)
			cwnd = min(cwnd + rs->acked_sacked, target);
		else if (cwnd < target || tp->delivered < TCP_INIT_CWND)
			cwnd += rs->acked_sacked;
		tcp_snd_cwnd_set(tp, max(cwnd, min_pipe_cwnd));
	}
	tcp_snd_cwnd_set(tp, min3(tcp_snd_cwnd(tp), volume_cap(b), tp->snd_cwnd_clamp));
}

/* ---- hooks ---- */

static void bbr3_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct bbr3 *b = inet_csk_ca(sk);
	struct bbr3_ack a = read_ack(sk, b, rs);

	handle_losses(sk, b, &a);
	update_congestion_signals(sk, b, &a);
	update_aggregation(sk, b, &a);
	check_full_bw_reached(b, &a);
	check_startup_and_drain_done(sk, b, &a);
	update_cycle(sk, b, &a);
	check_probe_rtt(sk, b, &a, update_min_rtt(sk, b, &a));
	advance_latest_delivery_signals(b, &a);
	if (!b->has_seen_rtt && tcp_sk(sk)->srtt_us)
		bbr3_init_pacing(sk);
	bbr3_pace(sk, b, bbr3_bw(b), pacing_gain[b->state]);
	set_cwnd(sk, b, rs);
}

static void bbr3_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct bbr3 *b = inet_csk_ca(sk);

	if (event != CA_EVENT_TX_START || !tcp_sk(sk)->app_limited)
		return;
	b->idle_restart = 1;
	b->extra_acked_stamp = now_us(sk);
	if (probes_bw(b))
		bbr3_pace(sk, b, bbr3_bw(b), GAIN_UNIT);
	else if (b->state == PROBE_RTT)
		check_probe_rtt_done(sk, b);
}

/* Loss recovery or a retransmission timeout begins. */
static u32 bbr3_ssthresh(struct sock *sk)
{
	save_state_upon_loss(sk, inet_csk_ca(sk));
	return tcp_sk(sk)->snd_ssthresh;
}

/* The kernel has cut the window to what is left in flight and one packet more. */
static void bbr3_set_state(struct sock *sk, u8 new_state)
{
	struct bbr3 *b = inet_csk_ca(sk);

	if (new_state != TCP_CA_Loss)
		return;
	b->prev_ca_state = TCP_CA_Loss;
	note_loss(sk, b, 0);
}

/* Nothing was lost after all. */
static u32 bbr3_undo_cwnd(struct sock *sk)
{
	struct bbr3 *b = inet_csk_ca(sk);
	u8 undo_state = b->undo_state;

	b->undo_state = UNDO_NONE;
	b->loss_in_round = 0;
	reset_full_bw(b, 0);
	b->bw_shortterm = max(b->bw_shortterm, b->undo_bw_shortterm);
	b->inflight_shortterm = max(b->inflight_shortterm, b->undo_inflight_shortterm);
	b->inflight_longterm = max(b->inflight_longterm, b->undo_inflight_longterm);
	if (undo_state == UNDO_STARTUP && b->state != STARTUP) {
		b->full_bw_reached = 0;
		if (b->state != PROBE_RTT)
			b->state = STARTUP;
	} else if (undo_state == UNDO_UP && b->state != UP && b->state != PROBE_RTT) {
		start_refill(sk, b);
	}
	return max(tcp_snd_cwnd(tcp_sk(sk)), b->prior_cwnd);
}

static void bbr3_init(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct bbr3 *b = inet_csk_ca(sk);
	u32 min_rtt_us = tcp_min_rtt(tp);

	*b = (struct bbr3){
		.state = STARTUP,
		.prev_ca_state = TCP_CA_Open,
		.inflight_longterm = UNBOUNDED,
		.bw_shortterm = UNBOUNDED,
		.inflight_shortterm = UNBOUNDED,
		.min_rtt_us = min_rtt_us,
		.probe_rtt_min_us = min_rtt_us,
		.min_rtt_stamp = now_us(sk),
		.probe_rtt_min_stamp = now_us(sk),
		.extra_acked_stamp = now_us(sk),
		.probe_up_acked_per_inc = U16_MAX,
		.next_round_delivered = tp->delivered,
		.loss_round_delivered = tp->delivered,
		.loss_round_lost = tp->lost,
		.prev_loss_round_lost = tp->lost,
	};
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	bbr3_init_pacing(sk);
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static struct tcp_congestion_ops bbr3_ops __read_mostly = {
	.name = "bbr3",
	.init = bbr3_init,
	.cong_control = bbr3_cong_control,
	.cwnd_event = bbr3_cwnd_event,
	.set_state = bbr3_set_state,
	.ssthresh = bbr3_ssthresh,
	.undo_cwnd = bbr3_undo_cwnd,
	.min_tso_segs = bbr3_min_tso_segs,
};

static_assert(sizeof(struct bbr3) <= ICSK_CA_PRIV_SIZE);
lab_scheme(bbr3_ops);
