// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lab: the guest's only door to the host, /dev/lab.
 *
 * Reading it gives the episode's specification. A kernel thread then samples every registered flow
 * once a tick of virtual time and streams the records (wire.h) to a file descriptor of the host;
 * it blocks the whole guest while the host thinks, so that thinking costs no virtual time.
 */
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/reboot.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <net/tcp.h>
#include <os.h>

#include "lab.h"
#include "lab_ioctl.h"

#define OUT_BYTES (256 << 10)
#define FLUSH_BYTES (64 << 10)
#define MAX_PACKETS (64 << 10) /* a tick: 6.5 M packets a second at 10 ms */

struct lab_flow {
	struct wire_flow spec;
	struct socket *sender;
	struct socket *receiver;
};

static int host_fd = -1;
static struct lab_start episode;
static struct lab_flow flows[LAB_MAX_FLOWS];
static u8 *out;
static size_t out_bytes;
static struct wire_packet *packets;
static u32 packet_count;
static struct wire_end totals;
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

static void host_write(const void *data, size_t bytes)
{
	while (bytes) {
		int n = os_write_file(host_fd, data, bytes);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			lab_off();
		data += n;
		bytes -= n;
	}
}

static void host_read(void *data, size_t bytes)
{
	while (bytes) {
		int n = os_read_file(host_fd, data, bytes);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			lab_off();
		data += n;
		bytes -= n;
	}
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

/* A data packet has left a link (any context, bottom halves off). */
void lab_packet(u32 link, u32 flow, u64 delay_ns)
{
	if (!episode.packet_delays || link != flows[flow].spec.bottleneck)
		return;
	if (packet_count < MAX_PACKETS)
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

static void sample(u32 id, u64 t_ns)
{
	struct lab_flow *flow = &flows[id];
	struct sock *sk = flow->sender->sk;
	struct link_counters link;
	struct wire_sample s;
	struct tcp_info info;

	link_read(flow->spec.bottleneck, id, &link);
	tcp_get_info(sk, &info);
	s = (struct wire_sample){
		.t_ns = t_ns,
		.flow = id,
		.ca_state = info.tcpi_ca_state,
		.app_limited = info.tcpi_delivery_rate_app_limited,
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

static void take_actions(void)
{
	struct wire_action action;

	put(WIRE_KIND_TICK, NULL, 0);
	flush();
	for (u32 id = 0; id < episode.flows; id++) {
		if (!flows[id].spec.lockstep || !flows[id].sender)
			continue;
		host_read(&action, sizeof(action));
		pure_set(flows[id].sender->sk, action.cwnd_pkts, action.pacing_bytes_s);
	}
}

static int lab_thread(void *unused)
{
	u64 ticks = div64_u64(episode.duration_ns, episode.tick_ns);

	for (u64 tick = 1; tick <= ticks; tick++) {
		ktime_t when = ns_to_ktime(lab_epoch_ns + tick * episode.tick_ns);
		bool ask = false;

		set_current_state(TASK_IDLE);
		schedule_hrtimeout(&when, HRTIMER_MODE_ABS);
		for (u32 id = 0; id < episode.flows; id++) {
			if (!flows[id].spec.sampled || !flows[id].sender)
				continue;
			sample(id, tick * episode.tick_ns);
			ask |= flows[id].spec.lockstep;
		}
		put_packets();
		if (ask)
			take_actions();
		else if (out_bytes > FLUSH_BYTES)
			flush();
	}
	totals.t_ns = ticks * episode.tick_ns;
	put(WIRE_KIND_END, &totals, sizeof(totals));
	flush();
	lab_off();
}

static long lab_start(struct lab_start __user *from)
{
	if (copy_from_user(&episode, from, sizeof(episode)))
		return -EFAULT;
	if (!episode.tick_ns || episode.flows > LAB_MAX_FLOWS)
		return -EINVAL;
	for (u32 id = 0; id < episode.flows; id++)
		if (copy_from_user(&flows[id].spec, &episode.spec[id], sizeof(flows[id].spec)))
			return -EFAULT;
	lab_epoch_ns = ktime_get_ns();
	if (put_user(lab_epoch_ns, &from->epoch_ns))
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
	if (request.flow >= episode.flows)
		return -EINVAL;
	sock = sockfd_lookup(request.fd, &err); /* held for the guest's life */
	if (!sock)
		return err;
	if (request.receiver)
		flows[request.flow].receiver = sock;
	else
		flows[request.flow].sender = sock;
	return 0;
}

static long lab_fail(const char __user *from)
{
	char text[256];
	long n = strncpy_from_user(text, from, sizeof(text));

	if (n < 0)
		return n;
	put(WIRE_KIND_ERROR, text, min_t(long, n, sizeof(text)));
	flush();
	lab_off();
}

static long lab_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case LAB_START:
		return lab_start((void __user *)arg);
	case LAB_SOCKET:
		return lab_socket((void __user *)arg);
	case LAB_FAIL:
		return lab_fail((void __user *)arg);
	default:
		return -ENOTTY;
	}
}

static ssize_t lab_read(struct file *file, char __user *to, size_t bytes, loff_t *offset)
{
	bytes = min_t(size_t, bytes, OUT_BYTES);
	host_read(out, bytes);
	return copy_to_user(to, out, bytes) ? -EFAULT : bytes;
}

static int lab_open(struct inode *inode, struct file *file)
{
	struct wire_hello hello = {
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
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

static int __init lab_init(void)
{
	out = vmalloc(OUT_BYTES);
	packets = vmalloc(MAX_PACKETS * sizeof(*packets));
	if (!out || !packets)
		return -ENOMEM;
	return misc_register(&lab_device);
}
device_initcall(lab_init);
