#include "cluster/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/caps.h"
#include "base/error.h"
#include "base/macros.h"
#include "cluster/host.h"
#include "cluster/interface.h"
#include "cluster/neighbour.h"
#include "cluster/netlink.h"

#define FOREVER UINT32_MAX /* INFINITY_LIFE_TIME in the kernel */

/* Configuration */

/* What the kernel accepts as the name of an interface. */
static bool is_interface_name(const char *name)
{
	if (!*name || strlen(name) >= IF_NAMESIZE || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return false;
	for (; *name; name++) {
		if (*name <= ' ' || *name == 0x7f || *name == '/' || *name == ':' || *name == '%')
			return false;
	}
	return true;
}

static bool parse_prefix(uint8_t *prefixp, const char *text, size_t len, unsigned int most)
{
	unsigned int value = 0;

	if (len < 1 || len > 3)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (unsigned int)(text[i] - '0');
	}
	*prefixp = (uint8_t)value;
	return value >= 1 && value <= most;
}

/* It names no host elsewhere. */
static bool is_link_local(const struct hf_addr *addr)
{
	if (addr->family == AF_INET)
		return addr->ip[0] == 169 && addr->ip[1] == 254;
	return addr->ip[0] == 0xfe && (addr->ip[1] & 0xc0) == 0x80;
}

static bool parse_address(struct hf_addr *addr, const char *text, size_t len)
{
	char buf[HF_ADDR_TEXT];

	if (len >= sizeof(buf))
		return false;
	memcpy(buf, text, len);
	buf[len] = '\0';
	if (!hf_addr_parse(addr, buf) || !hf_addr_is_callable(addr) || is_link_local(addr))
		return false;
	/* An IPv4 address in IPv6 form has no place on an interface. */
	return addr->family == AF_INET6 || !strchr(buf, ':');
}

int hf_service_address_parse(struct hf_service_address *out, const char *text)
{
	const char *slash = strchr(text, '/');
	const char *percent = slash ? strchr(slash, '%') : NULL;

	memset(out, 0, sizeof(*out));
	if (!percent || memchr(text, '%', (size_t)(slash - text)))
		return HF_SERVICE_ADDRESS_E_FORM;
	if (!parse_address(&out->addr, text, (size_t)(slash - text)))
		return HF_SERVICE_ADDRESS_E_ADDRESS;
	if (!parse_prefix(&out->prefix, slash + 1, (size_t)(percent - slash - 1),
			  out->addr.family == AF_INET ? 32 : 128))
		return HF_SERVICE_ADDRESS_E_PREFIX;
	if (!is_interface_name(percent + 1))
		return HF_SERVICE_ADDRESS_E_INTERFACE;
	memcpy(out->interface, percent + 1, strlen(percent + 1));
	return HF_SERVICE_ADDRESS_OK;
}

const char *hf_service_address_explain(int answer)
{
	static const char *const words[] = {
		[HF_SERVICE_ADDRESS_OK] = "is right",
		[HF_SERVICE_ADDRESS_E_FORM] =
			"must be ADDRESS/PREFIX%INTERFACE, for example 192.0.2.7/24%eth0",
		[HF_SERVICE_ADDRESS_E_ADDRESS] =
			"must begin with an IPv4 or IPv6 address of one host that is not link-local",
		[HF_SERVICE_ADDRESS_E_PREFIX] = "must have a prefix from 1 to 32 after an IPv4 and from 1 to "
						"128 after an IPv6 address",
		[HF_SERVICE_ADDRESS_E_INTERFACE] = "must end with the name of an interface, at most 15 "
						   "characters without blanks, '/' and ':'",
	};

	return answer >= 0 && (size_t)answer < HF_ARRAY_SIZE(words) ? words[answer] : "is wrong";
}

/* The kernel */

static size_t ip_len(const struct hf_addr *addr)
{
	return addr->family == AF_INET ? 4 : 16;
}

static void begin(struct hf_netlink_request *request, uint16_t type, uint16_t flags,
		  const struct hf_service_address *address, int index)
{
	struct ifaddrmsg message = {
		.ifa_family = address->addr.family,
		.ifa_prefixlen = address->prefix,
		/* Duplicate address detection would delay the first packet by a second, and a predecessor
		 * that has not let go yet would win. */
		.ifa_flags = address->addr.family == AF_INET6 ? IFA_F_NODAD : 0,
		.ifa_scope = RT_SCOPE_UNIVERSE,
		.ifa_index = (unsigned int)index,
	};

	hf_netlink_begin(request, type, flags, &message, sizeof(message));
	hf_netlink_add(request, IFA_LOCAL, address->addr.ip, ip_len(&address->addr));
	hf_netlink_add(request, IFA_ADDRESS, address->addr.ip, ip_len(&address->addr));
}

static int order(struct hf_host *host, struct hf_netlink_request *request)
{
	bool is_raised = hf_caps_raise(CAP_NET_ADMIN);
	int r = hf_netlink_ask(&host->route, request, NULL, NULL);

	if (is_raised)
		hf_caps_lower(CAP_NET_ADMIN);
	return r;
}

