/* Lists of files on a disk that does not answer: a look-up waits until it is let go (ld --wrap). */
#include "../recovery/world.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/api.h"
#include "api/files.h"
#include "vfs/jobs.h"

static struct {
	struct world world;
	struct hf_jobs *jobs;
	struct hf_api *api;
	char state_dir[64];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_dead;
} bed;

bool __wrap_hf_api_file_path(struct hf_exports *exports, struct hf_bytes handle, char *out, size_t size);
bool __wrap_hf_api_file_path(struct hf_exports *exports, struct hf_bytes handle, char *out, size_t size)
{
	pthread_mutex_lock(&bed.lock);
	while (bed.is_dead && handle.data[0] == 'f')
		pthread_cond_wait(&bed.changed, &bed.lock);
	pthread_mutex_unlock(&bed.lock);
	snprintf(out, size, "/srv/%.*s", (int)handle.len, (const char *)handle.data);
	return true;
}

static void set_dead(bool is_dead)
{
	pthread_mutex_lock(&bed.lock);
	bed.is_dead = is_dead;
	pthread_cond_broadcast(&bed.changed);
	pthread_mutex_unlock(&bed.lock);
}

static int setup(void **state)
{
	struct hf_api_options options = { .server_name = "server" };
	struct hf_client *client;

	memset(&bed, 0, sizeof(bed));
	pthread_mutex_init(&bed.lock, NULL);
	pthread_cond_init(&bed.changed, NULL);
	strcpy(bed.state_dir, "/tmp/hf-names-XXXXXX");
	assert_non_null(mkdtemp(bed.state_dir));
	world_init(&bed.world);
	world_up(&bed.world);
	world_turn(&bed.world);
	assert_int_equal(hf_jobs_new(&bed.jobs, 2, 0), 0);
	assert_true(hf_addr_parse(&options.listen, "127.0.0.1"));
	options.loop = bed.world.loop;
	options.recovery = bed.world.recovery;
	options.jobs = bed.jobs;
	options.state_dir = bed.state_dir;
	assert_int_equal(hf_api_new(&bed.api, &options), 0);
	assert_int_equal(hf_api_start(bed.api), 0);
	client = world_client(&bed.world, "10.0.0.1", "one");
	assert_int_equal(world_lock(&bed.world, client, 1, "a", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&bed.world, client, 1, "f", 0, 9), HF_LOCK_OK);
	assert_int_equal(world_lock(&bed.world, client, 1, "f", 20, 29), HF_LOCK_OK);
	world_turn(&bed.world);
	return 0;
}

static int teardown(void **state)
{
	char token[80];

	hf_api_stop(bed.api);
	hf_jobs_wait(bed.jobs);
	world_turn(&bed.world);
	hf_jobs_free(bed.jobs);
	world_deinit(&bed.world);
	hf_api_free(bed.api);
	snprintf(token, sizeof(token), "%s/api.token", bed.state_dir);
	unlink(token);
	rmdir(bed.state_dir);
	return 0;
}

/* A call under way. */
struct asking {
	int fd;
	size_t len;
	char answer[16384];
};

static void ask(struct asking *asking, const char *path)
{
	struct hf_addr addr;
	struct sockaddr_storage to;
	socklen_t to_len;
	char text[256];
	int len = snprintf(text, sizeof(text),
			   "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n", path,
			   hf_api_port(bed.api));

	*asking = (struct asking){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	assert_true(hf_addr_parse(&addr, "127.0.0.1"));
	addr.port = hf_api_port(bed.api);
	to_len = hf_addr_to_sockaddr(&addr, &to);
	assert_int_equal(connect(asking->fd, (struct sockaddr *)&to, to_len), 0);
	assert_int_equal(send(asking->fd, text, (size_t)len, 0), len);
}

static bool is_answered(struct asking *asking)
{
	ssize_t n = 0;

	while (asking->fd >= 0 && (n = recv(asking->fd, asking->answer + asking->len,
					    sizeof(asking->answer) - 1 - asking->len, MSG_DONTWAIT)) > 0)
		asking->len += (size_t)n;
	if (asking->fd >= 0 && n == 0) {
		close(asking->fd);
		asking->fd = -1;
	}
	return asking->fd < 0;
}

static void hear(struct asking *asking)
{
	world_until(&bed.world, is_answered(asking));
	assert_non_null(strstr(asking->answer, "200 OK"));
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

static void test_paths_are_shown(void **state)
{
	struct asking asking;

	ask(&asking, "/api/v1/locks");
	hear(&asking);
	assert_int_equal(count(asking.answer, "\"file\":\"/srv/a\""), 1);
	assert_int_equal(count(asking.answer, "\"file\":\"/srv/f\""), 2);
}

/* Others are answered while one list waits; and that is shown with what is known after a moment. */
static void test_a_dead_disk_delays_no_answer_for_long(void **state)
{
	struct asking locks, health, status;

	set_dead(true);
	ask(&locks, "/api/v1/clients/nlm:10.0.0.1:one");
	world_turn(&bed.world);
	ask(&health, "/healthz");
	ask(&status, "/api/v1/status");
	hear(&health);
	hear(&status);
	assert_false(is_answered(&locks));
	hear(&locks);
	assert_int_equal(count(locks.answer, "\"file\":\"/srv/a\""), 1);
	assert_int_equal(count(locks.answer, "\"file\":null"), 2);
	set_dead(false);
	ask(&locks, "/api/v1/locks");
	hear(&locks);
	assert_int_equal(count(locks.answer, "\"file\":\"/srv/f\""), 2);
}

/* However long it lasts, and however many go on asking. */
static void test_a_disk_that_stays_dead(void **state)
{
	struct asking many[40];

	set_dead(true);
	for (size_t i = 0; i < HF_ARRAY_SIZE(many); i++)
		ask(&many[i], "/api/v1/locks");
	for (size_t i = 0; i < HF_ARRAY_SIZE(many); i++)
		hear(&many[i]);
	ask(&many[0], "/api/v1/locks"); /* at once: so many look for names already */
	hear(&many[0]);
	assert_int_equal(count(many[0].answer, "\"file\":null"), 3);
	set_dead(false);
}

static void test_stopping_waits_for_no_list(void **state)
{
	struct asking asking;

	set_dead(true);
	ask(&asking, "/api/v1/locks");
	for (int i = 0; i < 20; i++)
		world_turn(&bed.world);
	hf_api_stop(bed.api);
	close(asking.fd);
	set_dead(false);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_paths_are_shown),
		T(test_a_dead_disk_delays_no_answer_for_long),
		T(test_a_disk_that_stays_dead),
		T(test_stopping_waits_for_no_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
