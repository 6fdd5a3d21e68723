/*
 * Questions of locks about files, on threads that may wait for a disk: the jobs of src/vfs/disk_queue.c. Each
 * answer takes as long as its disk, so answers overtake each other; or there is none before the schedule
 * ends. fate.c decides what they say.
 *
 * Jobs have threads, and exports need a real directory. So these few functions are replaced when the program
 * is linked
 * (--wrap).
 */
#include <stdlib.h>

#include "arena.h"
#include "export/export.h"
#include "export/exports_internal.h"
#include "proto/nlm/nlm.h"
#include "sim.h"
#include "vfs/disk_queue.h"
#include "vfs/jobs.h"
#include "vfs/watch.h"

#define NEVER     (100000 * SECOND)
#define N_THREADS HF_ARRAY_SIZE(((struct server *)0)->answers)

int __wrap_hf_jobs_new(struct hf_jobs **jobsp, size_t n_at_once, size_t n_spare);
void __wrap_hf_jobs_wait(struct hf_jobs *jobs);
struct hf_jobs *__wrap_hf_jobs_free(struct hf_jobs *jobs);
void __wrap_hf_jobs_submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			   void (*run)(struct hf_job *job), void (*done)(struct hf_job *job));
bool __wrap_hf_exports_read_handle(const struct hf_exports *exports, struct hf_bytes handle,
				   uint64_t *export_idp);
bool __wrap_hf_exports_rehandle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t export_id,
				struct hf_handle *handlep);
int __wrap_hf_export_check_handle(struct hf_exports *exports, struct hf_bytes handle,
				  const struct hf_addr *peer, const struct hf_identity *claimed,
				  bool want_write, struct hf_export **exportp, struct hf_file **filep);
int __wrap_hf_exports_admit(struct hf_exports *exports, uint64_t export_id, const struct hf_addr *peer);
struct hf_export *__wrap_hf_exports_by_id(struct hf_exports *exports, uint64_t id);
void __wrap_hf_exports_log_refusal_in(struct hf_exports *exports, uint64_t export_id,
				      const struct hf_addr *peer, int refusal, const char *program,
				      uint64_t now);
uint64_t __wrap_hf_exports_count_changes(const struct hf_exports *exports);
int __wrap_hf_exports_watch(struct hf_exports *exports, struct hf_bytes handle, struct hf_watch *watch);
void __wrap_hf_watch_read(struct hf_watch *watch);
uint64_t __wrap_hf_watch_count(const struct hf_watch *watch);
bool __wrap_hf_watch_is_unchanged(const struct hf_watch *watch, int number, uint64_t since);

/* Time */

/* One in ten is as slow as a disk that is nearly dead. */
static uint64_t delay(struct world *world)
{
	struct rng *rng = &world->worker.rng;

	if (world->is_calm)
		return rng_between(rng, MS / 10, 2 * MS);
	if (world->worker.n_of_1000 && rng_chance(rng, world->worker.n_of_1000)) {
		world->counts->never++;
		return NEVER;
	}
	return rng_between(rng, MS / 10,
			   rng_chance(rng, 100) ? world->worker.longest_ns : world->worker.usual_ns);
}

static void on_answer(struct hf_timer *timer)
{
	struct answer *answer = hf_container_of(timer, struct answer, timer);

	answer->is_there = true;
	server_wake(answer->server);
}

/* Jobs: @loop is all that they have of the world */

int __wrap_hf_jobs_new(struct hf_jobs **jobsp, size_t n_at_once, size_t n_spare)
{
	*jobsp = malloc(1);
	return 0;
}

struct hf_jobs *__wrap_hf_jobs_free(struct hf_jobs *jobs)
{
	free(jobs);
	return NULL;
}

/* Before a stop they are all answered, see worker_finish(). */
void __wrap_hf_jobs_wait(struct hf_jobs *jobs)
{
}

void __wrap_hf_jobs_submit(struct hf_jobs *jobs, struct hf_loop *loop, struct hf_job *job,
			   void (*run)(struct hf_job *job), void (*done)(struct hf_job *job))
{
	struct world *world = ((struct sim_loop *)loop)->world;
	struct answer *answer = world->server->answers;
	uint64_t takes = delay(world);

	server_tick(world);
	while (answer->job)
		answer++; /* src/vfs/disk_queue.c has no more of them than there are threads */
	job->run = run;
	job->done = done;
	*answer = (struct answer){ .job = job, .server = world->server };
	world_timer(world, &answer->timer, on_answer);
	hf_timer_start(&answer->timer, takes);
	world_note(world, 5, takes);
	world->counts->questions++;
	SAY(world, "disk    is asked about a file, and takes %.3f ms", (double)takes / 1e6);
}

static void tell(struct answer *answer)
{
	struct hf_job *job = answer->job;

	hf_timer_stop(&answer->timer);
	*answer = (struct answer){ 0 };
	job->run(job);
	job->done(job);
	/* @job may be freed here */
}

void worker_complete(struct world *world)
{
	for (size_t i = 0; i < N_THREADS; i++)
		if (world->server->answers[i].is_there)
			tell(&world->server->answers[i]);
}

bool worker_has_answers(const struct world *world)
{
	for (size_t i = 0; i < N_THREADS; i++)
		if (world->server->answers[i].is_there)
			return true;
	return false;
}

/* One answer may cause the next question. */
void worker_finish(struct world *world)
{
	for (size_t i = 0; i < N_THREADS; i++)
		while (world->server->answers[i].job) {
			tell(&world->server->answers[i]);
			i = 0;
		}
}

