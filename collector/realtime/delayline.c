// SPDX-License-Identifier: Apache-2.0
/*
 * A propagation delay between two tun devices, each in a network namespace of its own, and a record
 * of every packet that passes there and at one further device (the one in front of the queue).
 *
 *   delayline <near ns> <near tun> <queue device> <far ns> <far tun> <delay ns> <return delay ns> <log>
 *
 * A packet leaves its delay at the kernel's time stamp of its departure + the delay: waking up late
 * when it arrives costs nothing, and shortly before it is due the program spins. "ready" on standard output
 * says that the devices exist; the end of standard input ends the program, which then writes its log.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	MTU = 1500,
	RING = 1 << 15, /* packets under way in one direction */
	TAP_BUFFER_BYTES = 256 << 20,
	SPIN_NS = 60000, /* longer than a wake-up takes */
	LONGEST_SLEEP_NS = 100000000,
	NS_PER_S = 1000000000,
};

/* Must match RECORD in host.py. */
struct record {
	uint64_t t_ns; /* CLOCK_REALTIME, by the kernel */
	uint32_t number; /* sequence + acknowledgement number: in each direction, one of them stands still */
	uint16_t ip_id;
	uint16_t bytes; /* of the IP packet */
	uint16_t source_port;
	uint16_t destination_port;
	uint8_t tap; /* enum tap_name */
	uint8_t outgoing;
	uint16_t pad;
};

enum tap_name { TAP_QUEUE, TAP_NEAR, TAP_FAR, TAPS };

struct packet {
	uint64_t due_ns;
	uint16_t bytes;
	uint8_t data[MTU];
};

struct line {
	uint64_t delay_ns;
	int out; /* the tun device a packet is written to when it is due */
	uint32_t first, count;
	struct packet *ring;
};

static struct record *records;
static size_t record_count, record_room;

static void __attribute__((noreturn)) fail(const char *what)
{
	fprintf(stderr, "delayline: %s: %s\n", what, errno ? strerror(errno) : "too much");
	exit(1);
}

static int must(int result, const char *what)
{
	if (result < 0)
		fail(what);
	return result;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void enter(const char *namespace)
{
	int fd = must(open(namespace, O_RDONLY), namespace);

	must(setns(fd, CLONE_NEWNET), namespace);
	close(fd);
}

static int open_tun(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = must(open("/dev/net/tun", O_RDWR | O_NONBLOCK), "/dev/net/tun");

	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	must(ioctl(fd, TUNSETIFF, &request), name);
	return fd;
}

static int open_tap(const char *device)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int on = 1, room = TAP_BUFFER_BYTES;
	int fd = must(socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, 0), "packet socket (needs root)");

	at.sll_ifindex = if_nametoindex(device);
	if (!at.sll_ifindex)
		fail(device);
	must(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)), "SO_RCVBUFFORCE");
	must(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)), "SO_TIMESTAMPNS");
	must(bind(fd, (struct sockaddr *)&at, sizeof(at)), device);
	return fd;
}

static void note(enum tap_name tap, int outgoing, uint64_t t_ns, const uint8_t *data)
{
	const struct iphdr *ip = (const void *)data;
	const struct tcphdr *tcp = (const void *)(data + ip->ihl * 4);

	if (record_count == record_room) {
		record_room = record_room ? 2 * record_room : 1 << 20;
		records = realloc(records, record_room * sizeof(*records));
		if (!records)
			fail("memory for the log");
	}
	records[record_count++] = (struct record){
		.t_ns = t_ns,
		.number = ntohl(tcp->seq) + ntohl(tcp->ack_seq),
		.ip_id = ntohs(ip->id),
		.bytes = ntohs(ip->tot_len),
		.source_port = ntohs(tcp->source),
		.destination_port = ntohs(tcp->dest),
		.tap = tap,
		.outgoing = outgoing,
	};
}

static void put(struct line *line, uint64_t t_ns, const uint8_t *data, size_t bytes)
{
	struct packet *p = &line->ring[(line->first + line->count++) % RING];

	errno = 0;
	if (line->count > RING)
		fail("packets under way");
	p->due_ns = t_ns + line->delay_ns;
	p->bytes = bytes;
	memcpy(p->data, data, bytes);
}

