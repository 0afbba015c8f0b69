/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* /dev/lab as the guest's init program sees it. */
#ifndef SAGECC_LAB_IOCTL_H
#define SAGECC_LAB_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include "wire.h"

#define LAB_MINOR 241 /* 240 to 254 are for local use (Documentation/admin-guide/devices.txt) */

struct lab_start {
	__u64 tick_ns;
	__u64 duration_ns;
	__u64 epoch_ns; /* returned: virtual time at which the episode began */
	const struct wire_flow *spec;
	__u32 flows;
	__u32 packet_delays;
};

struct lab_socket {
	__u32 flow;
	__u32 receiver; /* 1: the receiver's socket, 0: the sender's */
	__s32 fd;
};

#define LAB_START _IOWR('s', 1, struct lab_start)
#define LAB_SOCKET _IOW('s', 2, struct lab_socket)
#define LAB_FAIL _IOW('s', 3, char[256])

#endif
