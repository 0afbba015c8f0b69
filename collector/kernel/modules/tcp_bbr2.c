// SPDX-License-Identifier: GPL-2.0-only
/*
 * BBRv2, written from draft-cardwell-iccrg-bbr-congestion-control-02 ("the draft").
 *
 * A model of the path (the bandwidth it delivers, its propagation delay, how much may be in flight
 * before it drops) sets pacing rate and window:
 *
 *   STARTUP -> DRAIN -> DOWN -> CRUISE -> REFILL -> UP -> DOWN ...; PROBE_RTT from any, every 5 s
 *
 * Followed as written: the states with their gains and conditions (4.3), the bandwidth filter over
 * two cycles (4.5.2), min_rtt and its probing (4.3.4), aggregation (4.5.5), the short-term model
 * (bw_lo, inflight_lo; 4.5.6.3), pacing, quantum and window (4.6). Names are the draft's.
 *
 * What mainline's rate sample does not have, and what stands in for it:
 *  - packet.tx_in_flight. Links keep the order: what was in flight when a packet was sent is
 *    delivered or lost when it is acknowledged. So it is rs->delivered plus the losses since.
 *    Losses not marked yet (RACK waiting for reordering) are missing, and then also in rs.lost.
 *  - packet.lost (C.lost at transmit). tp->lost is noted at the start of the last two rounds of
 *    loss counting and interpolated by rs->prior_delivered. No loss in between makes it exact, as
 *    when a probe for bandwidth meets its first losses.
 *  - a call for each lost packet. So BBRHandleLostPacket() (4.5.6.2) is left out: the ACK that
 *    reports a loss is checked instead, of a packet sent just after the lost one.
 *  - the lost ranges of a round. ACKs that report losses are counted.
 *
 * Where the draft is silent or of two minds: the round after UP ends the probe for good (its filter
 * step and its reaction to losses); leaving STARTUP on losses sets inflight_hi to what was delivered
 * in a round, the BDP at least; an undone recovery takes the short-term bounds with it; DRAIN is not
 * capped by inflight_hi (BBRBoundCwndForModel(), not the table of 4.6.1). bw_hi, which nothing in the
 * draft ever lowers, and ECN, which it does not specify, are left out.
 */
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/random.h>
#include <net/tcp.h>

#define BW_SCALE 24 /* bandwidth: packets a microsecond << 24, as in BBRv1 */
#define GAIN_UNIT 1000
#define UNBOUNDED U32_MAX

enum bbr2_state {
	STARTUP, /* double the rate each round */
	DRAIN, /* let go of the queue that made */
	DOWN, /* ProbeBW: slower than delivery, until there is room */
	CRUISE, /* ProbeBW: as fast as delivery */
	REFILL, /* ProbeBW: fill the pipe for a round */
	UP, /* ProbeBW: faster than delivery, until queue or loss shows */
	PROBE_RTT, /* half the BDP in flight, to see the delay of an empty queue */
};

static const u16 pacing_gain[] = {
	[STARTUP] = 2770, /* the least that doubles the rate each round */
	[DRAIN] = 500, /* the inverse of the window's gain */
	[DOWN] = 900,	  [CRUISE] = 1000, [REFILL] = 1000, [UP] = 1250, [PROBE_RTT] = 1000,
};

static const u32 cwnd_gain = 2000;
static const u32 probe_rtt_cwnd_gain = 500;
static const u32 pacing_percent = 99; /* a margin of 1 % lets queues drain */

static const u32 min_pipe_cwnd = 4;
static const u32 full_bw_growth_percent = 125;
static const u32 full_bw_rounds = 3;
static const u32 startup_loss_events = 3;
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
static const u32 extra_acked_rounds = 5; /* of each of two windows: the last 5 to 10 rounds */

/* A moment of the connection, in what was delivered and lost until then. */
struct bbr2_mark {
	u32 delivered;
	u32 lost;
};