static int add(struct hf_host *host, const struct hf_service_address *address, int index, uint32_t seconds)
{
	struct ifa_cacheinfo lifetime = {
		.ifa_valid = seconds,
		/* An IPv6 address whose preferred lifetime is over serves those who call it, and is no source
		 * of calls that do not ask for it: such as those to the database, which must outlive a move.
		 * An IPv4 host takes the first address of a subnet instead. */
		.ifa_prefered = address->addr.family == AF_INET6 ? 0 : seconds,
	};
	struct hf_netlink_request request;

	begin(&request, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, address, index);
	hf_netlink_add(&request, IFA_CACHEINFO, &lifetime, sizeof(lifetime));
	return order(host, &request);
}

/* Is the address on any interface without a lifetime? */
struct search {
	const struct hf_addr *addr;
	unsigned int index; /* of that interface; 0: no */
};

static void on_address(void *user, uint16_t type, struct hf_bytes body)
{
	struct search *search = user;
	struct ifaddrmsg message;
	struct ifa_cacheinfo lifetime;
	struct hf_bytes ip = hf_netlink_find(body, sizeof(message), IFA_LOCAL);
	struct hf_bytes info = hf_netlink_find(body, sizeof(message), IFA_CACHEINFO);

	if (!ip.data)
		ip = hf_netlink_find(body, sizeof(message), IFA_ADDRESS);
	if (type != RTM_NEWADDR || body.len < sizeof(message) ||
	    !hf_bytes_equal(ip, hf_bytes_of(search->addr->ip, ip_len(search->addr))))
		return;
	memcpy(&message, body.data, sizeof(message));
	if (message.ifa_family != search->addr->family || info.len < sizeof(lifetime))
		return;
	memcpy(&lifetime, info.data, sizeof(lifetime));
	if (lifetime.ifa_valid == FOREVER)
		search->index = message.ifa_index;
}

static int is_of_host(struct hf_host *host, const struct hf_addr *addr)
{
	struct ifaddrmsg message = { .ifa_family = addr->family };
	struct search search = { .addr = addr };
	struct hf_netlink_request request;
	int r;

	hf_netlink_begin(&request, RTM_GETADDR, NLM_F_DUMP, &message, sizeof(message));
	r = hf_netlink_ask(&host->route, &request, on_address, &search);
	return r < 0 ? r : search.index != 0;
}

static int explain(int r, const struct hf_service_address *address, const char *verb, char *error,
		   size_t error_size)
{
	char text[HF_ADDR_TEXT];

	hf_addr_format(&address->addr, text, sizeof(text));
	if (r == -ENODEV)
		snprintf(error, error_size, "cannot %s the address %s: there is no interface %s", verb, text,
			 address->interface);
	else if (r == -EEXIST)
		snprintf(error, error_size,
			 "the address %s is in this host's own network configuration; remove it there and "
			 "from "
			 "the interface (ip address show to %s): the server itself adds it while it serves",
			 text, text);
	else if (r == -EPERM)
		snprintf(error, error_size, "cannot %s the address %s: CAP_NET_ADMIN is missing", verb, text);
	else
		snprintf(error, error_size, "cannot %s the address %s on %s: %s", verb, text,
			 address->interface, strerror(-r));
	return r;
}

static int hold(struct hf_host *host, const struct hf_service_address *address, uint32_t seconds)
{
	struct hf_interface interface;
	int r = is_of_host(host, &address->addr);

	if (r > 0)
		return -EEXIST;
	if (r == 0)
		r = hf_interface_find(&interface, &host->route, address->interface);
	return r < 0 ? r : add(host, address, interface.index, seconds);
}

/* What waits is dropped before the address goes, while the kernel can tell the sockets of this host, and
 * again after it, when no more can follow. */
static int remove_from(struct hf_host *host, const struct hf_service_address *address, int index)
{
	struct hf_netlink_request request;
	int r = hf_neighbours_drop_waiting(host, &address->addr, index), removed;

	begin(&request, RTM_DELADDR, 0, address, index);
	removed = order(host, &request);
	if (removed < 0)
		return removed == -EADDRNOTAVAIL ? r : removed;
	return hf_neighbours_drop_waiting(host, &address->addr, index);
}

static int give_up(struct hf_host *host, const struct hf_service_address *address)
{
	struct hf_interface interface;
	int r = is_of_host(host, &address->addr);

	if (r > 0)
		return 0;
	if (r == 0)
		r = hf_interface_find(&interface, &host->route, address->interface);
	if (r == 0)
		r = remove_from(host, address, interface.index);
	return r == -ENODEV ? 0 : r;
}

int hf_addresses_hold(struct hf_host *host, const struct hf_service_address *addresses, size_t n,
		      uint32_t lifetime_ms, char *error, size_t error_size)
{
	uint32_t seconds = HF_MAX(lifetime_ms / 1000 + (lifetime_ms % 1000 != 0), 1u);
	int result = 0;

	for (size_t i = 0; i < n; i++) {
		int r = hold(host, &addresses[i], seconds);

		if (r < 0 && result == 0)
			result = explain(r, &addresses[i], "add", error, error_size);
	}
	return result;
}

int hf_addresses_give_up(struct hf_host *host, const struct hf_service_address *addresses, size_t n,
			 char *error, size_t error_size)
{
	int result = 0;

	for (size_t i = 0; i < n; i++) {
		int r = give_up(host, &addresses[i]);

		if (r < 0 && result == 0)
			result = explain(r, &addresses[i], "remove", error, error_size);
	}
	return result;
}
