/* The API where memory is wanting at its start: it is an error each time, and nothing is left behind. */
#include "../memory.h"
#include "../test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/log.h"
#include "loop/loop.h"

static struct hf_loop *loop;
static char base[64], socket_path[80], token_path[80];

static int set_up(void **state)
{
	strcpy(base, "/tmp/hf-api-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(socket_path, sizeof(socket_path), "%s/socket", base);
	snprintf(token_path, sizeof(token_path), "%s/api.token", base);
	return hf_loop_new(&loop);
}

static int tear_down(void **state)
{
	hf_loop_free(loop);
	unlink(socket_path);
	unlink(token_path);
	return rmdir(base);
}

/* The last of so many allocations fails; false: there are fewer. */
static bool fails_at(int n, const struct hf_api_options *options)
{
	struct hf_api *api = NULL;
	int r;

	memory_until_failure = n;
	memory_may_fail = true;
	r = hf_api_new(&api, options);
	memory_may_fail = false;
	if (memory_until_failure == 0) {
		assert_int_equal(r, -ENOMEM);
		assert_null(api);
		assert_int_not_equal(access(socket_path, F_OK), 0);
		return true;
	}
	assert_int_equal(r, 0);
	hf_api_stop(api);
	hf_api_free(api);
	return false;
}

static void test_no_memory_at_any_moment(void **state)
{
	const struct hf_api_options options = {
		.loop = loop,
		.path = socket_path,
		.state_dir = base,
		.server_name = "server",
	};
	int n = 1;

	while (fails_at(n, &options))
		n++;
	assert_true(n > 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_memory_at_any_moment, set_up, tear_down),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
