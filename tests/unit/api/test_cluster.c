/* The API of an active node and of a standby, beside a cluster that says what the test wants (ld --wrap). */
#include "../recovery/world.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/api.h"
#include "cluster/cluster.h"

#define S  HF_NS_PER_S
#define AT (UINT64_C(1800000000) * S + 250 * HF_NS_PER_MS) /* 2027-01-15T08:00:00.250Z */

static struct {
	struct world world;
	struct hf_api *api;
	char state_dir[64], token[80];
	struct hf_cluster_view view;
	int answer; /* of move and take */
	char to[HF_NODE_NAME];
	int n_moves, n_takes;
} bed;

void __wrap_hf_cluster_view(struct hf_cluster *cluster, struct hf_cluster_view *viewp);
int __wrap_hf_cluster_move(struct hf_cluster *cluster, const char *to, char *why, size_t size);
int __wrap_hf_cluster_take(struct hf_cluster *cluster, char *why, size_t size);

void __wrap_hf_cluster_view(struct hf_cluster *cluster, struct hf_cluster_view *viewp)
{
	assert_ptr_equal(cluster, &bed);
	*viewp = bed.view;
}

int __wrap_hf_cluster_move(struct hf_cluster *cluster, const char *to, char *why, size_t size)
{
	bed.n_moves++;
	snprintf(bed.to, sizeof(bed.to), "%s", to ? to : "(any)");
	snprintf(why, size, "No standby is ready.");
	return bed.answer;
}

int __wrap_hf_cluster_take(struct hf_cluster *cluster, char *why, size_t size)
{
	bed.n_takes++;
	snprintf(why, size, "This node is mismatched: /data is missing here.");
	return bed.answer;
}

static void set_view(enum hf_node_role role)
{
	struct hf_cluster_view *view = &bed.view;

	*view = (struct hf_cluster_view){
		.service = "nfs",
		.node = "a",
		.role = role,
		.epoch = 7,
		.holder = "b",
		.renewed_ago_ns = S / 2,
		.lease_ns = 3 * S,
		.n_nodes = 2,
		.nodes = { { "a", role, "1.0", AT, "" }, { "b", HF_NODE_ACTIVE, "1.1", AT, "" } },
		.n_continued = 2,
		.n_reclaimed = 1,
	};
	if (role == HF_NODE_STANDBY || role == HF_NODE_MISMATCHED)
		return;
	strcpy(view->holder, "a");
	view->lease_left_ns = 5 * S / 2;
	view->nodes[1].role = HF_NODE_STANDBY;
}

static void set_takeover(void)
{
	bed.view.last_takeover = (struct hf_cluster_takeover){
		.at = AT, .from = "b", .to = "a", .reason = "lease over", .continued = true, .seconds = 4.125
	};
}

static void start(struct hf_recovery *recovery, bool has_cluster)
{
	struct hf_api_options options = { .server_name = "nfs", .measures = true };

	strcpy(bed.state_dir, "/tmp/hf-cluster-XXXXXX");
	assert_non_null(mkdtemp(bed.state_dir));
	assert_true(hf_addr_parse(&options.listen, "127.0.0.1"));
	options.loop = bed.world.loop;
	options.recovery = recovery;
	options.state_dir = bed.state_dir;
	if (has_cluster)
		options.cluster = (struct hf_api_cluster){ .cluster = (struct hf_cluster *)&bed,
							   .addresses = "192.0.2.10/24%eth0 ::10/64%eth1",
							   .has_fence = true };
	assert_int_equal(hf_api_new(&bed.api, &options), 0);
	assert_int_equal(hf_api_start(bed.api), 0);
	snprintf(bed.token, sizeof(bed.token), "%s/api.token", bed.state_dir);
}

static int setup(void **state)
{
	memset(&bed, 0, sizeof(bed));
	world_init(&bed.world);
	world_up(&bed.world);
	world_turn(&bed.world);
	return 0;
}

static int setup_active(void **state)
{
	setup(state);
	set_view(HF_NODE_ACTIVE);
	start(bed.world.recovery, true);
	hf_api_set_ready(bed.api);
	return 0;
}

static int setup_standby(void **state)
{
	setup(state);
	set_view(HF_NODE_STANDBY);
	start(NULL, true);
	return 0;
}

static int setup_single(void **state)
{
	setup(state);
	start(bed.world.recovery, false);
	hf_api_set_ready(bed.api);
	return 0;
}

