/*
 * Datagrams under way: lost, doubled, late, out of order, or stopped by a partition, in each direction by
 * itself.
 *
 * There is one thing that this network does not do. After a restart of the server it delivers no copy of a
 * call that was answered before. A server that has lost its replay cache cannot tell such a copy from a new
 * call, and no NLM server stores that cache.
 */
#include <arpa/inet.h>
#include <string.h>

#include "arena.h"
#include "sim.h"

#define FAST_NS   (200 * UINT64_C(1000))
#define NORMAL_NS (2 * MS)

struct host *net_host(struct world *world, const struct hf_addr *addr)
{
	uint32_t slot = addr->ip[3];
	struct host *front = addr->ip[2] == 0 && slot < N_SLOTS ? world->by_slot[slot] : NULL;

	for (uint32_t i = 0; front && front->is_shared && i < world->n_hosts; i++)
		if (world->hosts[i].gateway == front && world->hosts[i].addr.port == addr->port)
			return &world->hosts[i];
	return front;
}

bool net_is_server(const struct world *world, const struct hf_addr *addr)
{
	if (addr->ip[0] == 127)
		return !monitor_is(addr);
	return hf_addr_same_host(addr, &world->server_addrs[0]) ||
	       hf_addr_same_host(addr, &world->server_addrs[1]);
}

uint64_t net_delay(struct world *world)
{
	struct rng *rng = &world->net_rng;

	if (!world->is_calm && !omits(world, OMIT_DELAYS) && rng_chance(rng, world->knobs.slow))
		return rng_between(rng, NORMAL_NS, world->knobs.longest_ns);
	return rng_between(rng, FAST_NS, NORMAL_NS);
}

/* Is this a copy of a call to an earlier epoch that is answered already? */
static bool is_leftover(struct world *world, const struct packet *packet)
{
	struct host *host = net_host(world, &packet->from);
	uint32_t xid;

	if (packet->server_life == world->server->life)
		return false;
	if (monitor_is(&packet->from))
		return true;
	memcpy(&xid, packet->bytes, sizeof(xid));
	return !host || !talk_find_xid(host, ntohl(xid));
}

static void to_server(struct world *world, struct packet *packet)
{
	struct server *holder = node_holder(world);
	struct sock *sock = holder && holder->is_up ? sock_find(holder, SOCK_DATAGRAMS, &packet->to) : NULL;

	if (!sock || is_leftover(world, packet)) {
		sim_free(packet);
		return;
	}
	world_note_bytes(world, packet->bytes, packet->len);
	if (!monitor_is(&packet->from)) /* the rogue does not see traffic on the server's own host */
		rogue_capture(world, packet);
	hf_list_push_back(&sock->queue, &packet->link);
	server_wake(holder);
}

/* A node may be cut off from all its clients; and an address that is gone sends nothing. */
static bool is_node_cut(const struct packet *packet, bool is_up)
{
	const struct server *server = is_up ? node_holder(packet->world) : packet->server;

	return packet->world->options.is_cluster && server &&
	       (server->node.has_no_clients || server != node_holder(packet->world));
}

static void arrive(struct hf_timer *timer)
{
	struct packet *packet = hf_container_of(timer, struct packet, timer);
	struct world *world = packet->world;
	bool is_up = net_is_server(world, &packet->to);
	struct host *host = net_host(world, is_up ? &packet->from : &packet->to);

	if ((host && (is_up ? host->cut_in : host->cut_out)) || is_node_cut(packet, is_up)) {
		world->counts->lost++;
		sim_free(packet);
	} else if (is_up) {
		to_server(world, packet);
	} else if (monitor_is(&packet->to)) {
		world_note_bytes(world, packet->bytes, packet->len);
		monitor_message(world, &packet->from, packet->bytes, packet->len);
		sim_free(packet);
	} else if (flood_is_greedy(world, &packet->to)) {
		world_note_bytes(world, packet->bytes, packet->len);
		flood_message(world, &packet->from, &packet->to, packet->bytes, packet->len);
		sim_free(packet);
	} else {
		if (host && host->is_up && host_listens(host, packet->to.port, false)) {
			world_note_bytes(world, packet->bytes, packet->len);
			host_message(host, &packet->from, packet->to.port, NULL, packet->bytes, packet->len,
				     packet->sent_at);
		}
		sim_free(packet);
	}
}

/* The epoch to which a message belongs: that in which its call was made, however late this copy is. */
static uint32_t life_of(struct world *world, const struct hf_addr *from, const void *data)
{
	struct host *host = net_host(world, from);
	const struct call *call;
	uint32_t xid;

	memcpy(&xid, data, sizeof(xid));
	call = host ? talk_find_xid(host, ntohl(xid)) : NULL;
	return call ? call->server_life : world->server->life;
}

static void send_one(struct world *world, const struct hf_addr *from, const struct hf_addr *to,
		     const void *data, size_t len)
{
	struct packet *packet = sim_alloc_head(sizeof(*packet) + len, sizeof(*packet));
	uint64_t delay = net_delay(world);

	if (monitor_is(from) || monitor_is(to)) /* over loopback */
		delay = HF_MIN(delay, 1 * MS);
	packet->world = world;
	packet->from = *from;
	packet->to = *to;
	packet->server = net_is_server(world, from) ? world->server : NULL;
	delay += packet->server ? packet->server->node.lag : 0;
	packet->sent_at = world->now;
	packet->server_life = net_is_server(world, to) ? life_of(world, from, data) : world->server->life;
	packet->len = (uint16_t)len;
	memcpy(packet->bytes, data, len);
	hf_link_init(&packet->link);
	world_timer(world, &packet->timer, arrive);
	hf_timer_start(&packet->timer, delay);
}

/* To a client's lockd. It answers GRANTED to the first of two copies and DENIED to the second. If the first
 * answer is lost, a server cannot know that there were two copies: it sent one. */
static bool is_callback(struct world *world, const struct hf_addr *to)
{
	const struct host *host = net_is_server(world, to) ? NULL : net_host(world, to);

	return host && to->port == host->lockd_port;
}

void net_send(struct world *world, const struct hf_addr *from, const struct hf_addr *to, const void *data,
	      size_t len)
{
	struct rng *rng = &world->net_rng;
	bool is_lost = !omits(world, OMIT_LOSS) && rng_chance(rng, world->knobs.loss);
	bool is_doubled = !omits(world, OMIT_DOUBLES) && rng_chance(rng, world->knobs.doubles);

	world->counts->datagrams++;
	if (monitor_is(from) || monitor_is(to))
		is_lost = is_doubled = false;
	if (is_lost && !world->is_calm) {
		world->counts->lost++;
		return;
	}
	send_one(world, from, to, data, len);
	if (is_doubled && !world->is_calm && !is_callback(world, to)) {
		world->counts->doubled++;
		send_one(world, from, to, data, len);
	}
}
