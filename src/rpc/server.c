#include "rpc/server.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define READ_BUFFER    (256 * 1024)
#define REPLAY_ENTRIES 16384
#define REFUSAL_LOG_NS (10 * HF_NS_PER_S)
#define SLOW_LOG_NS    (10 * HF_NS_PER_S)
#define SLOW_LOG_LINES 50

const struct hf_rpc_limits hf_rpc_default_limits = {
	.max_connections = 16384,
	.max_connections_per_host = 2048,
	.max_gathering = 256 << 20,
	.max_unread = 256 << 10,
	.max_suspended_per_connection = 256,
	.max_suspended_bytes = 8 << 20,
	.max_charged = 256 << 20,
	.max_reply = 1100 << 10,
	.idle_ns = 600 * HF_NS_PER_S, /* Linux clients close idle connections after 300 s */
	.stall_ns = 120 * HF_NS_PER_S,
	.stuck_ns = 5 * HF_NS_PER_S,
	.max_handshakes = 512,
	.max_handshakes_per_host = 64,
	.handshake_ns = 10 * HF_NS_PER_S,
};

int hf_rpc_server_new(struct hf_rpc_server **serverp, const struct hf_rpc_limits *limits)
{
	struct hf_rpc_server *server = calloc(1, sizeof(*server));

	if (!server)
		return hf_trace(-ENOMEM);
	assert(limits->max_charged >= 2 * limits->max_reply);
	server->limits = *limits;
	*serverp = server;
	return 0;
}

/* The keys of the tables come from the first loop's random numbers. */
static int make_tables(struct hf_rpc_server *server, struct hf_loop *loop)
{
	struct hf_siphash_key keys[2];
	int r;

	hf_loop_random(loop, keys, sizeof(keys));
	server->channel_key = keys[1];
	r = hf_hosts_new(&server->hosts, &keys[0], server->limits.max_connections_per_host,
			 server->limits.max_contacts);
	if (r < 0)
		return hf_trace(r);
	return hf_trace(hf_replay_new(&server->replay, &keys[1], REPLAY_ENTRIES));
}

static void lane_free(struct hf_rpc_lane *lane)
{
	if (!lane->is_closed)
		hf_rpc_lane_close(lane);
	hf_rpc_calls_deinit(lane);
	hf_rpc_meters_free(lane);
	hf_segment_pool_deinit(&lane->segments);
	free(lane->read_buffer);
	free(lane);
}

struct hf_rpc_server *hf_rpc_server_free(struct hf_rpc_server *server)
{
	if (!server)
		return NULL;
	server->is_freeing = true;
	for (size_t i = 0; i < server->n_lanes; i++)
		lane_free(server->lanes[i]);
	hf_hosts_free(server->hosts);
	hf_replay_free(server->replay);
	free(server);
	return NULL;
}

int hf_rpc_server_add_program(struct hf_rpc_server *server, const struct hf_rpc_program *program,
			      void *service)
{
	assert(server->n_entries < HF_RPC_MAX_PROGRAMS);
	assert(program->n_versions > 0);
	server->entries[server->n_entries] =
		(struct hf_rpc_entry){ program, service, hf_rpc_meter_procs(program),
				       (uint32_t)server->n_entries };
	server->n_entries++;
	server->max_record = HF_MAX(server->max_record, program->max_request);
	return 0;
}

void hf_rpc_server_set_slow(struct hf_rpc_server *server, uint64_t slow_ns)
{
	server->limits.slow_ns = slow_ns;
	for (size_t i = 0; i < server->n_lanes; i++)
		atomic_store_explicit(&server->lanes[i]->slow_ns, slow_ns, memory_order_relaxed);
}

/* The sweep of each lane sees to its connections. */
void hf_rpc_server_set_keepalive(struct hf_rpc_server *server, int keepalive_s)
{
	server->limits.keepalive_s = keepalive_s;
	hf_rpc_listeners_set_keepalive(server->lanes[0], keepalive_s);
	for (size_t i = 0; i < server->n_lanes; i++)
		atomic_store_explicit(&server->lanes[i]->keepalive_s, keepalive_s, memory_order_relaxed);
}

void hf_rpc_server_set_tls(struct hf_rpc_server *server, struct hf_tls *tls)
{
	assert(server->limits.max_handshakes > 0 && server->limits.max_handshakes_per_host > 0);
	server->tls = tls;
}

void hf_rpc_server_set_presence(struct hf_rpc_server *server, struct hf_rpc_presence *presence)
{
	server->presence = presence;
}

