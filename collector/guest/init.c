// SPDX-License-Identifier: Apache-2.0
/*
 * The guest's only program: reads the episode's specification from /dev/lab, builds the topology by
 * netlink (a network namespace a node, a veth pair a cable, a sagelink qdisc at each end), runs every
 * flow from one event loop, and leaves sampling and the end to the kernel's lab thread.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lab_ioctl.h"

enum {
	PAYLOAD_BYTES = 1 << 20, /* one file of zeros, sent over and over without copying */
	UNSENT_BYTES = 8 << 20, /* waits in a socket beyond its window: enough that no flow ever runs dry */
	UNSENT_FLOWS = 64, /* so many may have as much; more of them share it */
	RECEIVE_WAKE_BYTES = 256 << 10, /* few wake-ups: each costs a trip through the host */
	RECEIVE_WINDOW_BYTES = 512 << 20, /* the window must never be what limits a flow, unless it is asked for */
	PAUSING_UNSENT_BYTES = 128 << 10, /* waits where an application pauses, so that a pause is one */
	NETLINK_BYTES = 1 << 10,
	STOP_AFTER_NS = 1000, /* so that the sample of the same moment comes first */
};

struct flow {
	int listener;
	int sender;
	int receiver;
	int running;
	int silent; /* whether its application has nothing to send now */
	int turns; /* timer of when that changes */
	const struct wire_pause *pause; /* of its application, the present or next one; NULL: it has none */
	const struct wire_pause *pauses_end;
	__u32 window_bytes; /* the most that its receiver announces; 0: no limit */
	__u64 left_bytes; /* not yet given to its socket */
};

static int lab;

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	char text[256] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	ioctl(lab, LAB_FAIL, text);
	_exit(1);
}

static int must(int result, const char *what)
{
	if (result < 0)
		fail("%s: %s", what, strerror(errno));
	return result;
}

static void write_file(const char *path, const char *text)
{
	int fd = must(open(path, O_WRONLY), path);

	must(write(fd, text, strlen(text)), path);
	close(fd);
}

/* ---- the specification ---- */

static void read_all(void *to, size_t bytes)
{
	for (size_t done = 0; done < bytes;)
		done += must(read(lab, (char *)to + done, bytes - done), "reading the specification");
}

/* The kernel has checked it already. */
static struct lab_layout read_episode(void)
{
	struct wire_spec head;
	char *all;

	read_all(&head, sizeof(head));
	all = malloc(head.bytes);
	if (!all)
		fail("no memory for the specification");
	memcpy(all, &head, sizeof(head));
	read_all(all + sizeof(head), head.bytes - sizeof(head));
	return lab_layout(all);
}

/* ---- netlink ---- */

struct request {
	struct nlmsghdr header;
	char body[NETLINK_BYTES];
};

static struct request request;

static void *append(const void *data, size_t bytes)
{
	struct nlmsghdr *n = &request.header;
	char *to = (char *)n + NLMSG_ALIGN(n->nlmsg_len);

	if (NLMSG_ALIGN(n->nlmsg_len) + bytes > sizeof(request))
		fail("a netlink request longer than %d bytes", NETLINK_BYTES);
	if (bytes)
		memcpy(to, data, bytes);
	n->nlmsg_len = NLMSG_ALIGN(n->nlmsg_len) + bytes;
	return to;
}

static void begin(int type, int flags, const void *body, size_t bytes)
{
	request.header = (struct nlmsghdr){
		.nlmsg_len = NLMSG_HDRLEN,
		.nlmsg_type = type,
		.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags,
	};
	append(body, bytes);
}

static struct rtattr *attribute(int type, const void *data, size_t bytes)
{
	struct rtattr head = { .rta_len = RTA_LENGTH(bytes), .rta_type = type };
	struct rtattr *at = append(&head, sizeof(head));

	append(data, bytes);
	return at;
}

static void end_nest(struct rtattr *nest)
{
	nest->rta_len = (char *)&request + request.header.nlmsg_len - (char *)nest;
}

