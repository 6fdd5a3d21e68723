/*
 * Who may call. Three doors, and a web page in somebody's browser passes none of
 * them:
 *
 *	Host     on loopback it must be a name of loopback, so that a name that
 *	         somebody else's DNS points at us is of no use (rebinding)
 *	Origin   where a browser sends one it must be our own page's
 *	token    for every change, and for all but the page itself where we listen
 *	         beyond this host
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define HF_API_TOKEN_HEX 64 /* of a token that we make */
#define HF_API_TOKEN_MAX 512

struct hf_api_caller {
	const char *host;          /* headers; NULL: not sent */
	const char *origin;        /* likewise */
	const char *fetch_site;    /* Sec-Fetch-Site */
	const char *authorization; /* likewise */
	bool is_sent_twice;        /* one of them was */
	bool is_visitor;           /* wants the page, which shows nothing by itself */
};

enum hf_api_verdict {
	HF_API_MAY = 0,
	HF_API_BAD_HOST,
	HF_API_BAD_ORIGIN,
	HF_API_NO_TOKEN,  /* one is needed */
	HF_API_BAD_TOKEN, /* not ours */
};

struct hf_api_guard {
	bool is_loopback; /* TCP, on loopback: Host is checked */
	bool needs_token; /* not on this host alone: for everything */
	char token[HF_API_TOKEN_MAX + 1];
};

enum hf_api_verdict hf_api_guard_ask(const struct hf_api_guard *guard, const struct hf_api_caller *caller,
				     bool wants_token);

/* In a time that does not depend on where they differ. */
bool hf_api_token_equal(const char *ours, const char *theirs);

struct hf_loop;

/* Reads @path, or makes it, readable by us alone. In the log if it cannot. */
int hf_api_token_load(char out[static HF_API_TOKEN_MAX + 1], const char *path, struct hf_loop *loop);