/* Lanes */

int hf_rpc_server_add_lane(struct hf_rpc_server *server, struct hf_loop *loop, struct hf_rpc_lane **lanep)
{
	struct hf_rpc_lane *lane;
	int r;

	assert(server->n_lanes < HF_RPC_MAX_LANES);
	if (!server->hosts) {
		r = make_tables(server, loop);
		if (r < 0)
			return r;
	}
	lane = calloc(1, sizeof(*lane));
	if (!lane)
		return hf_trace(-ENOMEM);
	lane->server = server;
	lane->loop = loop;
	lane->index = server->n_lanes;
	hf_list_init(&lane->listeners);
	hf_list_init(&lane->ports);
	hf_list_init(&lane->idle);
	hf_list_init(&lane->busy);
	hf_list_init(&lane->flushable);
	hf_list_init(&lane->tired);
	hf_list_init(&lane->wanting);
	hf_list_init(&lane->charged_parts);
	hf_list_init(&lane->securing);
	hf_list_init(&lane->suspended);
	hf_task_init(&lane->flush, hf_rpc_flush_connections);
	hf_timer_init(&lane->sweep, loop, hf_rpc_sweep_connections);
	hf_task_init(&lane->service, hf_rpc_budget_serve);
	hf_timer_init(&lane->next_service, loop, hf_rpc_budget_call_service);
	hf_rpc_drain_init(lane);
	hf_segment_pool_init(&lane->segments);
	lane->refusals.window_ns = lane->drops.window_ns = REFUSAL_LOG_NS;
	lane->slow_ns = server->limits.slow_ns;
	lane->keepalive_s = lane->known_keepalive_s = server->limits.keepalive_s;
	lane->slow_calls = (struct hf_log_limit){ .window_ns = SLOW_LOG_NS, .max_lines = SLOW_LOG_LINES };
	server->lanes[server->n_lanes++] = lane;
	lane->read_buffer = malloc(READ_BUFFER);
	if (!lane->read_buffer)
		return hf_trace(-ENOMEM);
	*lanep = lane;
	return hf_trace(hf_timer_start(&lane->sweep, 0));
}

void hf_rpc_lane_stop_listening(struct hf_rpc_lane *lane)
{
	hf_rpc_listeners_close(lane);
	hf_rpc_ports_close(lane);
}

static void close_all(struct hf_list *connections)
{
	struct hf_link *link;

	while ((link = hf_list_first(connections)))
		hf_rpc_connection_close(hf_list_entry(link, struct hf_rpc_connection, link));
}

void hf_rpc_lane_close(struct hf_rpc_lane *lane)
{
	lane->is_closed = true;
	hf_rpc_listeners_close(lane);
	hf_rpc_ports_close(lane);
	close_all(&lane->idle);
	close_all(&lane->busy);
	hf_task_cancel(&lane->flush);
	hf_timer_stop(&lane->sweep);
	hf_task_cancel(&lane->service);
	hf_timer_stop(&lane->next_service);
	hf_timer_stop(&lane->drain_timer);
	hf_work_cancel(&lane->trimming);
}

void hf_rpc_server_begin_no_more(struct hf_rpc_server *server)
{
	for (size_t i = 0; i < server->n_lanes; i++)
		server->lanes[i]->is_ending = true;
}

/* Counters */

uint64_t hf_rpc_server_last_contact(const struct hf_rpc_server *server, const struct hf_addr *peer,
				    uint64_t now)
{
	return hf_hosts_last_contact(server->hosts, peer, now);
}

uint64_t hf_rpc_server_last_heard(const struct hf_rpc_server *server, const struct hf_addr *peer)
{
	return hf_hosts_last_heard(server->hosts, peer);
}

static void add_lane(const struct hf_rpc_lane *lane, struct hf_limit_use *uses)
{
	size_t gathering = atomic_load_explicit(&lane->used_gathering, memory_order_relaxed);
	size_t charged = atomic_load_explicit(&lane->used_charged, memory_order_relaxed);
	size_t securing = atomic_load_explicit(&lane->used_securing, memory_order_relaxed);
	size_t of_host = atomic_load_explicit(&lane->used_securing_of_host, memory_order_relaxed);

	uses[HF_LIMIT_RECORD_BYTES].used = HF_MAX(uses[HF_LIMIT_RECORD_BYTES].used, gathering);
	uses[HF_LIMIT_CALL_BYTES].used = HF_MAX(uses[HF_LIMIT_CALL_BYTES].used, charged);
	uses[HF_LIMIT_HANDSHAKES].used = HF_MAX(uses[HF_LIMIT_HANDSHAKES].used, securing);
	uses[HF_LIMIT_HANDSHAKES_PER_ADDRESS].used =
		HF_MAX(uses[HF_LIMIT_HANDSHAKES_PER_ADDRESS].used, of_host);
	for (size_t i = 0; i < HF_ARRAY_SIZE(lane->refused); i++)
		uses[i].refused += atomic_load_explicit(&lane->refused[i], memory_order_relaxed);
	uses[HF_LIMIT_UDP_CALLS].refused += atomic_load_explicit(&lane->n_dropped, memory_order_relaxed);
}

