/*
 * holdfast: the command line. It calls the API of a running server and shows the
 * answers, as tables for people and as JSON for scripts.
 *
 *	main.c     words and options        server.c   which server, and its token
 *	http.c     one request over TCP or a Unix socket
 *	table.c    aligned columns          commands.c, orders.c   what there is
 *	events.c   the stream               top.c      full screen, live
 *	doctor*.c  what could be wrong here, and with a client
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { /* exit codes, as in holdfast(1) */
	CLI_OK = 0,
	CLI_FAILED = 1,      /* the server answered with an error, or doctor found something broken */
	CLI_USAGE = 2,       /* these words make no sense */
	CLI_UNREACHABLE = 3, /* no server answers */
	CLI_DENIED = 4,      /* the token is missing or wrong */
	CLI_NOT_FOUND = 5,   /* no such client */
};

struct cli {
	const char *server;     /* --server: host:port, or unix:/path */
	const char *state_dir;  /* --state-dir */
	const char *token_file; /* --token-file */
	bool is_json;
	bool is_yes;
	bool has_colour;
	const char *share; /* filters */
	const char *client;
	const char *status;
	const char *protocol;
	FILE *errors;       /* what cli_ask() has to say */
	char endpoint[256]; /* found: as --server */
	char token[513];    /* found; empty: none */
};

/* server.c */
int cli_find_server(struct cli *cli); /* an exit code, after saying what is wrong */

/* http.c */
struct cli_response {
	int status;
	char *body;
	size_t len;
};

/* -errno where no server answers. The body is the caller's. */
int cli_request(const struct cli *cli, const char *method, const char *target, struct cli_response *response);
/* A stream: @fn for each line, until it returns false or the server ends it. */
int cli_stream(const struct cli *cli, const char *target, bool (*fn)(void *user, const char *line),
	       void *user, int *statusp);

/* Answers: a new reference, or NULL and the exit code in *codep, after saying what is wrong. */
json_t *cli_ask(struct cli *cli, const char *method, const char *target, int *codep);
/* All pages of a list as one. */
json_t *cli_ask_all(struct cli *cli, const char *target, const char *name, int *codep);
void cli_escape(char *out, size_t size, const char *text); /* for a path or a query */
void cli_print_json(const json_t *json);

/* table.c */
struct cli_table;
struct cli_table *cli_table_new(const char *const *titles, size_t n);
void cli_table_add(struct cli_table *table, const char *const *cells); /* copies them */
void cli_table_print(const struct cli_table *table, FILE *out, bool has_colour, size_t max_rows,
		     size_t width);
void cli_table_free(struct cli_table *table);
/* Text from elsewhere, without anything that a terminal would obey. Returns @out. */
const char *cli_clean(char *out, size_t size, const char *text);
const char *cli_duration(char *out, size_t size, double seconds);
const char *cli_range(char *out, size_t size, const json_t *lock);
const char *cli_blockers(char *out, size_t size, const json_t *waiter); /* clients, each once, or NULL */

/* Colours, empty where there are none */
const char *cli_red(const struct cli *cli);
const char *cli_green(const struct cli *cli);
const char *cli_yellow(const struct cli *cli);
const char *cli_bold(const struct cli *cli);
const char *cli_plain(const struct cli *cli);

/* Commands; each answers an exit code */
int cli_status(struct cli *cli, const char *argument);
int cli_clients(struct cli *cli, const char *argument);
int cli_locks(struct cli *cli, const char *argument);
int cli_waiters(struct cli *cli, const char *argument);
int cli_shares(struct cli *cli, const char *argument);
int cli_grace(struct cli *cli, const char *argument);
int cli_notify(struct cli *cli, const char *argument);
int cli_release(struct cli *cli, const char *argument);
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

/* @breaks and @mend are NULL where all is well. */
void cli_find(struct cli_findings *findings, enum cli_finding kind, const char *what, const char *breaks,
	      const char *mend);
void cli_doctor_host(struct cli_findings *findings, const char *host);
/* Port 111, and who else wants it. @port: of our RPC; 0: not known. */
void cli_doctor_port(struct cli_findings *findings, uint16_t port);
