#include "cluster/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "cluster/address.h"

static int open_socket(int *fdp, int family, int type, int protocol)
{
	*fdp = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
	return *fdp < 0 ? -errno : 0;
}

static bool has_family(const struct hf_service_address *addresses, size_t n, uint8_t family)
{
	for (size_t i = 0; i < n; i++) {
		if (addresses[i].addr.family == family)
			return true;
	}
	return false;
}

static int open_all(struct hf_host *host, const struct hf_service_address *addresses, size_t n)
{
	int r = hf_netlink_open(&host->route, 0);

	/* Protocol 0 and IPPROTO_RAW: the kernel copies no packet to these sockets. */
	if (r == 0)
		r = open_socket(&host->packet, AF_PACKET, SOCK_DGRAM, 0);
	if (r == 0 && has_family(addresses, n, AF_INET))
		r = open_socket(&host->raw[0], AF_INET, SOCK_RAW, IPPROTO_RAW);
	if (r == 0 && has_family(addresses, n, AF_INET6))
		r = open_socket(&host->raw[1], AF_INET6, SOCK_RAW, IPPROTO_RAW);
	return r;
}

int hf_host_open(struct hf_host *host, const struct hf_service_address *addresses, size_t n, char *error,
		 size_t error_size)
{
	int r;

	*host = (struct hf_host)HF_HOST_CLOSED;
	r = open_all(host, addresses, n);
	if (r == 0)
		return 0;
	hf_host_close(host);
	if (r == -EPERM || r == -EACCES)
		snprintf(error, error_size,
			 "cluster.addresses needs the capabilities CAP_NET_ADMIN and CAP_NET_RAW: start as "
			 "root, or leave it empty and have something else move the addresses");
	else if (r == -EAFNOSUPPORT)
		snprintf(error, error_size,
			 "cluster.addresses needs netlink, packet and IP sockets, and this host or its "
			 "service manager refuses one of them; see RestrictAddressFamilies in the unit");
	else
		snprintf(error, error_size, "cannot open the sockets for cluster.addresses: %s",
			 strerror(-r));
	return hf_trace(r);
}

void hf_host_close(struct hf_host *host)
{
	int *fds[] = { &host->packet, &host->raw[0], &host->raw[1] };

	hf_netlink_close(&host->route);
	for (size_t i = 0; i < HF_ARRAY_SIZE(fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}
