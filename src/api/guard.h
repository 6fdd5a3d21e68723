/*
 * Which callers may call. Three checks bar web pages of other sites:
 *
 *	Host     on loopback it must be a name of loopback, so that a foreign DNS
 *	         name that points at this server is useless (rebinding)
 *	Origin   if a browser sends it, it must be that of the server's own page
 *	token    required for every change; beyond loopback for everything but the
 *	         page itself. A second token may look, and change nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HF_API_TOKEN_HEX 64 /* digits of a token that the server makes */
#define HF_API_TOKEN_MAX 512

struct hf_api_caller {
	const char *host;          /* headers; NULL: not sent */
	const char *origin;        /* NULL: not sent */
	const char *fetch_site;    /* Sec-Fetch-Site */
	const char *authorization; /* NULL: not sent */
	bool is_sent_twice;        /* one of these headers came twice */
	bool is_visitor;           /* asks for the page, which by itself shows no state */
};

enum hf_api_verdict {
	HF_API_MAY = 0,
	HF_API_SENT_TWICE, /* a header */
	HF_API_BAD_HOST,
	HF_API_BAD_ORIGIN,
	HF_API_NO_TOKEN,  /* a token is required */
	HF_API_BAD_TOKEN, /* the token is wrong */
	HF_API_VIEW_ONLY, /* the token may only look */
};

/* What a caller may do, and what a call needs. Each includes the one before. */
enum hf_api_access {
	HF_API_ACCESS_NONE = 0, /* what needs no token */
	HF_API_ACCESS_VIEW,
	HF_API_ACCESS_CHANGE,
};

struct hf_api_guard {
	bool is_loopback; /* a TCP socket on loopback: check Host */
	bool needs_token; /* reachable from other hosts: every call needs a token */
	bool is_https;    /* the origin of the server's page begins with https:// */
	char token[HF_API_TOKEN_MAX + 1];
	char view_token[HF_API_TOKEN_MAX + 1]; /* may only look; empty: there is none */
	uint64_t n_replaced;                   /* how often one of the two was replaced */
};

enum hf_api_verdict hf_api_guard_ask(const struct hf_api_guard *guard, const struct hf_api_caller *caller,
				     enum hf_api_access needed);
/* What the caller's token is worth. */
enum hf_api_access hf_api_guard_access(const struct hf_api_guard *guard, const struct hf_api_caller *caller);

/* Takes a time that does not depend on where the texts differ. */
bool hf_api_token_equal(const char *ours, const char *theirs);

struct hf_loop;

/* Reads a token from @path. -EINVAL: it is too short or too long. -ENODATA: a pipe or a device, which is read
 * only once, is left alone. */
int hf_api_token_look(char out[static HF_API_TOKEN_MAX + 1], const char *path);

/* The tokens of one API */
struct hf_api_tokens {
	char change[HF_API_TOKEN_MAX + 1];
	char view[HF_API_TOKEN_MAX + 1]; /* may only look; empty: there is none */
	bool are_kept;                   /* read again: a file can be read only once; the rest is empty */
};

struct hf_api_token_files {
	const char *change;    /* empty: api.token in state_dir */
	const char *view;      /* empty: there is none */
	const char *state_dir; /* absolute */
};

/* Reads both tokens. A file that is missing is created, readable by the server's user alone. May wait for a
 * disk, on any thread. Logs errors. @is_again: for an API that has tokens. */
int hf_api_tokens_load(struct hf_api_tokens *tokens, const struct hf_api_token_files *files, bool is_again,
		       struct hf_loop *loop);