/* Counts are in packets, times in microseconds modulo 2^32. */
struct bbr2 {
	/* long-term model */
	u32 max_bw[2]; /* of the previous ProbeBW cycle and of this one */
	u32 inflight_hi;
	u32 min_rtt_us;
	u32 min_rtt_stamp;
	u32 probe_rtt_min_us;
	u32 probe_rtt_min_stamp;
	u16 extra_acked[2];
	u32 extra_acked_stamp; /* start of the interval that is measured */
	u32 extra_acked_delivered;
	/* short-term model */
	u32 bw_lo;
	u32 inflight_lo;
	u32 bw_latest;
	u32 inflight_latest;
	/* rounds */
	u32 next_round_delivered;
	struct bbr2_mark loss_round[2]; /* start of the previous round of loss counting and of this one */
	/* state machine */
	u32 phase_stamp; /* DOWN (then CRUISE) or UP began; PROBE_RTT reached its target */
	u32 full_bw;
	u32 prior_cwnd;
	u32 probe_up_cnt; /* ACKed packets for one more in inflight_hi */
	u32 probe_up_acks;
	u32 state : 3;
	u32 prev_ca_state : 3;
	u32 has_seen_rtt : 1;
	u32 round_start : 1;
	u32 loss_round_start : 1;
	u32 loss_in_round : 1;
	u32 loss_events : 2; /* of this round, in STARTUP */
	u32 filled_pipe : 1;
	u32 full_bw_count : 2;
	u32 packet_conservation : 1;
	u32 idle_restart : 1;
	u32 probe_samples : 1; /* ACKs are of packets sent while probing, no reaction to them yet */
	u32 probe_stopping : 1; /* this round's ACKs are the last of the probe */
	u32 probe_rtt_at_target : 1;
	u32 probe_rtt_round_done : 1;
	u32 extra_acked_now : 1; /* the window that is being filled */
	u32 extra_acked_age : 3; /* of that window, in rounds */
	u32 probe_wait_ms : 12;
	u32 rounds_since_probe : 7;
	u32 probe_up_rounds : 5;
};

/* What one ACK says; no delivery rate if `bw` is 0. */
struct bbr2_ack {
	const struct rate_sample *rs;
	u32 bw;
	u32 delivered; /* since the newest packet ACKed was sent */
	u32 lost; /* since the same moment */
	u32 tx_in_flight; /* at that moment, that packet included */
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

static bool probes_bw(const struct bbr2 *b)
{
	return b->state >= DOWN && b->state <= UP;
}

/* Does this state send more than the path is known to take? */
static bool accelerates(const struct bbr2 *b)
{
	return b->state == STARTUP || b->state == REFILL || b->state == UP;
}

static u32 bbr2_max_bw(const struct bbr2 *b)
{
	return max(b->max_bw[0], b->max_bw[1]);
}

static u32 bbr2_bw(const struct bbr2 *b)
{
	return min(bbr2_max_bw(b), b->bw_lo);
}

/* ---- control parameters ---- */

static void bbr2_pace(struct sock *sk, const struct bbr2 *b, u32 bw, u32 gain)
{
	u32 factor = gain * (USEC_PER_SEC / GAIN_UNIT / 100) * pacing_percent;
	u64 rate = mul_u64_u32_shr((u64)bw * tcp_sk(sk)->mss_cache, factor, BW_SCALE);

	rate = min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate));
	if (b->filled_pipe || rate > READ_ONCE(sk->sk_pacing_rate))
		WRITE_ONCE(sk->sk_pacing_rate, rate);
}

/* The first rate: the initial window over the first RTT, or over 1 ms as long as there is none. */
static void bbr2_init_pacing(struct sock *sk)
{
	u32 srtt_us = tcp_sk(sk)->srtt_us >> 3;
	struct bbr2 *b = inet_csk_ca(sk);

	b->has_seen_rtt = srtt_us > 0;
	WRITE_ONCE(sk->sk_pacing_rate, 0);
	bbr2_pace(sk, b, div_u64((u64)tcp_snd_cwnd(tcp_sk(sk)) << BW_SCALE, srtt_us ?: USEC_PER_MSEC),
		  pacing_gain[STARTUP]);
}

static u32 bbr2_min_tso_segs(struct sock *sk)
{
	return READ_ONCE(sk->sk_pacing_rate) < 1200000 / 8 ? 1 : 2;
}

