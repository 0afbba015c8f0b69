/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs and the agent share; execution/stock/shared.py holds the same and a test compares both. */
#pragma once

#include <linux/types.h>

#define SCHEME_NAME "sagecc_pure"
#define NO_SLOT 0xffffffff
#define STALL_NS 200000000ULL
#define SILENT_NS 30000000ULL
#define SPARE_PKTS 3
#define LEAST_PKTS 10
#define FRESH_PKTS 64

enum mode {
	MODE_NEW, /* no order yet */
	MODE_POLICY,
	MODE_RENO,
};

/* A socket's counters, as schemas/raw.py has them, as of `tick`. */
struct row {
	__u64 flow;
	__u64 tick;
	__u64 t_ns;
	__u64 bytes_acked;
	__u64 bytes_sent;
	__u64 delivery_rate_bytes_s;
	__u64 pacing_rate_bytes_s;
	__u32 ca_state;
	__u32 app_limited;
	__u32 cwnd_pkts;
	__u32 ssthresh_pkts;
	__u32 srtt_us;
	__u32 rttvar_us;
	__u32 min_rtt_us;
	__u32 mss_bytes;
	__u32 unacked_pkts;
	__u32 sacked_pkts;
	__u32 lost_pkts;
	__u32 retrans_pkts;
	__u32 lost_total_pkts;
	__u32 retrans_total_pkts;
	__u32 delivered_pkts;
	__u32 data_segs_out;
	__u32 mode;
	__u32 pad;
};

/* What the agent wants of a socket. Written in this order; the stamp last. */
struct order {
	__u64 flow;
	__u64 pacing_bytes_s; /* 0: not paced */
	__u32 cwnd_pkts;
	__u32 bounding_rate; /* thousandths of packets per second; 0: no bound */
	__u64 stamp_ns; /* CLOCK_MONOTONIC */
};

/* The agent itself. */
struct agent {
	__u64 tick;
	__u64 beat_ns; /* CLOCK_MONOTONIC; 0: no agent */
	__u64 pid;
	__u64 reported; /* how many of the fallen back are in a log */
};

enum trial_state {
	TRIAL_NONE, /* every connection of the scheme is driven */
	TRIAL_ON,
	TRIAL_STOPPED, /* every connection gets the other scheme, the driven ones at their next ACK */
};

/* A trial of the policy on a share of the new connections; the agent has no access to it. */
struct trial {
	__u64 threshold; /* of 2^32: the share */
	__u64 connections; /* drawn since the programs were loaded */
	__u64 unseen; /* that ended while `ended` was full */
	__u32 number; /* of this trial, from 1 on */
	__u32 state;
	char scheme[16]; /* of the control group, and of every connection while no agent is at work */
};

enum group {
	GROUP_CONTROL,
	GROUP_CANARY,
};

/* A connection of the trial: its counters as of t_ns. */
struct record {
	__u64 id;
	__u64 since_ns;
	__u64 t_ns;
	__u64 bytes_acked;
	__u32 group;
	__u32 ended;
	__u32 data_segs_out;
	__u32 retrans_total_pkts;
	__u32 srtt_us;
	__u32 min_rtt_us;
};

enum {
	COUNT_FLOWS,
	COUNT_ENDED,
	COUNT_WITHOUT_SLOT,
	COUNT_FELL_BACK,
	COUNT_RESUMED,
	COUNT_NOT_CHOSEN,
	COUNTS,
};

struct counts {
	__u64 of[COUNTS];
};