static int teardown(void **state)
{
	hf_api_stop(bed.api);
	world_deinit(&bed.world);
	hf_api_free(bed.api);
	unlink(bed.token);
	rmdir(bed.state_dir);
	return 0;
}

/* One call */

static char answer[65536];

static bool is_answered(int fd, size_t *lenp)
{
	ssize_t n;

	while ((n = recv(fd, answer + *lenp, sizeof(answer) - 1 - *lenp, MSG_DONTWAIT)) > 0)
		*lenp += (size_t)n;
	return n == 0;
}

static int dial(const char *method, const char *path)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), len;
	char text[512], token[513] = "";
	FILE *file = fopen(bed.token, "r");
	struct sockaddr_storage to;
	struct hf_addr addr;
	socklen_t to_len;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%512s", token), 1);
	fclose(file);
	len = snprintf(text, sizeof(text),
		       "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAuthorization: Bearer %s\r\nConnection: "
		       "close\r\n\r\n",
		       method, path, hf_api_port(bed.api), token);
	assert_true(hf_addr_parse(&addr, "127.0.0.1"));
	addr.port = hf_api_port(bed.api);
	to_len = hf_addr_to_sockaddr(&addr, &to);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, to_len), 0);
	assert_int_equal(send(fd, text, (size_t)len, 0), len);
	return fd;
}

/* The body of the answer, which must have this status. */
static const char *call(const char *method, const char *path, int status)
{
	int fd = dial(method, path), got = 0;
	size_t len = 0;
	const char *body;

	world_until(&bed.world, is_answered(fd, &len));
	close(fd);
	answer[len] = '\0';
	assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &got), 1);
	body = strstr(answer, "\r\n\r\n");
	assert_non_null(body);
	if (got != status)
		fail_msg("%s %s: %d, not %d: %s", method, path, got, status, body);
	return body + 4;
}

static void expect(const char *method, const char *path, int status, const char *body)
{
	assert_string_equal(call(method, path, status), body);
}

/* What is shown */

static void test_the_cluster_is_shown(void **state)
{
	set_takeover();
	strcpy(bed.view.nodes[1].reason, "it waits");
	expect("GET", "/api/v1/cluster", 200,
	       "{\"service\":\"nfs\",\"node\":\"a\",\"role\":\"active\",\"reason\":null,\"epoch\":7,"
	       "\"lease\":{"
	       "\"holder\":\"a\",\"renewed_seconds_ago\":0.5,\"seconds\":3.0,\"seconds_left\":2.5},\"nodes\":"
	       "["
	       "{\"name\":\"a\",\"role\":\"active\",\"reason\":null,\"version\":\"1.0\",\"last_seen\":\"2027-"
	       "01-15T08:00:00."
	       "250Z\"},{\"name\":\"b\",\"role\":\"standby\",\"reason\":\"it "
	       "waits\",\"version\":\"1.1\",\"last_seen\":\"2027-01-"
	       "15T08:"
	       "00:00.250Z\"}],\"last_takeover\":{\"at\":\"2027-01-15T08:00:00.250Z\",\"from\":\"b\",\"to\":"
	       "\"a\",\"reason\":\"lease over\",\"result\":\"continued\",\"seconds\":4.125},\"addresses\":["
	       "\"192.0.2.10/24%eth0\",\"::10/64%eth1\"],\"fence\":true,\"automatic\":false}");
}

static void test_what_is_not_known_is_null(void **state)
{
	const char *body;

	*bed.view.holder = '\0';
	strcpy(bed.view.reason, "/data is missing here");
	bed.view.role = HF_NODE_MISMATCHED;
	body = call("GET", "/api/v1/cluster", 200);
	assert_non_null(strstr(body, "\"role\":\"mismatched\",\"reason\":\"/data is missing here\""));
	assert_non_null(strstr(body, "\"holder\":null,\"renewed_seconds_ago\":null"));
	assert_non_null(strstr(body, "\"last_takeover\":null"));
}

static void test_a_node_that_takes_over_is_shown_as_active(void **state)
{
	bed.view.role = HF_NODE_TAKING;
	assert_non_null(strstr(call("GET", "/api/v1/cluster", 200), "\"role\":\"active\""));
	expect("GET", "/readyz", 503, "{\"status\":\"starting\"}");
}

