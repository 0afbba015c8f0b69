// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lab: the guest's only door to the host, /dev/lab.
 *
 * Reading it gives the episode's specification. A kernel thread then samples every registered flow
 * once a tick of virtual time and streams the records (wire.h) to a file descriptor of the host;
 * it blocks the whole guest while the host thinks, so that thinking costs no virtual time.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/reboot.h>
#include <linux/syscalls.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <net/tcp.h>
#include <os.h>
#include <uapi/linux/eventpoll.h>

#include "lab.h"

#define OUT_BYTES (256 << 10)
#define FLUSH_BYTES (64 << 10)
#define MAX_PACKETS (64 << 10) /* a tick: 6.5 M packets a second at 10 ms */
#define LATE_OF_FLOW 128 /* answers a second late, and more */

struct lab_flow {
	u64 last_ns; /* of its samples, once all it had to send is acknowledged; 0: not yet */
	struct socket *sender;
	struct socket *receiver;
	int fd; /* of a sender that is served */
	bool sender_served;
	bool receiver_served;
	u64 *entered_ns; /* of a flow over several links: by IP identification */
};

/* An answer of a host that takes its time. */
struct late {
	u64 when_ns; /* since the episode began */
	u32 flow;
	struct wire_action action;
};

static int host_fd = -1;
static struct lab_layout episode;
static struct lab_flow flows[LAB_MAX_FLOWS];
static u8 *out;
static size_t out_bytes;
static struct wire_packet *packets;
static u32 packet_count;
static u64 next_tick_ns; /* since the episode began */
static struct wire_end totals;
static struct late *late;
static u32 late_count;
static u32 next_kick;
u64 lab_epoch_ns;

static int __init lab_fd_setup(char *text)
{
	return kstrtoint(text, 10, &host_fd) == 0;
}
__setup("lab=", lab_fd_setup);

/* The host is gone or will not listen: nothing this guest does matters any more. */
static void __noreturn lab_off(void)
{
	kernel_power_off();
	for (;;)
		cpu_relax();
}

static size_t host_did(int n)
{
	if (n <= 0 && n != -EINTR)
		lab_off();
	return max(n, 0);
}

static void host_write(const void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;)
		done += host_did(os_write_file(host_fd, data + done, bytes - done));
}

static void host_read(void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;)
		done += host_did(os_read_file(host_fd, data + done, bytes - done));
}

static void flush(void)
{
	host_write(out, out_bytes);
	out_bytes = 0;
}

static void put(u32 kind, const void *data, size_t bytes)
{
	struct wire_record header = { .kind = kind, .bytes = bytes };

	if (out_bytes + sizeof(header) + bytes > OUT_BYTES)
		flush();
	memcpy(out + out_bytes, &header, sizeof(header));
	memcpy(out + out_bytes + sizeof(header), data, bytes);
	out_bytes += sizeof(header) + bytes;
}

static void __noreturn fail(const char *text, size_t bytes)
{
	put(WIRE_KIND_ERROR, text, bytes);
	flush();
	lab_off();
}

static void __noreturn __printf(1, 2) refuse(const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vscnprintf(text, sizeof(text), format, args);
	va_end(args);
	fail(text, strlen(text));
}

const struct lab_layout *lab_episode(void)
{
	return episode.head ? &episode : NULL;
}

const struct wire_flow *lab_flow(u32 flow)
{
	return &episode.flows[flow];
}

u64 *lab_entered(u32 flow)
{
	return flows[flow].entered_ns;
}

/* A data packet has left its last link (any context, bottom halves off). */
void lab_packet(u32 flow, u64 delay_ns)
{
	if (next_tick_ns > episode.flows[flow].stop_ns)
		return; /* as its counters: no sample will hold it */
	if (episode.head->packet_delays && packet_count < MAX_PACKETS)
		packets[packet_count++] = (struct wire_packet){
			.flow = flow,
			.delay = min(div_u64(delay_ns, WIRE_DELAY_UNIT_NS), (u64)U32_MAX),
		};
}

