#include "cluster/neighbour.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "base/addr.h"
#include "base/caps.h"
#include "cluster/host.h"
#include "cluster/netlink.h"

#define BATCH      256
#define MAX_ROUNDS 64 /* of so many: more neighbours than the kernel remembers */

struct silent {
	const struct hf_addr *addr;
	int index;
	size_t n;
	uint8_t ips[BATCH][16];
};

static size_t ip_len(const struct hf_addr *addr)
{
	return addr->family == AF_INET ? 4 : 16;
}

static void on_neighbour(void *user, uint16_t type, struct hf_bytes body)
{
	struct silent *silent = user;
	struct hf_bytes ip = hf_netlink_find(body, sizeof(struct ndmsg), NDA_DST);
	struct ndmsg message;

	if (type != RTM_NEWNEIGH || body.len < sizeof(message) || ip.len != ip_len(silent->addr))
		return;
	memcpy(&message, body.data, sizeof(message));
	if (message.ndm_family != silent->addr->family || message.ndm_ifindex != silent->index ||
	    !(message.ndm_state & NUD_INCOMPLETE) || silent->n == BATCH)
		return;
	memcpy(silent->ips[silent->n++], ip.data, ip.len);
}

static int list(struct hf_host *host, struct silent *silent)
{
	struct ndmsg message = { .ndm_family = silent->addr->family };
	struct hf_netlink_request request;

	silent->n = 0;
	hf_netlink_begin(&request, RTM_GETNEIGH, NLM_F_DUMP, &message, sizeof(message));
	return hf_netlink_ask(&host->route, &request, on_neighbour, silent);
}

/* The kernel drops the packets with the entry. */
static int forget(struct hf_host *host, const struct silent *silent, const uint8_t *ip)
{
	struct ndmsg message = { .ndm_family = silent->addr->family, .ndm_ifindex = silent->index };
	struct hf_netlink_request request;
	int r;

	hf_netlink_begin(&request, RTM_DELNEIGH, 0, &message, sizeof(message));
	hf_netlink_add(&request, NDA_DST, ip, ip_len(silent->addr));
	r = hf_netlink_ask(&host->route, &request, NULL, NULL);
	return r == -ENOENT ? 0 : r; /* it has just gone by itself */
}

int hf_neighbours_drop_waiting(struct hf_host *host, const struct hf_addr *addr, int index)
{
	struct silent silent = { .addr = addr, .index = index, .n = BATCH };
	bool is_raised = hf_caps_raise(CAP_NET_ADMIN);
	int r = 0;

	for (int round = 0; r == 0 && silent.n == BATCH && round < MAX_ROUNDS; round++) {
		r = list(host, &silent);
		for (size_t i = 0; r == 0 && i < silent.n; i++)
			r = forget(host, &silent, silent.ips[i]);
	}
	if (is_raised)
		hf_caps_lower(CAP_NET_ADMIN);
	return r;
}
