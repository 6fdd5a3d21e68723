#include "export/lookups.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/siphash.h"

#define NS_PER_S    UINT64_C(1000000000)
#define IDLE_S      30 /* a thread without questions ends after this */
#define STACK_BYTES (512 * 1024)
#define MAX_REPORTS 10 /* in REPORTS_NS, of all keys together */
#define REPORTS_NS  (60 * NS_PER_S)

struct entry {
	struct hf_hash_node node;
	struct hf_link by_use;
	struct hf_link waiting; /* in the queue */
	bool is_asked;          /* it waits, or a thread asks */
	bool is_wanted;         /* a caller found what it looked for */
	bool is_reported;
	bool has_answer;
	bool has_failed;    /* since the last answer */
	uint64_t ask_again; /* not before this */
	uint64_t age;       /* of the lookups, when it was asked last */
	uint64_t stale_at;
	uint8_t *answer;
	size_t answer_len;
	uint16_t key_len;
	uint8_t key[];
};

struct hf_lookups {
	struct hf_lookups_options options; /* (c) */
	_Atomic unsigned int n_refs;       /* the owner's, and one for each thread */
	pthread_mutex_t lock;              /* for all below */
	pthread_cond_t has_question;
	pthread_cond_t has_answer;
	struct hf_siphash_key hash_key;
	struct hf_hashtable entries;
	struct hf_list wanted; /* the first was used last */
	struct hf_list others; /* likewise */
	struct hf_list waiting;
	size_t n_waiting;
	uint64_t n_forgotten; /* answers that made room */
	uint64_t n_refused;   /* calls that found no room for their question */
	size_t n_threads;
	size_t n_idle;
	bool is_over;
	uint64_t age; /* rises when all is to be asked anew */
	uint64_t reports_since;
	unsigned int n_reports;
	struct hf_log_limit no_room_log;
};

static uint64_t now_of(const struct hf_lookups *lookups)
{
	struct timespec ts;

	if (lookups->options.now)
		return lookups->options.now(lookups->options.user);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Entries */

static struct hf_bytes key_of(const struct entry *entry)
{
	return hf_bytes_of(entry->key, entry->key_len);
}

static struct entry *find(struct hf_lookups *lookups, struct hf_bytes key, uint64_t hash)
{
	hf_hash_for_each(node, &lookups->entries, hash) {
		struct entry *entry = hf_container_of(node, struct entry, node);

		if (entry->key_len == key.len && memcmp(entry->key, key.data, key.len) == 0)
			return entry;
	}
	return NULL;
}

static void remove_entry(struct hf_lookups *lookups, struct entry *entry)
{
	hf_hashtable_remove(&lookups->entries, &entry->node);
	hf_link_remove(&entry->by_use);
	free(entry->answer);
	free(entry);
}

static void note_use(struct hf_lookups *lookups, struct entry *entry)
{
	hf_link_remove(&entry->by_use);
	hf_list_push_front(entry->is_wanted ? &lookups->wanted : &lookups->others, &entry->by_use);
}

static bool remove_oldest(struct hf_lookups *lookups, struct hf_list *list)
{
	for (struct hf_link *link = list->head.prev; link != &list->head; link = link->prev) {
		struct entry *entry = hf_list_entry(link, struct entry, by_use);

		if (entry->is_asked)
			continue;
		remove_entry(lookups, entry);
		lookups->n_forgotten++;
		return true;
	}
	return false;
}

/* Makes room for one more. False: all entries are being asked. */
static bool make_room(struct hf_lookups *lookups)
{
	return remove_oldest(lookups, &lookups->others) || remove_oldest(lookups, &lookups->wanted);
}

static struct entry *add(struct hf_lookups *lookups, struct hf_bytes key, uint64_t hash)
{
	struct entry *entry;

	if (lookups->n_waiting >= lookups->options.max_waiting ||
	    (lookups->entries.n >= lookups->options.max_entries && !make_room(lookups)))
		return NULL;
	entry = calloc(1, sizeof(*entry) + key.len);
	if (!entry)
		return NULL;
	entry->key_len = (uint16_t)key.len;
	memcpy(entry->key, key.data, key.len);
	hf_hashtable_insert(&lookups->entries, &entry->node, hash);
	hf_link_init(&entry->by_use);
	return entry;
}

/* Making and freeing */

static void unref(struct hf_lookups *lookups)
{
	struct hf_link *link;

	if (atomic_fetch_sub_explicit(&lookups->n_refs, 1, memory_order_acq_rel) > 1)
		return;
	while ((link = hf_list_first(&lookups->wanted)) || (link = hf_list_first(&lookups->others)))
		remove_entry(lookups, hf_list_entry(link, struct entry, by_use));
	hf_hashtable_deinit(&lookups->entries);
	pthread_cond_destroy(&lookups->has_question);
	pthread_cond_destroy(&lookups->has_answer);
	pthread_mutex_destroy(&lookups->lock);
	free(lookups);
}

/* Threads that ask */

/* May this failure be reported? A peer that has many addresses must not fill the log. */
static bool may_report(struct hf_lookups *lookups, struct entry *entry, uint64_t now)
{
	if (entry->is_reported)
		return false;
	if (now - lookups->reports_since >= REPORTS_NS) {
		lookups->reports_since = now;
		lookups->n_reports = 0;
	}
	if (lookups->n_reports >= MAX_REPORTS)
		return false;
	lookups->n_reports++;
	entry->is_reported = true;
	return true;
}

static void note_failure(const struct hf_lookups *lookups, struct entry *entry, uint64_t now)
{
	entry->has_failed = true;
	entry->ask_again = now + lookups->options.retry_ns;
}

static void remember_answer(struct hf_lookups *lookups, struct entry *entry, const uint8_t *answer,
			    size_t len, uint64_t now)
{
	const struct hf_lookups_options *options = &lookups->options;
	uint8_t *copy = realloc(entry->answer, len ? len : 1);

	if (!copy) {
		note_failure(lookups, entry, now);
		return;
	}
	memcpy(copy, answer, len);
	entry->answer = copy;
	entry->answer_len = len;
	entry->has_answer = true;
	entry->has_failed = false;
	entry->ask_again = now + (len ? options->fresh_ns : options->fresh_empty_ns);
	entry->stale_at = now + options->stale_ns;
	entry->is_reported &= len == 0;
}

/* With the lock, which it gives up meanwhile */
static void ask_one(struct hf_lookups *lookups, struct entry *entry, uint8_t *answer)
{
	size_t len = 0;
	uint64_t now;
	bool reports;
	int r;

	pthread_mutex_unlock(&lookups->lock);
	r = lookups->options.ask(lookups->options.user, key_of(entry), answer, &len);
	assert(len <= lookups->options.max_answer);
	pthread_mutex_lock(&lookups->lock);
	now = now_of(lookups);
	if (r < 0)
		note_failure(lookups, entry, now);
	else
		remember_answer(lookups, entry, answer, len, now);
	reports = (r < 0 || len == 0) && !lookups->is_over && may_report(lookups, entry, now);
	if (reports) { /* it is asked until here, so it stays */
		pthread_mutex_unlock(&lookups->lock);
		lookups->options.report(lookups->options.user, key_of(entry), r < 0 ? r : 0);
		pthread_mutex_lock(&lookups->lock);
	}
	entry->is_asked = false;
	pthread_cond_broadcast(&lookups->has_answer);
}

static struct timespec after(uint64_t ns)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ns += (uint64_t)ts.tv_nsec;
	ts.tv_sec += (time_t)(ns / NS_PER_S);
	ts.tv_nsec = (long)(ns % NS_PER_S);
	return ts;
}

