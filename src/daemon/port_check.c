#include "daemon/port_check.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "daemon/config.h"

static bool is_taken(const struct hf_addr *at, uint16_t port, int type)
{
	struct hf_addr addr = *at;
	struct sockaddr_storage raw;
	socklen_t len;
	const int on = 1;
	hf_cleanup(hf_closep) int fd = socket(at->family, type | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	addr.port = port;
	len = hf_addr_to_sockaddr(&addr, &raw);
	if (at->family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (type == SOCK_STREAM)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&raw, len) < 0)
		return errno == EADDRINUSE;
	return type == SOCK_STREAM && listen(fd, 1) < 0 && errno == EADDRINUSE;
}

static bool is_taken_anywhere(const struct hf_config *config, int64_t port)
{
	const struct hf_config_addresses *listen = &config->server.listen;

	for (size_t i = 0; i < listen->n && port; i++)
		if (is_taken(&listen->items[i].addr, (uint16_t)port, SOCK_STREAM) ||
		    is_taken(&listen->items[i].addr, (uint16_t)port, SOCK_DGRAM))
			return true;
	return false;
}

int hf_port_check(const struct hf_config *config, char *error, size_t error_size)
{
	if (is_taken_anywhere(config, config->server.port)) {
		snprintf(error, error_size,
			 "another server has port %lld, most often the kernel's NFS server; to serve with "
			 "Holdfast instead: systemctl disable --now nfs-server, then systemctl start "
			 "holdfastd; to have both, choose another server.port",
			 (long long)config->server.port);
		return HF_PORTS_TAKEN;
	}
	if (config->server.portmap == HF_CONFIG_PORTMAP_EMBEDDED &&
	    is_taken_anywhere(config, config->server.portmap_port)) {
		snprintf(error, error_size,
			 "another port mapper has port %lld, most often rpcbind; to register with it: "
			 "server.portmap: auto; to serve the port with Holdfast instead: systemctl disable "
			 "--now rpcbind.socket rpcbind, then systemctl start holdfastd",
			 (long long)config->server.portmap_port);
		return HF_PORTS_TAKEN;
	}
	return HF_PORTS_FREE;
}
