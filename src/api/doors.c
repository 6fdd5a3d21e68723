/*
 * Doors: the connections of the API, and which of them is closed when there are
 * too many.
 *
 * Each connection has a time limit: from its start, or from the last answer, to
 * the end of the next request. The library limits only silence, so a caller
 * that sends a byte now and then could keep a connection open for ever.
 *
 * A new connection is never refused. When there are too many, one is closed:
 * the one that has been silent longest, or, if none is silent, the one whose
 * answer began first. An address with more than half of all connections makes
 * room for its own new ones, so that it cannot push out an operator elsewhere.
 * Event streams are not closed; they have a lower limit of their own.
 */
#include <microhttpd.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "api/internal.h"

#define LAST_NS (300 * HF_NS_PER_MS) /* for answers on their way, at the end */

/* Under the lock */

static void shut(struct hf_api_door *door, enum hf_tls_result why)
{
	if (door->state != HF_API_DOOR_CLOSES)
		door->shut = why;
	door->state = HF_API_DOOR_CLOSES;
	shutdown(door->fd, SHUT_RDWR); /* the library closes it when it sees the end */
}

/* Shall @door be closed before @other? */
static bool is_less_worth(const struct hf_api_door *door, const struct hf_api_door *other)
{
	if (!other)
		return true;
	return door->state != other->state ? door->state == HF_API_DOOR_WAITS : door->since < other->since;
}

static void make_room(struct hf_api *api, const struct hf_api_door *newcomer)
{
	struct hf_api_door *of_all = NULL, *of_host = NULL;
	size_t n_of_host = 0;

	hf_list_for_each(pos, &api->doors) {
		struct hf_api_door *door = hf_list_entry(pos, struct hf_api_door, link);
		bool is_same_host = hf_addr_same_host(&door->host, &newcomer->host);

		if (door->state == HF_API_DOOR_CLOSES)
			continue;
		n_of_host += is_same_host;
		if (door == newcomer || door->state == HF_API_DOOR_STREAMS)
			continue;
		if (is_less_worth(door, of_all))
			of_all = door;
		if (is_same_host && is_less_worth(door, of_host))
			of_host = door;
	}
	if (n_of_host > HF_API_MAX_DOORS / 2 && of_host)
		shut(of_host, HF_TLS_CROWDED);
	else if (of_all)
		shut(of_all, HF_TLS_CROWDED);
}

static void add(struct hf_api *api, struct hf_api_door *door)
{
	pthread_mutex_lock(&api->lock);
	hf_list_push_back(&api->doors, &door->link);
	if (++api->n_doors > HF_API_MAX_DOORS) {
		api->n_doors_shut++;
		make_room(api, door);
	}
	pthread_mutex_unlock(&api->lock);
}

/* The library's side: the HTTP thread */

static struct hf_api_door *door_new(struct hf_api *api, struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *fd =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *peer =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct hf_api_door *door = fd ? calloc(1, sizeof(*door)) : NULL;

	if (!door)
		return NULL;
	door->api = api;
	door->fd = fd->connect_fd;
	door->since = hf_loop_clock(api->options.loop);
	/* All callers over a Unix socket count as one host with an empty address. */
	if (!peer || !peer->client_addr || !hf_addr_from_sockaddr(&door->host, peer->client_addr))
		door->host = (struct hf_addr){ 0 };
	return door;
}

void hf_api_on_connection(void *user, struct MHD_Connection *connection, void **contextp,
			  enum MHD_ConnectionNotificationCode code)
{
	struct hf_api *api = user;
	struct hf_api_door *door = *contextp;
	bool is_shut;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*contextp = door = door_new(api, connection);
		if (!door)
			return;
		hf_api_secure_door(api, connection, door);
		add(api, door);
		return;
	}
	if (!door)
		return;
	pthread_mutex_lock(&api->lock);
	hf_link_remove(&door->link);
	api->n_doors--;
	is_shut = door->state == HF_API_DOOR_CLOSES;
	pthread_mutex_unlock(&api->lock);
	hf_api_end_handshake(door, is_shut);
	hf_api_keys_unref(door->keys);
	free(door);
	*contextp = NULL;
}

void hf_api_set_door(struct hf_api *api, struct MHD_Connection *connection, enum hf_api_door_state state)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct hf_api_door *door = info ? info->socket_context : NULL;

	if (!door)
		return;
	pthread_mutex_lock(&api->lock);
	if (door->state != HF_API_DOOR_CLOSES) {
		door->state = state;
		door->since = hf_loop_clock(api->options.loop);
	}
	pthread_cond_signal(&api->door_changed);
	pthread_mutex_unlock(&api->lock);
}

/* The loop's side */

void hf_api_sweep_doors(struct hf_api *api, uint64_t now)
{
	/* The HTTP thread takes this lock only briefly, but the loop does not wait even for that. */
	if (pthread_mutex_trylock(&api->lock) != 0)
		return;
	hf_list_for_each(pos, &api->doors) {
		struct hf_api_door *door = hf_list_entry(pos, struct hf_api_door, link);

		if (door->state == HF_API_DOOR_CLOSES ||
		    (door->state == HF_API_DOOR_WAITS && now > door->since + HF_API_REQUEST_NS))
			shut(door, HF_TLS_LATE);
	}
	pthread_mutex_unlock(&api->lock);
}

void hf_api_show_door_limit(struct hf_api *api, struct hf_limit_use uses[HF_N_LIMITS])
{
	pthread_mutex_lock(&api->lock);
	uses[HF_LIMIT_API_CONNECTIONS] = (struct hf_limit_use){ .used = api->n_doors,
								.max = HF_API_MAX_DOORS,
								.refused = api->n_doors_shut };
	pthread_mutex_unlock(&api->lock);
}

size_t hf_api_count_doors(struct hf_api *api)
{
	size_t n;

	pthread_mutex_lock(&api->lock);
	n = api->n_doors;
	pthread_mutex_unlock(&api->lock);
	return n;
}

void hf_api_await_answers(struct hf_api *api)
{
	struct timespec at;
	bool serves = true;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_nsec += (long)LAST_NS;
	at.tv_sec += at.tv_nsec / (long)HF_NS_PER_S;
	at.tv_nsec %= (long)HF_NS_PER_S;
	pthread_mutex_lock(&api->lock);
	while (serves && r == 0) {
		serves = false;
		hf_list_for_each(link, &api->doors)
			serves |= hf_list_entry(link, struct hf_api_door, link)->state == HF_API_DOOR_SERVES;
		if (serves)
			r = pthread_cond_clockwait(&api->door_changed, &api->lock, CLOCK_MONOTONIC, &at);
	}
	pthread_mutex_unlock(&api->lock);
}