/* Send the request in the current namespace and wait for its acknowledgement. */
static void commit(const char *what)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[1024];
	} answer;
	int fd = must(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), "netlink");

	must(send(fd, &request, request.header.nlmsg_len, 0), what);
	must(recv(fd, &answer, sizeof(answer), 0), what);
	close(fd);
	if (answer.header.nlmsg_type == NLMSG_ERROR && answer.error.error)
		fail("%s: %s", what, strerror(-answer.error.error));
}

/* ---- topology ---- */

static struct in_addr address(__u32 node)
{
	return (struct in_addr){ htonl(0x0a000001 + node) }; /* 10.0.0.1 is node 0 */
}

static int make_node(void)
{
	must(unshare(CLONE_NEWNET), "unshare");
	write_file("/proc/sys/net/ipv4/ip_forward", "1");
	write_file("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
	write_file("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 1073741824");
	write_file("/proc/sys/net/ipv4/tcp_wmem", "4096 131072 1073741824");
	return must(open("/proc/self/ns/net", O_RDONLY), "the network namespace");
}

static void cable_name(char *name, __u32 cable)
{
	snprintf(name, IFNAMSIZ, "cable%u", cable);
}

/* Both ends have one hardware address, so that no packet needs ARP. */
static void device_attributes(__u32 cable)
{
	const __u8 mac[6] = { 2, 0, 0, 0, cable >> 8, cable };
	const __u32 one = 1, mtu = 1500;
	char name[IFNAMSIZ];

	cable_name(name, cable);
	attribute(IFLA_IFNAME, name, strlen(name) + 1);
	attribute(IFLA_ADDRESS, mac, sizeof(mac));
	attribute(IFLA_MTU, &mtu, sizeof(mtu));
	attribute(IFLA_GSO_MAX_SEGS, &one, sizeof(one)); /* queues count real packets */
}

static void make_cable(const struct wire_cable *cable, __u32 id, const int *nodes)
{
	const struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
	struct rtattr *linkinfo, *data, *peer;

	must(setns(nodes[cable->node_a], CLONE_NEWNET), "setns");
	begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof(info));
	device_attributes(id);
	linkinfo = attribute(IFLA_LINKINFO, NULL, 0);
	attribute(IFLA_INFO_KIND, "veth", 4);
	data = attribute(IFLA_INFO_DATA, NULL, 0);
	peer = attribute(VETH_INFO_PEER, &info, sizeof(info));
	device_attributes(id);
	attribute(IFLA_NET_NS_FD, &nodes[cable->node_b], sizeof(int));
	end_nest(peer);
	end_nest(data);
	end_nest(linkinfo);
	commit("creating a cable");
}

static unsigned int device_index(__u32 cable)
{
	char name[IFNAMSIZ];
	unsigned int index;

	cable_name(name, cable);
	index = if_nametoindex(name);
	if (!index)
		fail("no device %s", name);
	return index;
}

static void make_end(const struct lab_layout *e, __u32 cable, __u32 end, const int *nodes)
{
	__u32 node = end ? e->cables[cable].node_b : e->cables[cable].node_a;
	__u32 link = 2 * cable + end;
	struct in_addr local = address(node);
	unsigned int index;

	must(setns(nodes[node], CLONE_NEWNET), "setns");
	index = device_index(cable);

	const struct ifaddrmsg addr = { .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = index };
	begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &addr, sizeof(addr));
	attribute(IFA_LOCAL, &local, sizeof(local));
	commit("setting an address");

	const struct tcmsg tc = {
		.tcm_family = AF_UNSPEC, .tcm_ifindex = index, .tcm_parent = TC_H_ROOT, .tcm_handle = 0x10000
	};
	begin(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &tc, sizeof(tc));
	attribute(TCA_KIND, "sagelink", sizeof("sagelink"));
	attribute(TCA_OPTIONS, &link, sizeof(link));
	commit("attaching the link");

	const struct ifinfomsg up = { .ifi_index = index,
				      .ifi_flags = IFF_UP | IFF_NOARP,
				      .ifi_change = IFF_UP | IFF_NOARP };
	begin(RTM_NEWLINK, 0, &up, sizeof(up));
	commit("bringing a device up");
}

