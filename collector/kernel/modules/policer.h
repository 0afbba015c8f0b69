/* SPDX-License-Identifier: GPL-2.0-only */
/* A policer: a token bucket that starts full; what finds too few tokens is dropped at once. */
#ifndef SAGECC_POLICER_H
#define SAGECC_POLICER_H

#include <linux/math64.h>

#include "lab.h"

/* Tokens are bits times NSEC_PER_SEC, so that a nanosecond brings a whole number of them. */
struct policer {
	u64 bits_per_s; /* 0: none, all passes */
	u64 most;
	u64 tokens;
	u64 filled_ns;
};

static inline struct policer policer_of(const struct wire_extra *extra)
{
	u64 most = extra ? extra->policer_burst_bytes * 8 * NSEC_PER_SEC : 0;

	return (struct policer){ .bits_per_s = extra ? extra->policer_bits_per_s : 0, .most = most, .tokens = most };
}

/* Whether a packet that comes at `now` may pass. */
static inline bool policer_passes(struct policer *p, u32 bytes, u64 now)
{
	u64 needed = (u64)bytes * 8 * NSEC_PER_SEC, past = now - p->filled_ns;

	if (!p->bits_per_s)
		return true;
	if (past > div64_u64(p->most - p->tokens, p->bits_per_s))
		p->tokens = p->most;
	else
		p->tokens += past * p->bits_per_s;
	p->filled_ns = now;
	if (p->tokens < needed)
		return false;
	p->tokens -= needed;
	return true;
}

#endif
