/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What of the kernel's types the programs touch. The loader finds each field by its name in the running kernel's BTF:
 * order, size and everything left out do not matter here.
 */
#pragma once

#include <linux/bpf.h>
#include <stdbool.h>

#define TCP_CONG_NON_RESTRICTED 1
#define TCP_INFINITE_SSTHRESH 0x7fffffff
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TCP_CLOSE 7

enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u8 icsk_ca_state : 5;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct minmax rtt_min;
	__u64 bytes_acked;
	__u64 bytes_sent;
	__u32 data_segs_out;
	__u32 delivered;
	__u32 lost;
	__u32 lost_out;
	__u32 max_packets_out;
	__u32 mdev_us;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 prior_cwnd;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 retrans_out;
	__u32 sacked_out;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_cwnd_cnt;
	__u32 snd_ssthresh;
	__u32 srtt_us;
	__u32 total_retrans;
	__u8 is_cwnd_limited : 1;
	__u8 rate_app_limited : 1;
};

struct rate_sample {
	__u32 acked_sacked;
};

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, __u8 new_state);
	__u32 (*undo_cwnd)(struct sock *sk);
#ifdef CONG_CONTROL_WITH_ACK
	void (*cong_control)(struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs);
#else
	void (*cong_control)(struct sock *sk, const struct rate_sample *rs);
#endif
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	char name[16];
	__u32 flags;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

#pragma clang attribute pop
