/* Counting calls: each once, before its reply leaves, and with a time that can be true. */
#include "../test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"
#include "rpc/delay.h"

#define HOME   "127.0.0.1"
#define N_MANY 100 /* some groups, the last one not full */

static struct rig rig;
static uint8_t bytes[64 * 1024];

static void measure(struct rig *r, void *arg)
{
	assert_int_equal(hf_rpc_server_measure(r->server), 0);
}

static void start(void)
{
	rig_start(&rig, &rig_limits, 1, HOME);
	rig_run_on(&rig, 0, measure, NULL); /* no client has called yet */
}

struct sum {
	uint32_t proc;
	const char *result;
	uint64_t n_results;
	uint64_t n_durations;
	uint64_t ns;
};

static void add_up(void *user, uint32_t program, uint32_t number, const char *procedure,
		   const struct hf_call_meter *meter)
{
	struct sum *sum = user;

	if (program != RIG_PROGRAM || number != sum->proc)
		return;
	for (size_t i = 0; i < HF_METER_N_RESULTS && meter->results[i].name; i++)
		if (strcmp(meter->results[i].name, sum->result) == 0)
			sum->n_results += hf_metric_read(&meter->results[i].n);
	for (size_t i = 0; i <= HF_METRIC_N_BOUNDS; i++)
		sum->n_durations += hf_metric_read(&meter->duration.counts[i]);
	sum->ns += hf_metric_read(&meter->duration.sum_ns);
}

static struct sum sum_of(uint32_t proc, const char *result)
{
	struct sum sum = { .proc = proc, .result = result };

	hf_rpc_server_show_meters(rig.server, add_up, &sum);
	return sum;
}

static void test_many_at_once(void **state)
{
	uint64_t began = rig_ms();
	uint8_t *p = bytes, reply[256];
	struct sum voids, echoes;
	int fd;

	start();
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < N_MANY; i++) {
		size_t len = i % 3 ? rig_call(p + 4, i, RIG_PROGRAM, RIG_VOID, NULL, 0)
				   : rig_call_opaque(p + 4, i, RIG_PROGRAM, RIG_ECHO, "x", 1);

		rig_put(p, HF_RECORD_LAST | (uint32_t)len);
		p += 4 + len;
	}
	rig_send_all(fd, bytes, (size_t)(p - bytes));
	for (uint32_t i = 0; i < N_MANY; i++)
		rig_expect_success(fd, i, reply, sizeof(reply));
	/* A call is counted once its reply has arrived. */
	voids = sum_of(RIG_VOID, "OK");
	echoes = sum_of(RIG_ECHO, "OK");
	assert_int_equal(voids.n_results + echoes.n_results, N_MANY);
	assert_int_equal(echoes.n_results, (N_MANY + 2) / 3);
	assert_int_equal(voids.n_durations, voids.n_results);
	assert_int_equal(echoes.n_durations, echoes.n_results);
	/* One thread served them all, one after the other. */
	assert_in_range(voids.ns + echoes.ns, 1, (rig_ms() - began + 1) * 1000000);
	close(fd);
	rig_stop(&rig);
}

