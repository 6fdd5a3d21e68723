/*
 * holdfast: the command line. It calls the API of a running server and shows
 * the answers, as tables for people and as JSON for scripts.
 *
 *	ask.c        one question and its answer, or the reason why there is none
 *	main.c       words and options
 *	server.c     finds the server and its token
 *	http.c       one request over TCP, TLS or a Unix socket
 *	table.c      aligned columns, JSON, and text that is safe on a terminal
 *	commands.c   commands that show state
 *	orders.c     commands that change it
 *	release.c    the locks of a client, of a file, of several clients
 *	cluster.c    the nodes of the cluster, and orders to them
 *	store.c      a store whose server is stopped: check, dump, copy, downgrade
 *	exports*.c   /etc/exports as the exports of a configuration
 *	events.c     the stream of events
 *	top.c        full screen, live
 *	usage.c      which client uses which export: sums and rates
 *	doctor*.c    finds problems on this host, or with a client
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/addr.h"

enum { /* exit codes, as in holdfast(1) */
	CLI_OK = 0,
	CLI_FAILED = 1,      /* the server answered with an error, or doctor found a problem */
	CLI_USAGE = 2,       /* the command line is wrong */
	CLI_UNREACHABLE = 3, /* no server answers */
	CLI_DENIED = 4,      /* the token is missing or wrong */
	CLI_NOT_FOUND = 5,   /* no such client */
};

struct cli {
	const char *server;     /* --server: host:port, https://host:port, or unix:/path */
	const char *state_dir;  /* --state-dir */
	const char *token_file; /* --token-file */
	const char *ca;         /* --ca; NULL: the system's */
	bool is_insecure;       /* --insecure: any certificate will do */
	bool is_json;
	bool is_yes;
	bool no_wait;    /* --no-wait: an order to the cluster does not wait for its result */
	bool is_patient; /* the answer comes when the order is carried out, however long that takes */
	bool is_once;    /* --once: top prints one reading and ends */
	bool has_colour;
	const char *share; /* filters */
	const char *client;
	const char *status;
	const char *protocol;
	const char *file; /* of release: what is released */
	const char *range;
	const char *address;
	const char *silent_for;
	const char *name;   /* of store: the server's name in a database */
	const char *object; /* the second argument: the node of `cluster move NODE` */
	const char *target; /* the third one: where `store copy` writes, `store downgrade`'s number */
	FILE *errors;       /* where cli_ask() prints errors */
	char endpoint[256]; /* the server that was found: host:port, or unix:/path */
	bool is_https;
	bool is_named;        /* by --server or HOLDFAST_SERVER */
	char announced[256];  /* the first line of api.address; empty: there is none, or it was not read */
	bool is_token_of_dir; /* the token is api.token of the state directory */
	char pins[2][65];  /* of the state directory: SHA-256 of the certificates that the server may show */
	size_t n_pins;     /* 0: CA and name of its certificate count */
	char problem[512]; /* of -EKEYREJECTED: what is wrong with TLS, to follow the server's name */
	char token[513];   /* the token that was found; empty: none */
};

/* server.c */
int cli_find_server(struct cli *cli); /* returns an exit code after printing what is wrong */
/* Whether the server that was found may see the token. Ask after connecting: a server that has stopped since
 * leaves its port to others. */
bool cli_may_send_token(const struct cli *cli);
/* After 401: says why no token was sent, if there was none to send. */
void cli_explain_missing_token(const struct cli *cli);

/* http.c */
struct cli_response {
	int status;
	char *body;
	size_t len;
};

/* -errno if no server answers; -EKEYREJECTED: see cli->problem. The caller frees the body. */
int cli_request(struct cli *cli, const char *method, const char *target, struct cli_response *response);
/* A socket to the server, or -errno. */
int cli_connect(const struct cli *cli);
/* A stream: calls @fn for each line, until it returns false or the server ends the stream. */
int cli_stream(struct cli *cli, const char *target, bool (*fn)(void *user, const char *line), void *user,
	       int *statusp);

/* Returns the answer as a new reference, or NULL with the exit code in *codep after printing what is
 * wrong. */
json_t *cli_ask(struct cli *cli, const char *method, const char *target, int *codep);
/* All pages of a list in one. */
json_t *cli_ask_all(struct cli *cli, const char *target, const char *name, int *codep);
void cli_escape(char *out, size_t size, const char *text); /* for use in a path or a query */