static void test_without_a_cluster_there_is_none(void **state)
{
	static const char *const body = "{\"error\":{\"code\":\"not_found\",\"message\":\"This server is no "
					"node of a cluster: cluster.service is empty.\"}}";

	expect("GET", "/api/v1/cluster", 404, body);
	expect("POST", "/api/v1/cluster/move", 404, body);
	expect("POST", "/api/v1/cluster/take", 404, body);
	assert_null(strstr(call("GET", "/metrics", 200), "holdfast_cluster"));
	assert_null(strstr(call("GET", "/api/v1/status", 200), "\"role\""));
	expect("GET", "/readyz", 200, "{\"status\":\"ok\"}");
}

/* Orders */

static void test_orders_reach_the_cluster(void **state)
{
	expect("POST", "/api/v1/cluster/move", 202, "{\"status\":\"accepted\"}");
	assert_string_equal(bed.to, "(any)");
	expect("POST", "/api/v1/cluster/move?to=b", 202, "{\"status\":\"accepted\"}");
	assert_string_equal(bed.to, "b");
	expect("POST", "/api/v1/cluster/take", 202, "{\"status\":\"accepted\"}");
	assert_int_equal(bed.n_takes, 1);
	call("POST", "/api/v1/cluster/move?to=", 400);
	call("POST", "/api/v1/cluster/move?node=b", 400);
	assert_int_equal(bed.n_moves, 2);
}

static void test_a_refusal_says_why(void **state)
{
	bed.answer = -EBUSY;
	expect("POST", "/api/v1/cluster/move", 409,
	       "{\"error\":{\"code\":\"refused\",\"message\":\"No standby is ready.\"}}");
	expect("POST", "/api/v1/cluster/take", 409,
	       "{\"error\":{\"code\":\"refused\",\"message\":\"This node is mismatched: /data is missing "
	       "here.\"}}");
}

static void test_a_standby_names_the_active_node_to_a_mover(void **state)
{
	expect("POST", "/api/v1/cluster/move", 409,
	       "{\"error\":{\"code\":\"not_active\",\"message\":\"Only the active node can hand the service "
	       "over; the node a is a standby; b is active.\"}}");
	assert_int_equal(bed.n_moves, 0);
	expect("POST", "/api/v1/cluster/take", 202, "{\"status\":\"accepted\"}");
}

/* A standby */

static void test_a_standby_refuses_what_needs_the_service(void **state)
{
	static const struct {
		const char *method, *path;
	} calls[] = {
		{ "GET", "/api/v1/clients" },
		{ "GET", "/api/v1/clients/nlm:10.0.0.1:one" },
		{ "DELETE", "/api/v1/clients/nlm:10.0.0.1:one" },
		{ "GET", "/api/v1/locks" },
		{ "GET", "/api/v1/waiters" },
		{ "GET", "/api/v1/shares" },
		{ "GET", "/api/v1/grace" },
		{ "POST", "/api/v1/grace/end" },
		{ "POST", "/api/v1/notify" },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(calls); i++)
		expect(calls[i].method, calls[i].path, 503,
		       "{\"error\":{\"code\":\"standby\",\"message\":\"The node a of the service nfs is a "
		       "standby; b is active.\"}}");
	*bed.view.holder = '\0';
	bed.view.role = HF_NODE_MISMATCHED;
	expect("GET", "/api/v1/locks", 503,
	       "{\"error\":{\"code\":\"standby\",\"message\":\"The node a of the service nfs is mismatched; "
	       "no "
	       "node is active.\"}}");
}

static void test_a_standby_is_healthy_and_not_ready(void **state)
{
	expect("GET", "/healthz", 200, "{\"status\":\"ok\"}");
	expect("GET", "/readyz", 503, "{\"status\":\"standby\"}");
	bed.view.role = HF_NODE_MISMATCHED;
	expect("GET", "/readyz", 503, "{\"status\":\"mismatched\"}");
}

static void test_a_standby_shows_its_status(void **state)
{
	const char *body = call("GET", "/api/v1/status", 200);

	assert_non_null(strstr(body, "\"role\":\"standby\""));
	assert_non_null(strstr(body, "\"epoch\":7,\"sm_state\":null,\"store\":{\"backend\":\"postgres\","
				     "\"lock_durability\":null,\"healthy\":null}"));
	assert_non_null(strstr(body, "\"reason\":\"this node is a standby; b is active\""));
	assert_non_null(strstr(body, "\"locks\":0"));
}

static void test_a_standby_has_the_page_and_its_events(void **state)
{
	assert_non_null(strstr(call("GET", "/", 200), "<html"));
	call("GET", "/api/v1/openapi.json", 200);
}

