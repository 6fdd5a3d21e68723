/* Connections of the API that last: which of them end, and when. The test is the caller, over a Unix socket;
 * the loop does not run, and the sweep is told the time. */
#include "../../until.h"
#include "../test.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/internal.h"

#define DAY_NS  (24 * 3600 * HF_NS_PER_S)
#define QUIET   (200 * HF_NS_PER_MS) /* so long, the server has sent what the way takes */
#define N_PAGES 100                  /* more than the way takes */

#define await(condition)                                           \
	do {                                                       \
		struct until until_ = until_begin(UNTIL_PATIENCE); \
                                                                   \
		while (!(condition))                               \
			assert_true(until_again(&until_));         \
	} while (0)

static struct hf_loop *loop;
static struct hf_api *api;
static char base[64], socket_path[80], token_path[80];
static int caller;

static int set_up(void **state)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct hf_api_options options = { .path = socket_path, .state_dir = base, .server_name = "server" };

	strcpy(base, "/tmp/hf-doors-XXXXXX");
	if (!mkdtemp(base) || hf_loop_new(&loop) < 0)
		return -1;
	snprintf(socket_path, sizeof(socket_path), "%s/socket", base);
	snprintf(token_path, sizeof(token_path), "%s/api.token", base);
	options.loop = loop;
	if (hf_api_new(&api, &options) < 0 || hf_api_http_start(api) < 0)
		return -1;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", socket_path);
	caller = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	return connect(caller, (struct sockaddr *)&at, sizeof(at));
}

static int tear_down(void **state)
{
	close(caller);
	hf_api_stop(api);
	hf_loop_free(loop); /* runs what the API has posted */
	hf_api_free(api);
	unlink(token_path);
	return rmdir(base);
}

static void ask(const char *path)
{
	char text[128];
	int len = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);

	assert_int_equal(write(caller, text, (size_t)len), len);
}

/* The only door; its @fd is 0 before it is there. */
static struct hf_api_door look(void)
{
	struct hf_api_door door = { 0 };
	struct hf_link *link;

	pthread_mutex_lock(&api->lock);
	link = hf_list_first(&api->doors);
	if (link)
		door = *hf_list_entry(link, struct hf_api_door, link);
	pthread_mutex_unlock(&api->lock);
	return door;
}

static bool is(enum hf_api_door_state state)
{
	struct hf_api_door door = look();

	return door.fd && door.state == state;
}

/* The way is full, and the server has tried to send more. */
static bool is_stuck(void)
{
	struct hf_api_door door = look();
	struct pollfd out = { .fd = door.fd, .events = POLLOUT };

	return door.fd && door.state == HF_API_DOOR_SENDS && poll(&out, 1, 0) == 0 &&
	       hf_loop_clock(loop) > door.since + QUIET;
}

/* The sweep does nothing while the other thread has the lock. */
static void sweep(uint64_t now)
{
	for (int i = 0; i < 1000 && !is(HF_API_DOOR_CLOSES); i++)
		hf_api_sweep_doors(api, now);
}

/* What the server had sent is read before. */
static bool has_ended(void)
{
	char data[65536];
	ssize_t n;

	while ((n = read(caller, data, sizeof(data))) > 0)
		;
	return n == 0 || errno == ECONNRESET || errno == EPIPE;
}

static void test_an_answer_that_is_not_read(void **state)
{
	for (int i = 0; i < N_PAGES; i++)
		ask("/");
	await(is_stuck());
	sweep(look().since + HF_API_ANSWER_NS);
	assert_true(is(HF_API_DOOR_SENDS));
	sweep(look().since + HF_API_ANSWER_NS + 1);
	await(has_ended());
}

static void test_a_stream_goes_on(void **state)
{
	ask("/api/v1/events");
	await(is(HF_API_DOOR_STREAMS));
	sweep(look().since + DAY_NS);
	assert_true(is(HF_API_DOOR_STREAMS));
	assert_false(has_ended());
}

/* The loop does not look at it. */
static void test_a_request_that_waits(void **state)
{
	hf_api_set_ready(api);
	ask("/readyz");
	await(is(HF_API_DOOR_SERVES));
	sweep(look().since + DAY_NS);
	assert_true(is(HF_API_DOOR_SERVES));
	assert_false(has_ended());
}

static void test_no_request(void **state)
{
	await(is(HF_API_DOOR_WAITS));
	sweep(look().since + HF_API_REQUEST_NS);
	assert_true(is(HF_API_DOOR_WAITS));
	sweep(look().since + HF_API_REQUEST_NS + 1);
	await(has_ended());
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_an_answer_that_is_not_read),
		T(test_a_stream_goes_on),
		T(test_a_request_that_waits),
		T(test_no_request),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