/* table.c */
struct cli_table;
struct cli_table *cli_table_new(const char *const *titles, size_t n);
void cli_table_add(struct cli_table *table, const char *const *cells); /* copies them */
void cli_table_print(const struct cli_table *table, FILE *out, bool has_colour, size_t max_rows,
		     size_t width);
void cli_table_free(struct cli_table *table);
/* A whole list: as JSON, as a table, or, if it is empty, @none. Frees @table. */
void cli_print_list(const struct cli *cli, const json_t *items, struct cli_table *table, const char *none);
void cli_print_json(const json_t *json);
size_t cli_json_flags(void); /* for what goes to stdout */
#define CLI_NO_LIMIT ((size_t)1 << 30)
/* A text of an answer, as it came; NULL: it has none. Any program may have answered. */
const char *cli_text(const json_t *object, const char *key);
bool cli_text_is(const json_t *object, const char *key, const char *wanted);
/* Copies foreign text without characters that a terminal would interpret; NULL is "-". Returns @out. */
const char *cli_clean(char *out, size_t size, const char *text);
const char *cli_duration(char *out, size_t size, double seconds);
const char *cli_range(char *out, size_t size, const json_t *lock);
/* Clients, each named once; or NULL. */
const char *cli_blockers(char *out, size_t size, const json_t *waiter);

/* Colours; empty strings if colours are off */
const char *cli_red(const struct cli *cli);
const char *cli_green(const struct cli *cli);
const char *cli_yellow(const struct cli *cli);
const char *cli_bold(const struct cli *cli);
const char *cli_plain(const struct cli *cli);

/* usage.c: two readings make rates. NULL: the exit code is in *codep; no rates before the second reading. The
 * rates have a new reference. */
struct cli_usage_reading {
	json_t *rows; /* by client and export; NULL: none so far */
	double at;    /* seconds */
};
json_t *cli_usage_rates(struct cli *cli, struct cli_usage_reading *reading, int *codep);
void cli_usage_forget(struct cli_usage_reading *reading);
void cli_usage_put_rates(const struct cli *cli, FILE *out, const json_t *rates, size_t room, size_t columns);

void cli_print_locks(const struct cli *cli, FILE *out, const json_t *locks); /* commands.c */
void cli_print_reload(const struct cli *cli, const json_t *reload);          /* commands.c; null: nothing */

/* Commands; each returns an exit code */
int cli_status(struct cli *cli, const char *argument);
int cli_clients(struct cli *cli, const char *argument);
int cli_locks(struct cli *cli, const char *argument);
int cli_waiters(struct cli *cli, const char *argument);
int cli_reservations(struct cli *cli, const char *argument);
int cli_shares(struct cli *cli, const char *argument);
int cli_usage(struct cli *cli, const char *argument);
int cli_limits(struct cli *cli, const char *argument);
void cli_add_limits(struct cli *cli, json_t *status); /* if the server shows them */
void cli_print_tight_limits(
	struct cli *cli); /* limits.c: one line, if a limit is nearly used up or has refused calls */
int cli_grace(struct cli *cli, const char *argument);
int cli_notify(struct cli *cli, const char *argument);
int cli_reload(struct cli *cli, const char *argument);
int cli_release(struct cli *cli, const char *argument);
int cli_cluster(struct cli *cli, const char *argument);
int cli_store(struct cli *cli, const char *argument);
int cli_exports(struct cli *cli, const char *argument);
int cli_events(struct cli *cli, const char *argument);
int cli_top(struct cli *cli, const char *argument);
int cli_doctor(struct cli *cli, const char *argument);
int cli_dashboard(struct cli *cli, const char *argument);

/* doctor */
struct cli_findings {
	struct cli *cli;
	json_t *items; /* for --json */
	size_t n_bad;
};

enum cli_finding {
	CLI_FINE,
	CLI_NOTE,
	CLI_BAD,
};

/* @breaks and @mend are NULL for a finding without a problem. */
void cli_find(struct cli_findings *findings, enum cli_finding kind, const char *what, const char *breaks,
	      const char *mend);
void cli_doctor_cluster(struct cli_findings *findings); /* nothing without a cluster */
void cli_doctor_host(struct cli_findings *findings, const char *host);
/* Checks certificates, keys and TLS of the server with this @pid; 0: nothing. @port: as below. */
void cli_doctor_tls(struct cli_findings *findings, long pid, uint16_t port);
/* Where clients find the server, seen from this host; this need not be 127.0.0.1. */
struct hf_addr cli_address_of_server(uint16_t port);
/* Checks port 111, and other programs that want it. @port: the server's RPC port; 0: unknown. */
void cli_doctor_port(struct cli_findings *findings, uint16_t port);
