/* The thread that keeps the lease, with a database that the test plays (ld --wrap). */
#include "../test.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/cluster.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "store/service.h"

#define LEASE      HF_NS_PER_S
#define PATIENCE_S 60

struct hf_service {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct hf_service_row row;
	char exports[16], before[16]; /* before the last renewal that brought exports */
	int n_claims, n_renewals;
	int n_brought;      /* renewals that brought exports */
	const char *reload; /* the exports of a reload that ends during the next such renewal; NULL: none */
};

static struct hf_cluster *cluster;
static struct hf_service database = { .lock = PTHREAD_MUTEX_INITIALIZER,
				      .changed = PTHREAD_COND_INITIALIZER };

/* The database */

static void set_exports(const char *exports)
{
	memcpy(database.before, database.exports, sizeof(database.before));
	snprintf(database.exports, sizeof(database.exports), "%s", exports);
}

static void answer(struct hf_service_row *rowp)
{
	*rowp = database.row;
	rowp->exports = strdup(database.exports);
}

int __wrap_hf_service_new(struct hf_service **servicep, const char *conninfo, const char *name,
			  uint64_t timeout_ns);
int __wrap_hf_service_new(struct hf_service **servicep, const char *conninfo, const char *name,
			  uint64_t timeout_ns)
{
	*servicep = &database;
	return 0;
}

struct hf_service *__wrap_hf_service_free(struct hf_service *service);
struct hf_service *__wrap_hf_service_free(struct hf_service *service)
{
	return NULL;
}

const char *__wrap_hf_service_message(const struct hf_service *service);
const char *__wrap_hf_service_message(const struct hf_service *service)
{
	return "";
}

int __wrap_hf_service_look(struct hf_service *service, const struct hf_service_self *self,
			   struct hf_service_row *rowp);
int __wrap_hf_service_look(struct hf_service *service, const struct hf_service_self *self,
			   struct hf_service_row *rowp)
{
	pthread_mutex_lock(&service->lock);
	answer(rowp);
	pthread_mutex_unlock(&service->lock);
	return 0;
}

int __wrap_hf_service_claim(struct hf_service *service, const struct hf_service_self *self,
			    const struct hf_service_row *seen, const struct hf_service_claim *claim);
int __wrap_hf_service_claim(struct hf_service *service, const struct hf_service_self *self,
			    const struct hf_service_row *seen, const struct hf_service_claim *claim)
{
	struct hf_service_row *row = &service->row;

	pthread_mutex_lock(&service->lock);
	row->exists = row->has_lease = true;
	row->epoch++;
	row->lease_ns = claim->lease_ns;
	snprintf(row->owner, sizeof(row->owner), "%s", claim->owner);
	snprintf(row->lease_owner, sizeof(row->lease_owner), "%s", claim->owner);
	snprintf(row->node, sizeof(row->node), "%s", self->node);
	snprintf(row->instance, sizeof(row->instance), "%s", self->instance);
	memcpy(row->key, claim->key, sizeof(row->key));
	set_exports(claim->exports);
	service->n_claims++;
	pthread_cond_broadcast(&service->changed);
	pthread_mutex_unlock(&service->lock);
	return 0;
}

int __wrap_hf_service_renew(struct hf_service *service, const struct hf_service_self *self, const char *owner,
			    const char *exports, struct hf_service_row *rowp);
int __wrap_hf_service_renew(struct hf_service *service, const struct hf_service_self *self, const char *owner,
			    const char *exports, struct hf_service_row *rowp)
{
	pthread_mutex_lock(&service->lock);
	service->row.renewals++;
	service->n_renewals++;
	if (exports) {
		set_exports(exports);
		service->n_brought++;
		if (service->reload && hf_cluster_set_exports(cluster, service->reload) < 0)
			abort();
		service->reload = NULL;
	}
	answer(rowp);
	pthread_cond_broadcast(&service->changed);
	pthread_mutex_unlock(&service->lock);
	return 0;
}

int __wrap_hf_service_report(struct hf_service *service, const char *owner,
			     const struct hf_service_takeover *takeover);
int __wrap_hf_service_report(struct hf_service *service, const char *owner,
			     const struct hf_service_takeover *takeover)
{
	return 0;
}

int __wrap_hf_service_put_connections(struct hf_service *service, const char *owner,
				      struct hf_bytes connections);
int __wrap_hf_service_put_connections(struct hf_service *service, const char *owner,
				      struct hf_bytes connections)
{
	return 0;
}

/* Until the database has counted so many. Returns how many renewals it has had then. */
static int wait_for(const int *count, int n)
{
	struct timespec until;
	int r = 0, n_renewals;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&database.lock);
	while (*count < n && r == 0)
		r = pthread_cond_clockwait(&database.changed, &database.lock, CLOCK_MONOTONIC, &until);
	n_renewals = database.n_renewals;
	pthread_mutex_unlock(&database.lock);
	assert_int_equal(r, 0);
	return n_renewals;
}

