#include "client/client.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "client/clients.h"
#include "loop/loop.h"

const char *hf_client_status_name(enum hf_client_status status)
{
	static const char *const names[] = {
		[HF_CLIENT_ACTIVE] = "active",
		[HF_CLIENT_NOTIFIED] = "notified",
		[HF_CLIENT_UNREACHABLE] = "unreachable",
		[HF_CLIENT_CRASHED] = "crashed",
	};

	return names[status];
}

bool hf_client_name_is_good(struct hf_bytes name)
{
	if (name.len == 0 || name.len > HF_CLIENT_MAX_NAME || name.data[0] == '.')
		return false;
	for (uint32_t i = 0; i < name.len; i++)
		if (name.data[i] >= 0x7f || !isgraph(name.data[i]) || name.data[i] == '/')
			return false;
	return true;
}

bool hf_client_has_nothing(const struct hf_client *client)
{
	const struct hf_clients_options *options = &client->clients->options;

	return hf_lock_client_is_idle(&client->locking) &&
	       !(options->events->may_reclaim && options->events->may_reclaim(options->user, client));
}

struct hf_client *hf_client_ref(struct hf_client *client)
{
	client->n_refs++;
	return client;
}

static bool is_needed(const struct hf_client *client)
{
	return client->n_refs || hf_client_is_registered(client) ||
	       !hf_lock_client_is_idle(&client->locking) || client->is_disconnected;
}

/* Every lock passes here. As a rule the client has locks, and had some before. */
static bool may_have_become_idle(const struct hf_client *client)
{
	return hf_lock_client_is_idle(&client->locking) || client->idle_rank != HF_CLIENTS_STAYS;
}

struct hf_client *hf_client_unref(struct hf_client *client)
{
	if (!client)
		return NULL;
	assert(client->n_refs > 0);
	client->n_refs--;
	if (HF_LIKELY(!may_have_become_idle(client)))
		return NULL;
	hf_places_note(client);
	if (!is_needed(client))
		hf_clients_forget(client);
	return NULL;
}

int hf_client_register(struct hf_client *client)
{
	struct hf_clients *clients = client->clients;
	bool is_new = !hf_client_is_registered(client);
	uint64_t now = hf_loop_wall(clients->options.loop);
	uint64_t before = client->registered_at;
	int r;

	if (is_new && !hf_places_make_room(client))
		return HF_CLIENT_E_LIMIT;
	client->last_seen = now;
	if (is_new)
		client->registered_at = now ? now : 1;
	r = clients->options.events->registered(clients->options.user, client, &client->registration_ticket);
	if (r < 0) {
		client->registered_at = before;
		return hf_trace(r);
	}
	client->is_local_stored = true;
	if (is_new)
		hf_places_count(client, true);
	return HF_CLIENT_OK;
}

int hf_client_restore(struct hf_client *client, uint64_t registered_at, uint64_t last_seen)
{
	bool is_new = !hf_client_is_registered(client);

	client->registered_at = registered_at ? registered_at : 1;
	client->last_seen = last_seen;
	client->is_local_stored = true;
	client->met_at = 0;
	if (hf_addr_is_loopback(&client->local))
		client->is_confirmed = client->is_certain = true; /* a program of this host registered it */
	if (is_new)
		hf_places_count(client, true);
	return 0;
}

void hf_client_unregister(struct hf_client *client)
{
	struct hf_clients *clients = client->clients;

	if (!hf_client_is_registered(client))
		return;
	hf_client_ref(client);
	clients->options.events->unregistered(clients->options.user, client);
	client->registered_at = 0;
	client->is_local_stored = false;
	free(client->other_locals);
	client->other_locals = NULL;
	client->n_named = 0;
	hf_places_count(client, false);
	if (!client->callback.host && client->has_connected && !hf_client_is_alone(client))
		client->host->has_lost_one = true;
	hf_client_unref(client);
}

void hf_client_confirm(struct hf_client *client)
{
	if (client->is_certain)
		return;
	client->is_confirmed = client->is_certain = true;
	hf_places_note(client);
}

void hf_client_answered(struct hf_client *client)
{
	client->has_answered = true;
	client->answered_at = hf_loop_now(client->clients->options.loop);
	if (client->is_confirmed || !hf_places_may_confirm(client))
		return;
	client->is_confirmed = true;
	hf_places_note(client);
}