void worker_hurry(struct world *world)
{
	for (size_t i = 0; i < N_THREADS; i++)
		if (world->server->answers[i].job && !world->server->answers[i].is_there)
			hf_timer_start(&world->server->answers[i].timer, delay(world));
}

void worker_crash(struct world *world)
{
	for (size_t i = 0; i < N_THREADS; i++) {
		if (world->server->answers[i].job)
			hf_timer_stop(&world->server->answers[i].timer);
		world->server->answers[i] = (struct answer){ 0 };
	}
}

/* Exports: each file is an export, with a disk of its own */

bool __wrap_hf_exports_read_handle(const struct hf_exports *exports, struct hf_bytes handle,
				   uint64_t *export_idp)
{
	*export_idp = handle.len ? handle.data[0] + 1u : 0;
	return true;
}

bool __wrap_hf_exports_rehandle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t export_id,
				struct hf_handle *handlep)
{
	return false; /* it is the same in all of them */
}

int __wrap_hf_export_check_handle(struct hf_exports *exports, struct hf_bytes handle,
				  const struct hf_addr *peer, const struct hf_identity *claimed,
				  bool want_write, struct hf_export **exportp, struct hf_file **filep)
{
	struct world *world = hf_container_of((struct worker *)exports, struct world, worker);

	return fate_of(world, peer, handle.data[0], want_write);
}

int __wrap_hf_exports_admit(struct hf_exports *exports, uint64_t export_id, const struct hf_addr *peer)
{
	struct world *world = hf_container_of((struct worker *)exports, struct world, worker);

	switch (fate_in_list(world, peer, (uint8_t)(export_id - 1))) {
	case HF_CHECK_ACCESS:
		return HF_REFUSED_ADDRESS;
	case HF_CHECK_STALE:
		return HF_REFUSED_EXPORT;
	default:
		return HF_ADMITTED;
	}
}

/* Which TLS connections it accepts, the product's own code reads in it. */
struct hf_export *__wrap_hf_exports_by_id(struct hf_exports *exports, uint64_t id)
{
	struct world *world = hf_container_of((struct worker *)exports, struct world, worker);

	return identity_export(world, (uint8_t)(id - 1));
}

void __wrap_hf_exports_log_refusal_in(struct hf_exports *exports, uint64_t export_id,
				      const struct hf_addr *peer, int refusal, const char *program,
				      uint64_t now)
{
}

uint64_t __wrap_hf_exports_count_changes(const struct hf_exports *exports)
{
	const struct worker *worker = (const void *)exports;

	return ((const struct world *)((const char *)worker - offsetof(struct world, worker)))->fates.n_loads;
}

/* Reports of the kernel about files: a watch has the number of its file */

int __wrap_hf_exports_watch(struct hf_exports *exports, struct hf_bytes handle, struct hf_watch *watch)
{
	return handle.data[0] + 1;
}

void __wrap_hf_watch_read(struct hf_watch *watch)
{
	fate_hear((struct fates *)watch);
}

uint64_t __wrap_hf_watch_count(const struct hf_watch *watch)
{
	return ((const struct fates *)watch)->n_heard;
}

bool __wrap_hf_watch_is_unchanged(const struct hf_watch *watch, int number, uint64_t since)
{
	return fate_is_unheard((const struct fates *)watch, (uint8_t)(number - 1), since);
}

static uint32_t export_number_of(void *user, uint64_t export_id, uint64_t *homep)
{
	struct world *world = user;

	*homep = world->worker.has_one_disk ? 1 : export_id;
	return reload_is_absent(world->server, (uint8_t)(export_id - 1)) ? 0 : (uint32_t)export_id;
}

static uint64_t export_id_of(void *user, uint32_t export)
{
	return export;
}

static bool is_secure(void *user, uint32_t export)
{
	return false;
}

static enum hf_transport transport_of(void *user, uint32_t export)
{
	return identity_demand(user, (uint8_t)(export - 1));
}

int worker_start(struct world *world, struct hf_nlm_files *files, const struct hf_nlm_files **filesp)
{
	struct server *server = world->server;
	int r = hf_disk_queue_new(&server->disk_queue, &server->loop->loop, 0, N_THREADS);

	*files = (struct hf_nlm_files){
		.exports = (struct hf_exports *)&world->worker, /* see hf_export_check_handle() */
		.disk_queue = server->disk_queue,
		.watch = (struct hf_watch *)&world->fates,
		.export_number_of = export_number_of,
		.export_id_of = export_id_of,
		.is_secure = is_secure,
		.transport_of = transport_of,
		.demands_tls = identity_demands_any,
		.user = world,
	};
	*filesp = files;
	return r;
}

void worker_init(struct world *world)
{
	struct worker *worker = &world->worker;
	struct rng *rng = &worker->rng;

	rng_init(rng, world->options.seed, 6);
	worker->is_asked = (rng_chance(rng, 500) || world->options.has_tls) && !omits(world, OMIT_FILES);
	worker->has_one_disk = rng_chance(rng, 300);
	worker->usual_ns = rng_chance(rng, 500) ? 5 * MS : rng_between(rng, 5 * MS, 2 * SECOND);
	worker->longest_ns = rng_between(rng, 1 * SECOND, 40 * SECOND);
	worker->n_of_1000 = rng_chance(rng, 300) && !omits(world, OMIT_PATIENCE)
				    ? (unsigned int)rng_between(rng, 5, 60)
				    : 0;
}