/* What the node knows of the service */

struct memory {
	uint64_t refused_epoch; /* cannot be stored for the first @n_refusals times; 0: each can */
	int n_refusals, n_refused;
	uint64_t epoch; /* that is stored */
	uint64_t first_refusal;
};

static uint64_t read_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * HF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int remember(void *user, uint64_t epoch, int32_t state)
{
	struct memory *memory = user;

	if (memory->refused_epoch == epoch && memory->n_refused < memory->n_refusals) {
		if (!memory->n_refused++)
			memory->first_refusal = read_clock();
		return -EROFS;
	}
	memory->epoch = epoch;
	return 0;
}

/* Tests */

static void begin(struct memory *memory, uint64_t lease_ns)
{
	const struct hf_cluster_options options = {
		.node = { .service = "nfs",
			  .node = "a",
			  .instance = "id-a",
			  .version = "1",
			  .exports = "/a",
			  .lease_ns = lease_ns,
			  .automatic = true },
		.remember = remember,
		.user = memory,
	};

	database.row = (struct hf_service_row){ .history = "00000001", .lease_history = "00000001" };
	database.n_claims = database.n_renewals = database.n_brought = 0;
	assert_int_equal(hf_cluster_new(&cluster, &options), 0);
	assert_int_equal(hf_cluster_start(cluster), 0);
}

static int start(void **state)
{
	static struct memory memory;

	begin(&memory, LEASE);
	return 0;
}

static int end(void **state)
{
	cluster = hf_cluster_free(cluster);
	return 0;
}

/* Otherwise the database keeps the exports of the first, and every standby differs from them. */
static void test_a_reload_that_ends_while_a_renewal_brings_the_exports_of_another(void **state)
{
	int n_renewals;

	wait_for(&database.n_claims, 1);
	database.reload = "/c"; /* no renewal brings exports before the next line */
	assert_int_equal(hf_cluster_set_exports(cluster, "/b"), 0);
	n_renewals = wait_for(&database.n_brought, 1);
	wait_for(&database.n_renewals, n_renewals + 2);
	end(state); /* and with it the thread that writes */
	assert_string_equal(database.before, "/b");
	assert_string_equal(database.exports, "/c");
	assert_int_equal(database.n_brought, 2);
}

#define EPOCH 7

struct home {
	struct hf_loop *loop;
	struct hf_timer patience;
	bool is_present;
};

static void on_cluster_event(void *user, enum hf_cluster_event event)
{
	const struct hf_cluster_term term = { .epoch = EPOCH, .state = 9 };
	struct home *home = user;

	if (event == HF_CLUSTER_CLAIMED)
		hf_cluster_serves(cluster, &term);
	if (event != HF_CLUSTER_PRESENT)
		return;
	home->is_present = true;
	hf_loop_stop(home->loop);
}

static void lose_patience(struct hf_timer *timer)
{
	hf_loop_stop(hf_container_of(timer, struct home, patience)->loop);
}

/* Until clients may be told of the state number. Returns when that is. The thread has ended then. */
static uint64_t serve(struct memory *memory, uint64_t lease_ns)
{
	struct home home = { 0 };
	uint64_t at;

	assert_int_equal(hf_loop_new(&home.loop), 0);
	hf_timer_init(&home.patience, home.loop, lose_patience);
	assert_int_equal(hf_timer_start(&home.patience, PATIENCE_S * HF_NS_PER_S), 0);
	begin(memory, lease_ns);
	hf_cluster_set_listener(cluster, home.loop, on_cluster_event, &home);
	assert_int_equal(hf_loop_run(home.loop), 0);
	at = read_clock();
	hf_timer_stop(&home.patience);
	hf_cluster_set_listener(cluster, NULL, NULL, NULL);
	cluster = hf_cluster_free(cluster);
	hf_loop_free(home.loop);
	assert_true(home.is_present);
	return at;
}

/* Otherwise a restart on an older database could tell them of a lower one. */
static void test_clients_are_told_of_a_number_that_is_stored(void **state)
{
	struct memory memory = { .refused_epoch = EPOCH, .n_refusals = 2 };

	serve(&memory, PATIENCE_S * HF_NS_PER_S);
	assert_int_equal(memory.n_refused, 2);
	assert_int_equal(memory.epoch, EPOCH);
}

static void test_clients_do_not_wait_for_a_number_that_cannot_be_stored(void **state)
{
	struct memory memory = { .refused_epoch = EPOCH, .n_refusals = INT_MAX };

	assert_true(serve(&memory, 2 * LEASE) - memory.first_refusal >= LEASE);
	assert_int_not_equal(memory.epoch, EPOCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_reload_that_ends_while_a_renewal_brings_the_exports_of_another, start, end),
		cmocka_unit_test(test_clients_are_told_of_a_number_that_is_stored),
		cmocka_unit_test(test_clients_do_not_wait_for_a_number_that_cannot_be_stored),
	};

	return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
