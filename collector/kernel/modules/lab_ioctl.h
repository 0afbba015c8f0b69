/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* /dev/lab as the guest's init program sees it, and the specification as both of them read it. */
#ifndef SAGECC_LAB_IOCTL_H
#define SAGECC_LAB_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include "wire.h"

#define LAB_MINOR 241 /* 240 to 254 are for local use (Documentation/admin-guide/devices.txt) */

struct lab_socket {
	__u32 flow;
	__u32 receiver; /* 1: the receiver's socket, 0: the sender's */
	__s32 fd;
	__u32 served; /* 1: LAB_WAIT sends on it, or reads from it, without asking */
};

/* What an event of init's poller is about: the upper half of its data; the lower half is the flow. */
enum lab_event { EVENT_LISTENER, EVENT_SENDER, EVENT_RECEIVER, EVENT_START, EVENT_STOP, EVENT_TURN };

struct lab_wait {
	struct epoll_event *events;
	loff_t *from; /* room for a place in the payload */
	__s32 poller;
	__u32 most; /* events that there is room for */
	__s32 payload;
	__u32 payload_bytes;
	__u32 served; /* returned: so many of the first events are done */
};

#define LAB_START _IOR('s', 1, __u64) /* returns the virtual time (ns) at which the episode began */
#define LAB_SOCKET _IOW('s', 2, struct lab_socket)
#define LAB_FAIL _IOW('s', 3, char[256])
#define LAB_COMPLETE _IO('s', 4) /* all that the flow of this number had to send is acknowledged */
#define LAB_WAIT _IOWR('s', 5, struct lab_wait) /* epoll_wait(), until something is not served */

/* Where the parts of a specification are. */
struct lab_layout {
	const struct wire_spec *head;
	const struct wire_cable *cables;
	const struct wire_link *links;
	const struct wire_rate *rates;
	const struct wire_delay *delays;
	const struct wire_opportunity *opportunities;
	const struct wire_route *routes;
	const struct wire_flow *flows;
	const struct wire_kick *kicks;
	const struct wire_extension *extension; /* NULL: none */
	const struct wire_extra *extras;
	const struct wire_transfer *transfers;
	const struct wire_application *application; /* NULL: none */
	const struct wire_window *windows;
	const struct wire_pause *pauses;
	const struct wire_loss *losses;
	__u32 loss_count;
	const void *end; /* as the counts have it */
};

static inline struct lab_layout lab_layout(const void *specification)
{
	const struct wire_spec *head = specification;
	struct lab_layout l = { .head = head };

	l.cables = (const void *)(head + 1);
	l.links = (const void *)(l.cables + head->cables);
	l.rates = (const void *)(l.links + 2 * head->cables);
	l.delays = (const void *)(l.rates + head->rates);
	l.opportunities = (const void *)(l.delays + head->delays);
	l.routes = (const void *)(l.opportunities + head->opportunities);
	l.flows = (const void *)(l.routes + head->routes);
	l.kicks = (const void *)(l.flows + head->flows);
	l.losses = (const void *)(l.kicks + head->kicks);
	if (head->extended & WIRE_HAS_EXTENSION) {
		l.extension = (const void *)l.losses;
		l.extras = (const void *)(l.extension + 1);
		l.transfers = (const void *)(l.extras + l.extension->extras);
		l.losses = (const void *)(l.transfers + l.extension->transfers);
	}
	if (head->extended & WIRE_HAS_APPLICATION) {
		l.application = (const void *)l.losses;
		l.windows = (const void *)(l.application + 1);
		l.pauses = (const void *)(l.windows + l.application->windows);
		l.losses = (const void *)(l.pauses + l.application->pauses);
	}
	if (head->bytes > (__u64)((const char *)l.losses - (const char *)head))
		l.loss_count = (head->bytes - ((const char *)l.losses - (const char *)head)) / sizeof(*l.losses);
	l.end = l.losses + l.loss_count;
	return l;
}

#endif
