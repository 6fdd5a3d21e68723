#include "cluster/interface.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "base/error.h"
#include "cluster/netlink.h"

#define LOWER_UP (1u << 16) /* IFF_LOWER_UP: <linux/if.h> and <net/if.h> exclude each other */

bool hf_interface_decode(struct hf_interface *interface, struct hf_bytes body)
{
	struct hf_bytes name = hf_netlink_find(body, sizeof(struct ifinfomsg), IFLA_IFNAME);
	struct hf_bytes hardware = hf_netlink_find(body, sizeof(struct ifinfomsg), IFLA_ADDRESS);
	struct ifinfomsg info;

	memset(interface, 0, sizeof(*interface));
	if (body.len < sizeof(info) || !name.len || name.len > sizeof(interface->name) ||
	    name.data[name.len - 1] != '\0')
		return false;
	memcpy(&info, body.data, sizeof(info));
	if (info.ifi_family != AF_UNSPEC)
		return false;
	memcpy(interface->name, name.data, name.len);
	interface->index = info.ifi_index;
	interface->flags = info.ifi_flags;
	if (info.ifi_type == ARPHRD_ETHER && !(info.ifi_flags & IFF_NOARP) &&
	    hardware.len == sizeof(interface->hardware)) {
		interface->is_ethernet = true;
		memcpy(interface->hardware, hardware.data, hardware.len);
	}
	return true;
}

struct search {
	struct hf_interface *interface;
	bool is_found;
};

static void on_link(void *user, uint16_t type, struct hf_bytes body)
{
	struct search *search = user;

	if (type == RTM_NEWLINK)
		search->is_found = hf_interface_decode(search->interface, body);
}

int hf_interface_find(struct hf_interface *interface, struct hf_netlink *netlink, const char *name)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
	struct search search = { .interface = interface };
	struct hf_netlink_request request;
	int r;

	hf_netlink_begin(&request, RTM_GETLINK, 0, &info, sizeof(info));
	hf_netlink_add(&request, IFLA_IFNAME, name, strlen(name) + 1);
	r = hf_netlink_ask(netlink, &request, on_link, &search);
	if (r < 0)
		return r;
	return search.is_found ? 0 : -EPROTO;
}

bool hf_interface_is_up(const struct hf_interface *interface)
{
	const unsigned int needed = IFF_UP | IFF_RUNNING | LOWER_UP;

	return (interface->flags & needed) == needed;
}
