// SPDX-License-Identifier: GPL-2.0-only
/*
 * sagecc_pure: a congestion control whose window and pacing rate are what an agent in user space said last, and Reno's
 * where no agent says anything.
 *
 * Each socket has a slot: a row in which `observe` leaves its counters, and an order in which the agent leaves window
 * and rate. Both are shared memory; one read() of the iterator brings the rows of all sockets up to date. An order
 * holds for STALL_NS from its stamp; without a good one the window follows RFC 5681 and RFC 6582 from the next ACK on.
 * Where the policy's windows have a bound (execution/agent/bound.py), an order that is older than SILENT_NS, and the
 * window that Reno begins with, are held to it by the sRTT of the moment.
 *
 * In a trial (execution/stock/trial.py) each new connection is drawn by lot: a share of them is driven, the others get
 * the system's scheme at once. The counters of both groups go to who watches the trial, not to the agent.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "shared.h"

char _license[] SEC("license") = "GPL";

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

/* What is remembered of a socket. */
struct flow {
	__u64 id; /* of this socket alone, from 1 on: slots are used again */
	__u64 since_ns;
	__u32 slot;
	__u32 applied; /* the window written last; another one in the kernel is another hand's */
	__u32 mode;
	__u32 srtt_us; /* before the last timeout, in eighths as the kernel's */
	__u32 fresh_pkts; /* still to be delivered until sRTT has forgotten that timeout */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* The loader sets the number of slots, and fills `free_slots`. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct agent);
} agent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* What is remembered of a connection of a trial, whatever its scheme is now. */
struct member {
	__u64 id;
	__u64 since_ns;
	__u32 number; /* of the trial */
	__u32 group;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trial);
} trial SEC(".maps");

/* Members that have ended since somebody looked. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 16384);
	__type(value, struct record);
} ended SEC(".maps");

static const __u32 zero;

static struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __u32 state_of(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
}

static struct flow *flow_of(struct sock *sk)
{
	return bpf_sk_storage_get(&flows, sk, 0, 0);
}

/* Unsigned, so that a stamp of the future is old as well. */
static bool recent(__u64 now_ns, __u64 stamp_ns)
{
	return now_ns - stamp_ns < STALL_NS;
}

/* The agent's word on this socket, if there is one that holds. */
static struct order *order_of(const struct flow *flow, __u64 now_ns)
{
	__u32 slot = flow->slot;
	struct order *order = bpf_map_lookup_elem(&orders, &slot);

	if (order && order->flow == flow->id && order->cwnd_pkts && recent(now_ns, order->stamp_ns))
		return order;
	return NULL;
}

/* As bound_of in execution/agent/bound.py. */
static __u32 bounded(const struct tcp_sock *tp, const struct order *order, __u32 cwnd)
{
	__u64 bound = (__u64)order->bounding_rate * (tp->srtt_us >> 3) / 1000000000 + SPARE_PKTS;

	bound = max(bound, LEAST_PKTS);
	return order->bounding_rate && cwnd > bound ? bound : cwnd;
}

/* The window that an order gives now. */
static __u32 ordered_window(const struct tcp_sock *tp, const struct order *order, __u64 now_ns)
{
	__u32 cwnd = order->cwnd_pkts;

	return now_ns - order->stamp_ns < SILENT_NS ? cwnd : bounded(tp, order, cwnd);
}

static bool agent_at_work(__u64 now_ns)
{
	struct agent *known = bpf_map_lookup_elem(&agent, &zero);

	return known && recent(now_ns, known->beat_ns);
}

/* A flow too young for its first order waits for it, if an agent is at work. */
static bool waits(const struct flow *flow, __u64 now_ns)
{
	return flow->mode == MODE_NEW && flow->slot != NO_SLOT && recent(now_ns, flow->since_ns) &&
	       agent_at_work(now_ns);
}

static void set_window(struct tcp_sock *tp, struct flow *flow, __u32 cwnd)
{
	cwnd = max(min(cwnd, tp->snd_cwnd_clamp), 1);
	tp->snd_cwnd = cwnd;
	if (flow)
		flow->applied = cwnd;
}