static void make_route(const struct wire_route *route, const int *nodes)
{
	const struct rtmsg message = {
		.rtm_family = AF_INET,
		.rtm_dst_len = 32,
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_LINK,
		.rtm_type = RTN_UNICAST,
	};
	struct in_addr to = address(route->destination), from = address(route->node);
	unsigned int index;

	must(setns(nodes[route->node], CLONE_NEWNET), "setns");
	index = device_index(route->cable);
	begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &message, sizeof(message));
	attribute(RTA_DST, &to, sizeof(to));
	attribute(RTA_OIF, &index, sizeof(index));
	attribute(RTA_PREFSRC, &from, sizeof(from));
	commit("adding a route");
}

static int *build_topology(const struct lab_layout *e)
{
	int *nodes = calloc(e->head->nodes, sizeof(int));

	if (!nodes)
		fail("no memory for the nodes");
	write_file("/proc/sys/net/ipv4/tcp_mem", "4000000 6000000 8000000"); /* pages: never the limit */
	for (__u32 i = 0; i < e->head->nodes; i++)
		nodes[i] = make_node();
	for (__u32 i = 0; i < e->head->cables; i++) {
		make_cable(&e->cables[i], i, nodes);
		make_end(e, i, 0, nodes);
		make_end(e, i, 1, nodes);
	}
	for (__u32 i = 0; i < e->head->routes; i++)
		make_route(&e->routes[i], nodes);
	return nodes;
}

/* ---- flows ---- */

static int poller;

static void watch(int fd, __u32 events, enum lab_event event, __u32 flow)
{
	struct epoll_event e = { .events = events, .data.u64 = (__u64)event << 32 | flow };

	must(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e), "epoll");
}

static void register_socket(__u32 flow, int fd, int receiver, int served)
{
	struct lab_socket s = { .flow = flow, .receiver = receiver, .fd = fd, .served = served };

	must(ioctl(lab, LAB_SOCKET, &s), "registering a socket");
}

static int new_socket(int node)
{
	must(setns(node, CLONE_NEWNET), "setns");
	return must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
}

static void option(int fd, int level, int name, int value, const char *what)
{
	must(setsockopt(fd, level, name, &value, sizeof(value)), what);
}

static void set_scheme(int fd, const struct wire_flow *spec)
{
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, spec->scheme, strnlen(spec->scheme, sizeof(spec->scheme))))
		fail("this kernel has no scheme '%.16s'", spec->scheme);
}

/* Of what waits in a socket beyond its window. */
static int unsent_bytes(__u32 flows)
{
	return flows <= UNSENT_FLOWS ? UNSENT_BYTES : UNSENT_BYTES / flows * UNSENT_FLOWS;
}

/* The kernel forgets a listener's clamp with the first data of a connection, so its receiver sets it again. */
static void limit_window(int fd, __u32 bytes)
{
	if (bytes)
		option(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, bytes, "TCP_WINDOW_CLAMP");
}

static int make_listener(const struct wire_flow *spec, __u32 id, __u32 window_bytes, const int *nodes)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(WIRE_FIRST_PORT + id) };
	int fd = new_socket(nodes[spec->destination]);

	option(fd, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_WINDOW_BYTES, "SO_RCVBUFFORCE");
	limit_window(fd, window_bytes);
	if (spec->ecn)
		set_scheme(fd, spec); /* DCTCP has a receiver's part */
	must(bind(fd, (struct sockaddr *)&to, sizeof(to)), "bind");
	must(listen(fd, 1), "listen");
	watch(fd, EPOLLIN, EVENT_LISTENER, id);
	return fd;
}

static int start_sender(const struct lab_layout *e, __u32 id, const struct flow *flow, const int *nodes)
{
	const struct wire_flow *spec = &e->flows[id];
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(WIRE_FIRST_PORT + id),
				  .sin_addr = address(spec->destination) };
	int unsent = flow->pause ? PAUSING_UNSENT_BYTES : unsent_bytes(e->head->flows);
	int fd = new_socket(nodes[spec->source]);

	set_scheme(fd, spec);
	option(fd, SOL_SOCKET, SO_SNDBUFFORCE, spec->sndbuf_bytes / 2, "SO_SNDBUFFORCE");
	option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent, "TCP_NOTSENT_LOWAT");
	if (spec->ecn)
		write_file("/proc/sys/net/ipv4/tcp_ecn", "1"); /* connect() reads it */
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS)
		fail("connect: %s", strerror(errno));
	if (spec->ecn)
		write_file("/proc/sys/net/ipv4/tcp_ecn", "2"); /* the default: accept it only */
	watch(fd, EPOLLOUT | EPOLLET, EVENT_SENDER, id);
	return fd;
}

