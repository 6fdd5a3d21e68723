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

/* The server's own page has the host that it calls as its origin. */
static bool is_own_origin(const struct hf_api_guard *guard, const struct hf_api_caller *caller)
{
	const char *scheme = guard->is_https ? "https://" : "http://";

	return caller->host && strncmp(caller->origin, scheme, strlen(scheme)) == 0 &&
	       strcasecmp(caller->origin + strlen(scheme), caller->host) == 0;
}

static bool is_own_page(const struct hf_api_guard *guard, const struct hf_api_caller *caller)
{
	if (caller->origin && !is_own_origin(guard, caller))
		return false;
	if (caller->is_visitor) /* the user followed a link from another site; that page cannot read the
				   answer */
		return true;
	return !caller->fetch_site || strcmp(caller->fetch_site, "same-origin") == 0 ||
	       strcmp(caller->fetch_site, "none") == 0;
}

/* NULL: the caller sent none. */
static const char *token_of(const struct hf_api_caller *caller)
{
	static const char bearer[] = "Bearer ";
	const char *given = caller->authorization;

	if (!given || strncasecmp(given, bearer, sizeof(bearer) - 1) != 0)
		return NULL;
	given += sizeof(bearer) - 1;
	return given + strspn(given, " ");
}

/* Always compares with both tokens: the time does not tell which one a guess resembles. */
enum hf_api_access hf_api_guard_access(const struct hf_api_guard *guard, const struct hf_api_caller *caller)
{
	const char *given = token_of(caller);
	bool may_change = given && hf_api_token_equal(guard->token, given);
	bool may_view = given && hf_api_token_equal(guard->view_token, given);

	if (may_change)
		return HF_API_ACCESS_CHANGE;
	return may_view ? HF_API_ACCESS_VIEW : HF_API_ACCESS_NONE;
}

enum hf_api_verdict hf_api_guard_ask(const struct hf_api_guard *guard, const struct hf_api_caller *caller,
				     enum hf_api_access needed)
{
	enum hf_api_access access = hf_api_guard_access(guard, caller);

	if (caller->is_sent_twice)
		return HF_API_SENT_TWICE;
	if (guard->is_loopback && !is_loopback_name(caller->host))
		return HF_API_BAD_HOST;
	if (!is_own_page(guard, caller))
		return HF_API_BAD_ORIGIN;
	if (access >= needed)
		return HF_API_MAY;
	if (access == HF_API_ACCESS_VIEW)
		return HF_API_VIEW_ONLY;
	return token_of(caller) ? HF_API_BAD_TOKEN : HF_API_NO_TOKEN;
}