static void pace(struct sock *sk, __u64 bytes_s)
{
	unsigned long most = sk->sk_max_pacing_rate;

	if (bytes_s && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	sk->sk_pacing_rate = bytes_s ? min(bytes_s, most) : most;
}

static void count(__u32 what)
{
	struct counts *c = bpf_map_lookup_elem(&counts, &zero);

	if (c && what < COUNTS)
		__sync_fetch_and_add(&c->of[what], 1);
}

static void obey(struct sock *sk, struct flow *flow, const struct order *order, __u64 now_ns)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (flow->mode != MODE_POLICY) {
		if (flow->mode == MODE_RENO)
			count(COUNT_RESUMED);
		flow->mode = MODE_POLICY;
		tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	}
	set_window(tp, flow, ordered_window(tp, order, now_ns));
	pace(sk, order->pacing_bytes_s);
}

/*
 * Reno takes over. A window that a policy chose is no reason to double it each round trip: go on from it by additive
 * increase, or from half of it where a loss is being repaired.
 */
static void fall_back(struct tcp_sock *tp, struct flow *flow)
{
	__u32 slot = flow->slot, cwnd = tp->snd_cwnd;
	struct order *order = bpf_map_lookup_elem(&orders, &slot);

	if (flow->mode == MODE_POLICY) {
		count(COUNT_FELL_BACK);
		if (order && order->flow == flow->id)
			cwnd = bounded(tp, order, cwnd);
		if (state_of(tp) >= TCP_CA_CWR)
			cwnd = max(cwnd / 2, 2);
		if (cwnd != tp->snd_cwnd)
			set_window(tp, flow, cwnd);
		tp->snd_ssthresh = cwnd;
		tp->snd_cwnd_cnt = 0;
	}
	flow->mode = MODE_RENO;
}

/*
 * As the kernel does for schemes without cong_control: twice the window an RTT in slow start, else 1.2 times. What an
 * outage held back is acknowledged seconds late, and a rate by that sRTT would never bring it down: until it is
 * forgotten, the RTT is at most that of before, as in execution/flow/outage.py.
 */
static void pace_window(struct sock *sk, const struct flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 bytes_s = (__u64)tp->mss_cache * tp->snd_cwnd * 8 * 1000000;
	__u32 srtt_us = tp->srtt_us;

	if (flow && flow->fresh_pkts && flow->srtt_us)
		srtt_us = min(srtt_us, flow->srtt_us);
	if (!srtt_us)
		return;
	bytes_s /= srtt_us;
	pace(sk, tp->snd_cwnd < tp->snd_ssthresh / 2 ? bytes_s * 2 : bytes_s * 6 / 5);
}

/* RFC 5681: only a window that is used up may grow. */
static bool may_grow(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/*
 * One ACK by Reno's rules. In recovery the window is ssthresh at once: the kernel counts what is in flight without what
 * was lost or SACKed, so that RFC 6582's inflation is in that count. After a timeout the kernel starts it anew.
 */
static void reno(struct sock *sk, struct flow *flow, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 cwnd = tp->snd_cwnd, state = state_of(tp), step;

	if (state == TCP_CA_CWR || state == TCP_CA_Recovery) {
		set_window(tp, flow, min(cwnd, tp->snd_ssthresh));
	} else if (acked && may_grow(tp)) {
		if (cwnd < tp->snd_ssthresh) {
			step = min(acked, tp->snd_ssthresh - cwnd);
			cwnd += step;
			acked -= step;
		}
		tp->snd_cwnd_cnt += acked;
		if (cwnd && tp->snd_cwnd_cnt >= cwnd) {
			step = tp->snd_cwnd_cnt / cwnd;
			tp->snd_cwnd_cnt -= step * cwnd;
			cwnd += step;
		}
		set_window(tp, flow, cwnd);
	}
	pace_window(sk, flow);
}

/* Draw a new connection by lot; tell whether it is driven. Without an agent none is, and none is counted. */
static bool drawn(struct sock *sk, struct trial *t, __u64 now_ns)
{
	struct member *member;

	if (t->state != TRIAL_ON || !agent_at_work(now_ns))
		return false;
	member = bpf_sk_storage_get(&members, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!member)
		return false;
	if (member->number != t->number) { /* it chooses the scheme for the first time */
		member->number = t->number;
		member->group = bpf_get_prandom_u32() < t->threshold ? GROUP_CANARY : GROUP_CONTROL;
		member->since_ns = now_ns;
		member->id = __sync_fetch_and_add(&t->connections, 1) + 1;
	}
	return member->group == GROUP_CANARY;
}

/* Give a socket to the scheme of the control group, where there is one; it is released here then. */
static bool hand_over(struct sock *sk, struct trial *t)
{
	if (!t->scheme[0])
		return false;
	if (!bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, t->scheme, sizeof(t->scheme)))
		return true;
	count(COUNT_NOT_CHOSEN);
	return false;
}

