/*
 * For the operator: REST, metrics, events and the dashboard, over HTTP.
 *
 * It shows, and hands an operator's orders to the domain; it decides nothing.
 *
 *	http.c      libmicrohttpd, whose one thread speaks to the callers
 *	doors.c     their connections, and which of them makes room
 *	guard.c     who may: token, Host and Origin
 *	target.c    path and query          routes.c   what there is, as a table
 *	look_*.c    on the home loop's thread: copies what is asked for, a slice a turn
 *	show_*.c    on the HTTP thread: makes JSON of the copy
 *	metrics.c   Prometheus' text        events.c   the ring of events and its readers
 *
 * What it shows belongs to the home loop. A request is put in a queue, the loop
 * takes at most HF_API_SLICE records of it in a turn, and the HTTP thread goes on
 * when all is there. So neither a long list nor a slow reader delays a lock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"

struct hf_api;
struct hf_call_meter;
struct hf_exports;
struct hf_loop;
struct hf_jobs;
struct hf_nlm;
struct hf_recovery;

typedef void (*hf_api_meter_fn)(void *context, uint32_t program, uint32_t number, const char *procedure,
				const struct hf_call_meter *meter);

struct hf_api_rpc_counts {
	size_t connections;
	size_t datagrams; /* calls over UDP that are being served */
	uint64_t refused;
	uint64_t dropped;
	uint64_t replayed;
	uint64_t n_read;
	uint64_t n_written;
};

/* The RPC server as it is shown; both are called from the HTTP thread. Any member may be NULL. */
struct hf_api_rpc {
	void (*counts)(void *user, struct hf_api_rpc_counts *countsp);
	void (*meters)(void *user, hf_api_meter_fn fn, void *context);
	void *user;
};

struct hf_api_options {
	struct hf_loop *loop; /* home */
	struct hf_recovery *recovery;
	struct hf_nlm *nlm;         /* or NULL */
	struct hf_exports *exports; /* or NULL: shares are known by the name that the store has */
	struct hf_jobs *jobs;       /* threads that may look for the paths of files; NULL: none are shown */
	struct hf_api_rpc rpc;
	struct hf_addr listen;   /* family 0: see path */
	const char *path;        /* of a Unix socket; NULL: see listen */
	const char *token_file;  /* empty: api.token in state_dir */
	const char *state_dir;   /* absolute */
	const char *server_name; /* ours, to peers */
	bool measures;           /* metrics.enabled */
};

/* Life, all on the home loop's thread. new listens, and reads or makes the token; what is wrong is in the
 * log. From start on calls are served. stop ends them all and returns when the HTTP thread is gone; then what
 * is shown may be freed. free comes after the loop's: what was posted to it is drained there, and so are
 * jobs. */
int hf_api_new(struct hf_api **apip, const struct hf_api_options *options);
struct hf_api *hf_api_free(struct hf_api *api);
int hf_api_start(struct hf_api *api);
void hf_api_stop(struct hf_api *api);

HF_DEFINE_CLEANUP(struct hf_api *, hf_api_free)

uint16_t hf_api_port(const struct hf_api *api); /* 0: a Unix socket */
void hf_api_set_ready(struct hf_api *api);      /* /readyz says so from now on */
