/* Names as the host knows them: /etc/hosts, DNS, and what else nsswitch.conf has. */
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include "export/client_names.h"

/* 0: the answer is that there is nothing. */
static int error_of(int code)
{
	switch (code) {
	case EAI_NONAME:
#ifdef EAI_NODATA
	case EAI_NODATA:
#endif
#ifdef EAI_ADDRFAMILY
	case EAI_ADDRFAMILY:
#endif
		return 0;
	case EAI_AGAIN:
		return -EAGAIN;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return errno ? -errno : -EIO;
	default:
		return -EIO;
	}
}

static int find_addresses(void *user, const char *name, struct hf_addr *addrs, size_t max, size_t *np)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int code = getaddrinfo(name, NULL, &hints, &found);

	*np = 0;
	if (code)
		return error_of(code);
	for (const struct addrinfo *at = found; at && *np < max; at = at->ai_next)
		*np += hf_addr_from_sockaddr(&addrs[*np], at->ai_addr);
	freeaddrinfo(found);
	return 0;
}

static int find_name(void *user, const struct hf_addr *addr, char name[HF_CLIENT_NAME_MAX + 1])
{
	struct sockaddr_storage ss;
	socklen_t len = hf_addr_to_sockaddr(addr, &ss);
	int code =
		getnameinfo((struct sockaddr *)&ss, len, name, HF_CLIENT_NAME_MAX + 1, NULL, 0, NI_NAMEREQD);

	if (code == EAI_OVERFLOW)
		code = EAI_NONAME;
	if (code)
		name[0] = '\0';
	return code ? error_of(code) : 0;
}

const struct hf_resolver hf_system_resolver = { .find_addresses = find_addresses, .find_name = find_name };
