#include "api/guard.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/addr.h"

bool hf_api_token_equal(const char *ours, const char *theirs)
{
	size_t n = strlen(ours), m = strlen(theirs);
	volatile unsigned char differs = n != m || n == 0;

	/* Takes one step for each byte that the caller sent: the caller knows that number. */
	for (size_t i = 0; i < m; i++)
		differs |= (unsigned char)((unsigned char)theirs[i] ^ (unsigned char)ours[n ? i % n : 0]);
	return !differs;
}

/* "localhost:8049" -> "localhost", "[::1]:8049" -> "::1" */
static bool host_of(const char *text, char *out, size_t size)
{
	const char *end;

	if (*text == '[') {
		end = strchr(++text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
	} else {
		end = text + strcspn(text, ":");
	}
	if ((size_t)(end - text) >= size)
		return false;
	memcpy(out, text, (size_t)(end - text));
	out[end - text] = '\0';
	return true;
}

static bool is_loopback_name(const char *text)
{
	struct hf_addr addr;
	char host[256];

	if (!text || !host_of(text, host, sizeof(host)))
		return false;
	if (strcasecmp(host, "localhost") == 0)
		return true;
	return hf_addr_parse(&addr, host) && hf_addr_is_loopback(&addr);
}

/* Our own page has the host that it calls as its origin. */
static bool is_own_origin(const struct hf_api_caller *caller)
{
	static const char scheme[] = "http://";

	return caller->host && strncmp(caller->origin, scheme, sizeof(scheme) - 1) == 0 &&
	       strcasecmp(caller->origin + sizeof(scheme) - 1, caller->host) == 0;
}

static bool is_own_page(const struct hf_api_caller *caller)
{
	if (caller->origin && !is_own_origin(caller))
		return false;
	if (caller->is_visitor) /* the user followed a link from another site; that page cannot read the
				   answer */
		return true;
	return !caller->fetch_site || strcmp(caller->fetch_site, "same-origin") == 0 ||
	       strcmp(caller->fetch_site, "none") == 0;
}

enum hf_api_verdict hf_api_guard_ask(const struct hf_api_guard *guard, const struct hf_api_caller *caller,
				     bool wants_token)
{
	static const char bearer[] = "Bearer ";
	const char *given = caller->authorization;

	if (caller->is_sent_twice || (guard->is_loopback && !is_loopback_name(caller->host)))
		return HF_API_BAD_HOST;
	if (!is_own_page(caller))
		return HF_API_BAD_ORIGIN;
	if (!wants_token)
		return HF_API_MAY;
	if (!given || strncasecmp(given, bearer, sizeof(bearer) - 1) != 0)
		return HF_API_NO_TOKEN;
	given += sizeof(bearer) - 1;
	given += strspn(given, " ");
	return hf_api_token_equal(guard->token, given) ? HF_API_MAY : HF_API_BAD_TOKEN;
}
