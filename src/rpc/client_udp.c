/*
 * Exchanges over UDP: one socket, a channel, for each (family, local address, reserved or
 * not).
 *
 * The calls of a turn are sent at its end, up to a batch in one system call. The rest follows
 * in the next turns, always after the replies that have come meanwhile: a client that sends ten
 * thousand calls without reading loses the replies to the first of them.
 */
#include "rpc/client_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"

#define MAX_CHANNELS   64
#define RECEIVE_BATCH  32
#define RECEIVE_ROUNDS 8                  /* batches to read before other work */
#define LAST_GAP       (15 * HF_NS_PER_S) /* the longest gap */

struct hf_rpc_channel {
	struct hf_rpc_client *client;
	struct hf_link link; /* of client->channels */
	struct hf_socket *socket;
	struct hf_addr local; /* family always set; port 0 */
	bool reserved;
	bool is_busy;         /* call-backs may be on the stack */
	size_t n_exchanges;   /* exchanges that use it */
	struct hf_list queue; /* to be sent */
	struct hf_task flush;
};

static void on_event(void *user, unsigned int events);

/* Channels */

static void channel_free(struct hf_rpc_channel *channel)
{
	assert(channel->n_exchanges == 0 && hf_list_is_empty(&channel->queue));
	hf_task_cancel(&channel->flush);
	hf_socket_close(channel->socket);
	hf_link_remove(&channel->link);
	channel->client->n_channels--;
	free(channel);
}

/* At the limit, an unused channel is closed. */
static int make_room(struct hf_rpc_client *client)
{
	if (client->n_channels < MAX_CHANNELS)
		return 0;
	hf_list_for_each(link, &client->channels) {
		struct hf_rpc_channel *channel = hf_list_entry(link, struct hf_rpc_channel, link);

		if (channel->n_exchanges == 0 && !channel->is_busy) {
			channel_free(channel);
			return 0;
		}
	}
	return -EMFILE;
}

static void on_flush(struct hf_task *task);

static int open_socket(struct hf_rpc_channel *channel)
{
	struct hf_socket_bind bind = { .addr = channel->local, .reserved = channel->reserved };
	int r = hf_udp_open(&channel->socket, channel->client->loop, &bind);

	if (r < 0)
		return r;
	r = hf_socket_watch(channel->socket, HF_SOCKET_READ, on_event, channel);
	if (r < 0)
		hf_socket_close(channel->socket);
	return r;
}

static int channel_new(struct hf_rpc_channel **channelp, struct hf_rpc_client *client,
		       const struct hf_addr *local, bool reserved)
{
	hf_cleanup(hf_freep) struct hf_rpc_channel *channel = NULL;
	int r = make_room(client);

	if (r < 0)
		return r;
	if (!client->datagrams)
		client->datagrams = malloc((size_t)RECEIVE_BATCH * HF_RPC_CLIENT_DATAGRAM);
	channel = calloc(1, sizeof(*channel));
	if (!channel || !client->datagrams)
		return -ENOMEM;
	channel->client = client;
	channel->local = *local;
	channel->reserved = reserved;
	hf_list_init(&channel->queue);
	hf_task_init(&channel->flush, on_flush);
	r = open_socket(channel);
	if (r < 0)
		return r;
	hf_list_push_front(&client->channels, &channel->link);
	client->n_channels++;
	*channelp = channel;
	channel = NULL;
	return 0;
}

static int channel_for(struct hf_rpc_channel **channelp, const struct hf_rpc_exchange *exchange)
{
	struct hf_addr local = exchange->local;

	local.family = exchange->remote.family;
	hf_list_for_each(link, &exchange->client->channels) {
		struct hf_rpc_channel *channel = hf_list_entry(link, struct hf_rpc_channel, link);

		if (channel->reserved == exchange->reserved && hf_addr_equal(&channel->local, &local)) {
			*channelp = channel;
			return 0;
		}
	}
	return channel_new(channelp, exchange->client, &local, exchange->reserved);
}

/* Sending */

/* A _RES leaves from the server's own port, and the GRANTED_MSG that follows it from here. It must leave
 * after the _RES. So this flush moves behind the server's, even if an earlier call of the same turn has asked
 * for it. */
static void enqueue(struct hf_rpc_exchange *exchange)
{
	struct hf_rpc_channel *channel = exchange->channel;

	hf_list_push_back(&channel->queue, &exchange->link);
	hf_loop_defer_last(channel->client->loop, &channel->flush);
}

static void on_gap_over(struct hf_timer *timer)
{
	struct hf_rpc_exchange *exchange = hf_container_of(timer, struct hf_rpc_exchange, timer);

	exchange->gap_ns = HF_MIN(2 * exchange->gap_ns, LAST_GAP);
	exchange->client->counts.retransmitted++;
	enqueue(exchange);
}

/* Without memory for the timer it is not sent again; its owner's deadline still applies. */
static void send_again_later(struct hf_rpc_exchange *exchange)
{
	hf_link_remove(&exchange->link);
	(void)hf_timer_start(&exchange->timer, exchange->gap_ns);
}

static int collect(struct hf_rpc_channel *channel, struct hf_datagram *datagrams)
{
	int n = 0;

	hf_list_for_each(link, &channel->queue) {
		struct hf_rpc_exchange *exchange = hf_list_entry(link, struct hf_rpc_exchange, link);

		if (n == HF_DATAGRAM_BATCH)
			break;
		datagrams[n++] = (struct hf_datagram){
			.data = exchange->message + HF_EXCHANGE_MARK,
			.len = exchange->len,
			.peer = exchange->remote,
		};
	}
	return n;
}

