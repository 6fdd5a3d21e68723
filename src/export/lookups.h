/*
 * Answers to questions that take long, such as the addresses of a host name. A
 * few threads ask; the answers are remembered for a while. A caller never waits
 * for an answer unless it says so: what is not known yet is UNKNOWN, and asked.
 *
 * An answer is fresh for some time. The first caller after that has it asked anew;
 * until the new answer is there, or if asking fails, the old one counts until it is
 * stale. Then the answer is UNKNOWN again.
 *
 * The number of remembered answers and of waiting questions is bounded. The
 * answer that was not used for longest makes room for a new one, but answers in
 * which a caller found what it looked for go last, and are asked anew first:
 * forged calls cause questions without end. While there is no room for a question, its answer is
 * UNKNOWN, and the log says so at most once a minute. The first question starts a thread, so
 * without questions there is none. All functions may be called from every thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/limit.h"

#define HF_LOOKUPS_MAX_KEY 256

struct hf_lookups_options {
	/* On a thread of its own: writes the answer, of at most max_answer bytes, and its length; none is an
	 * answer, too. < 0: the question could not be answered now. */
	int (*ask)(void *user, struct hf_bytes key, uint8_t *answer, size_t *lenp);
	/* The same thread: a question fails, or its answer is empty (@error 0). Once for each key until it
	 * has an answer, and seldom for all of them together. */
	void (*report)(void *user, struct hf_bytes key, int error);
	uint64_t (*now)(void *user); /* in ns; NULL: the system's monotonic clock */
	void *user;                  /* must outlive all threads that ask */
	const char *what;            /* is looked up, for the log: "names"; borrowed */
	size_t max_entries;
	size_t max_waiting;
	size_t max_threads;
	size_t max_answer;
	uint64_t fresh_ns;       /* of an answer */
	uint64_t fresh_empty_ns; /* of an empty answer */
	uint64_t stale_ns;       /* after which no answer counts any more */
	uint64_t retry_ns;       /* after a failure */
};

struct hf_lookups;

int hf_lookups_new(struct hf_lookups **lookupsp, const struct hf_lookups_options *options);
/* Does not wait for threads that ask; each ends after its question. */
struct hf_lookups *hf_lookups_free(struct hf_lookups *lookups);

HF_DEFINE_CLEANUP(struct hf_lookups *, hf_lookups_free)

enum hf_lookup {
	HF_LOOKUP_UNKNOWN, /* it is being asked, or there is no room: the caller must try again */
	HF_LOOKUP_FAILED,  /* it could not be answered, and is asked again from time to time */
	HF_LOOKUP_KNOWN,
};

/* Known: calls @visit with the answer, under a lock. It returns true if this is what the caller looked for.
 */
enum hf_lookup hf_lookups_get(struct hf_lookups *lookups, struct hf_bytes key,
			      bool (*visit)(void *user, struct hf_bytes answer), void *user);
/* The next use of each answer asks anew. Until then, and while that takes, the old one counts. */
void hf_lookups_renew(struct hf_lookups *lookups);
/* How many questions wait, and how often there was no room for one. */
void hf_lookups_show_limit(struct hf_lookups *lookups, struct hf_limit_use *use);
/* How many questions have a place, with those that wait, and how many lost it to others. */
void hf_lookups_show_remembered(struct hf_lookups *lookups, struct hf_limit_use *use);
/* On a thread that may wait: until the question has been asked, or @ns are over. True: it is known. */
bool hf_lookups_wait(struct hf_lookups *lookups, struct hf_bytes key, uint64_t ns);
