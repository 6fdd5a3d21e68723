/*
 * Doors: the connections of the API, and which of them is closed when there are
 * too many.
 *
 * Each connection has a time limit: from its start, or from the last answer, to
 * the end of the next request; and for an answer. The library limits only silence,
 * so a caller that sends or reads a byte now and then could occupy a connection
 * for ever. A request that waits for the loop or the store has no limit.
 *
 * A new connection is never refused. When there are too many, one is closed:
 * the one that has been silent longest, or, if none is silent, the one whose
 * answer began first. An address with more than half of all connections makes
 * room for its own new ones, so that it cannot push out an operator elsewhere.
 * Event streams are not closed; they have a lower limit of their own.
 *
 * An answer is in memory until its caller has read it, and a page may have
 * megabytes. When all answers on their way take too much, the address that takes the
 * most loses its largest.
 */
#include <microhttpd.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "api/internal.h"

#define LAST_NS (300 * HF_NS_PER_MS) /* for answers on their way, at the end */

/* Under the lock */

static void end_answer(struct hf_api_door *door)
{
	door->api->n_sending -= door->n_bytes;
	door->n_bytes = 0;
}

static void shut(struct hf_api_door *door, enum hf_tls_result why)
{
	end_answer(door);
	if (door->state != HF_API_DOOR_CLOSES)
		door->shut = why;
	door->state = HF_API_DOOR_CLOSES;
	shutdown(door->fd, SHUT_RDWR); /* the library closes it when it sees the end */
}