static void control(struct sock *sk, const struct rate_sample *rs)
{
	struct trial *t = bpf_map_lookup_elem(&trial, &zero);
	__u64 now_ns = bpf_ktime_get_ns();
	struct flow *flow = flow_of(sk);
	struct order *order;

	if (t && t->state == TRIAL_STOPPED) {
		if (flow && flow->mode != MODE_RENO)
			fall_back(tcp_sk(sk), flow);
		if (hand_over(sk, t))
			return;
	}
	if (flow) {
		flow->fresh_pkts -= min(flow->fresh_pkts, rs->acked_sacked);
		order = order_of(flow, now_ns);
		if (order) {
			obey(sk, flow, order, now_ns);
			return;
		}
		if (waits(flow, now_ns))
			return;
		if (flow->mode != MODE_RENO)
			fall_back(tcp_sk(sk), flow);
	}
	reno(sk, flow, rs->acked_sacked);
}

SEC("struct_ops/init")
void BPF_PROG(pure_init, struct sock *sk)
{
	struct counts *c = bpf_map_lookup_elem(&counts, &zero);
	struct trial *t = bpf_map_lookup_elem(&trial, &zero);
	__u64 now_ns = bpf_ktime_get_ns();
	struct flow *flow;

	if (t && t->state != TRIAL_NONE && !drawn(sk, t, now_ns) && hand_over(sk, t))
		return;
	flow = bpf_sk_storage_get(&flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow || !c)
		return;
	flow->since_ns = now_ns;
	flow->applied = tcp_sk(sk)->snd_cwnd;
	flow->mode = MODE_NEW;
	flow->id = __sync_fetch_and_add(&c->of[COUNT_FLOWS], 1) + 1;
	if (bpf_map_pop_elem(&free_slots, &flow->slot)) {
		flow->slot = NO_SLOT;
		count(COUNT_WITHOUT_SLOT);
	}
}

SEC("struct_ops/release")
void BPF_PROG(pure_release, struct sock *sk)
{
	struct flow *flow = flow_of(sk);
	__u32 slot;

	if (!flow)
		return;
	slot = flow->slot;
	flow->slot = NO_SLOT;
	count(COUNT_ENDED);
	if (slot != NO_SLOT)
		bpf_map_push_elem(&free_slots, &slot, 0);
	bpf_sk_storage_delete(&flows, sk); /* the socket may go on with another scheme */
}

SEC("struct_ops/ssthresh")
__u32 BPF_PROG(pure_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 now_ns = bpf_ktime_get_ns();
	struct flow *flow = flow_of(sk);

	if (flow && (order_of(flow, now_ns) || waits(flow, now_ns)))
		return TCP_INFINITE_SSTHRESH;
	if (flow && flow->mode != MODE_RENO)
		fall_back(tp, flow);
	return max(tp->snd_cwnd / 2, 2);
}

SEC("struct_ops/set_state")
void BPF_PROG(pure_set_state, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);

	if (!flow || state != TCP_CA_Loss)
		return;
	if (!flow->fresh_pkts)
		flow->srtt_us = tp->srtt_us;
	flow->fresh_pkts = tp->packets_out + FRESH_PKTS;
}

SEC("struct_ops/undo_cwnd")
__u32 BPF_PROG(pure_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);

	if (flow && flow->mode != MODE_RENO)
		return tp->snd_cwnd;
	return max(tp->snd_cwnd, tp->prior_cwnd);
}

#ifdef CONG_CONTROL_WITH_ACK
SEC("struct_ops/cong_control")
void BPF_PROG(pure_cong_control, struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs)
{
	control(sk, rs);
}
#else
SEC("struct_ops/cong_control")
void BPF_PROG(pure_cong_control, struct sock *sk, const struct rate_sample *rs)
{
	control(sk, rs);
}
#endif

/* Not restricted: any user may choose it, and a namespace may have it as its default. */
SEC(".struct_ops")
struct tcp_congestion_ops sagecc_pure = {
	.init = (void *)pure_init,
	.release = (void *)pure_release,
	.ssthresh = (void *)pure_ssthresh,
	.set_state = (void *)pure_set_state,
	.undo_cwnd = (void *)pure_undo_cwnd,
	.cong_control = (void *)pure_cong_control,
	.name = SCHEME_NAME,
	.flags = TCP_CONG_NON_RESTRICTED,
};

/*
 * The window as the lab would show it. There an order takes effect at once, here at the next ACK: until then it counts
 * as the window, unless another hand (a timeout) was on that since; which is said once.
 */