static u32 send_quantum(struct sock *sk)
{
	u64 bytes = min_t(u64, READ_ONCE(sk->sk_pacing_rate) / MSEC_PER_SEC, GSO_LEGACY_MAX_SIZE);

	return max_t(u32, div_u64(bytes, tcp_sk(sk)->mss_cache), bbr2_min_tso_segs(sk));
}

static u32 bdp_multiple(const struct sock *sk, const struct bbr2 *b, u32 bw, u32 gain)
{
	u64 milli;

	if (b->min_rtt_us == UNBOUNDED)
		return TCP_INIT_CWND;
	milli = mul_u64_u32_shr((u64)bw * b->min_rtt_us, gain, BW_SCALE);
	return min_t(u64, div_u64(milli + GAIN_UNIT - 1, GAIN_UNIT), S32_MAX);
}

static u32 quantization_budget(struct sock *sk, const struct bbr2 *b, u32 inflight)
{
	inflight = max3(inflight, 3 * send_quantum(sk), min_pipe_cwnd);
	return b->state == UP ? inflight + 2 : inflight;
}

static u32 bbr2_inflight(struct sock *sk, const struct bbr2 *b, u32 bw, u32 gain)
{
	return quantization_budget(sk, b, bdp_multiple(sk, b, bw, gain));
}

static u32 target_inflight(struct sock *sk, const struct bbr2 *b)
{
	return min(bdp_multiple(sk, b, bbr2_bw(b), GAIN_UNIT), tcp_snd_cwnd(tcp_sk(sk)));
}

static u32 inflight_with_headroom(const struct bbr2 *b)
{
	if (b->inflight_hi == UNBOUNDED)
		return UNBOUNDED;
	return max(b->inflight_hi - max(1U, percent_of(b->inflight_hi, headroom_percent)), min_pipe_cwnd);
}

static u32 probe_rtt_cwnd(const struct sock *sk, const struct bbr2 *b)
{
	return max(bdp_multiple(sk, b, bbr2_bw(b), probe_rtt_cwnd_gain), min_pipe_cwnd);
}

static void save_cwnd(struct sock *sk, struct bbr2 *b)
{
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));
	bool good = b->prev_ca_state < TCP_CA_Recovery && b->state != PROBE_RTT;

	b->prior_cwnd = good ? cwnd : max(b->prior_cwnd, cwnd);
}

static void restore_cwnd(struct sock *sk, struct bbr2 *b)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_snd_cwnd_set(tp, max(tcp_snd_cwnd(tp), b->prior_cwnd));
}

/* ---- rounds ---- */

static void start_round(const struct sock *sk, struct bbr2 *b)
{
	b->next_round_delivered = tcp_sk(sk)->delivered;
}

/* tp->lost when `delivered` packets had been delivered. */
static u32 lost_at(const struct bbr2 *b, u32 delivered)
{
	const struct bbr2_mark *from = &b->loss_round[0], *to = &b->loss_round[1];

	if (!after(delivered, from->delivered))
		return from->lost;
	if (!before(delivered, to->delivered))
		return to->lost;
	return from->lost +
	       div_u64((u64)(to->lost - from->lost) * (delivered - from->delivered), to->delivered - from->delivered);
}

static struct bbr2_ack read_ack(const struct sock *sk, const struct bbr2 *b, const struct rate_sample *rs)
{
	struct bbr2_ack a = { .rs = rs };

	if (rs->delivered <= 0 || rs->interval_us <= 0)
		return a;
	a.bw = min_t(u64, div64_u64((u64)rs->delivered << BW_SCALE, rs->interval_us), U32_MAX - 1);
	a.delivered = rs->delivered;
	a.lost = tcp_sk(sk)->lost - lost_at(b, rs->prior_delivered);
	a.tx_in_flight = a.delivered + a.lost;
	return a;
}