/* What is not sent yet is gone: the flow ends now, not when its buffer is empty. */
static void stop_sender(int fd)
{
	const struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
	must(connect(fd, &nobody, sizeof(nobody)), "ending a flow");
}

static void send_more(struct flow *flow, int payload)
{
	while (flow->left_bytes) {
		size_t most = flow->left_bytes < PAYLOAD_BYTES ? flow->left_bytes : PAYLOAD_BYTES;
		off_t from = 0;
		ssize_t sent = sendfile(flow->sender, payload, &from, most);

		if (sent < 0 && errno == EAGAIN)
			return;
		if (sent < 0)
			fail("sending: %s", strerror(errno));
		if (flow->left_bytes != WIRE_NO_LIMIT)
			flow->left_bytes -= sent;
	}
}

/* A transfer closes its direction with its last byte; whoever hears of the closing's ACK has all acknowledged. */
static void go_on(struct flow *flow, __u32 id, int payload)
{
	struct tcp_info info;
	socklen_t bytes = sizeof(info);

	if (flow->left_bytes) {
		if (flow->silent)
			return;
		send_more(flow, payload);
		if (flow->left_bytes)
			return;
		must(shutdown(flow->sender, SHUT_WR), "closing a transfer");
	}
	must(getsockopt(flow->sender, IPPROTO_TCP, TCP_INFO, &info, &bytes), "TCP_INFO");
	if (info.tcpi_state != TCP_FIN_WAIT2)
		return;
	must(ioctl(lab, LAB_COMPLETE, id), "ending a transfer");
	epoll_ctl(poller, EPOLL_CTL_DEL, flow->sender, NULL);
	flow->sender = -1; /* its socket stays, for its last sample */
}

static void receive_more(const struct flow *flow)
{
	int fd = flow->receiver;
	ssize_t got = recv(fd, NULL, 1 << 30, MSG_TRUNC);

	if (got < 0 && errno != EAGAIN && errno != ECONNRESET)
		fail("receiving: %s", strerror(errno));
	limit_window(fd, flow->window_bytes);
	if (!got)
		option(fd, IPPROTO_TCP, TCP_QUICKACK, 1, "TCP_QUICKACK"); /* the end is acknowledged at once */
	if (!got || (got < 0 && errno == ECONNRESET))
		epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
}

static int new_timer(void)
{
	return must(timerfd_create(CLOCK_MONOTONIC, 0), "timerfd");
}

static void arm(int fd, __u64 at_ns)
{
	struct itimerspec when = { .it_value = { at_ns / 1000000000, at_ns % 1000000000 } };

	must(timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL), "timerfd");
}

static void set_timer(__u64 at_ns, enum lab_event event, __u32 flow)
{
	int fd = new_timer();

	arm(fd, at_ns);
	watch(fd, EPOLLIN | EPOLLONESHOT, event, flow);
}

/* Wait for the application's next change. */
static void await_turn(const struct flow *flow, __u64 epoch_ns)
{
	arm(flow->turns, epoch_ns + (flow->silent ? flow->pause->until_ns : flow->pause->from_ns));
}

static void turn(struct flow *flow, __u64 epoch_ns)
{
	flow->pause += flow->silent;
	flow->silent = !flow->silent;
	if (flow->pause < flow->pauses_end)
		await_turn(flow, epoch_ns);
	else
		epoll_ctl(poller, EPOLL_CTL_DEL, flow->turns, NULL);
}

/* A flow's pauses lie together, by time. */
static void find_pauses(const struct lab_layout *e, struct flow *flows)
{
	for (__u32 i = 0; e->application && i < e->application->pauses; i++) {
		struct flow *flow = &flows[e->pauses[i].flow];

		if (!flow->pause)
			flow->pause = &e->pauses[i];
		flow->pauses_end = &e->pauses[i] + 1;
	}
}

