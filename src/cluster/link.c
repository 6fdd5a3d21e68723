#include "cluster/link.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cluster/address.h"
#include "cluster/interface.h"
#include "cluster/netlink.h"

#define READ_SIZE 32768
#define MAX_READS 64 /* at once: enough for any burst, and an end to an endless one */

struct link {
	char name[IF_NAMESIZE];
	int index; /* 0: there is none of this name */
	bool is_up;
	bool is_listed; /* in the list that the kernel is sending */
};

struct hf_link_watch {
	struct hf_netlink netlink;
	bool is_listing;   /* the kernel is sending the list of all interfaces */
	bool is_uncertain; /* a report was lost: the list must come again */
	size_t n;
	struct link links[];
};

HF_DEFINE_CLEANUP(struct hf_link_watch *, hf_link_watch_close)

/* Reports */

static void on_change(struct hf_link_watch *watch, uint16_t type, struct hf_bytes body)
{
	struct hf_interface interface;

	if (!hf_interface_decode(&interface, body))
		return;
	for (size_t i = 0; i < watch->n; i++) {
		struct link *link = &watch->links[i];

		if (type == RTM_NEWLINK && strcmp(link->name, interface.name) == 0) {
			link->index = interface.index;
			link->is_up = hf_interface_is_up(&interface);
			link->is_listed = true;
		} else if (link->index == interface.index) { /* removed, or renamed */
			link->index = 0;
			link->is_up = false;
		}
	}
}

static int ask_for_list(struct hf_link_watch *watch)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
	struct hf_netlink_request request;

	for (size_t i = 0; i < watch->n; i++)
		watch->links[i].is_listed = false;
	hf_netlink_begin(&request, RTM_GETLINK, NLM_F_DUMP, &info, sizeof(info));
	watch->is_uncertain = false;
	watch->is_listing = true;
	return hf_netlink_send(&watch->netlink, &request);
}

static void on_end_of_list(struct hf_link_watch *watch)
{
	watch->is_listing = false;
	for (size_t i = 0; i < watch->n; i++) {
		if (!watch->links[i].is_listed) {
			watch->links[i].index = 0;
			watch->links[i].is_up = false;
		}
	}
}

static void take(struct hf_link_watch *watch, struct hf_bytes bytes)
{
	struct nlmsghdr header;
	struct hf_bytes body;

	while (hf_netlink_next(&bytes, &header, &body)) {
		if (header.nlmsg_flags & NLM_F_DUMP_INTR)
			watch->is_uncertain = true;
		if (header.nlmsg_type == RTM_NEWLINK || header.nlmsg_type == RTM_DELLINK)
			on_change(watch, header.nlmsg_type, body);
		else if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR)
			on_end_of_list(watch);
	}
}

/* false: there is nothing more to read now. */
static bool read_some(struct hf_link_watch *watch)
{
	_Alignas(struct nlmsghdr) uint8_t buffer[READ_SIZE];
	struct sockaddr_nl from = { 0 };
	socklen_t from_len = sizeof(from);
	ssize_t n =
		recvfrom(watch->netlink.fd, buffer, sizeof(buffer), 0, (struct sockaddr *)&from, &from_len);

	if (n < 0 && errno == ENOBUFS)
		watch->is_uncertain = true;
	else if (n < 0)
		return errno == EINTR;
	else if (from.nl_pid == 0)
		take(watch, hf_bytes_of(buffer, (size_t)n));
	return true;
}

static void catch_up(struct hf_link_watch *watch)
{
	for (int i = 0; i < MAX_READS && read_some(watch); i++)
		;
	if (watch->is_uncertain && !watch->is_listing && ask_for_list(watch) < 0)
		watch->is_uncertain = true; /* at the next look */
}

/* Making and freeing */

static bool has_link(const struct hf_link_watch *watch, const char *name)
{
	for (size_t i = 0; i < watch->n; i++) {
		if (strcmp(watch->links[i].name, name) == 0)
			return true;
	}
	return false;
}

static int wait_for_list(struct hf_link_watch *watch)
{
	int r = ask_for_list(watch);

	while (r == 0 && watch->is_listing) {
		struct pollfd polled = { .fd = watch->netlink.fd, .events = POLLIN };
		int n = poll(&polled, 1, HF_NETLINK_TIMEOUT_MS);

		if (n == 0)
			r = -ETIMEDOUT;
		else if (n < 0 && errno != EINTR)
			r = -errno;
		else
			catch_up(watch);
	}
	return r;
}

int hf_link_watch_open(struct hf_link_watch **watchp, const struct hf_service_address *addresses, size_t n)
{
	hf_cleanup(hf_link_watch_closep) struct hf_link_watch *watch =
		calloc(1, sizeof(*watch) + n * sizeof(watch->links[0]));
	int r;

	if (!watch)
		return hf_trace(-ENOMEM);
	for (size_t i = 0; i < n; i++) {
		if (!has_link(watch, addresses[i].interface))
			memcpy(watch->links[watch->n++].name, addresses[i].interface, IF_NAMESIZE);
	}
	r = hf_netlink_open(&watch->netlink, RTMGRP_LINK);
	if (r == 0)
		r = wait_for_list(watch);
	if (r < 0)
		return hf_trace(r);
	*watchp = watch;
	watch = NULL;
	return 0;
}

void hf_link_watch_close(struct hf_link_watch *watch)
{
	if (!watch)
		return;
	hf_netlink_close(&watch->netlink);
	free(watch);
}

int hf_link_watch_fd(const struct hf_link_watch *watch)
{
	return watch->netlink.fd;
}

bool hf_link_is_up(struct hf_link_watch *watch, struct hf_link_down *downp)
{
	catch_up(watch);
	for (size_t i = 0; i < watch->n; i++) {
		const struct link *link = &watch->links[i];

		if (!link->is_up) {
			*downp = (struct hf_link_down){ .interface = link->name, .exists = link->index != 0 };
			return false;
		}
	}
	return true;
}
