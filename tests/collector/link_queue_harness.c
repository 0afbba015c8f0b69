// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * The link's queue (link_queue.c) outside the kernel: what it takes from there, in the plainest form,
 * and the doors through which test_link_queue.py drives it packet by packet.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#define __packed __attribute__((packed))
#define NSEC_PER_SEC 1000000000L
#define NSEC_PER_MSEC 1000000L
#define QDISC_CB_PRIV_LEN 20
#define ARRAY_SIZE(a) (sizeof(a) / sizeof(*(a)))
#define GFP_KERNEL 0
#define ENOMEM 12
#define kvzalloc(bytes, flags) calloc(1, bytes)
#define kvcalloc(n, bytes, flags) calloc(n, bytes)
#define kvfree free
#define struct_size(p, member, n) (sizeof(*(p)) + (n) * sizeof(*(p)->member))
#define BUILD_BUG_ON(holds) _Static_assert(!(holds), #holds)
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define clamp(a, low, high) min(max(a, low), high)

static s64 div_s64(s64 a, s64 b)
{
	return a / b;
}

static u64 div64_u64(u64 a, u64 b)
{
	return a / b;
}

static u32 int_sqrt64(u64 x)
{
	u64 root = 0;

	for (u64 bit = 1ULL << 31; bit; bit >>= 1)
		if ((root | bit) * (root | bit) <= x)
			root |= bit;
	return root;
}

/* Random numbers that the test can follow: a 64-bit linear congruential generator (Knuth's), its upper half. */
struct rnd_state {
	u64 x;
};

static void prandom_seed_state(struct rnd_state *state, u64 seed)
{
	state->x = seed;
}

static u32 prandom_u32_state(struct rnd_state *state)
{
	state->x = state->x * 6364136223846793005ULL + 1442695040888963407ULL;
	return state->x >> 32;
}

struct sk_buff {
	struct sk_buff *next;
	u32 id;
	bool ecn_capable;
	u8 cb[QDISC_CB_PRIV_LEN];
};

struct qdisc_skb_cb {
	u8 *data;
};

static struct qdisc_skb_cb *qdisc_skb_cb(const struct sk_buff *skb)
{
	static struct qdisc_skb_cb cb;

	cb.data = (u8 *)skb->cb;
	return &cb;
}

struct sk_buff_head {
	struct sk_buff *first;
	struct sk_buff **end;
};

static void __skb_queue_head_init(struct sk_buff_head *list)
{
	list->first = NULL;
	list->end = &list->first;
}

static bool skb_queue_empty(const struct sk_buff_head *list)
{
	return !list->first;
}

static void __skb_queue_tail(struct sk_buff_head *list, struct sk_buff *skb)
{
	skb->next = NULL;
	*list->end = skb;
	list->end = &skb->next;
}

static struct sk_buff *__skb_dequeue(struct sk_buff_head *list)
{
	struct sk_buff *skb = list->first;

	if (skb) {
		list->first = skb->next;
		if (!skb->next)
			list->end = &list->first;
	}
	return skb;
}

/* Dropped packets, as numbers, until the test asks. */
static u32 dropped[1 << 16];
static u32 drops;

static void kfree_skb(struct sk_buff *skb)
{
	dropped[drops++] = skb->id;
	free(skb);
}

static void __qdisc_drop(struct sk_buff *skb, struct sk_buff **to_free)
{
	(void)to_free;
	kfree_skb(skb);
}

static struct sk_buff *skb_peek(const struct sk_buff_head *list)
{
	return list->first;
}

#define skb_queue_walk(list, skb) for ((skb) = (list)->first; skb; (skb) = (skb)->next)

static void __skb_unlink(struct sk_buff *skb, struct sk_buff_head *list)
{
	struct sk_buff **at = &list->first;

	while (*at != skb)
		at = &(*at)->next;
	*at = skb->next;
	if (!*at)
		list->end = at;
}

static void __skb_queue_purge(struct sk_buff_head *list)
{
	for (struct sk_buff *skb; (skb = __skb_dequeue(list));)
		free(skb);
}

/* Marked packets, likewise. */
static u32 marked[1 << 16];
static u32 marks;

static bool INET_ECN_set_ce(struct sk_buff *skb)
{
	if (skb->ecn_capable)
		marked[marks++] = skb->id;
	return skb->ecn_capable;
}

#include "link_queue.c"
#include "policer.h"

u64 lab_epoch_ns;

enum { FLOWS = 4 };

void *queue_new(const struct wire_link *link, const struct wire_extra *extra)
{
	struct link_queue *queue = malloc(sizeof(*queue));

	return link_queue_init(queue, link, extra, FLOWS) ? NULL : queue;
}

void queue_free(struct link_queue *queue)
{
	link_queue_purge(queue);
	link_queue_free(queue);
	free(queue);
}

bool queue_add(struct link_queue *queue, u64 now, u32 id, u16 bytes, u16 flow, bool ecn_capable, bool plain_ack)
{
	struct sk_buff *skb = calloc(1, sizeof(*skb)), *to_free = NULL;

	skb->id = id;
	skb->ecn_capable = ecn_capable;
	link_packet(skb)->bytes = bytes;
	link_packet(skb)->flow = flow;
	link_packet(skb)->plain_ack = plain_ack;
	return link_queue_add(queue, skb, now, &to_free);
}

/* The number of the packet that the transmitter takes and has sent at once; -1 for none. */
s64 queue_take(struct link_queue *queue, u64 now)
{
	struct sk_buff *skb = link_queue_take(queue, now);
	s64 id = skb ? (s64)skb->id : -1;

	if (skb)
		link_queue_sent(queue, link_packet(skb));
	free(skb);
	return id;
}

/* Copy out and forget who was dropped since the last call. */
u32 queue_dropped(u32 *to)
{
	u32 n = drops;

	memcpy(to, dropped, n * sizeof(*to));
	drops = 0;
	return n;
}

/* The same of who was marked. */
u32 queue_marked(u32 *to)
{
	u32 n = marks;

	memcpy(to, marked, n * sizeof(*to));
	marks = 0;
	return n;
}

u64 queue_bytes(const struct link_queue *queue)
{
	return queue->bytes;
}

u64 queue_drop_count(const struct link_queue *queue)
{
	u64 sum = 0;

	for (u32 i = 0; i <= 2 * FLOWS; i++)
		sum += queue->counts[i].drops;
	return sum;
}

/* A policer of its own, and whether a packet passes it. */
void *policer_new(const struct wire_extra *extra)
{
	struct policer *policer = malloc(sizeof(*policer));

	*policer = policer_of(extra);
	return policer;
}

bool policer_admits(struct policer *policer, u64 now, u32 bytes)
{
	return policer_passes(policer, bytes, now);
}