static void update_rounds(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	b->round_start = a->bw && !before(a->rs->prior_delivered, b->next_round_delivered);
	if (b->round_start) {
		start_round(sk, b);
		b->rounds_since_probe = min(b->rounds_since_probe + 1U, probe_wait_max_rounds);
		b->packet_conservation = 0;
	}
	b->loss_round_start = a->bw && !before(a->rs->prior_delivered, b->loss_round[1].delivered);
	if (b->loss_round_start) {
		b->loss_round[0] = b->loss_round[1];
		b->loss_round[1] = (struct bbr2_mark){ tp->delivered, tp->lost };
	}
}

/* ---- model ---- */

static bool inflight_too_high(const struct bbr2_ack *a)
{
	return (u64)a->lost * 100 > (u64)a->tx_in_flight * loss_thresh_percent;
}

static void reset_lower_bounds(struct bbr2 *b)
{
	b->bw_lo = UNBOUNDED;
	b->inflight_lo = UNBOUNDED;
}

/* Losses while not probing: adapt to what was delivered, by 0.7 a round at most. */
static void lower_bounds_on_loss(struct sock *sk, struct bbr2 *b)
{
	if (b->bw_lo == UNBOUNDED)
		b->bw_lo = bbr2_max_bw(b);
	if (b->inflight_lo == UNBOUNDED)
		b->inflight_lo = tcp_snd_cwnd(tcp_sk(sk));
	b->bw_lo = max(b->bw_latest, percent_of(b->bw_lo, beta_percent));
	b->inflight_lo = max(b->inflight_latest, percent_of(b->inflight_lo, beta_percent));
}

static void update_congestion_signals(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	b->bw_latest = max(b->bw_latest, a->bw);
	b->inflight_latest = max(b->inflight_latest, a->delivered);
	if (!a->rs->is_app_limited || a->bw >= bbr2_max_bw(b))
		b->max_bw[1] = max(b->max_bw[1], a->bw);
	if (a->rs->losses > 0)
		b->loss_in_round = 1;
	if (b->loss_round_start) {
		if (b->loss_in_round && !accelerates(b))
			lower_bounds_on_loss(sk, b);
		b->loss_in_round = 0;
	}
}

/* How many more packets than expected arrive at once? */
static void update_aggregation(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	u64 expected;
	u32 extra;

	if (!a->bw)
		return;
	if (b->round_start && ++b->extra_acked_age >= extra_acked_rounds) {
		b->extra_acked_age = 0;
		b->extra_acked_now ^= 1;
		b->extra_acked[b->extra_acked_now] = 0;
	}
	expected = (u64)bbr2_bw(b) * (now_us(sk) - b->extra_acked_stamp) >> BW_SCALE;
	if (b->extra_acked_delivered <= expected) {
		b->extra_acked_delivered = 0;
		b->extra_acked_stamp = now_us(sk);
		expected = 0;
	}
	b->extra_acked_delivered += a->rs->acked_sacked;
	extra = min_t(u64, b->extra_acked_delivered - expected, tcp_snd_cwnd(tcp_sk(sk)));
	b->extra_acked[b->extra_acked_now] = min_t(u32, max_t(u32, extra, b->extra_acked[b->extra_acked_now]), U16_MAX);
}

