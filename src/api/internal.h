/* The inside of src/api: one object, its requests, and which thread may touch what. */
#pragma once

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "api/api.h"
#include "api/events.h"
#include "api/guard.h"
#include "api/keys.h"
#include "api/target.h"
#include "base/bytes.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metric.h"
#include "lock/lock.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "recovery/recovery.h"
#include "tls/tls.h"

struct hf_api_request;

#define HF_API_SLICE         64    /* records that the loop examines in one turn */
#define HF_API_MAX_SCAN      65536 /* records that the loop examines for one page */
#define HF_API_DEFAULT_LIMIT 100
#define HF_API_MAX_LIMIT     1000
#define HF_API_MAX_BLOCKERS  8 /* how many holders a waiter's row names */

/* Routes. look() runs on the loop, once a turn, until it answers HF_API_DONE. Then show() runs on the HTTP
 * thread and returns a new reference. */
enum {
	HF_API_DONE = 0,
	HF_API_MORE,
	HF_API_LATER, /* look() resumes the request itself later */
};

struct hf_api_route {
	const char *method;
	const char *pattern;
	const char *params[5]; /* the parameters that it accepts; the rest is NULL */
	int (*look)(struct hf_api_request *request);
	json_t *(*show)(struct hf_api_request *request);
	unsigned int status; /* on success; 0: 200 */
	bool changes;        /* needs the token that may change something, and is logged */
	bool is_open;        /* never needs a token: shows no state */
	bool on_standby;     /* a standby serves it, too; it needs no service */
	bool shows_files;    /* its rows are locks, waiters or reservations, whose files have paths */
};

/* Rows: what the loop copies. Their texts are in the request's memory. */

struct hf_api_client_row {
	const char *id, *protocol, *mon_name, *callback_host, *transport, *identity;
	const char *tls_connection, *authenticated_as;
	struct hf_addr address;
	uint32_t program, version, procedure;
	int32_t sm_state;
	enum hf_client_status status;
	uint32_t n_locks, n_waiters, n_reservations;
	uint64_t registered_at, last_seen;
	uint64_t silent_ns; /* since its last sign of life */
	uint64_t n_refused;
};

/* A lock, a waiter or a reservation. */
struct hf_api_lock_row {
	const char *export, *client, *owner;
	const char *file;  /* path of the file; NULL: unknown */
	size_t n_blockers; /* of a waiter; 0: no holder blocks it */
	const char *blockers[HF_API_MAX_BLOCKERS], *blocking_clients[HF_API_MAX_BLOCKERS];
	struct hf_range range;
	enum hf_lock_mode mode;
	uint32_t flags;
	uint64_t waits_ns;
	uint8_t access, deny; /* of a reservation; read: 1, write: 2 */
	uint32_t n_reserved;  /* reservations that the row stands for */
	uint32_t n_unreclaimed;
	uint32_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

struct hf_api_export_row {
	const char *name;
	uint64_t n_locks, n_clients, n_waiters;
};

struct hf_api_status {
	const char *role; /* of this node of the cluster, a constant; NULL: there is no cluster */
	struct hf_grace_info grace;
	struct hf_lock_counters locks;
	struct hf_recovery_counts recovery;
	uint64_t epoch;
	int32_t sm_state;
	size_t n_clients, n_registered;
	size_t n_exports;
	uint64_t reloaded_at; /* 0: not since the start */
	bool is_loaded;
	const char *fixed;      /* see struct hf_api_reload_outcome */
	const char *not_loaded; /* why not, or "" */
	const char *backend;
	const char *durability;
	bool store_is_healthy;
	uint64_t store_failures;
	uint64_t uptime_ns;
	uint64_t silence_ns;          /* of /metrics: the longest of a client that holds locks */
	uint64_t blocking_silence_ns; /* the same, of those that other clients wait for */
	uint64_t tls_refused[HF_CLIENT_N_REFUSALS];
	uint64_t grants_told, grants_refused, grants_abandoned, grants_kept, grants_retried;
};

struct hf_api_block;

/* Which locks an operator releases: see revoke.c. */
struct hf_api_revoke {
	uint32_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
	bool has_range;
	struct hf_range range;
	const char *owner;     /* NULL: of any owner */
	bool has_chosen;       /* the first walk is over */
	bool has_ended_grants; /* so that locks have changed: they are to be listed again */
	uint64_t last_id;      /* of the locks that the first walk has found */
};

struct hf_api_request {
	struct hf_link link; /* (q) in api->waiting */
	struct hf_promise promise;
	struct hf_api *api;
	struct MHD_Connection *connection;
	const struct hf_api_route *route;
	char allow[32];    /* the methods of the path, if the request's method is not among them */
	const char *id;    /* the part of the path for {id} */
	const char *wrong; /* why the target cannot be parsed */
	struct hf_api_target target;
	size_t n_body;
	char peer[HF_ADDR_TEXT];
	enum hf_api_access access;
	uint64_t n_replaced; /* tokens, when the guard was asked */
	enum {
		HF_API_FRESH,
		HF_API_ACCEPTED, /* waits for the body */
		HF_API_WAITS,    /* queued for the loop; only the loop may touch what follows */
		HF_API_LOOKED,
	} stage;
	bool is_answered; /* the answer went out before the body came */