static void put_packets(void)
{
	const u32 most = FLUSH_BYTES / sizeof(*packets);
	u32 done = 0;

	while (done < packet_count) {
		u32 n = min(packet_count - done, most);

		put(WIRE_KIND_PACKETS, packets + done, n * sizeof(*packets));
		done += n;
	}
	totals.packets += packet_count;
	packet_count = 0;
}

static void sample(u32 id, u64 t_ns, u32 kick)
{
	struct lab_flow *flow = &flows[id];
	struct sock *sk = flow->sender->sk;
	struct link_counters link;
	struct wire_sample s;
	struct tcp_info info;

	link_read(id, &link);
	tcp_get_info(sk, &info);
	s = (struct wire_sample){
		.t_ns = t_ns,
		.flow = id,
		.ca_state = info.tcpi_ca_state,
		.app_limited = info.tcpi_delivery_rate_app_limited,
		.kick = kick,
		.cwnd_pkts = info.tcpi_snd_cwnd,
		.ssthresh_pkts = info.tcpi_snd_ssthresh,
		.srtt_us = info.tcpi_rtt,
		.rttvar_us = info.tcpi_rttvar,
		.min_rtt_us = info.tcpi_min_rtt,
		.mss_bytes = info.tcpi_snd_mss,
		.unacked_pkts = info.tcpi_unacked,
		.sacked_pkts = info.tcpi_sacked,
		.lost_pkts = info.tcpi_lost,
		.retrans_pkts = info.tcpi_retrans,
		.lost_total_pkts = tcp_sk(sk)->lost,
		.retrans_total_pkts = info.tcpi_total_retrans,
		.delivered_pkts = info.tcpi_delivered,
		.data_segs_out = info.tcpi_data_segs_out,
		.rto_total = info.tcpi_total_rto,
		.link_marks = link.marks,
		.bytes_acked = info.tcpi_bytes_acked,
		.bytes_sent = info.tcpi_bytes_sent,
		.delivery_rate_bytes_s = info.tcpi_delivery_rate,
		.pacing_rate_bytes_s = info.tcpi_pacing_rate,
		.received_bytes = flow->receiver ? tcp_sk(flow->receiver->sk)->bytes_received : 0,
		.link_packets = link.packets,
		.link_bytes = link.bytes,
		.link_drops = link.drops,
		.link_delay_ns = link.delay_ns,
		.link_queue_bytes = link.queue_bytes,
		.link_capacity_bytes = link.capacity_bytes,
	};
	put(WIRE_KIND_SAMPLE, &s, sizeof(s));
	totals.samples++;
}

static bool sampled(u32 id, u64 t_ns)
{
	return episode.flows[id].sampled && flows[id].sender && t_ns <= episode.flows[id].stop_ns &&
	       (!flows[id].last_ns || t_ns <= flows[id].last_ns);
}

/* Give a scheme other than `pure` a window to go on from. */
static void nudge(struct sock *sk, u32 cwnd, u64 pacing_bytes_s)
{
	struct tcp_sock *tp = tcp_sk(sk);

	lock_sock(sk);
	if (cwnd)
		tcp_snd_cwnd_set(tp, min(cwnd, tp->snd_cwnd_clamp));
	if (pacing_bytes_s) {
		cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
		WRITE_ONCE(sk->sk_pacing_rate, pacing_bytes_s);
	}
	if (sk->sk_state == TCP_ESTABLISHED)
		tcp_push_pending_frames(sk);
	release_sock(sk);
}

/* The factor of a flow's kick that is due by then, or 0. */
static u32 due_kick(u32 id, u64 t_ns)
{
	u32 factor = 0;

	for (u32 i = next_kick; i < episode.head->kicks && episode.kicks[i].t_ns <= t_ns; i++) {
		if (episode.kicks[i].flow == id)
			factor = episode.kicks[i].factor;
	}
	return factor;
}

