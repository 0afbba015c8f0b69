// SPDX-License-Identifier: GPL-2.0-only
/*
 * pure: a congestion control without logic of its own. Its window and its pacing rate are what the
 * host said last; the kernel's loss recovery (SACK, RACK, RTO) works as ever but cannot change them
 * for longer than until the next ACK.
 */
#include <linux/module.h>
#include <net/tcp.h>

#include "lab.h"

struct pure {
	u32 cwnd;
};

static void pure_init(struct sock *sk)
{
	struct pure *ca = inet_csk_ca(sk);

	ca->cwnd = tcp_snd_cwnd(tcp_sk(sk));
}

static void pure_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct pure *ca = inet_csk_ca(sk);

	tcp_snd_cwnd_set(tcp_sk(sk), ca->cwnd);
}

static u32 pure_ssthresh(struct sock *sk)
{
	return TCP_INFINITE_SSTHRESH;
}

static u32 pure_undo_cwnd(struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

static struct tcp_congestion_ops pure_ops __read_mostly = {
	.name = "pure",
	.owner = THIS_MODULE,
	.init = pure_init,
	.cong_control = pure_cong_control,
	.ssthresh = pure_ssthresh,
	.undo_cwnd = pure_undo_cwnd,
};

/* Set window and pacing rate of a socket that uses `pure`; sends at once what now fits. */
void pure_set(struct sock *sk, u32 cwnd, u64 pacing_bytes_s)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct pure *ca = inet_csk_ca(sk);

	lock_sock(sk);
	if (inet_csk(sk)->icsk_ca_ops == &pure_ops) {
		ca->cwnd = clamp(cwnd, 1U, tp->snd_cwnd_clamp);
		tcp_snd_cwnd_set(tp, ca->cwnd);
		if (pacing_bytes_s)
			cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
		WRITE_ONCE(sk->sk_pacing_rate, pacing_bytes_s ?: ~0UL);
		if (sk->sk_state == TCP_ESTABLISHED)
			tcp_push_pending_frames(sk);
	}
	release_sock(sk);
}

static int __init pure_register(void)
{
	return tcp_register_congestion_control(&pure_ops);
}
device_initcall(pure_register);
