#include "rpc/hosts.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define N_BUCKETS 4096

struct host {
	struct host *next;
	struct hf_addr addr; /* its port is 0 */
	size_t n;
};

struct hf_hosts {
	struct hf_siphash_key key; /* (c) */
	pthread_mutex_t lock;
	struct host *buckets[N_BUCKETS]; /* under lock */
};

int hf_hosts_new(struct hf_hosts **hostsp, const struct hf_siphash_key *key)
{
	struct hf_hosts *hosts = calloc(1, sizeof(*hosts));

	if (!hosts)
		return hf_trace(-ENOMEM);
	hosts->key = *key;
	pthread_mutex_init(&hosts->lock, NULL);
	*hostsp = hosts;
	return 0;
}

struct hf_hosts *hf_hosts_free(struct hf_hosts *hosts)
{
	if (!hosts)
		return NULL;
	for (size_t i = 0; i < N_BUCKETS; i++)
		assert(!hosts->buckets[i]); /* every connection has left */
	pthread_mutex_destroy(&hosts->lock);
	free(hosts);
	return NULL;
}

/* The link that points to the host, or to where it would be. */
static struct host **find(struct hf_hosts *hosts, const struct hf_addr *addr)
{
	struct host **link = &hosts->buckets[hf_siphash(&hosts->key, addr, sizeof(*addr)) % N_BUCKETS];

	while (*link && !hf_addr_equal(&(*link)->addr, addr))
		link = &(*link)->next;
	return link;
}

bool hf_hosts_enter(struct hf_hosts *hosts, const struct hf_addr *addr, size_t max)
{
	struct hf_addr key = *addr;
	struct host **link;
	bool entered = false;

	key.port = 0;
	pthread_mutex_lock(&hosts->lock);
	link = find(hosts, &key);
	if (!*link) {
		*link = calloc(1, sizeof(**link));
		if (*link)
			(*link)->addr = key;
	}
	if (*link && (*link)->n < max) {
		(*link)->n++;
		entered = true;
	}
	pthread_mutex_unlock(&hosts->lock);
	return entered;
}

void hf_hosts_leave(struct hf_hosts *hosts, const struct hf_addr *addr)
{
	struct hf_addr key = *addr;
	struct host **link, *host;

	key.port = 0;
	pthread_mutex_lock(&hosts->lock);
	link = find(hosts, &key);
	host = *link;
	assert(host && host->n > 0);
	if (--host->n == 0) {
		*link = host->next;
		free(host);
	}
	pthread_mutex_unlock(&hosts->lock);
}