/* False: there was none for long, or all is over. */
static bool await_question(struct hf_lookups *lookups)
{
	struct timespec until = after(IDLE_S * NS_PER_S);
	int r = 0;

	lookups->n_idle++;
	while (!lookups->n_waiting && !lookups->is_over && r != ETIMEDOUT)
		r = pthread_cond_clockwait(&lookups->has_question, &lookups->lock, CLOCK_MONOTONIC, &until);
	lookups->n_idle--;
	return lookups->n_waiting && !lookups->is_over;
}

static void *run(void *arg)
{
	struct hf_lookups *lookups = arg;
	uint8_t *answer = malloc(lookups->options.max_answer);

	pthread_mutex_lock(&lookups->lock);
	while (answer && await_question(lookups)) {
		lookups->n_waiting--;
		ask_one(lookups, hf_list_entry(hf_list_pop_front(&lookups->waiting), struct entry, waiting),
			answer);
	}
	lookups->n_threads--;
	pthread_mutex_unlock(&lookups->lock);
	free(answer);
	unref(lookups);
	return NULL;
}

static void start_thread(struct hf_lookups *lookups)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;

	sigfillset(&all); /* signals are for the main thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	atomic_fetch_add(&lookups->n_refs, 1);
	if (pthread_create(&thread, &attr, run, lookups) == 0)
		lookups->n_threads++;
	else
		atomic_fetch_sub(&lookups->n_refs, 1);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Questions */

/* What is wanted goes first, even if the queue is full: forged calls can fill it with other questions. */
static void put_in_queue(struct hf_lookups *lookups, struct entry *entry)
{
	if (lookups->n_waiting >= lookups->options.max_waiting && !entry->is_wanted)
		return;
	if (lookups->n_idle <= lookups->n_waiting && lookups->n_threads < lookups->options.max_threads)
		start_thread(lookups);
	if (!lookups->n_threads)
		return; /* the next caller tries again */
	entry->is_asked = true;
	entry->age = lookups->age;
	if (entry->is_wanted)
		hf_list_push_front(&lookups->waiting, &entry->waiting);
	else
		hf_list_push_back(&lookups->waiting, &entry->waiting);
	lookups->n_waiting++;
	pthread_cond_signal(&lookups->has_question);
}

/* The entry, asked if it must be. NULL: there is no room. */
static struct entry *use(struct hf_lookups *lookups, struct hf_bytes key, uint64_t now)
{
	uint64_t hash = hf_siphash(&lookups->hash_key, key.data, key.len);
	struct entry *entry = find(lookups, key, hash);

