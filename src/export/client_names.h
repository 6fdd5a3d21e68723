/*
 * Is a client the host of this name, or a host of this domain?
 *
 * A host: its name has the client's address. The names are those of the
 * configuration, so no peer decides what is looked up. A domain: the client's
 * address has a name, that name has the address, and it fits the pattern. The
 * second look-up confirms the first, which the owner of the address alone
 * decides.
 *
 * Look-ups are asked and remembered as in lookups.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/limit.h"

#define HF_CLIENT_NAME_MAX 255 /* bytes of a host name or a pattern */

enum hf_named {
	HF_NAMED_NO,
	HF_NAMED_YES,
	HF_NAMED_UNKNOWN, /* ask again soon */
};

/* How names are looked up. Each function blocks, and returns 0 or < 0: the question could not be answered
 * now. */
struct hf_resolver {
	/* At most @max addresses of a name; *np 0: it has none, for sure. A name with a dot is whole: no
	 * domain is appended. */
	int (*find_addresses)(void *user, const char *name, struct hf_addr *addrs, size_t max, size_t *np);
	/* The name of an address; "": it has none. */
	int (*find_name)(void *user, const struct hf_addr *addr, char name[HF_CLIENT_NAME_MAX + 1]);
	uint64_t (*now)(void *user); /* NULL: the system's clock */
	void *user;
};

extern const struct hf_resolver hf_system_resolver; /* getaddrinfo() and getnameinfo() */

struct hf_client_names;

/* @resolver must outlive the threads that ask. */
int hf_client_names_new(struct hf_client_names **namesp, const struct hf_resolver *resolver);
struct hf_client_names *hf_client_names_free(struct hf_client_names *names);

HF_DEFINE_CLEANUP(struct hf_client_names *, hf_client_names_free)

/* These two do not block. */
enum hf_named hf_client_names_is_host(struct hf_client_names *names, const char *name,
				      const struct hf_addr *client);
enum hf_named hf_client_names_is_in_domain(struct hf_client_names *names, const char *pattern,
					   const struct hf_addr *client);
/* The next use of each name asks anew; until that is answered, what is known counts. */
void hf_client_names_renew(struct hf_client_names *names);
void hf_client_names_show_limits(struct hf_client_names *names, struct hf_limit_use uses[HF_N_LIMITS]);
/* On a thread that may wait: until the look-ups of the name, or of the client's address if it is NULL, have
 * been made; at most @ns. */
void hf_client_names_wait(struct hf_client_names *names, const char *name, const struct hf_addr *client,
			  uint64_t ns);

/* Is it a host name, or a pattern of them with * ? [] that ends with a domain? */
bool hf_client_name_is_valid(const char *text);
bool hf_client_name_is_pattern(const char *text);