/* Take everything a tap has seen; what leaves by this device goes onto `line`. */
static void take(int fd, enum tap_name tap, struct line *line)
{
	for (;;) {
		uint8_t data[MTU], control[64];
		struct sockaddr_ll from;
		struct iovec part = { data, sizeof(data) };
		struct msghdr m = { .msg_name = &from,
				    .msg_namelen = sizeof(from),
				    .msg_iov = &part,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		ssize_t bytes = recvmsg(fd, &m, 0);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		const struct iphdr *ip = (const void *)data;
		struct timespec t;
		uint64_t t_ns;

		if (bytes < 0 && (errno == EAGAIN || errno == ENETDOWN)) /* not up yet */
			return;
		must(bytes, "receiving");
		if (bytes < 40 || ip->version != 4 || ip->protocol != IPPROTO_TCP || !c)
			continue;
		memcpy(&t, CMSG_DATA(c), sizeof(t));
		t_ns = (uint64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
		note(tap, from.sll_pkttype == PACKET_OUTGOING, t_ns, data);
		if (line && from.sll_pkttype == PACKET_OUTGOING)
			put(line, t_ns, data, bytes);
	}
}

/* The taps have what is needed: only make room in the device. */
static void drain(int tun)
{
	uint8_t data[MTU];

	while (read(tun, data, sizeof(data)) > 0)
		;
}

/* Write what is due; return when the next packet is. */
static uint64_t release(struct line *line)
{
	while (line->count) {
		struct packet *p = &line->ring[line->first % RING];

		if (p->due_ns > now_ns())
			return p->due_ns;
		if (write(line->out, p->data, p->bytes) < 0 && errno != ENETDOWN && errno != EIO)
			fail("writing");
		line->first++;
		line->count--;
	}
	return UINT64_MAX;
}

static void new_line(struct line *line, const char *delay_ns, int out)
{
	*line = (struct line){ .delay_ns = strtoull(delay_ns, NULL, 10),
			       .out = out,
			       .ring = calloc(RING, sizeof(struct packet)) };
	if (!line->ring)
		fail("memory for the line");
}

int main(int argc, char **argv)
{
	const struct sched_param priority = { .sched_priority = 50 };
	struct pollfd polled[TAPS + 1] = { { .fd = STDIN_FILENO } };
	int near, far, taps[TAPS];
	struct line there, back;
	FILE *log;

	if (argc != 9) {
		fprintf(stderr, "delayline: wrong arguments\n");
		return 1;
	}
	enter(argv[1]);
	near = open_tun(argv[2]);
	taps[TAP_QUEUE] = open_tap(argv[3]);
	taps[TAP_NEAR] = open_tap(argv[2]);
	enter(argv[4]);
	far = open_tun(argv[5]);
	taps[TAP_FAR] = open_tap(argv[5]);
	new_line(&there, argv[6], far);
	new_line(&back, argv[7], near);
	log = fopen(argv[8], "wb");
	if (!log)
		fail(argv[8]);
	for (int i = 0; i < TAPS; i++)
		polled[i + 1] = (struct pollfd){ .fd = taps[i], .events = POLLIN };
	polled[0].events = POLLIN;
	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		prctl(PR_SET_TIMERSLACK, 1UL);
	puts("ready");
	fflush(stdout);

	while (!polled[0].revents) {
		uint64_t due = release(&there), due_back = release(&back), now = now_ns();
		struct timespec sleep = { 0 };

		if (due_back < due)
			due = due_back;
		if (due > now + SPIN_NS)
			sleep.tv_nsec = due - SPIN_NS - now < LONGEST_SLEEP_NS ? due - SPIN_NS - now : LONGEST_SLEEP_NS;
		must(ppoll(polled, TAPS + 1, &sleep, NULL), "waiting");
		take(taps[TAP_QUEUE], TAP_QUEUE, NULL);
		take(taps[TAP_NEAR], TAP_NEAR, &there);
		take(taps[TAP_FAR], TAP_FAR, &back);
		drain(near);
		drain(far);
	}
	if (fwrite(records, sizeof(*records), record_count, log) != record_count || fclose(log))
		fail(argv[8]);
	return 0;
}