/* Multiply a scheme's window, once: it goes on from there by its own rules. */
static void multiply_window(u32 id, u32 factor)
{
	struct sock *sk = flows[id].sender->sk;
	u64 cwnd = (u64)tcp_snd_cwnd(tcp_sk(sk)) * factor / WIRE_KICK_ONE;

	nudge(sk, clamp_t(u64, cwnd, 1, U32_MAX), 0);
}

static void obey(u32 id, const struct wire_action *action)
{
	struct sock *sk = flows[id].sender->sk;

	if (!strcmp(episode.flows[id].scheme, "pure"))
		pure_set(sk, action->cwnd_pkts, action->pacing_bytes_s);
	else
		nudge(sk, action->cwnd_pkts, action->pacing_bytes_s);
}

/* Which of the answers that wait is due first; the oldest of those due together. NULL: none by then. */
static struct late *first_late(u64 by_ns)
{
	struct late *first = NULL;

	for (u32 i = 0; i < late_count; i++) {
		if (late[i].when_ns <= by_ns && (!first || late[i].when_ns < first->when_ns))
			first = &late[i];
	}
	return first;
}

/* Sleep until so long after the episode began, and obey what falls due on the way. */
static void sleep_until(u64 t_ns)
{
	for (;;) {
		struct late *next = first_late(t_ns);
		ktime_t when = ns_to_ktime(lab_epoch_ns + (next ? next->when_ns : t_ns));

		set_current_state(TASK_IDLE);
		schedule_hrtimeout(&when, HRTIMER_MODE_ABS);
		if (!next)
			return;
		obey(next->flow, &next->action);
		late_count--;
		memmove(next, next + 1, (late + late_count - next) * sizeof(*next));
	}
}

static void take_actions(u64 t_ns)
{
	struct wire_action action;

	put(WIRE_KIND_TICK, NULL, 0);
	flush();
	for (u32 id = 0; id < episode.head->flows; id++) {
		if (!episode.flows[id].lockstep || !sampled(id, t_ns))
			continue;
		host_read(&action, sizeof(action));
		if (!action.delay_us)
			obey(id, &action);
		else if (late_count < episode.head->flows * LATE_OF_FLOW)
			late[late_count++] = (struct late){ t_ns + action.delay_us * NSEC_PER_USEC, id, action };
		else
			refuse("%u answers of the host wait: its latency is too long", late_count);
	}
}

static void take_kicks(u64 t_ns)
{
	for (; next_kick < episode.head->kicks && episode.kicks[next_kick].t_ns <= t_ns; next_kick++) {
		const struct wire_kick *next = &episode.kicks[next_kick];

		if (sampled(next->flow, t_ns))
			multiply_window(next->flow, next->factor);
	}
}

static int lab_thread(void *unused)
{
	u64 tick_ns = episode.head->tick_ns, ticks = div64_u64(episode.head->duration_ns, tick_ns);

	for (u64 tick = 1; tick <= ticks; tick++) {
		bool ask = false;

		next_tick_ns = tick * tick_ns;
		sleep_until(next_tick_ns);
		for (u32 id = 0; id < episode.head->flows; id++) {
			if (!sampled(id, tick * tick_ns))
				continue;
			sample(id, tick * tick_ns, due_kick(id, tick * tick_ns));
			ask |= episode.flows[id].lockstep;
		}
		put_packets();
		take_kicks(tick * tick_ns);
		if (ask)
			take_actions(tick * tick_ns);
		else if (out_bytes > FLUSH_BYTES)
			flush();
	}
	totals.t_ns = ticks * tick_ns;
	put(WIRE_KIND_END, &totals, sizeof(totals));
	flush();
	lab_off();
}

static long lab_start(u64 __user *epoch_ns)
{
	lab_epoch_ns = ktime_get_ns();
	if (put_user(lab_epoch_ns, epoch_ns))
		return -EFAULT;
	return PTR_ERR_OR_ZERO(kthread_run(lab_thread, NULL, "lab"));
}

