/*
 * The operator's interface: REST, metrics, events and the dashboard, over HTTP.
 *
 * It shows the server's state and hands an operator's orders to the domain. It
 * decides nothing.
 *
 *	api.c         making and freeing; what the loop does for a request
 *	http.c        libmicrohttpd, whose one thread talks to the callers; the way of a request to the loop
 *	https.c       TLS on its connections; keys.c: certificate and key
 *	listen.c      the TCP port or Unix socket
 *	doors.c       the connections, and which one is closed when there are too many
 *	guard.c       checks Host, Origin and token; token.c reads or creates the token files
 *	target.c      path and query of a request
 *	routes.c      the table of all calls, and which of them a request is
 *	request.c     one request: memory, result
 *	query.c        on the home loop's thread: copies what a request asks for
 *	query_lists.c  the same for lists: a slice each turn
 *	revoke.c      on the loop: an operator releases single locks
 *	reload.c      on the loop: an operator has the configuration loaded again
 *	limits.c      what uses up which limit
 *	usage.c       which client uses which export, how much
 *	names.c       the paths of locked files, found on a file thread (files.c)
 *	render.c        on the HTTP thread: makes JSON of the copy
 *	answer.c      makes the HTTP response
 *	metrics.c     Prometheus' text format
 *	cluster.c     the nodes of the cluster, and what a standby answers
 *	watch.c       domain events as text; events.c: the ring of events and its readers
 *	dashboard/    the page; embed.py makes C of it and of openapi.json (assets.h)
 *
 * The state belongs to the home loop. The HTTP thread queues a request, the
 * loop copies at most HF_API_SLICE records for it in a turn, and the HTTP
 * thread continues when the copy is complete. So neither a long list nor a slow
 * reader delays a lock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/limit.h"

struct hf_api;
struct hf_api_keys;
struct hf_api_tokens;
struct hf_call_meter;
struct hf_cluster;
struct hf_exports;
struct hf_loop;
struct hf_jobs;
struct hf_nlm;
struct hf_recovery;
struct hf_tls;
struct hf_tls_peer;
struct hf_usage;

typedef void (*hf_api_meter_fn)(void *context, uint32_t program, uint32_t number, const char *procedure,
				const struct hf_call_meter *meter);

struct hf_api_rpc_counts {
	size_t connections; /* in all */
	size_t tls;         /* of these, with TLS of a client without certificate */
	size_t mtls;        /* of these, with TLS of a client with one */
	size_t datagrams;   /* calls over UDP in progress */
	uint64_t refused;
	uint64_t dropped;
	uint64_t replayed;
	uint64_t n_read;
	uint64_t n_written;
};

/* The RPC server as the API shows it. The HTTP thread calls both functions. Any member may be NULL. */
struct hf_api_rpc {
	void (*counts)(void *user, struct hf_api_rpc_counts *countsp);
	void (*meters)(void *user, hf_api_meter_fn fn, void *context);
	void *user;
};

/* The TLS connections of clients. On the home loop's thread. */
typedef bool (*hf_api_tls_peer_fn)(void *context, const struct hf_tls_peer *peer, uint64_t newest);
struct hf_api_presence {
	/* @fn is called for each identity that has a connection from @address now, until it answers true.
	 * NULL: there are no such connections. */
	bool (*find)(void *user, const struct hf_addr *address, hf_api_tls_peer_fn fn, void *context);
	void *user;
};

/* The cluster as the API shows it, beside what the cluster itself says. The API copies the text. */
struct hf_api_cluster {
	struct hf_cluster *cluster; /* NULL: there is none, and the rest is not used */
	const char *addresses;      /* cluster.addresses, with blanks between them */
	bool has_fence;
};

/* The limits of the parts that the API does not know. On the home loop's thread. */
struct hf_api_limits {
	void (*show)(void *user, struct hf_limit_use uses[HF_N_LIMITS]); /* NULL: there are none */
	void *user;
};