static __u32 window_of(const struct tcp_sock *tp, struct flow *flow, __u64 now_ns)
{
	__u32 cwnd = tp->snd_cwnd;
	struct order *order;

	if (cwnd != flow->applied) {
		flow->applied = cwnd;
		return cwnd;
	}
	order = order_of(flow, now_ns);
	return order ? min(ordered_window(tp, order, now_ns), tp->snd_cwnd_clamp) : cwnd;
}

/* Bring the row of one socket up to date: units and meaning are those of TCP_INFO. */
SEC("iter/bpf_sk_storage_map")
int observe(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct agent *known = bpf_map_lookup_elem(&agent, &zero);
	struct flow *flow = ctx->value;
	struct sock *sk = ctx->sk;
	struct tcp_sock *tp;
	struct row *row;
	__u64 interval_us;
	__u32 slot;

	if (!known || !flow || !sk)
		return 0;
	slot = flow->slot;
	row = bpf_map_lookup_elem(&rows, &slot);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!row || !tp)
		return 0;
	row->flow = flow->id;
	row->t_ns = bpf_ktime_get_ns();
	row->bytes_acked = tp->bytes_acked;
	row->bytes_sent = tp->bytes_sent;
	interval_us = tp->rate_interval_us;
	row->delivery_rate_bytes_s =
	    interval_us ? (__u64)tp->rate_delivered * tp->mss_cache * 1000000 / interval_us : 0;
	row->pacing_rate_bytes_s = sk->sk_pacing_rate;
	row->ca_state = state_of(tp);
	row->app_limited = BPF_CORE_READ_BITFIELD(tp, rate_app_limited);
	row->cwnd_pkts = window_of(tp, flow, row->t_ns);
	row->ssthresh_pkts = tp->snd_ssthresh;
	row->srtt_us = tp->srtt_us >> 3;
	row->rttvar_us = tp->mdev_us >> 2;
	row->min_rtt_us = tp->rtt_min.s[0].v;
	row->mss_bytes = tp->mss_cache;
	row->unacked_pkts = tp->packets_out;
	row->sacked_pkts = tp->sacked_out;
	row->lost_pkts = tp->lost_out;
	row->retrans_pkts = tp->retrans_out;
	row->lost_total_pkts = tp->lost;
	row->retrans_total_pkts = tp->total_retrans;
	row->delivered_pkts = tp->delivered;
	row->data_segs_out = tp->data_segs_out;
	row->mode = flow->mode;
	row->tick = known->tick;
	return 0;
}

static void describe(struct record *record, const struct member *member, struct tcp_sock *tp)
{
	record->id = member->id;
	record->since_ns = member->since_ns;
	record->t_ns = bpf_ktime_get_ns();
	record->bytes_acked = tp->bytes_acked;
	record->group = member->group;
	record->data_segs_out = tp->data_segs_out;
	record->retrans_total_pkts = tp->total_retrans;
	record->srtt_us = tp->srtt_us >> 3;
	record->min_rtt_us = tp->rtt_min.s[0].v;
}

/* Say how each open connection of the trial stands. */
SEC("iter/bpf_sk_storage_map")
int survey(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct trial *t = bpf_map_lookup_elem(&trial, &zero);
	struct member *member = ctx->value;
	struct sock *sk = ctx->sk;
	struct record record = {};
	struct tcp_sock *tp;

	if (!t || !member || !sk || member->number != t->number)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	describe(&record, member, tp);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

/* Keep how a connection of the trial stood at its end. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(end, struct sock *sk, int before, int state)
{
	struct trial *t = bpf_map_lookup_elem(&trial, &zero);
	struct record record = { .ended = 1 };
	struct member *member;
	struct tcp_sock *tp;

	if (!t || state != TCP_CLOSE)
		return 0;
	member = bpf_sk_storage_get(&members, sk, 0, 0);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!member || !tp)
		return 0;
	if (member->number == t->number) {
		describe(&record, member, tp);
		if (bpf_map_push_elem(&ended, &record, 0))
			__sync_fetch_and_add(&t->unseen, 1);
	}
	bpf_sk_storage_delete(&members, sk);
	return 0;
}

const volatile char scheme_name[16] = SCHEME_NAME;

/* In the cgroup of `sagecc exec`: every connection of the programs in it, whoever opened it. */
SEC("sockops")
int choose(struct bpf_sock_ops *ops)
{
	char name[16];

	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB && ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	for (int i = 0; i < 16; i++)
		name[i] = scheme_name[i];
	if (bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		count(COUNT_NOT_CHOSEN);
	return 1;
}