void hf_client_pin(struct hf_client *client, bool is_pinned)
{
	client->is_pinned = is_pinned;
	hf_places_note(client);
}

void hf_client_seen(struct hf_client *client, const struct hf_addr *local)
{
	struct hf_loop *loop = client->clients->options.loop;
	uint64_t now = hf_loop_now(loop);

	if (client->seen_at != now) { /* one look at the clock in a turn is enough */
		client->seen_at = now;
		client->last_seen = hf_loop_wall(loop);
	}
	if (!hf_client_is_registered(client) || client->callback.host) {
		client->local = *local;
		client->local.port = 0;
	}
	if (client->status != HF_CLIENT_ACTIVE)
		client->status = HF_CLIENT_ACTIVE;
}

void hf_client_called(struct hf_client *client, const struct hf_addr *local)
{
	hf_client_seen(client, local);
	client->called_at = client->seen_at;
}

/* The server's addresses that it uses */

/* Takes the first of the texts. False: there is none, or it is too long. */
static bool take_text(const char **textsp, char text[HF_ADDR_TEXT])
{
	size_t len = strcspn(*textsp, " ");

	if (len == 0 || len >= HF_ADDR_TEXT)
		return false;
	memcpy(text, *textsp, len);
	text[len] = '\0';
	*textsp += len;
	*textsp += strspn(*textsp, " ");
	return true;
}

bool hf_client_other_local(const struct hf_client *client, size_t n, struct hf_addr *local)
{
	const char *texts = client->other_locals ? client->other_locals : "";
	char text[HF_ADDR_TEXT];

	for (size_t i = 0; i <= n; i++)
		if (!take_text(&texts, text))
			return false;
	return hf_addr_parse(local, text);
}

static bool has_used(const struct hf_client *client, const struct hf_addr *local)
{
	struct hf_addr other;

	if (hf_addr_same_host(&client->local, local))
		return true;
	for (size_t i = 0; hf_client_other_local(client, i, &other); i++)
		if (hf_addr_same_host(&other, local))
			return true;
	return false;
}

bool hf_client_has_used(const struct hf_client *client, const struct hf_addr *local)
{
	return client->is_local_stored && has_used(client, local);
}

/* What the client has locked there, it will not reclaim after a restart. */
static void say_dropped(const struct hf_client *client, const char *text)
{
	struct hf_clients *clients = client->clients;
	uint64_t n_suppressed;
	char quoted[256];

	if (!hf_log_limit_allow(&clients->drops, hf_loop_now(clients->options.loop), &n_suppressed))
		return;
	hf_log_warn("a client uses too many addresses of the server: a notice of a restart will not name one",
		    "client=%s address=%s max=%d more=%llu",
		    hf_log_quote(quoted, sizeof(quoted), client->id, strlen(client->id)), text,
		    HF_CLIENT_OTHER_LOCALS + 1, (unsigned long long)n_suppressed);
}

static void drop_first(struct hf_client *client)
{
	const char *rest = client->other_locals;
	char text[HF_ADDR_TEXT];

	(void)take_text(&rest, text);
	say_dropped(client, text);
	memmove(client->other_locals, rest, strlen(rest) + 1);
	client->n_named = 0; /* the names after it have other numbers now */
	client->n_dropped++;
}

/* An address that is not certain may be forged: it comes first, so that it is the next to leave. */
static char *join(const char *texts, const char *text, bool is_certain)
{
	char *joined;

	if (!texts)
		return strdup(text);
	if (asprintf(&joined, "%s %s", is_certain ? texts : text, is_certain ? text : texts) < 0)
		return NULL;
	return joined;
}

/* The scope of an address is the number of an interface, which means nothing to another host. */
static int add_other_local(struct hf_client *client, const struct hf_addr *local, bool is_certain)
{
	struct hf_addr last;
	char text[HF_ADDR_TEXT];
	bool is_full = hf_client_other_local(client, HF_CLIENT_OTHER_LOCALS - 1, &last);
	char *texts;

	if (!local->family || local->scope)
		return 0;
	hf_addr_format(local, text, sizeof(text));
	if (is_full && !is_certain) {
		say_dropped(client, text);
		return 0;
	}
	texts = join(client->other_locals, text, is_certain);
	if (!texts)
		return hf_trace(-ENOMEM);
	free(client->other_locals);
	client->other_locals = texts;
	if (is_full)
		drop_first(client);
	return 0;
}

