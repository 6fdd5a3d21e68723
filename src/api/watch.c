/* On the loop: turns the domain's events into text. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/internal.h"
#include "base/hex.h"
#include "base/macros.h"
#include "client/client.h"

/* Room for the longest event: an id and an owner, with every character of their names escaped. */
#define MAX_TEXT 16384

struct text {
	size_t len;
	char data[MAX_TEXT];
};

static void add(struct text *text, const char *format, ...) HF_PRINTF(2, 3);

static void add(struct text *text, const char *format, ...)
{
	size_t room = sizeof(text->data) - text->len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->data + text->len, room, format, args);
	va_end(args);
	if (n > 0)
		text->len += HF_MIN((size_t)n, room - 1);
}

static void put(struct text *text, const char *data, size_t len)
{
	len = HF_MIN(len, sizeof(text->data) - 1 - text->len);
	memcpy(text->data + text->len, data, len);
	text->len += len;
}

/* Names are printable (hf_client_name_is_good) and reasons are the server's own text, so only two characters
 * need escaping. */
static void add_string(struct text *text, const char *name, const char *value)
{
	add(text, ",\"%s\":\"", name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			add(text, "\\%c", *value);
		else if ((unsigned char)*value < 0x20 || (unsigned char)*value >= 0x7f)
			add(text, "\\u%04x", (unsigned char)*value);
		else
			put(text, value, 1); /* names are long, and a lock waits for this */
	}
	add(text, "\"");
}

static void add_lock(struct text *text, struct hf_api *api, const struct hf_lock_view *lock)
{
	struct hf_bytes export = hf_recovery_export_name(api->options.recovery, lock->who.export);
	char owner[HF_API_OWNER_TEXT], name[1025], hex[2 * HF_LOCK_HANDLE_MAX];
	uint8_t room[HF_LOCK_HANDLE_MAX];
	struct hf_bytes handle =
		hf_recovery_handle_of(api->options.recovery, lock->who.export, lock->who.handle, room);

	snprintf(name, sizeof(name), "%.*s", (int)export.len, (const char *)export.data);
	add_string(text, "share", name);
	add_string(text, "owner", hf_api_owner_text(lock, owner, sizeof(owner)));
	add(text, ",\"handle\":\"");
	put(text, hex, (size_t)(hf_hex_put(hex, handle.data, handle.len) - hex));
	add(text, "\",\"offset\":%llu,\"length\":%llu", (unsigned long long)lock->range.start,
	    (unsigned long long)hf_range_len(lock->range));
}

static const char *name_of(enum hf_recovery_event_kind kind)
{
	switch (kind) {
	case HF_EVENT_REGISTERED:
		return "registered";
	case HF_EVENT_UNREGISTERED:
		return "unregistered";
	case HF_EVENT_CRASH:
		return "crash";
	case HF_EVENT_CLEANUP:
		return "cleanup";
	case HF_EVENT_NOTIFY:
		return "notify";
	case HF_EVENT_GRACE_STARTED:
		return "grace_started";
	case HF_EVENT_GRACE_ENDED:
		return "grace_ended";
	case HF_EVENT_LOCK:
		return "lock";
	case HF_EVENT_UNLOCK:
		return "unlock";
	case HF_EVENT_BLOCKED:
		return "blocked";
	case HF_EVENT_GRANTED:
		return "granted";
	}
	return "unknown";
}

static void on_event(struct hf_recovery_observer *observer, const struct hf_recovery_event *event)
{
	struct hf_api *api = hf_container_of(observer, struct hf_api, observer);
	struct text text;

	if (event->kind == HF_EVENT_NOTIFY && api->options.measures)
		hf_histogram_add(&api->notices, event->took_ns, 1);
	text.len = 0;
	add(&text, "{\"time\":%.3f", (double)(hf_loop_wall(api->options.loop) / HF_NS_PER_MS) / 1000.0);
	if (event->client)
		add_string(&text, "client", event->client->id);
	if (event->reason)
		add_string(&text, "reason", event->reason);
	if (event->lock)
		add_lock(&text, api, event->lock);
	if (event->lock && event->kind != HF_EVENT_UNLOCK) /* an unlock has no mode of its own */
		add(&text, ",\"mode\":\"%s\"",
		    event->lock->mode == HF_LOCK_EXCLUSIVE ? "exclusive" : "shared");
	if (event->kind == HF_EVENT_CRASH)
		add(&text, ",\"sm_state\":%d", event->state);
	if (event->kind == HF_EVENT_NOTIFY)
		add(&text, ",\"result\":\"%s\",\"seconds\":%.3f", event->was_told ? "success" : "failed",
		    (double)event->took_ns / 1e9);
	if (event->kind == HF_EVENT_CLEANUP || event->kind == HF_EVENT_GRACE_ENDED)
		add(&text, ",\"locks\":%zu", event->n_locks);
	if (event->kind == HF_EVENT_CLEANUP)
		add(&text, ",\"waiters\":%zu,\"shares\":%zu", event->n_waiters, event->n_reservations);
	add(&text, "}");
	hf_events_add(&api->events, name_of(event->kind), text.data, text.len);
}

void hf_api_watch(struct hf_api *api)
{
	struct hf_grace_info grace;

	if (hf_api_is_standby(api))
		return;
	api->observer.fn = on_event;
	hf_recovery_observe(api->options.recovery, &api->observer);
	hf_recovery_grace_info(api->options.recovery, &grace);
	/* Grace began before any reader could watch. */
	if (grace.is_active)
		on_event(&api->observer, &(struct hf_recovery_event){ .kind = HF_EVENT_GRACE_STARTED,
								      .reason = grace.reason });
}