	/* Query parameters, parsed before the loop sees the request */
	size_t limit;
	bool has_cursor;
	uint64_t cursor[HF_API_CURSOR_WORDS];
	int status_filter; /* enum hf_client_status; -1: any */

	/* The loop's result */
	bool has_begun;
	unsigned int code;     /* 0: success; otherwise the HTTP status of the error */
	const char *not_ready; /* of /readyz: the role of a node that does not serve; NULL: it serves */
	const char *error, *message;
	struct hf_api_block *memory;
	size_t n_scanned;
	size_t n_rows;
	void *rows; /* of the route's type */
	size_t rows_size;
	bool has_next;
	uint64_t next[HF_API_CURSOR_WORDS];
	struct hf_lock_cursor at;
	struct hf_api_client_row client;
	struct hf_api_status status;
	struct hf_limit_use limits[HF_N_LIMITS];
	uint64_t limit_users[HF_N_LIMITS]; /* the serial of the client that uses the most; 0: none */
	const char *limit_by[HF_N_LIMITS]; /* its id or address; NULL: none */
	struct hf_api_revoke revoke;
	size_t n_released;
	struct hf_usage *usage; /* or NULL; it outlives the API */
	uint64_t wall_offset;   /* from the loops' time to the time since 1970 */
};

/* Connections: doors.c */
#define HF_API_MAX_DOORS 192
#define HF_API_REQUEST_NS \
	(15 * HF_NS_PER_S) /* from the start, or from the last answer, to the end of a request */
#define HF_API_ANSWER_NS   (60 * HF_NS_PER_S) /* for the caller to take an answer */
#define HF_API_MAX_SENDING (64u << 20)        /* bytes of all answers on their way */

enum hf_api_door_state {
	HF_API_DOOR_WAITS = 0, /* for a request, or for the rest of one */
	HF_API_DOOR_SERVES,    /* a request is being served; it may wait for the store */
	HF_API_DOOR_SENDS,     /* its answer is being sent */
	HF_API_DOOR_STREAMS,   /* sends events until the reader ends it */
	HF_API_DOOR_CLOSES,    /* shut by the server; the library has not closed it yet */
};

struct hf_api_door {
	struct hf_link link; /* (q) in api->doors */
	struct hf_api *api;  /* (c) */
	int fd;              /* (c) */
	struct hf_addr host; /* (c) */
	enum hf_api_door_state state;
	uint64_t since;           /* when it entered this state */
	size_t n_bytes;           /* (q) in HF_API_DOOR_SENDS: memory of the answer */
	enum hf_tls_result shut;  /* (q) HTTPS: in HF_API_DOOR_CLOSES, why */
	struct hf_api_keys *keys; /* (h) HTTPS: those of its session */
	bool has_begun;           /* (h) HTTPS: the first byte was one of TLS */
	bool has_finished;        /* (h) HTTPS: the caller's last message of the handshake came */
	bool is_secure;           /* (h) HTTPS: the handshake is done, and counted */
	bool has_hung_up;         /* (h) HTTPS: the caller closed the connection */
};

/* The last reload of the configuration, and the orders for the next: reload.c. */
struct hf_api_reload {
	uint64_t at; /* wall clock; 0: there was none */
	bool is_loaded;
	char fixed[2048]; /* of struct hf_api_reload_outcome, as the next */
	char why[1024];
	struct hf_list orders; /* requests that came after the latest one had begun */
	struct hf_list due;    /* requests that came before: its end is their answer */
	size_t n_orders;       /* in both lists */
};

/*
 * (c) constant after creation, (l) the loop's thread alone, (h) the HTTP thread
 * alone, (q) under api->lock
 */
struct hf_api {
	struct hf_api_options options; /* (c) with copies of the texts */
	struct hf_api_guard guard;     /* (c) but for its tokens: (q), with n_replaced */
	bool is_https;                 /* (c) */
	struct hf_api_keys *keys;      /* (q) of new connections; NULL: plain HTTP */
	struct hf_log_limit refusals;  /* (h) limits the log lines about refused calls */
	int fd;                        /* (c) listening socket */
	uint16_t port;                 /* (c) */
	uint64_t started;              /* (c) monotonic, in ns */
	uint64_t started_wall;         /* (c) */
	struct MHD_Daemon *http;       /* (c) while it runs */
	_Atomic bool is_ready;
	_Atomic bool is_stopping;
	pthread_mutex_t lock;
	struct hf_list waiting;      /* (q) requests for the loop */
	struct hf_delays delays;     /* (l) requests that wait for the store */
	struct hf_list namings;      /* (l) of requests that wait for paths */
	size_t n_namings;            /* (l) includes those whose request no longer waits */
	bool is_posted;              /* (q) */
	struct hf_api_reload reload; /* (l) */
	struct hf_usage *usage;      /* (l) NULL: calls are not counted by client */
	struct hf_list doors;        /* (q) */
	size_t n_doors;              /* (q) */
	uint64_t n_doors_shut;       /* (q) because there were too many */
	size_t n_sending;            /* (q) bytes of answers on their way */
	uint64_t n_answers_ended;    /* (q) because they took too much */
	_Atomic uint64_t handshakes[HF_TLS_N_RESULTS];
	pthread_cond_t door_changed;
	struct hf_task task;
	struct hf_timer sweep; /* (l) */
	struct hf_recovery_observer observer;
	struct hf_histogram notices; /* duration of notifications */
	struct hf_events events;
};

static inline bool hf_api_is_standby(const struct hf_api *api)
{
	return !api->options.recovery;
}

/* http.c */
int hf_api_http_start(struct hf_api *api);
void hf_api_http_stop(struct hf_api *api);

/* doors.c: the first three on the HTTP thread, and streams */
void hf_api_on_connection(void *user, struct MHD_Connection *connection, void **contextp,
			  enum MHD_ConnectionNotificationCode code);
void hf_api_set_door(struct hf_api *api, struct MHD_Connection *connection, enum hf_api_door_state state);
/* Its answer is a stream of events. It ends at once if the request's token was replaced meanwhile. */
void hf_api_door_streams(struct hf_api_request *request);
/* Under the lock, when a token was replaced: event streams end, where they need a token. */
void hf_api_shut_streams(struct hf_api *api);
/* An answer that takes @n_bytes of memory begins; if all answers take too much, another one is cut off. */
void hf_api_door_sends(struct hf_api *api, struct MHD_Connection *connection, size_t n_bytes);
void hf_api_sweep_doors(struct hf_api *api, uint64_t now); /* on the loop */
size_t hf_api_count_doors(struct hf_api *api);
void hf_api_render_door_limits(struct hf_api *api, struct hf_limit_use uses[HF_N_LIMITS]);
/* For the end: waits a moment for answers that are on their way. */
void hf_api_await_answers(struct hf_api *api);

/* https.c: on the HTTP thread, and for its start */
extern const char hf_api_tls_priorities[];
void hf_api_secure_door(struct hf_api *api, struct MHD_Connection *connection, struct hf_api_door *door);
void *hf_api_no_certificate(void); /* for MHD_OPTION_HTTPS_CERT_CALLBACK */
/* Counts the handshake of a connection that ends before it is done; @is_shut: by the server (door->shut). */
void hf_api_end_handshake(const struct hf_api_door *door, bool is_shut);
bool hf_api_expires(struct hf_api *api, int64_t *unixp); /* any thread; false: there is no certificate */

/* listen.c: sets api->fd and api->port. Logs errors. */
int hf_api_listen(struct hf_api *api);

/* request.c */
struct hf_api_request *hf_api_request_new(struct hf_api *api);
void hf_api_request_free(struct hf_api_request *request);
void hf_api_request_forget_rows(struct hf_api_request *request); /* the answer has all that it needs */
void hf_api_resume(struct hf_api_request *request);              /* to the HTTP thread: look() is done */
void hf_api_fail(struct hf_api_request *request, unsigned int code, const char *error, const char *message);
/* Memory that lives as long as the request. NULL: none left, and the request has failed. */
char *hf_api_copy(struct hf_api_request *request, const void *data, size_t len);
void *hf_api_add_row(struct hf_api_request *request, size_t size);
/* For one more row with the longest texts; always for the first. */
bool hf_api_has_room_for_row(const struct hf_api_request *request);
bool hf_api_has_room(const struct hf_api_request *request); /* for optional data */

/* routes.c */
/* Finds the route and parses its parameters; on an error sets code, error and message. */
void hf_api_request_route(struct hf_api_request *request, const char *method);

/* query.c, query_lists.c: on the loop */
int hf_api_query_health(struct hf_api_request *request);
int hf_api_query_ready(struct hf_api_request *request);
int hf_api_query_status(struct hf_api_request *request);
int hf_api_query_metrics(struct hf_api_request *request);
int hf_api_query_clients(struct hf_api_request *request);
int hf_api_query_client(struct hf_api_request *request);
int hf_api_query_release(struct hf_api_request *request);
/* The answer says that locks are released: it waits until they cannot return after a crash of the server. */
int hf_api_await_release(struct hf_api_request *request, const struct hf_client *client);
void hf_api_end_delays(struct hf_api *api); /* requests no longer wait for the store */
int hf_api_query_locks(struct hf_api_request *request);
int hf_api_query_waiters(struct hf_api_request *request);
int hf_api_query_reservations(struct hf_api_request *request);
int hf_api_query_exports(struct hf_api_request *request);
int hf_api_query_end_grace(struct hf_api_request *request);
int hf_api_query_notify(struct hf_api_request *request);
const char *hf_api_owner_text(const struct hf_lock_view *view, char *out, size_t size);
#define HF_API_OWNER_TEXT (HF_CLIENT_MAX_NAME + 2 * HF_LOCK_OH_MAX + 64)

/* reload.c: on the loop */
void hf_api_query_last_reload(struct hf_api_request *request);
int hf_api_query_reload(struct hf_api_request *request);
void hf_api_end_reloads(struct hf_api *api); /* requests no longer wait for a reload */

/* limits.c: look and note on the loop, show on the HTTP thread */
int hf_api_query_limits(struct hf_api_request *request);
void hf_api_begin_limits(struct hf_api_request *request);
void hf_api_note_limits(struct hf_api_request *request, const struct hf_client *client);
json_t *hf_api_render_limits(struct hf_api_request *request);

/* usage.c: look on the loop, show on the HTTP thread */
int hf_api_query_usage(struct hf_api_request *request);
json_t *hf_api_render_usage(struct hf_api_request *request);

/* revoke.c: on the loop */
int hf_api_query_revoke(struct hf_api_request *request);

/* cluster.c: look on the loop, show on the HTTP thread */
void hf_api_refuse_as_standby(struct hf_api_request *request); /* 503, and names the active node */
void hf_api_query_ready_in_cluster(struct hf_api_request *request);
void hf_api_query_standby_status(struct hf_api_request *request);
const char *hf_api_role(const struct hf_api *api); /* a constant; NULL: there is no cluster */
int hf_api_query_cluster(struct hf_api_request *request);
int hf_api_query_move(struct hf_api_request *request);
int hf_api_query_take(struct hf_api_request *request);
json_t *hf_api_render_cluster(struct hf_api_request *request);

/* names.c: on the loop. true: the request resumes when the paths are known, or when its time is up. */
bool hf_api_name_files(struct hf_api_request *request);
void hf_api_names_stop(struct hf_api *api); /* requests no longer wait */

/* render.c: on the HTTP thread */
json_t *hf_api_render_health(struct hf_api_request *request);
json_t *hf_api_render_ready(struct hf_api_request *request);
json_t *hf_api_render_status(struct hf_api_request *request);
json_t *hf_api_render_grace(struct hf_api_request *request);
json_t *hf_api_render_clients(struct hf_api_request *request);
json_t *hf_api_render_client(struct hf_api_request *request);
json_t *hf_api_render_released(struct hf_api_request *request);
json_t *hf_api_render_locks(struct hf_api_request *request);
json_t *hf_api_render_waiters(struct hf_api_request *request);
json_t *hf_api_render_reservations(struct hf_api_request *request);
json_t *hf_api_render_exports(struct hf_api_request *request);
json_t *hf_api_render_reload(struct hf_api_request *request);
json_t *hf_api_render_accepted(struct hf_api_request *request);
/* Takes @items. */
json_t *hf_api_render_page(const char *name, json_t *items, const struct hf_api_request *request);
json_t *hf_api_render_text(const char *text); /* null for NULL */
json_t *hf_api_render_time(uint64_t wall_ns);
json_t *hf_api_render_seconds(uint64_t ns);
json_t *hf_api_render_error(const char *error, const char *message);

/* metrics.c: Prometheus' text format; the caller frees it. NULL: no memory */
char *hf_api_metrics_text(struct hf_api_request *request, size_t *lenp);

/* watch.c: puts the domain's events into the ring */
void hf_api_watch(struct hf_api *api);