void hf_client_note_named(struct hf_client *client, int32_t state, size_t n)
{
	client->named_state = state;
	client->n_named = n;
}

size_t hf_client_count_named(const struct hf_client *client, int32_t state)
{
	return client->named_state == state ? client->n_named : 0;
}

int hf_client_restore_other_locals(struct hf_client *client, struct hf_bytes stored)
{
	char *copy = strndup((const char *)stored.data, stored.len);
	const char *texts = copy;
	char text[HF_ADDR_TEXT];
	struct hf_addr local;
	int r = 0;

	if (!copy)
		return hf_trace(-ENOMEM);
	while (r == 0 && take_text(&texts, text))
		if (hf_addr_parse(&local, text))
			r = add_other_local(client, &local, true);
	free(copy);
	return r;
}

int hf_client_use(struct hf_client *client, const struct hf_addr *local, bool is_certain)
{
	int r;

	client->is_local_stored = false;
	if (has_used(client, local))
		return 0;
	r = add_other_local(client, is_certain ? &client->local : local, is_certain);
	if (r == 0 && is_certain) {
		client->local = *local;
		client->local.port = 0;
	}
	return r;
}

void hf_client_note_lock_state(struct hf_client *client, int32_t state)
{
	if (!client->lock_state || state == hf_client_proven_state(client) || hf_client_has_nothing(client))
		client->lock_state = state;
}

static int32_t number_of(const struct hf_client *client)
{
	return client->lock_state ? client->lock_state : client->sm_state;
}

bool hf_client_says_other(const struct hf_client *client, int32_t state)
{
	int32_t number = number_of(client);

	return number && state && number != state;
}

bool hf_client_may_be(const struct hf_client *client, const struct hf_client *old)
{
	if (hf_client_says_other(old, number_of(client)))
		return false;
	if (client->registered_at && old->registered_at > client->registered_at)
		return false;
	return old->called_at <= client->met_at;
}

int hf_client_set_callback(struct hf_client *client, struct hf_bytes host, uint32_t program, uint32_t version,
			   uint32_t procedure)
{
	char *copy = strndup((const char *)host.data, host.len);

	if (!copy)
		return hf_trace(-ENOMEM);
	free(client->callback.host);
	client->callback = (struct hf_client_callback){ copy, program, version, procedure };
	hf_places_note(client);
	return 0;
}

int hf_client_set_mon_name(struct hf_client *client, struct hf_bytes mon_name)
{
	char *copy = strndup((const char *)mon_name.data, mon_name.len);

	if (!copy)
		return hf_trace(-ENOMEM);
	free(client->mon_name);
	client->mon_name = copy;
	return 0;
}

int hf_client_set_privileged(struct hf_client *client, bool is_privileged)
{
	bool before = client->is_privileged;
	int r;

	if (before == is_privileged)
		return 0;
	client->is_privileged = is_privileged;
	r = hf_client_is_registered(client) ? hf_client_register(client) : HF_CLIENT_OK;
	if (r < 0)
		client->is_privileged = before;
	return r;
}

#define TAG_NUMBERS 0xffffu /* state numbers that fit into a tag; nearly all hosts count from 1 */
#define TAG_SERIALS 0x3fffu

int32_t hf_client_make_doubt_tag(int32_t doubted, uint32_t serial)
{
	uint32_t number = (uint32_t)doubted <= TAG_NUMBERS ? (uint32_t)doubted : 0;

	return (int32_t)(0x80000000u | (serial & TAG_SERIALS) << 17 | number << 1);
}

static int32_t without_number(int32_t tag)
{
	return (int32_t)((uint32_t)tag & ~(TAG_NUMBERS << 1));
}

int32_t hf_client_stored_number(int32_t state)
{
	return state < 0 && state % 2 == 0 ? (int32_t)((uint32_t)state >> 1 & TAG_NUMBERS) : state;
}