static void run(const struct lab_layout *e, const int *nodes)
{
	__u64 epoch_ns;
	struct flow *flows = calloc(e->head->flows, sizeof(*flows));
	int payload = must(memfd_create("payload", 0), "memfd");

	if (!flows)
		fail("no memory for the flows");
	must(ftruncate(payload, PAYLOAD_BYTES), "ftruncate");
	poller = must(epoll_create1(0), "epoll");
	for (__u32 i = 0; e->application && i < e->application->windows; i++)
		flows[e->windows[i].flow].window_bytes = e->windows[i].bytes;
	find_pauses(e, flows);
	for (__u32 i = 0; i < e->head->flows; i++) {
		flows[i].listener = make_listener(&e->flows[i], i, flows[i].window_bytes, nodes);
		flows[i].left_bytes = WIRE_NO_LIMIT;
	}
	for (__u32 i = 0; e->extension && i < e->extension->transfers; i++)
		flows[e->transfers[i].flow].left_bytes = e->transfers[i].bytes;
	must(ioctl(lab, LAB_START, &epoch_ns), "starting the episode");
	for (__u32 i = 0; i < e->head->flows; i++) {
		if (!e->flows[i].start_ns)
			flows[i].sender = start_sender(e, i, &flows[i], nodes);
		else
			set_timer(epoch_ns + e->flows[i].start_ns, EVENT_START, i);
		if (e->flows[i].stop_ns < e->head->duration_ns)
			set_timer(epoch_ns + e->flows[i].stop_ns + STOP_AFTER_NS, EVENT_STOP, i);
		if (flows[i].pause) {
			flows[i].turns = new_timer();
			await_turn(&flows[i], epoch_ns);
			watch(flows[i].turns, EPOLLIN, EVENT_TURN, i);
		}
	}
	for (;;) {
		struct epoll_event events[64];
		off_t from;
		struct lab_wait wait = { .events = events,
					 .from = &from,
					 .poller = poller,
					 .most = 64,
					 .payload = payload,
					 .payload_bytes = PAYLOAD_BYTES };
		int n = must(ioctl(lab, LAB_WAIT, &wait), "waiting");

		for (int k = wait.served; k < n; k++) {
			__u32 id = (__u32)events[k].data.u64;
			struct flow *flow = &flows[id];

			switch ((enum lab_event)(events[k].data.u64 >> 32)) {
			case EVENT_START:
				flow->sender = start_sender(e, id, flow, nodes);
				break;
			case EVENT_STOP:
				if (flow->sender < 0)
					break; /* complete before */
				stop_sender(flow->sender);
				flow->sender = -1;
				break;
			case EVENT_TURN:
				turn(flow, epoch_ns);
				if (flow->running && flow->sender >= 0)
					go_on(flow, id, payload);
				break;
			case EVENT_LISTENER:
				flow->receiver = must(accept4(flow->listener, NULL, NULL, SOCK_NONBLOCK), "accept");
				if (!flow->window_bytes) /* else it reads at once */
					option(flow->receiver, SOL_SOCKET, SO_RCVLOWAT, RECEIVE_WAKE_BYTES,
					       "SO_RCVLOWAT");
				register_socket(id, flow->receiver, 1, !flow->window_bytes);
				watch(flow->receiver, EPOLLIN, EVENT_RECEIVER, id);
				break;
			case EVENT_RECEIVER:
				receive_more(flow);
				break;
			case EVENT_SENDER:
				if (flow->sender < 0)
					break; /* stopped or complete while this event waited */
				if (events[k].events & (EPOLLERR | EPOLLHUP))
					fail("flow %u: its connection broke", id);
				if (!flow->running) {
					flow->running = 1;
					register_socket(id, flow->sender, 0,
							!flow->pause && flow->left_bytes == WIRE_NO_LIMIT);
				}
				go_on(flow, id, payload);
				break;
			}
		}
	}
}

int main(void)
{
	const struct rlimit files = { 16384, 16384 };
	struct lab_layout e;

	lab = open("/dev/lab", O_RDWR);
	if (lab < 0)
		return 1;
	must(setrlimit(RLIMIT_NOFILE, &files), "raising the limit of files");
	must(mount("proc", "/proc", "proc", 0, NULL), "mounting /proc");
	e = read_episode();
	run(&e, build_topology(&e));
}