/* First marks all of them, then makes the call-backs, which may stop any of them. */
static void note_sent(struct hf_rpc_channel *channel, int n)
{
	struct hf_list one_way = HF_LIST_INIT(one_way);
	struct hf_link *link;

	while (n-- > 0) {
		struct hf_rpc_exchange *exchange =
			hf_list_entry(hf_list_first(&channel->queue), struct hf_rpc_exchange, link);

		exchange->stage = HF_RPC_STAGE_REPLY;
		exchange->n_sent++;
		exchange->send_error = 0;
		send_again_later(exchange);
		if (exchange->one_way)
			hf_list_push_back(&one_way, &exchange->link);
	}
	while ((link = hf_list_first(&one_way)))
		hf_exchange_end_sent(hf_list_entry(link, struct hf_rpc_exchange, link));
}

/* Would it fail in the same way next time, too? */
static bool is_hopeless(int error)
{
	return error == -EMSGSIZE || error == -EINVAL || error == -EAFNOSUPPORT || error == -EFAULT;
}

static void note_failed(struct hf_rpc_channel *channel, int error)
{
	struct hf_rpc_exchange *exchange =
		hf_list_entry(hf_list_first(&channel->queue), struct hf_rpc_exchange, link);

	exchange->send_error = error;
	if (is_hopeless(error))
		hf_exchange_fail(exchange, HF_RPC_OUTCOME_UNREACHABLE, error);
	else
		send_again_later(exchange);
}

/* Sends one batch. A datagram that fails does not stop the others. */
static void send_some(struct hf_rpc_channel *channel)
{
	struct hf_datagram datagrams[HF_DATAGRAM_BATCH];
	int budget = HF_DATAGRAM_BATCH;

	channel->is_busy = true;
	while (budget > 0 && !hf_list_is_empty(&channel->queue)) {
		int n = hf_udp_send(channel->socket, datagrams, HF_MIN(collect(channel, datagrams), budget));

		if (n == -EAGAIN)
			break;
		if (n > 0)
			note_sent(channel, n);
		else if (n != -EINTR)
			note_failed(channel, n);
		budget -= HF_MAX(n, 1);
	}
	channel->is_busy = false;
	(void)hf_socket_watch(channel->socket,
			      HF_SOCKET_READ | (hf_list_is_empty(&channel->queue) ? 0 : HF_SOCKET_WRITE),
			      on_event, channel);
}

static void on_flush(struct hf_task *task)
{
	send_some(hf_container_of(task, struct hf_rpc_channel, flush));
}

/* Receiving */

static void take(struct hf_rpc_channel *channel, const struct hf_datagram *datagram)
{
	struct hf_bytes message = hf_bytes_of(datagram->data, (uint32_t)datagram->len);
	struct hf_rpc_exchange *exchange = hf_exchange_find(channel->client, message);

	if (!exchange || exchange->transport != HF_RPC_UDP || exchange->channel != channel ||
	    exchange->stage != HF_RPC_STAGE_REPLY || !hf_addr_equal(&exchange->remote, &datagram->peer))
		channel->client->counts.ignored++;
	else
		hf_exchange_take_reply(exchange, message);
}

static int receive_batch(struct hf_rpc_channel *channel)
{
	struct hf_datagram datagrams[RECEIVE_BATCH];
	int n;

	for (int i = 0; i < RECEIVE_BATCH; i++)
		datagrams[i] = (struct hf_datagram){
			.data = channel->client->datagrams + (size_t)i * HF_RPC_CLIENT_DATAGRAM,
			.len = HF_RPC_CLIENT_DATAGRAM,
		};
	n = hf_udp_receive(channel->socket, datagrams, RECEIVE_BATCH);
	for (int i = 0; i < n; i++)
		take(channel, &datagrams[i]);
	return n;
}

static void on_event(void *user, unsigned int events)
{
	struct hf_rpc_channel *channel = user;

	channel->is_busy = true;
	for (int i = 0; i < RECEIVE_ROUNDS && (events & HF_SOCKET_READ); i++)
		if (receive_batch(channel) < RECEIVE_BATCH)
			break;
	channel->is_busy = false;
	if (events & HF_SOCKET_WRITE)
		hf_loop_defer_last(channel->client->loop, &channel->flush);
}

int hf_rpc_client_udp_start(struct hf_rpc_exchange *exchange)
{
	struct hf_rpc_channel *channel = NULL;
	int r = channel_for(&channel, exchange);

	if (r < 0)
		return r;
	exchange->channel = channel;
	channel->n_exchanges++;
	exchange->stage = HF_RPC_STAGE_SEND;
	exchange->gap_ns = exchange->first_gap_ns ? exchange->first_gap_ns : HF_EXCHANGE_FIRST_GAP;
	hf_timer_init(&exchange->timer, exchange->client->loop, on_gap_over);
	enqueue(exchange);
	return 0;
}

void hf_rpc_client_udp_detach(struct hf_rpc_exchange *exchange)
{
	hf_link_remove(&exchange->link);
	hf_timer_stop(&exchange->timer);
	exchange->channel->n_exchanges--;
	exchange->channel = NULL;
}

void hf_rpc_client_udp_deinit(struct hf_rpc_client *client)
{
	struct hf_link *link;

	while ((link = hf_list_first(&client->channels)))
		channel_free(hf_list_entry(link, struct hf_rpc_channel, link));
	free(client->datagrams);
}

bool hf_rpc_client_udp_sends_from(struct hf_rpc_client *client, const struct hf_addr *source)
{
	struct hf_addr local;

	hf_list_for_each(link, &client->channels) {
		hf_socket_local(hf_list_entry(link, struct hf_rpc_channel, link)->socket, &local);
		if (local.port == source->port && local.family == source->family &&
		    (hf_addr_is_any(&local) || hf_addr_same_host(&local, source)))
			return true;
	}
	return false;
}