/* No LOCK said a number that marks a doubt. Of several numbers the newest is that of the last LOCK, unless it
 * is far above the known one: then it may be from a forged LOCK, whose number was not believed, and the
 * client's next number would look old. */
void hf_client_note_stored_number(struct hf_client *client, int32_t state)
{
	bool is_tag = hf_client_stored_number(state) != state;
	bool may_be_guessed = client->sm_state && hf_client_is_far_above(state, client->sm_state);

	if (!is_tag && !may_be_guessed &&
	    (!client->lock_state || hf_client_is_newer(state, client->lock_state)))
		client->lock_state = state;
}

static int32_t use_doubt_tag(struct hf_client *client, int32_t said)
{
	struct hf_client_tag *last = &client->tags[0];

	if (last->tag != client->doubt_tag) {
		memmove(&client->tags[1], last, sizeof(client->tags) - sizeof(*last));
		*last = (struct hf_client_tag){ client->doubt_tag, said };
	} else if (last->said != said) {
		last->said = 0;
	}
	return client->doubt_tag;
}

/* A statd that was started too early gives the number before that of its host, and no older one. So a LOCK
 * with the proven number is not of a life whose number is that of two restarts later. */
static bool may_be_of_doubted_life(const struct hf_client *client, int32_t said)
{
	return !said || said != hf_client_proven_state(client) ||
	       !hf_client_is_far_above(client->doubted_state, said);
}

static size_t put_tag(uint32_t *numbers, int32_t tag)
{
	numbers[0] = (uint32_t)tag;
	numbers[1] = (uint32_t)without_number(tag);
	return 2;
}

size_t hf_client_life_numbers(const struct hf_client *client, int32_t state,
			      uint32_t numbers[HF_CLIENT_LIFE_NUMBERS])
{
	size_t n = 0;

	numbers[n++] = (uint32_t)state;
	if (client->doubt_tag)
		n += put_tag(&numbers[n], client->doubt_tag);
	for (size_t i = 0; i < HF_CLIENT_TAGS && state; i++)
		if (client->tags[i].said == state)
			n += put_tag(&numbers[n], client->tags[i].tag);
	return n;
}

void hf_client_end_older_tag(struct hf_client *client, int32_t state)
{
	const struct hf_client_tag *last = &client->tags[0];

	if (client->doubt_tag && last->tag == client->doubt_tag && last->said &&
	    hf_client_is_newer(state, last->said))
		client->doubt_tag = 0;
}

bool hf_client_is_tagged(const struct hf_client *client, int32_t said, uint64_t age_ns)
{
	int32_t doubted = client->doubted_state;

	if (HF_LIKELY(!doubted) ||
	    (age_ns && hf_loop_now(client->clients->options.loop) - age_ns <= client->doubted_at))
		return false;
	return !said || !hf_client_is_newer(said, doubted);
}

int32_t hf_client_state_for(struct hf_client *client, int32_t said, uint64_t age_ns)
{
	if (HF_UNLIKELY(hf_client_is_tagged(client, said, age_ns))) {
		int32_t tag = use_doubt_tag(client, said);

		return may_be_of_doubted_life(client, said) ? tag : without_number(tag);
	}
	return said ? said : hf_client_proven_state(client);
}

void hf_client_set_status(struct hf_client *client, enum hf_client_status status)
{
	client->status = status;
}

void hf_client_disconnected(struct hf_client *client)
{
	if (client->is_disconnected)
		return;
	client->is_disconnected = true;
	if (hf_timer_start(&client->window, hf_clients_window(client->clients, client->protocol)) < 0)
		hf_client_crash(client); /* without memory for a timer the window would never end */
}

void hf_client_reconnected(struct hf_client *client)
{
	client->is_disconnected = false; /* the window goes on: until its end the client may reclaim */
	client->status = HF_CLIENT_ACTIVE;
}

void hf_client_crash(struct hf_client *client)
{
	struct hf_clients *clients = client->clients;

	hf_client_ref(client);
	client->is_disconnected = false;
	hf_timer_stop(&client->window);
	client->status = HF_CLIENT_CRASHED;
	clients->options.events->crashed(clients->options.user, client);
	hf_client_unref(client);
}
