#include "cluster/nudge.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "cluster/host.h"
#include "cluster/inet.h"

#define TCP_HEADER  20
#define TCP_ACK     0x10
#define TCP_WINDOW  1024
#define HALF_CIRCLE 0x80000000u /* half of the sequence numbers: far more than any window */

static bool can_be_nudged(const struct hf_nudge *nudge)
{
	return nudge->service.family == nudge->client.family &&
	       (nudge->client.family == AF_INET || nudge->client.family == AF_INET6) && nudge->service.port &&
	       nudge->client.port && hf_addr_is_callable(&nudge->client);
}

/* The kernel fills in length, identification and checksum of an IPv4 header. */
static size_t put_ip_header(uint8_t *out, const struct hf_nudge *nudge)
{
	bool is_v4 = nudge->client.family == AF_INET;
	size_t len = is_v4 ? 20 : 40, ip_len = is_v4 ? 4 : 16;

	if (is_v4) {
		out[0] = 0x45;
		hf_inet_put16(out + 2, (uint16_t)(len + TCP_HEADER));
		out[8] = 64;
		out[9] = IPPROTO_TCP;
	} else {
		out[0] = 0x60;
		hf_inet_put16(out + 4, TCP_HEADER);
		out[6] = IPPROTO_TCP;
		out[7] = 64;
	}
	memcpy(out + len - 2 * ip_len, nudge->service.ip, ip_len);
	memcpy(out + len - ip_len, nudge->client.ip, ip_len);
	return len;
}

size_t hf_nudge_encode(uint8_t out[HF_NUDGE_PACKET], const struct hf_nudge *nudge, uint32_t sequence)
{
	size_t at, ip_len = nudge->client.family == AF_INET ? 4 : 16;
	uint8_t *tcp;
	uint32_t sum;

	if (!can_be_nudged(nudge))
		return 0;
	memset(out, 0, HF_NUDGE_PACKET);
	at = put_ip_header(out, nudge);
	tcp = out + at;
	hf_inet_put16(tcp, nudge->service.port);
	hf_inet_put16(tcp + 2, nudge->client.port);
	hf_inet_put32(tcp + 4, sequence);
	hf_inet_put32(tcp + 8, sequence); /* the client does not look at it */
	tcp[12] = TCP_HEADER / 4 << 4;
	tcp[13] = TCP_ACK;
	hf_inet_put16(tcp + 14, TCP_WINDOW);
	sum = hf_inet_sum_pseudo(nudge->service.ip, nudge->client.ip, ip_len, IPPROTO_TCP, TCP_HEADER);
	hf_inet_put16(tcp + 16, hf_inet_finish(hf_inet_sum(sum, tcp, TCP_HEADER)));
	return at + TCP_HEADER;
}

/* false: the interface has no room now. */
static bool send_one(struct hf_host *host, const struct hf_nudge *nudge, uint32_t sequence)
{
	int fd = host->raw[nudge->client.family == AF_INET6];
	struct hf_addr to = nudge->client;
	struct sockaddr_storage address;
	uint8_t packet[HF_NUDGE_PACKET];
	size_t len = hf_nudge_encode(packet, nudge, sequence);
	socklen_t address_len;

	if (len == 0 || fd < 0)
		return true;
	to.port = 0; /* a raw socket has none */
	address_len = hf_addr_to_sockaddr(&to, &address);
	return sendto(fd, packet, len, MSG_DONTWAIT, (struct sockaddr *)&address, address_len) >= 0 ||
	       (errno != EAGAIN && errno != ENOBUFS);
}

size_t hf_nudge_some(struct hf_host *host, const struct hf_nudge *list, size_t n)
{
	uint32_t sequence = 0;

	(void)!getrandom(&sequence, sizeof(sequence), GRND_NONBLOCK); /* without it, 0 serves, too */
	n = HF_MIN(n, (size_t)HF_NUDGE_BATCH);
	for (size_t i = 0; i < n; i++) {
		/* One of two numbers so far apart is outside the window. */
		if (!send_one(host, &list[i], sequence) || !send_one(host, &list[i], sequence + HALF_CIRCLE))
			return i;
	}
	return n;
}
