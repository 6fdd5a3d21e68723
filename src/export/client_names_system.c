/* Names as the host knows them: /etc/hosts, DNS, and what else nsswitch.conf has. */
#include <errno.h>
#include <netdb.h>
#include <resolv.h>
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

/*
 * A name with a dot is whole: with the search list of resolv.conf, a name that does not exist would be looked
 * for below other domains, and the owner of one of them could confirm a name that is not its own. A trailing
 * dot would say so, too, but /etc/hosts has no names with one. So this thread's resolver gets the host's
 * settings as they are now, without the list. A name without a dot needs the list.
 */
static int set_resolver(const char *name)
{
	if (_res.options & RES_INIT) /* otherwise it would close descriptor 0 */
		res_nclose(&_res);
	if (res_ninit(&_res) < 0)
		return -ENOMEM;
	if (strchr(name, '.'))
		_res.options &= ~(unsigned long)RES_DNSRCH;
	return 0;
}

static int find_addresses(void *user, const char *name, struct hf_addr *addrs, size_t max, size_t *np)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int code, r = set_resolver(name);

	*np = 0;
	if (r < 0)
		return r;
	code = getaddrinfo(name, NULL, &hints, &found);
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