static long lab_socket(struct lab_socket __user *from)
{
	struct lab_socket request;
	struct socket *sock;
	int err;

	if (copy_from_user(&request, from, sizeof(request)))
		return -EFAULT;
	if (request.flow >= episode.head->flows)
		return -EINVAL;
	sock = sockfd_lookup(request.fd, &err); /* held for the guest's life */
	if (!sock)
		return err;
	if (request.receiver) {
		flows[request.flow].receiver = sock;
		flows[request.flow].receiver_served = request.served;
	} else {
		flows[request.flow].sender = sock;
		flows[request.flow].sender_served = request.served;
		flows[request.flow].fd = request.fd;
	}
	return 0;
}

/* What init's system call would end with: a failed one takes a microsecond, and whoever is to run does so. */
static long called(long result)
{
	if (result < 0) {
		udelay(1);
		schedule();
	}
	cond_resched();
	return result;
}

/* Read all that there is, as recv(MSG_TRUNC) does; false: its end or an error is for init. */
static bool serve_receiver(const struct lab_flow *flow)
{
	struct msghdr message = {};
	struct sock *sk;
	long got;

	if (!flow->receiver_served)
		return false;
	sk = flow->receiver->sk;
	if (READ_ONCE(sk->sk_err) || READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN)
		return false;
	iov_iter_discard(&message.msg_iter, ITER_DEST, 1 << 30);
	got = called(sock_recvmsg(flow->receiver, &message, MSG_TRUNC | MSG_DONTWAIT));
	if (got < 0 && got != -EAGAIN)
		refuse("receiving: %ld", got);
	return true;
}

/* Send until the socket is full; false: its state is for init. */
static bool serve_sender(const struct lab_flow *flow, const struct lab_wait *wait, __poll_t events)
{
	long sent;

	if (!flow->sender_served || events & (EPOLLERR | EPOLLHUP))
		return false;
	do {
		if (put_user(0, wait->from))
			return false;
		sent = called(sys_sendfile64(flow->fd, wait->payload, wait->from, wait->payload_bytes));
	} while (sent >= 0);
	if (sent != -EAGAIN)
		refuse("sending: %ld", sent);
	return true;
}

static bool serve(const struct epoll_event *event, const struct lab_wait *wait)
{
	u32 id = event->data;

	switch ((enum lab_event)(event->data >> 32)) {
	case EVENT_RECEIVER:
		return serve_receiver(&flows[id]);
	case EVENT_SENDER:
		return serve_sender(&flows[id], wait, event->events);
	default:
		return false;
	}
}

/*
 * Wait as epoll_wait() does, and do what flows ask for most here, in init's order, and as its calls do it: each of
 * them would be a trip through the host.
 */
static long lab_wait(struct lab_wait __user *from)
{
	struct epoll_event event;
	struct lab_wait wait;
	u32 served;
	long n;

	if (copy_from_user(&wait, from, sizeof(wait)))
		return -EFAULT;
	do {
		n = called(sys_epoll_wait(wait.poller, wait.events, wait.most, -1));
		for (served = 0; n > 0 && served < n; served++) {
			if (copy_from_user(&event, wait.events + served, sizeof(event)))
				return -EFAULT;
			if (!serve(&event, &wait))
				break;
		}
	} while (n > 0 && served == n);
	if (put_user(served, &from->served))
		return -EFAULT;
	return n;
}

/* The first sample from now on is the flow's last. */
static long lab_complete(u32 flow)
{
	struct wire_completion completion = { .t_ns = ktime_get_ns() - lab_epoch_ns, .flow = flow };

	if (flow >= episode.head->flows)
		return -EINVAL;
	flows[flow].last_ns = next_tick_ns;
	put(WIRE_KIND_COMPLETION, &completion, sizeof(completion));
	return 0;
}

