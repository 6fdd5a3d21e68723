/* The thread that keeps the lease, with a database that the test plays (ld --wrap). */
#include "../test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/cluster.h"
#include "loop/loop.h"
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

/* Tests */

static void remember(void *user, uint64_t epoch, int32_t state)
{
}

static int start(void **state)
{
	const struct hf_cluster_options options = {
		.node = { .service = "nfs",
			  .node = "a",
			  .instance = "id-a",
			  .version = "1",
			  .exports = "/a",
			  .lease_ns = LEASE,
			  .automatic = true },
		.remember = remember,
	};

	strcpy(database.row.history, "00000001");
	strcpy(database.row.lease_history, "00000001");
	return hf_cluster_new(&cluster, &options) < 0 || hf_cluster_start(cluster) < 0;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_reload_that_ends_while_a_renewal_brings_the_exports_of_another, start, end),
	};

	return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