/* Returns whether the minimum of the last 5 s is due for another look. */
static bool update_min_rtt(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
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

static void start_down(struct sock *sk, struct bbr2 *b)
{
	b->loss_in_round = 0;
	b->bw_latest = 0;
	b->inflight_latest = 0;
	b->rounds_since_probe = get_random_u32_below(2);
	b->probe_wait_ms = probe_wait_base_ms + get_random_u32_below(probe_wait_random_ms + 1);
	b->phase_stamp = now_us(sk);
	b->probe_stopping = 1;
	start_round(sk, b);
	b->state = DOWN;
}

static void start_refill(struct sock *sk, struct bbr2 *b)
{
	reset_lower_bounds(b);
	b->probe_up_rounds = 0;
	b->probe_up_acks = 0;
	b->probe_stopping = 0;
	start_round(sk, b);
	b->state = REFILL;
}

/* inflight_hi grows by 1, 2, 4, ... packets in each round of UP. */
static void raise_inflight_hi_slope(const struct sock *sk, struct bbr2 *b)
{
	b->probe_up_cnt = max(tcp_snd_cwnd(tcp_sk(sk)) >> b->probe_up_rounds, 1U);
	b->probe_up_rounds = min(b->probe_up_rounds + 1U, probe_up_max_rounds);
}

static void start_up(struct sock *sk, struct bbr2 *b)
{
	b->probe_samples = 1;
	start_round(sk, b);
	b->phase_stamp = now_us(sk);
	b->state = UP;
	raise_inflight_hi_slope(sk, b);
}

static void probe_inflight_hi_upward(const struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	u32 delta;

	if (!tcp_sk(sk)->is_cwnd_limited || tcp_snd_cwnd(tcp_sk(sk)) < b->inflight_hi)
		return;
	b->probe_up_acks += a->rs->acked_sacked;
	delta = b->probe_up_acks / b->probe_up_cnt;
	b->probe_up_acks -= delta * b->probe_up_cnt;
	b->inflight_hi += delta;
	if (b->round_start)
		raise_inflight_hi_slope(sk, b);
}

static void adapt_upper_bounds(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	if (b->probe_stopping && b->round_start) {
		b->probe_stopping = 0;
		b->probe_samples = 0;
		if (probes_bw(b) && !a->rs->is_app_limited) {
			b->max_bw[0] = b->max_bw[1];
			b->max_bw[1] = a->bw;
		}
	}
	if (!a->bw)
		return;
	if (inflight_too_high(a)) {
		if (!b->probe_samples)
			return;
		b->probe_samples = 0; /* once a probe */
		if (!a->rs->is_app_limited)
			b->inflight_hi = max(a->tx_in_flight, percent_of(target_inflight(sk, b), beta_percent));
		if (b->state == UP)
			start_down(sk, b);
	} else if (b->inflight_hi != UNBOUNDED) {
		b->inflight_hi = max(b->inflight_hi, a->tx_in_flight);
		if (b->state == UP)
			probe_inflight_hi_upward(sk, b, a);
	}
}

static bool time_to_probe_bw(struct sock *sk, const struct bbr2 *b)
{
	return elapsed(sk, b->phase_stamp, b->probe_wait_ms * USEC_PER_MSEC) ||
	       b->rounds_since_probe >= min(target_inflight(sk, b), probe_wait_max_rounds);
}

static void update_cycle(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	u32 inflight = a->rs->prior_in_flight;

	if (!b->filled_pipe)
		return;
	adapt_upper_bounds(sk, b, a);
	switch (b->state) {
	case DOWN:
	case CRUISE:
		if (time_to_probe_bw(sk, b))
			start_refill(sk, b);
		else if (b->state == DOWN && inflight <= inflight_with_headroom(b) &&
			 inflight <= bbr2_inflight(sk, b, bbr2_max_bw(b), GAIN_UNIT))
			b->state = CRUISE;
		break;
	case REFILL:
		if (b->round_start)
			start_up(sk, b);
		break;
	case UP:
		if (elapsed(sk, b->phase_stamp, b->min_rtt_us) &&
		    inflight > bbr2_inflight(sk, b, bbr2_max_bw(b), pacing_gain[UP]))
			start_down(sk, b);
		break;
	}
}

static void check_full_bandwidth(struct bbr2 *b, const struct bbr2_ack *a)
{
	if (!b->round_start || a->rs->is_app_limited)
		return;
	if (bbr2_max_bw(b) >= percent_of(b->full_bw, full_bw_growth_percent)) {
		b->full_bw = bbr2_max_bw(b);
		b->full_bw_count = 0;
	} else if (++b->full_bw_count >= full_bw_rounds) {
		b->filled_pipe = 1;
	}
}

/* Recovery starts a round; so one that ends in it was spent in it. */
static void check_high_loss(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	if (a->rs->losses > 0)
		b->loss_events = min(b->loss_events + 1U, startup_loss_events);
	if (!b->round_start)
		return;
	if (b->prev_ca_state == TCP_CA_Recovery && b->loss_events >= startup_loss_events && inflight_too_high(a)) {
		b->filled_pipe = 1;
		b->inflight_hi = max(bbr2_inflight(sk, b, bbr2_max_bw(b), GAIN_UNIT), b->inflight_latest);
	}
	b->loss_events = 0;
}

static void check_startup_done(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a)
{
	if (b->state == STARTUP) {
		check_full_bandwidth(b, a);
		check_high_loss(sk, b, a);
	}
	if (b->state == STARTUP && b->filled_pipe) {
		tcp_sk(sk)->snd_ssthresh = bbr2_inflight(sk, b, bbr2_max_bw(b), GAIN_UNIT);
		b->state = DRAIN;
	}
	if (b->state == DRAIN && tcp_packets_in_flight(tcp_sk(sk)) <= bbr2_inflight(sk, b, bbr2_max_bw(b), GAIN_UNIT))
		start_down(sk, b);
}

static void check_probe_rtt_done(struct sock *sk, struct bbr2 *b)
{
	if (!b->probe_rtt_at_target || !elapsed(sk, b->phase_stamp, probe_rtt_duration_us))
		return;
	b->probe_rtt_min_stamp = now_us(sk); /* the next one in 5 s */
	restore_cwnd(sk, b);
	reset_lower_bounds(b);
	if (b->filled_pipe) {
		start_down(sk, b);
		b->state = CRUISE; /* less than a BDP is in flight */
	} else {
		b->state = STARTUP;
	}
}

static void check_probe_rtt(struct sock *sk, struct bbr2 *b, const struct bbr2_ack *a, bool expired)
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
			if (tcp_packets_in_flight(tp) <= probe_rtt_cwnd(sk, b)) {
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

/* Returns whether the first round of a recovery decides the window. */
static bool modulate_cwnd_for_recovery(struct sock *sk, struct bbr2 *b, const struct rate_sample *rs)
{
	u8 state = inet_csk(sk)->icsk_ca_state;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 sending = tcp_packets_in_flight(tp) + rs->acked_sacked;

	if (rs->losses > 0)
		tcp_snd_cwnd_set(tp, max_t(s32, tcp_snd_cwnd(tp) - rs->losses, 1));
	if (state == TCP_CA_Recovery && b->prev_ca_state != TCP_CA_Recovery) {
		b->packet_conservation = 1;
		start_round(sk, b);
		tcp_snd_cwnd_set(tp, sending);
	} else if (state < TCP_CA_Recovery && b->prev_ca_state >= TCP_CA_Recovery) {
		b->packet_conservation = 0;
		restore_cwnd(sk, b);
	}
	b->prev_ca_state = state;
	if (b->packet_conservation)
		tcp_snd_cwnd_set(tp, max(tcp_snd_cwnd(tp), sending));
	return b->packet_conservation;
}

static u32 volume_cap(const struct sock *sk, const struct bbr2 *b)
{
	u32 cap = UNBOUNDED;

	if (b->state == CRUISE || b->state == PROBE_RTT)
		cap = inflight_with_headroom(b);
	else if (probes_bw(b))
		cap = b->inflight_hi;
	cap = max(min(cap, b->inflight_lo), min_pipe_cwnd);
	return b->state == PROBE_RTT ? min(cap, probe_rtt_cwnd(sk, b)) : cap;
}

static void set_cwnd(struct sock *sk, struct bbr2 *b, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd, target;

	if (rs->acked_sacked && !modulate_cwnd_for_recovery(sk, b, rs)) {
		target = bdp_multiple(sk, b, bbr2_bw(b), cwnd_gain) + max(b->extra_acked[0], b->extra_acked[1]);
		target = quantization_budget(sk, b, target);
		cwnd = tcp_snd_cwnd(tp);
		if (b->filled_pipe)
			cwnd = min(cwnd + rs->acked_sacked, target);
		else if (cwnd < target || tp->delivered < TCP_INIT_CWND)
			cwnd += rs->acked_sacked;
		tcp_snd_cwnd_set(tp, max(cwnd, min_pipe_cwnd));
	}
	tcp_snd_cwnd_set(tp, min3(tcp_snd_cwnd(tp), volume_cap(sk, b), tp->snd_cwnd_clamp));
}

/* ---- hooks ---- */

static void bbr2_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct bbr2 *b = inet_csk_ca(sk);
	struct bbr2_ack a = read_ack(sk, b, rs);

	update_rounds(sk, b, &a);
	update_congestion_signals(sk, b, &a);
	update_aggregation(sk, b, &a);
	check_startup_done(sk, b, &a);
	update_cycle(sk, b, &a);
	check_probe_rtt(sk, b, &a, update_min_rtt(sk, b, &a));
	if (b->loss_round_start) {
		b->bw_latest = a.bw;
		b->inflight_latest = a.delivered;
	}
	if (!b->has_seen_rtt && tcp_sk(sk)->srtt_us)
		bbr2_init_pacing(sk);
	bbr2_pace(sk, b, bbr2_bw(b), pacing_gain[b->state]);
	set_cwnd(sk, b, rs);
}

static void bbr2_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct bbr2 *b = inet_csk_ca(sk);

	if (event != CA_EVENT_TX_START || !tcp_sk(sk)->app_limited)
		return;
	b->idle_restart = 1;
	b->extra_acked_stamp = now_us(sk);
	b->extra_acked_delivered = 0;
	if (probes_bw(b))
		bbr2_pace(sk, b, bbr2_bw(b), GAIN_UNIT);
	else if (b->state == PROBE_RTT)
		check_probe_rtt_done(sk, b);
}