/* Shall @door be closed before @other? */
static bool is_less_worth(const struct hf_api_door *door, const struct hf_api_door *other)
{
	bool is_silent = door->state == HF_API_DOOR_WAITS;

	if (!other)
		return true;
	return is_silent != (other->state == HF_API_DOOR_WAITS) ? is_silent : door->since < other->since;
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

static size_t bytes_for(struct hf_api *api, const struct hf_addr *host)
{
	size_t n = 0;

	hf_list_for_each(pos, &api->doors) {
		const struct hf_api_door *door = hf_list_entry(pos, struct hf_api_door, link);

		if (hf_addr_same_host(&door->host, host))
			n += door->n_bytes;
	}
	return n;
}

/* Shall the answer of @door end before that of @other? Of equal ones the one that began first. */
static bool is_larger(const struct hf_api_door *door, const struct hf_api_door *other)
{
	return door->n_bytes != other->n_bytes ? door->n_bytes > other->n_bytes : door->since < other->since;
}

/* Ends an answer other than that of @newcomer. False: there is none. */
static bool end_another(struct hf_api *api, const struct hf_api_door *newcomer)
{
	struct hf_api_door *found = NULL;
	size_t most = 0;

	hf_list_for_each(pos, &api->doors) {
		struct hf_api_door *door = hf_list_entry(pos, struct hf_api_door, link);
		size_t n = door->n_bytes && door != newcomer ? bytes_for(api, &door->host) : 0;

		if (n > most || (n && n == most && is_larger(door, found))) {
			most = n;
			found = door;
		}
	}
	if (found)
		shut(found, HF_TLS_CROWDED);
	return found;
}

static void set_state(struct hf_api_door *door, enum hf_api_door_state state)
{
	end_answer(door);
	if (door->state == HF_API_DOOR_CLOSES)
		return;
	door->state = state;
	door->since = hf_loop_clock(door->api->options.loop);
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
	end_answer(door);
	hf_link_remove(&door->link);
	api->n_doors--;
	is_shut = door->state == HF_API_DOOR_CLOSES;
	pthread_mutex_unlock(&api->lock);
	hf_api_end_handshake(door, is_shut);
	hf_api_keys_unref(door->keys);
	free(door);
	*contextp = NULL;
}

static struct hf_api_door *door_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

void hf_api_set_door(struct hf_api *api, struct MHD_Connection *connection, enum hf_api_door_state state)
{
	struct hf_api_door *door = door_of(connection);

	if (!door)
		return;
	pthread_mutex_lock(&api->lock);
	set_state(door, state);
	pthread_cond_signal(&api->door_changed);
	pthread_mutex_unlock(&api->lock);
}

void hf_api_door_sends(struct hf_api *api, struct MHD_Connection *connection, size_t n_bytes)
{
	struct hf_api_door *door = door_of(connection);

	if (!door)
		return;
	pthread_mutex_lock(&api->lock);
	set_state(door, HF_API_DOOR_SENDS);
	if (door->state == HF_API_DOOR_SENDS) {
		door->n_bytes = n_bytes;
		api->n_sending += n_bytes;
	}
	while (api->n_sending > HF_API_MAX_SENDING && end_another(api, door))
		api->n_answers_ended++;
	pthread_mutex_unlock(&api->lock);
}

static bool has_old_token(const struct hf_api_request *request)
{
	const struct hf_api_guard *guard = &request->api->guard;

	return guard->needs_token && request->n_replaced != guard->n_replaced;
}

void hf_api_door_streams(struct hf_api_request *request)
{
	struct hf_api_door *door = door_of(request->connection);
	struct hf_api *api = request->api;

	if (!door)
		return;
	pthread_mutex_lock(&api->lock);
	set_state(door, HF_API_DOOR_STREAMS);
	if (has_old_token(request))
		shut(door, HF_TLS_LATE);
	pthread_cond_signal(&api->door_changed);
	pthread_mutex_unlock(&api->lock);
}

/* The loop's side */

void hf_api_shut_streams(struct hf_api *api)
{
	hf_list_for_each(pos, &api->doors) {
		struct hf_api_door *door = hf_list_entry(pos, struct hf_api_door, link);

		if (api->guard.needs_token && door->state == HF_API_DOOR_STREAMS)
			shut(door, HF_TLS_LATE);
	}
}

static bool is_late(const struct hf_api_door *door, uint64_t now)
{
	switch (door->state) {
	case HF_API_DOOR_WAITS:
		return now > door->since + HF_API_REQUEST_NS;
	case HF_API_DOOR_SENDS:
		return now > door->since + HF_API_ANSWER_NS;
	case HF_API_DOOR_CLOSES:
		return true; /* again, if the library did not see it */
	case HF_API_DOOR_SERVES:
	case HF_API_DOOR_STREAMS:
		break;
	}
	return false;
}

void hf_api_sweep_doors(struct hf_api *api, uint64_t now)
{
	/* The HTTP thread takes this lock only briefly, but the loop does not wait even for that. */
	if (pthread_mutex_trylock(&api->lock) != 0)
		return;
	hf_list_for_each(pos, &api->doors) {
		struct hf_api_door *door = hf_list_entry(pos, struct hf_api_door, link);

		if (is_late(door, now))
			shut(door, HF_TLS_LATE);
	}
	pthread_mutex_unlock(&api->lock);
}

void hf_api_render_door_limits(struct hf_api *api, struct hf_limit_use uses[HF_N_LIMITS])
{
	pthread_mutex_lock(&api->lock);
	uses[HF_LIMIT_API_CONNECTIONS] = (struct hf_limit_use){ .used = api->n_doors,
								.max = HF_API_MAX_DOORS,
								.refused = api->n_doors_shut };
	uses[HF_LIMIT_API_ANSWER_BYTES] = (struct hf_limit_use){ .used = api->n_sending,
								 .max = HF_API_MAX_SENDING,
								 .refused = api->n_answers_ended };
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

static bool is_answering(const struct hf_api_door *door)
{
	return door->state == HF_API_DOOR_SERVES || door->state == HF_API_DOOR_SENDS;
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
			serves |= is_answering(hf_list_entry(link, struct hf_api_door, link));
		if (serves)
			r = pthread_cond_clockwait(&api->door_changed, &api->lock, CLOCK_MONOTONIC, &at);
	}
	pthread_mutex_unlock(&api->lock);
}