static void show_tls(const struct hf_rpc_server *server, struct hf_limit_use *uses)
{
	const struct hf_rpc_limits *limits = &server->limits;

	uses[HF_LIMIT_HANDSHAKES].max = limits->max_handshakes;
	uses[HF_LIMIT_HANDSHAKES_PER_ADDRESS].max = limits->max_handshakes_per_host;
	uses[HF_LIMIT_TLS_KEYS].max = HF_TLS_FREE_KEYS;
	for (size_t n = HF_TLS_FREE_KEYS; n > 0 && !uses[HF_LIMIT_TLS_KEYS].used; n--)
		if (atomic_load_explicit(&server->n_keyed[n], memory_order_relaxed))
			uses[HF_LIMIT_TLS_KEYS].used = n;
	if (server->presence)
		hf_rpc_presence_show_limit(server->presence, &uses[HF_LIMIT_TLS_IDENTITIES]);
}

void hf_rpc_server_show_limits(const struct hf_rpc_server *server, struct hf_limit_use uses[HF_N_LIMITS])
{
	const struct hf_rpc_limits *limits = &server->limits;

	uses[HF_LIMIT_CONNECTIONS].used = atomic_load_explicit(&server->n_connections, memory_order_relaxed) +
					  atomic_load_explicit(&server->n_shells, memory_order_relaxed);
	uses[HF_LIMIT_CONNECTIONS].max = limits->max_connections;
	uses[HF_LIMIT_CONNECTIONS_PER_ADDRESS].used =
		hf_hosts_most(server->hosts, &uses[HF_LIMIT_CONNECTIONS_PER_ADDRESS].by);
	uses[HF_LIMIT_CONNECTIONS_PER_ADDRESS].max = limits->max_connections_per_host;
	uses[HF_LIMIT_RECORD_BYTES].max = limits->max_gathering;
	uses[HF_LIMIT_CALL_BYTES].max = limits->max_charged;
	if (server->tls)
		show_tls(server, uses);
	uses[HF_LIMIT_UDP_CALLS].used = atomic_load_explicit(&server->n_datagrams, memory_order_relaxed);
	uses[HF_LIMIT_UDP_CALLS].max = 16 * limits->max_suspended_per_connection;
	hf_hosts_show_contacts(server->hosts, &uses[HF_LIMIT_CONTACTS]);
	hf_replay_show_limit(server->replay, &uses[HF_LIMIT_CACHED_REPLIES]);
	hf_rpc_lane_show_lists(server->lanes[0], &uses[HF_LIMIT_UDP_LISTS]); /* home has all of UDP */
	for (size_t i = 0; i < server->n_lanes; i++)
		add_lane(server->lanes[i], uses);
}

void hf_rpc_server_counts(const struct hf_rpc_server *server, struct hf_rpc_counts *countsp)
{
	*countsp = (struct hf_rpc_counts){
		.connections = atomic_load_explicit(&server->n_connections, memory_order_relaxed),
		.tls = atomic_load_explicit(&server->n_tls, memory_order_relaxed),
		.mtls = atomic_load_explicit(&server->n_mtls, memory_order_relaxed),
		.datagrams = atomic_load_explicit(&server->n_datagrams, memory_order_relaxed),
	};
	for (size_t i = 0; i < server->n_lanes; i++) {
		const struct hf_rpc_lane *lane = server->lanes[i];

		countsp->refused += atomic_load_explicit(&lane->n_refused, memory_order_relaxed);
		countsp->dropped += atomic_load_explicit(&lane->n_dropped, memory_order_relaxed);
		countsp->calls += atomic_load_explicit(&lane->n_calls, memory_order_relaxed);
		countsp->replayed += atomic_load_explicit(&lane->n_replayed, memory_order_relaxed);
	}
}