static void test_metrics_of_a_standby(void **state)
{
	const char *text = call("GET", "/metrics", 200);

	assert_non_null(strstr(text, "\nholdfast_cluster_role{role=\"active\"} 0\n"
				     "holdfast_cluster_role{role=\"standby\"} 1\n"
				     "holdfast_cluster_role{role=\"mismatched\"} 0\n"
				     "holdfast_cluster_role{role=\"stopping\"} 0\n"));
	assert_non_null(strstr(text, "\nholdfast_cluster_takeovers_total{result=\"continued\"} 2\n"
				     "holdfast_cluster_takeovers_total{result=\"reclaimed\"} 1\n"));
	assert_non_null(strstr(text, "\nholdfast_cluster_lease_seconds 0.000\n"));
	assert_non_null(strstr(text, "\nholdfast_build_info{"));
	assert_null(strstr(text, "holdfast_store_healthy"));
	assert_null(strstr(text, "nlm_locks_held"));
}

/* The active node */

static void test_metrics_of_the_active_node(void **state)
{
	const char *text = call("GET", "/metrics", 200);

	assert_non_null(strstr(text, "\nholdfast_cluster_role{role=\"active\"} 1\n"));
	assert_non_null(strstr(text, "\nholdfast_cluster_lease_seconds 2.500\n"));
	assert_non_null(strstr(text, "\nholdfast_store_healthy 1\n"));
	bed.view.role = HF_NODE_TAKING;
	assert_non_null(strstr(call("GET", "/metrics", 200), "\nholdfast_cluster_role{role=\"active\"} 1\n"));
}

static void test_an_active_node_is_ready_while_it_has_its_lease(void **state)
{
	expect("GET", "/readyz", 200, "{\"status\":\"ok\"}");
	assert_non_null(strstr(call("GET", "/api/v1/status", 200), "\"role\":\"active\""));
	bed.view.role = HF_NODE_STOPPING;
	bed.view.lease_left_ns = 0;
	strcpy(bed.view.reason, "the lease is over: the database was not reached in time");
	expect("GET", "/readyz", 503,
	       "{\"error\":{\"code\":\"not_serving\",\"message\":\"This node does not serve now: the lease "
	       "is over: "
	       "the database was not reached in time.\"}}");
	call("GET", "/api/v1/locks", 200);
}

static bool has_event(int fd, size_t *lenp)
{
	is_answered(fd, lenp);
	answer[*lenp] = '\0';
	return strstr(answer, "event: takeover\n");
}

static void test_a_takeover_is_an_event(void **state)
{
	size_t len = 0;
	int fd;

	hf_api_tell_takeover(bed.api); /* there was none */
	set_takeover();
	hf_api_tell_takeover(bed.api);
	fd = dial("GET", "/api/v1/events?since=0");
	world_until(&bed.world, has_event(fd, &len));
	close(fd);
	assert_non_null(strstr(answer,
			       "data: {\"at\":\"2027-01-15T08:00:00.250Z\",\"from\":\"b\",\"to\":\"a\","
			       "\"reason\":\"lease over\",\"result\":\"continued\",\"seconds\":4.125,"
			       "\"time\":"));
	assert_null(strstr(answer, "data: null"));
}

#define ACTIVE(f)  cmocka_unit_test_setup_teardown(f, setup_active, teardown)
#define STANDBY(f) cmocka_unit_test_setup_teardown(f, setup_standby, teardown)
#define SINGLE(f)  cmocka_unit_test_setup_teardown(f, setup_single, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ACTIVE(test_the_cluster_is_shown),
		STANDBY(test_what_is_not_known_is_null),
		STANDBY(test_a_node_that_takes_over_is_shown_as_active),
		SINGLE(test_without_a_cluster_there_is_none),
		ACTIVE(test_orders_reach_the_cluster),
		ACTIVE(test_a_refusal_says_why),
		STANDBY(test_a_standby_names_the_active_node_to_a_mover),
		STANDBY(test_a_standby_refuses_what_needs_the_service),
		STANDBY(test_a_standby_is_healthy_and_not_ready),
		STANDBY(test_a_standby_shows_its_status),
		STANDBY(test_a_standby_has_the_page_and_its_events),
		STANDBY(test_metrics_of_a_standby),
		ACTIVE(test_metrics_of_the_active_node),
		ACTIVE(test_an_active_node_is_ready_while_it_has_its_lease),
		ACTIVE(test_a_takeover_is_an_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