/* Loss recovery or a retransmission timeout begins. */
static u32 bbr2_ssthresh(struct sock *sk)
{
	save_cwnd(sk, inet_csk_ca(sk));
	return tcp_sk(sk)->snd_ssthresh;
}

/* The kernel has cut the window to what is left in flight and one packet more. */
static void bbr2_set_state(struct sock *sk, u8 new_state)
{
	struct bbr2 *b = inet_csk_ca(sk);

	if (new_state != TCP_CA_Loss)
		return;
	b->prev_ca_state = TCP_CA_Loss;
	b->packet_conservation = 0;
	b->full_bw = 0; /* what STARTUP saw before a timeout is no plateau */
}

/* Nothing was lost after all. */
static u32 bbr2_undo_cwnd(struct sock *sk)
{
	struct bbr2 *b = inet_csk_ca(sk);

	b->full_bw = 0;
	b->full_bw_count = 0;
	b->loss_in_round = 0;
	reset_lower_bounds(b);
	return max(tcp_snd_cwnd(tcp_sk(sk)), b->prior_cwnd);
}

static void bbr2_init(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct bbr2 *b = inet_csk_ca(sk);
	u32 min_rtt_us = tcp_min_rtt(tp);

	*b = (struct bbr2){
		.state = STARTUP,
		.prev_ca_state = TCP_CA_Open,
		.inflight_hi = UNBOUNDED,
		.bw_lo = UNBOUNDED,
		.inflight_lo = UNBOUNDED,
		.min_rtt_us = min_rtt_us,
		.probe_rtt_min_us = min_rtt_us,
		.min_rtt_stamp = now_us(sk),
		.probe_rtt_min_stamp = now_us(sk),
		.extra_acked_stamp = now_us(sk),
		.next_round_delivered = tp->delivered,
		.loss_round = { { tp->delivered, tp->lost }, { tp->delivered, tp->lost } },
	};
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	bbr2_init_pacing(sk);
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static struct tcp_congestion_ops bbr2_ops __read_mostly = {
	.name = "bbr2",
	.owner = THIS_MODULE,
	.init = bbr2_init,
	.cong_control = bbr2_cong_control,
	.cwnd_event = bbr2_cwnd_event,
	.set_state = bbr2_set_state,
	.ssthresh = bbr2_ssthresh,
	.undo_cwnd = bbr2_undo_cwnd,
	.min_tso_segs = bbr2_min_tso_segs,
};

static int __init bbr2_register(void)
{
	BUILD_BUG_ON(sizeof(struct bbr2) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&bbr2_ops);
}

static void __exit bbr2_unregister(void)
{
	tcp_unregister_congestion_control(&bbr2_ops);
}

module_init(bbr2_register);
module_exit(bbr2_unregister);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("BBRv2 congestion control");
