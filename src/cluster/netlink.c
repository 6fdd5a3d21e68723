#include "cluster/netlink.h"

#include <assert.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

#define READ_SIZE 32768 /* the kernel's own limit for one part of a long answer */

int hf_netlink_open(struct hf_netlink *netlink, uint32_t groups)
{
	struct sockaddr_nl own = { .nl_family = AF_NETLINK, .nl_groups = groups };

	netlink->sequence = 0;
	netlink->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (netlink->fd < 0)
		return hf_trace(-errno);
	if (bind(netlink->fd, (struct sockaddr *)&own, sizeof(own)) < 0) {
		int r = -errno;

		hf_netlink_close(netlink);
		return hf_trace(r);
	}
	return 0;
}

void hf_netlink_close(struct hf_netlink *netlink)
{
	if (netlink->fd >= 0)
		close(netlink->fd);
	netlink->fd = -1;
}

/* Requests */

void hf_netlink_begin(struct hf_netlink_request *request, uint16_t type, uint16_t flags, const void *body,
		      size_t len)
{
	memset(request, 0, sizeof(*request));
	assert(NLMSG_SPACE(len) <= sizeof(request->bytes));
	request->header.nlmsg_len = (uint32_t)NLMSG_LENGTH(len);
	request->header.nlmsg_type = type;
	request->header.nlmsg_flags = NLM_F_REQUEST | flags;
	memcpy(request->bytes + NLMSG_HDRLEN, body, len);
}

void hf_netlink_add(struct hf_netlink_request *request, uint16_t type, const void *value, size_t len)
{
	size_t at = NLMSG_ALIGN(request->header.nlmsg_len);
	struct rtattr attribute = { .rta_len = (unsigned short)RTA_LENGTH(len), .rta_type = type };

	assert(at + RTA_SPACE(len) <= sizeof(request->bytes));
	memcpy(request->bytes + at, &attribute, sizeof(attribute));
	memcpy(request->bytes + at + RTA_LENGTH(0), value, len);
	request->header.nlmsg_len = (uint32_t)(at + RTA_LENGTH(len));
}

int hf_netlink_send(struct hf_netlink *netlink, struct hf_netlink_request *request)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	request->header.nlmsg_seq = ++netlink->sequence;
	if (sendto(netlink->fd, request->bytes, request->header.nlmsg_len, 0, (struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return -errno;
	return 0;
}

/* Answers */

bool hf_netlink_next(struct hf_bytes *bytes, struct nlmsghdr *header, struct hf_bytes *body)
{
	size_t whole;

	if (bytes->len < NLMSG_HDRLEN)
		return false;
	memcpy(header, bytes->data, sizeof(*header));
	if (header->nlmsg_len < NLMSG_HDRLEN || header->nlmsg_len > bytes->len)
		return false;
	*body = hf_bytes_of(bytes->data + NLMSG_HDRLEN, header->nlmsg_len - NLMSG_HDRLEN);
	whole = NLMSG_ALIGN(header->nlmsg_len);
	if (whole > bytes->len)
		whole = bytes->len;
	*bytes = hf_bytes_of(bytes->data + whole, bytes->len - whole);
	return true;
}

struct hf_bytes hf_netlink_find(struct hf_bytes body, size_t fixed, uint16_t type)
{
	size_t at = NLMSG_ALIGN(fixed);

	while (at < body.len && body.len - at >= sizeof(struct rtattr)) {
		struct rtattr attribute;

		memcpy(&attribute, body.data + at, sizeof(attribute));
		if (attribute.rta_len < sizeof(attribute) || attribute.rta_len > body.len - at)
			break;
		if ((attribute.rta_type & NLA_TYPE_MASK) == type)
			return hf_bytes_of(body.data + at + RTA_LENGTH(0), attribute.rta_len - RTA_LENGTH(0));
		at += RTA_ALIGN(attribute.rta_len);
	}
	return (struct hf_bytes){ 0 };
}

int hf_netlink_error(struct hf_bytes body)
{
	int error;

	if (body.len < sizeof(error))
		return -EPROTO;
	memcpy(&error, body.data, sizeof(error));
	return error > 0 ? -EPROTO : error;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The length of what was read; 0: nothing yet, or not from the kernel. */
static int receive(struct hf_netlink *netlink, uint8_t *buffer, size_t size, int64_t end_ms)
{
	struct pollfd polled = { .fd = netlink->fd, .events = POLLIN };
	struct sockaddr_nl from = { 0 };
	socklen_t from_len = sizeof(from);
	int64_t left = end_ms - now_ms();
	ssize_t n;

	if (left <= 0)
		return -ETIMEDOUT;
	if (poll(&polled, 1, (int)left) < 0)
		return errno == EINTR ? 0 : -errno;
	n = recvfrom(netlink->fd, buffer, size, 0, (struct sockaddr *)&from, &from_len);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return from.nl_pid == 0 ? (int)n : 0;
}

struct answer {
	hf_netlink_fn fn;
	void *user;
	uint32_t sequence;
	bool is_over;
	int result;
};

static void take(struct answer *answer, struct hf_bytes bytes)
{
	struct nlmsghdr header;
	struct hf_bytes body;

	while (!answer->is_over && hf_netlink_next(&bytes, &header, &body)) {
		if (header.nlmsg_seq != answer->sequence)
			continue; /* the end of an answer that came too late */
		if (header.nlmsg_type == NLMSG_ERROR || header.nlmsg_type == NLMSG_DONE) {
			answer->is_over = true;
			answer->result = header.nlmsg_type == NLMSG_ERROR ? hf_netlink_error(body) : 0;
		} else if (answer->fn) {
			answer->fn(answer->user, header.nlmsg_type, body);
		}
	}
}

int hf_netlink_ask(struct hf_netlink *netlink, struct hf_netlink_request *request, hf_netlink_fn fn,
		   void *user)
{
	_Alignas(struct nlmsghdr) uint8_t buffer[READ_SIZE];
	struct answer answer = { .fn = fn, .user = user };
	int64_t end_ms = now_ms() + HF_NETLINK_TIMEOUT_MS;
	int r;

	request->header.nlmsg_flags |= NLM_F_ACK; /* a list ends with NLMSG_DONE instead */
	r = hf_netlink_send(netlink, request);
	answer.sequence = netlink->sequence;
	while (r >= 0 && !answer.is_over) {
		r = receive(netlink, buffer, sizeof(buffer), end_ms);
		if (r > 0)
			take(&answer, hf_bytes_of(buffer, (size_t)r));
	}
	return r < 0 ? r : answer.result;
}