	if (!entry)
		entry = add(lookups, key, hash);
	if (!entry)
		return NULL;
	note_use(lookups, entry);
	if (!entry->is_asked && (now >= entry->ask_again || entry->age != lookups->age))
		put_in_queue(lookups, entry);
	return entry;
}

static bool is_known(const struct entry *entry, uint64_t now)
{
	return entry && entry->has_answer && now < entry->stale_at;
}

enum hf_lookup hf_lookups_get(struct hf_lookups *lookups, struct hf_bytes key,
			      bool (*visit)(void *user, struct hf_bytes answer), void *user)
{
	uint64_t now, n_more = 0;
	enum hf_lookup answer;
	struct entry *entry;
	bool is_logged;

	if (key.len > HF_LOOKUPS_MAX_KEY)
		return HF_LOOKUP_FAILED; /* no caller has one */
	now = now_of(lookups);
	pthread_mutex_lock(&lookups->lock);
	entry = use(lookups, key, now);
	if (is_known(entry, now)) {
		entry->is_wanted |= visit(user, hf_bytes_of(entry->answer, entry->answer_len));
		note_use(lookups, entry);
		answer = HF_LOOKUP_KNOWN;
	} else {
		answer = entry && entry->has_failed ? HF_LOOKUP_FAILED : HF_LOOKUP_UNKNOWN;
	}
	if (answer == HF_LOOKUP_UNKNOWN && (!entry || !entry->is_asked))
		lookups->n_refused++;
	is_logged = !entry && hf_log_limit_allow(&lookups->no_room_log, now, &n_more);
	pthread_mutex_unlock(&lookups->lock);
	if (is_logged)
		hf_log_warn("too much is being looked up; further callers are to try again",
			    "what=\"%s\" more=%llu", lookups->options.what, (unsigned long long)n_more);
	return answer;
}

void hf_lookups_show_limit(struct hf_lookups *lookups, struct hf_limit_use *use)
{
	pthread_mutex_lock(&lookups->lock);
	use->used = HF_MAX(use->used, lookups->n_waiting);
	use->refused += lookups->n_refused;
	pthread_mutex_unlock(&lookups->lock);
	use->max = lookups->options.max_waiting;
}

void hf_lookups_show_remembered(struct hf_lookups *lookups, struct hf_limit_use *use)
{
	pthread_mutex_lock(&lookups->lock);
	*use = (struct hf_limit_use){ .used = lookups->entries.n,
				      .max = lookups->options.max_entries,
				      .refused = lookups->n_forgotten };
	pthread_mutex_unlock(&lookups->lock);
}

void hf_lookups_renew(struct hf_lookups *lookups)
{
	pthread_mutex_lock(&lookups->lock);
	lookups->age++;
	pthread_mutex_unlock(&lookups->lock);
}

bool hf_lookups_wait(struct hf_lookups *lookups, struct hf_bytes key, uint64_t ns)
{
	struct timespec until = after(ns);
	struct entry *entry;
	int r = 0;
	bool known;

	if (key.len > HF_LOOKUPS_MAX_KEY)
		return false;
	pthread_mutex_lock(&lookups->lock);
	for (;;) {
		uint64_t now = now_of(lookups);

		entry = use(lookups, key, now); /* anew after each wait: it may have made room */
		known = is_known(entry, now);
		if (known || !entry || !entry->is_asked || r == ETIMEDOUT)
			break;
		r = pthread_cond_clockwait(&lookups->has_answer, &lookups->lock, CLOCK_MONOTONIC, &until);
	}
	pthread_mutex_unlock(&lookups->lock);
	return known;
}

int hf_lookups_new(struct hf_lookups **lookupsp, const struct hf_lookups_options *options)
{
	struct hf_lookups *lookups = calloc(1, sizeof(*lookups));
	int r = lookups ? hf_hashtable_init(&lookups->entries) : -ENOMEM;

	if (r < 0) {
		free(lookups);
		return hf_trace(r);
	}
	lookups->options = *options;
	lookups->n_refs = 1;
	lookups->no_room_log.window_ns = REPORTS_NS;
	if (getrandom(&lookups->hash_key, sizeof(lookups->hash_key), 0) < 0)
		lookups->hash_key = (struct hf_siphash_key){ (uintptr_t)lookups, now_of(lookups) };
	pthread_mutex_init(&lookups->lock, NULL);
	pthread_cond_init(&lookups->has_question, NULL);
	pthread_cond_init(&lookups->has_answer, NULL);
	hf_list_init(&lookups->wanted);
	hf_list_init(&lookups->others);
	hf_list_init(&lookups->waiting);
	*lookupsp = lookups;
	return 0;
}

struct hf_lookups *hf_lookups_free(struct hf_lookups *lookups)
{
	if (!lookups)
		return NULL;
	pthread_mutex_lock(&lookups->lock);
	lookups->is_over = true;
	pthread_cond_broadcast(&lookups->has_question);
	pthread_mutex_unlock(&lookups->lock);
	unref(lookups);
	return NULL;
}