static void test_suspended(void **state)
{
	uint8_t reply[256];
	uint64_t began;
	struct sum sum;
	int fd;

	start();
	fd = rig_connect(HOME, rig.tcp, NULL);
	for (uint32_t i = 0; i < 3; i++)
		rig_send_record(fd, bytes, rig_call_opaque(bytes, i, RIG_PROGRAM, RIG_SUSPEND, "x", 1));
	rig_wait_suspended(&rig, 3);
	began = rig_ms();
	while (rig_ms() - began < 20) { /* time passes, and others are served */
		rig_send_record(fd, bytes, rig_call(bytes, 9, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_expect_success(fd, 9, reply, sizeof(reply));
	}
	assert_int_equal(sum_of(RIG_SUSPEND, "OK").n_results, 0);
	rig_release(&rig, 2);
	for (uint32_t i = 0; i < 2; i++)
		rig_expect_success(fd, i, reply, sizeof(reply));
	sum = sum_of(RIG_SUSPEND, "OK");
	assert_int_equal(sum.n_results, 2);
	assert_in_range(sum.ns, 2 * 18 * 1000000ull, UINT64_MAX); /* each as long as it was suspended */
	rig_drop(&rig, 1);
	rig_send_record(fd, bytes, rig_call(bytes, 10, RIG_PROGRAM, RIG_VOID, NULL, 0));
	rig_expect_success(fd, 10, reply, sizeof(reply));
	assert_int_equal(sum_of(RIG_SUSPEND, "DROPPED").n_results, 1);
	close(fd);
	rig_stop(&rig);
}

static void test_datagrams(void **state)
{
	struct sockaddr_storage from;
	uint8_t reply[256];
	int fd;

	start();
	fd = rig_udp(HOME);
	for (uint32_t i = 0; i < 5; i++) {
		rig_sendto(fd, HOME, rig.udp, bytes, rig_call(bytes, i, RIG_PROGRAM, RIG_VOID, NULL, 0));
		rig_check_success(reply, rig_recvfrom(fd, reply, sizeof(reply), &from), i);
		assert_int_equal(sum_of(RIG_VOID, "OK").n_results, i + 1);
	}
	close(fd);
	rig_stop(&rig);
}

static void test_results(void **state)
{
	uint32_t garbage[] = { 10, 1, 0, 0, 0, 4 }, refused[] = { 11, 1, 1, 1, 5 };
	int fd;

	start();
	fd = rig_connect(HOME, rig.tcp, NULL);
	rig_send_record(fd, bytes, rig_call(bytes, 10, RIG_PROGRAM, RIG_ECHO, NULL, 0));
	rig_expect_words(fd, garbage, HF_ARRAY_SIZE(garbage));
	assert_int_equal(sum_of(RIG_ECHO, "GARBAGE_ARGS").n_results, 1);
	assert_int_equal(sum_of(RIG_ECHO, "OK").n_results, 0);
	rig_send_record(fd, bytes, rig_call(bytes, 11, RIG_PROGRAM, RIG_REFUSE, NULL, 0));
	rig_expect_words(fd, refused, HF_ARRAY_SIZE(refused));
	assert_int_equal(sum_of(RIG_REFUSE, "AUTH_ERROR").n_results, 1);
	assert_int_equal(sum_of(RIG_REFUSE, "OK").n_results, 0);
	close(fd);
	rig_stop(&rig);
}

static struct hf_rpc_delay delay;

static void on_gone(struct hf_rpc_delay *gone_from, const struct hf_rpc_connection *connection)
{
}

static void answer_delayed(struct rig *r, void *arg)
{
	hf_rpc_delay_init(&delay, on_gone);
	assert_non_null(hf_rpc_delay_call(&delay, r->suspended[0]));
	hf_rpc_call_note(r->suspended[0], "PERHAPS");
	hf_rpc_reply_void(r->suspended[0]);
	r->n_suspended = 0;
}

static void nothing(struct rig *r, void *arg)
{
}

static void release(struct rig *r, void *arg)
{
	hf_rpc_delay_change_result(&delay, delay.last, "SURE");
	hf_rpc_delay_release(&delay);
}

static void test_delayed_replies_count_when_they_leave(void **state)
{
	uint64_t began;
	int fd, other;

	start();
	fd = rig_connect(HOME, rig.tcp, NULL);
	other = rig_connect(HOME, rig.tcp, NULL);
	began = rig_ms();
	rig_send_record(fd, bytes, rig_call(bytes, 1, RIG_PROGRAM, RIG_SUSPEND, NULL, 0));
	rig_wait_suspended(&rig, 1);
	rig_run_on(&rig, 0, answer_delayed, NULL);
	rig_send_record(other, bytes, rig_call(bytes, 2, RIG_PROGRAM, RIG_VOID, NULL, 0));
	rig_expect_success(other, 2, bytes, sizeof(bytes)); /* the replies of others leave meanwhile */
	for (int i = 0; i < 3; i++)
		rig_run_on(&rig, 0, nothing, NULL);
	assert_int_equal(sum_of(RIG_VOID, "OK").n_results, 1);
	assert_int_equal(sum_of(RIG_SUSPEND, "PERHAPS").n_durations, 0);
	rig_run_on(&rig, 0, release, NULL);
	rig_expect_success(fd, 1, bytes, sizeof(bytes));
	assert_int_equal(sum_of(RIG_SUSPEND, "SURE").n_results, 1);
	assert_int_equal(sum_of(RIG_SUSPEND, "PERHAPS").n_results, 0);
	assert_true(sum_of(RIG_SUSPEND, "SURE").ns <= (rig_ms() - began + 1) * HF_NS_PER_MS);
	close(fd);
	close(other);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delayed_replies_count_when_they_leave),
		cmocka_unit_test(test_many_at_once),
		cmocka_unit_test(test_suspended),
		cmocka_unit_test(test_datagrams),
		cmocka_unit_test(test_results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
