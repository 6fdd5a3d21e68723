#include "loop/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/addr.h"

int hf_resolve_host(struct hf_addr *addrp, const char *name)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM };
	struct addrinfo *found = NULL;
	int r = -ENOENT;

	if (getaddrinfo(name, NULL, &hints, &found) != 0)
		return -ENOENT;
	for (const struct addrinfo *at = found; at && r < 0; at = at->ai_next)
		if (hf_addr_from_sockaddr(addrp, at->ai_addr) && hf_addr_is_callable(addrp) &&
		    !hf_addr_is_loopback(addrp))
			r = 0;
	freeaddrinfo(found);
	return r;
}