/* An operator's order to load the configuration again, on the home loop's thread; hf_api_tell_reload()
 * follows, unless the API ends before. */
struct hf_api_reload_order {
	void (*ask)(void *user);
	void *user;
};

/* What became of a reload. The texts are borrowed for the call. */
struct hf_api_reload_outcome {
	bool is_loaded;  /* false: the old configuration stays */
	bool is_last;    /* no other reload is due: the files were read after the latest order */
	const char *why; /* not loaded: why */
	const char
		*fixed; /* keys that take effect only at the next start, "server.port,server.user"; or "" */
};

struct hf_api_options {
	struct hf_loop *loop;         /* the home loop */
	struct hf_recovery *recovery; /* NULL: a standby, which has no service to show */
	struct hf_nlm *nlm;           /* or NULL */
	struct hf_exports *exports;   /* or NULL: exports appear under the names in the store */
	struct hf_tls *tls;           /* or NULL */
	struct hf_jobs *jobs; /* threads that may look up the paths of files; NULL: no paths are shown */
	struct hf_api_rpc rpc;
	struct hf_api_presence presence;
	struct hf_api_limits limits;
	struct hf_api_cluster cluster;
	struct hf_api_reload_order reload;
	struct hf_addr listen;       /* family 0: see path */
	const char *path;            /* of a Unix socket; NULL: see listen */
	struct hf_api_keys *keys;    /* HTTPS with these; borrowed. NULL: plain HTTP */
	const char *token_file;      /* empty: api.token in state_dir. For new() alone, as the next one */
	const char *view_token_file; /* empty: there is no token that may only look */
	const char *state_dir;       /* absolute */
	const char *server_name;     /* the name that peers know the server by */
	bool measures;               /* metrics.enabled */
};

/* Making and freeing, all on the home loop's thread. new() listens, and reads or creates the token; it logs
 * errors. start() begins to serve calls. stop() ends them all and returns when the HTTP thread has ended;
 * afterwards the objects that the API shows may be freed. free() comes after the loop is freed: the loop
 * drains what was posted to it, and the jobs. */
int hf_api_new(struct hf_api **apip, const struct hf_api_options *options);
struct hf_api *hf_api_free(struct hf_api *api);
int hf_api_start(struct hf_api *api);
void hf_api_stop(struct hf_api *api);

HF_DEFINE_CLEANUP(struct hf_api *, hf_api_free)

uint16_t hf_api_port(const struct hf_api *api); /* 0: it is a Unix socket */
bool hf_api_is_https(const struct hf_api *api);
/* The fingerprint of its certificate (api/keys.h), or "" without HTTPS; room for HF_API_PIN_TEXT. */
void hf_api_pin(struct hf_api *api, char *out);
/* New connections use @keys, which it takes. Only if the API speaks HTTPS. */
void hf_api_set_keys(struct hf_api *api, struct hf_api_keys *keys);
/* From now on calls need these. The event streams that began with others end, where they need one. On the
 * home loop's thread. */
void hf_api_set_tokens(struct hf_api *api, const struct hf_api_tokens *tokens);
/* From now on /readyz answers 200. A standby needs no call: /readyz tells its role. */
void hf_api_set_ready(struct hf_api *api);
/* Shows these counters from now on. NULL, as in the beginning: calls are not counted by client. The table
 * outlives the API. On the home loop's thread. */
void hf_api_set_usage(struct hf_api *api, struct hf_usage *usage);
/* A reload has ended: the status says so, and operators who ordered it get their answers. On the home loop's
 * thread. */
void hf_api_tell_reload(struct hf_api *api, const struct hf_api_reload_outcome *outcome);
/* Tells the readers of events of the cluster's last takeover. The daemon calls it on the home loop's thread,
 * when it serves after a takeover. */
void hf_api_tell_takeover(struct hf_api *api);