static long lab_fail(const char __user *from)
{
	char text[256];
	long n = strncpy_from_user(text, from, sizeof(text));

	if (n < 0)
		return n;
	fail(text, n);
}

static long lab_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case LAB_START:
		return lab_start((void __user *)arg);
	case LAB_SOCKET:
		return lab_socket((void __user *)arg);
	case LAB_COMPLETE:
		return lab_complete(arg);
	case LAB_WAIT:
		return lab_wait((void __user *)arg);
	case LAB_FAIL:
		return lab_fail((void __user *)arg);
	default:
		return -ENOTTY;
	}
}

/* Take the specification from the host, once. */
static void load(void)
{
	struct wire_spec head;
	void *all;

	host_read(&head, sizeof(head));
	if (head.magic != WIRE_MAGIC || head.version != WIRE_VERSION)
		refuse("the specification has version %u, this guest speaks %u", head.version, WIRE_VERSION);
	all = head.bytes >= sizeof(head) ? vmalloc(head.bytes) : NULL;
	if (!all)
		refuse("no memory for a specification of %u bytes", head.bytes);
	memcpy(all, &head, sizeof(head));
	host_read(all + sizeof(head), head.bytes - sizeof(head));
	episode = lab_layout(all);
	if (episode.end != all + head.bytes)
		refuse("the specification has %u bytes, its counts say %zu", head.bytes, (size_t)(episode.end - all));
	if (!head.tick_ns || head.flows > LAB_MAX_FLOWS || 2 * head.cables > LAB_MAX_LINKS)
		refuse("the specification has too many flows (%u) or cables (%u)", head.flows, head.cables);
	for (u32 i = 0; i < head.kicks; i++) {
		if (episode.kicks[i].flow >= head.flows)
			refuse("a kick of flow %u, of %u", episode.kicks[i].flow, head.flows);
	}
	late = vcalloc(head.flows * LATE_OF_FLOW, sizeof(*late));
	if (!late)
		refuse("no memory for the answers of %u flows", head.flows);
	for (u32 id = 0; id < head.flows; id++) {
		if (episode.flows[id].first_cable == episode.flows[id].last_cable)
			continue;
		flows[id].entered_ns = vzalloc((U16_MAX + 1) * sizeof(u64));
		if (!flows[id].entered_ns)
			refuse("no memory for the delays of flow %u", id);
	}
}

static ssize_t lab_read(struct file *file, char __user *to, size_t bytes, loff_t *offset)
{
	if (!episode.head)
		load();
	return simple_read_from_buffer(to, bytes, offset, episode.head, episode.head->bytes);
}

static int lab_open(struct inode *inode, struct file *file)
{
	struct wire_hello hello = {
		.magic = WIRE_MAGIC,
		.version = WIRE_HELLO_VERSION,
		.sample_bytes = sizeof(struct wire_sample),
	};

	host_write(&hello, sizeof(hello));
	return 0;
}

static const struct file_operations lab_fops = {
	.owner = THIS_MODULE,
	.open = lab_open,
	.read = lab_read,
	.unlocked_ioctl = lab_ioctl,
};

static struct miscdevice lab_device = {
	.minor = LAB_MINOR,
	.name = "lab",
	.fops = &lab_fops,
};

static int __init register_schemes(void)
{
	extern struct tcp_congestion_ops *const __start_lab_schemes[], *const __stop_lab_schemes[];
	int err = 0;

	for (struct tcp_congestion_ops *const *ops = __start_lab_schemes; ops < __stop_lab_schemes && !err; ops++)
		err = tcp_register_congestion_control(*ops);
	return err;
}

static int __init lab_init(void)
{
	out = vmalloc(OUT_BYTES);
	packets = vmalloc(MAX_PACKETS * sizeof(*packets));
	if (!out || !packets)
		return -ENOMEM;
	return register_schemes() ?: misc_register(&lab_device);
}
device_initcall(lab_init);
