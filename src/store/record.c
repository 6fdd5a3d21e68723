#include "store/record.h"

#include <errno.h>
#include <string.h>

#include "base/le.h"

#define LOCK_FIXED 50 /* bytes of a lock before its lengths */

enum { /* flags of a client */
	CLIENT_HAS_CALLBACK = 1,
	CLIENT_IS_PRIVILEGED = 2,
	CLIENT_IS_STATE_UNPROVEN = 4,
	CLIENT_HAS_TOLD_STATE = 8,
	CLIENT_IS_SECURED = 16,
	CLIENT_FLAGS = 31,
};

enum { /* flags of the state */
	STATE_IS_COMPLETE = 1,
	STATE_IS_SETTLED = 2,
	STATE_FLAGS = 3,
};

/* Encoding: the caller has checked the bounds, so there is always room. */

static uint8_t *put_addr(uint8_t *p, const struct hf_addr *addr)
{
	p = hf_le_put8(p, addr->family);
	memcpy(p, addr->ip, sizeof(addr->ip));
	p = hf_le_put16(p + sizeof(addr->ip), addr->port);
	return hf_le_put32(p, addr->scope);
}

/* Pads the record, and writes the header now that the length is known. */
static int finish(uint8_t *out, uint8_t *p, enum hf_record_type type)
{
	size_t length = (size_t)(p - out);
	size_t padded = (length + 7) & ~(size_t)7;

	memset(p, 0, padded - length);
	memset(out, 0, HF_RECORD_HEADER);
	hf_le_put32(out, (uint32_t)padded);
	out[4] = (uint8_t)type;
	return (int)padded;
}

/* The body of a lock; NULL: beyond the bounds. */
static uint8_t *put_lock(uint8_t *p, const struct hf_store_lock *lock)
{
	if (lock->export.len > HF_STORE_MAX_EXPORT || lock->handle.len > HF_STORE_MAX_HANDLE ||
	    lock->client.len > HF_STORE_MAX_ID || lock->oh.len > HF_STORE_MAX_OH)
		return NULL;
	p = hf_le_put64(p, lock->id);
	p = hf_le_put64(p, lock->owner);
	p = hf_le_put64(p, lock->start);
	p = hf_le_put64(p, lock->end);
	p = hf_le_put64(p, lock->epoch);
	p = hf_le_put32(p, (uint32_t)lock->client_state);
	p = hf_le_put32(p, lock->flags);
	p = hf_le_put8(p, lock->kind);
	p = hf_le_put8(p, lock->mode);
	p = hf_le_put16(p, lock->export.len);
	p = hf_le_put16(p, lock->handle.len);
	p = hf_le_put16(p, lock->client.len);
	p = hf_le_put16(p, lock->oh.len);
	p = hf_le_put_bytes(p, lock->export);
	p = hf_le_put_bytes(p, lock->handle);
	p = hf_le_put_bytes(p, lock->client);
	return hf_le_put_bytes(p, lock->oh);
}

int hf_record_encode_lock(uint8_t *out, const struct hf_store_lock *lock)
{
	uint8_t *p = put_lock(out + HF_RECORD_HEADER, lock);

	return p ? finish(out, p, HF_RECORD_LOCK) : -EINVAL;
}

int hf_record_encode_waiter(uint8_t *out, const struct hf_store_waiter *waiter)
{
	uint8_t *p = put_lock(out + HF_RECORD_HEADER, &waiter->wants);

	if (!p || waiter->route.len > HF_STORE_MAX_ROUTE)
		return -EINVAL;
	p = hf_le_put8(p, waiter->is_granted);
	p = hf_le_put16(p, waiter->route.len);
	p = hf_le_put_bytes(p, waiter->route);
	return finish(out, p, HF_RECORD_WAITER);
}

int hf_record_encode_reservation(uint8_t *out, const struct hf_store_reservation *reservation)
{
	uint8_t *p = out + HF_RECORD_HEADER;

	if (reservation->blob.len > HF_STORE_MAX_BLOB)
		return -EINVAL;
	p = hf_le_put64(p, reservation->id);
	p = hf_le_put16(p, reservation->blob.len);
	p = hf_le_put_bytes(p, reservation->blob);
	return finish(out, p, HF_RECORD_RESERVATION);
}

static uint8_t client_flags(const struct hf_store_client *client)
{
	return (uint8_t)((client->has_callback ? CLIENT_HAS_CALLBACK : 0) |
			 (client->is_privileged ? CLIENT_IS_PRIVILEGED : 0) |
			 (client->is_state_unproven ? CLIENT_IS_STATE_UNPROVEN : 0) |
			 (client->told_state ? CLIENT_HAS_TOLD_STATE : 0) |
			 (client->is_secured ? CLIENT_IS_SECURED : 0));
}

int hf_record_encode_client(uint8_t *out, const struct hf_store_client *client)
{
	uint8_t *p = out + HF_RECORD_HEADER;

	if (client->id.len == 0 || client->id.len > HF_STORE_MAX_ID ||
	    client->protocol.len > HF_STORE_MAX_PROTOCOL || client->mon_name.len > HF_STORE_MAX_NAME ||
	    client->callback_host.len > HF_STORE_MAX_NAME || client->identity.len > HF_STORE_MAX_IDENTITY)
		return -EINVAL;
	p = hf_le_put64(p, client->registered_at);
	p = hf_le_put64(p, client->last_seen);
	p = hf_le_put32(p, (uint32_t)client->sm_state);
	p = hf_le_put32(p, client->callback_program);
	p = hf_le_put32(p, client->callback_version);
	p = hf_le_put32(p, client->callback_procedure);
	p = hf_le_put8(p, client_flags(client));
	p = put_addr(p, &client->address);
	p = put_addr(p, &client->local);
	p = hf_le_put_bytes(p, hf_bytes_of(client->priv, sizeof(client->priv)));
	p = hf_le_put16(p, client->id.len);
	p = hf_le_put16(p, client->protocol.len);
	p = hf_le_put16(p, client->mon_name.len);
	p = hf_le_put16(p, client->callback_host.len);
	p = hf_le_put_bytes(p, client->id);
	p = hf_le_put_bytes(p, client->protocol);
	p = hf_le_put_bytes(p, client->mon_name);
	p = hf_le_put_bytes(p, client->callback_host);
	if (client->told_state)
		p = hf_le_put32(p, (uint32_t)client->told_state);
	if (client->is_secured) {
		p = hf_le_put16(p, client->identity.len);
		p = hf_le_put_bytes(p, client->identity);
	}
	return finish(out, p, HF_RECORD_CLIENT);
}

int hf_record_encode_state(uint8_t *out, const struct hf_store_state *state)
{
	struct hf_bytes boot_id = hf_bytes_of_str(state->boot_id), medium = hf_bytes_of_str(state->medium);
	uint8_t *p = out + HF_RECORD_HEADER;

	p = hf_le_put64(p, state->epoch);
	p = hf_le_put32(p, (uint32_t)state->sm_state);
	p = hf_le_put8(p, state->is_clean);
	p = hf_le_put8(p, (uint8_t)((state->is_complete ? STATE_IS_COMPLETE : 0) |
				    (state->is_settled ? STATE_IS_SETTLED : 0)));
	p = hf_le_put8(p, (uint8_t)state->durability);
	p = hf_le_put16(p, boot_id.len);
	p = hf_le_put16(p, medium.len);
	p = hf_le_put_bytes(p, boot_id);
	p = hf_le_put_bytes(p, medium);
	return finish(out, p, HF_RECORD_STATE);
}

int hf_record_encode_delete(uint8_t *out, enum hf_record_type type, uint64_t id)
{
	return finish(out, hf_le_put64(out + HF_RECORD_HEADER, id), type);
}

int hf_record_encode_client_delete(uint8_t *out, struct hf_bytes id)
{
	if (id.len == 0 || id.len > HF_STORE_MAX_ID)
		return -EINVAL;
	return finish(out, hf_le_put_bytes(hf_le_put16(out + HF_RECORD_HEADER, id.len), id),
		      HF_RECORD_CLIENT_DELETE);
}

/* Decoding: once a reader has run out of bytes, it returns zeros and stays bad. */

struct reader {
	const uint8_t *p;
	const uint8_t *end;
	bool is_bad;
};

static const uint8_t *take(struct reader *in, size_t len)
{
	static const uint8_t zeros[16];
	const uint8_t *p = in->p;

	if ((size_t)(in->end - p) < len) {
		in->is_bad = true;
		return zeros;
	}
	in->p += len;
	return p;
}

static uint8_t get8(struct reader *in)
{
	return *take(in, 1);
}

static bool get_bool(struct reader *in)
{
	uint8_t x = get8(in);

	in->is_bad |= x > 1;
	return x;
}

static uint16_t get16(struct reader *in)
{
	return hf_le_get16(take(in, 2));
}

static uint32_t get32(struct reader *in)
{
	return hf_le_get32(take(in, 4));
}

static uint64_t get64(struct reader *in)
{
	return hf_le_get64(take(in, 8));
}

static uint32_t get_length(struct reader *in, uint32_t max)
{
	uint32_t length = get16(in);

	in->is_bad |= length > max;
	return length;
}

static struct hf_bytes get_bytes(struct reader *in, uint32_t len)
{
	if (in->is_bad || (size_t)(in->end - in->p) < len) {
		in->is_bad = true;
		return (struct hf_bytes){ 0 };
	}
	return hf_bytes_of(take(in, len), len);
}

static void get_text(struct reader *in, uint32_t len, char *out)
{
	struct hf_bytes bytes = get_bytes(in, len);

	if (bytes.len)
		memcpy(out, bytes.data, bytes.len);
	out[bytes.len] = '\0';
	in->is_bad |= strlen(out) != len;
}

static struct hf_addr get_addr(struct reader *in)
{
	struct hf_addr addr = { .family = get8(in) };

	memcpy(addr.ip, take(in, sizeof(addr.ip)), sizeof(addr.ip));
	addr.port = get16(in);
	addr.scope = get32(in);
	in->is_bad |= addr.family != 0 && addr.family != AF_INET && addr.family != AF_INET6;
	return addr;
}

static void get_lock(struct reader *in, struct hf_store_lock *lock)
{
	uint32_t export, handle, client, oh;

	/* A start reads a million of these: check once for all fields at fixed places. */
	if ((size_t)(in->end - in->p) < LOCK_FIXED) {
		in->is_bad = true;
		return;
	}
	lock->id = hf_le_get64(in->p);
	lock->owner = hf_le_get64(in->p + 8);
	lock->start = hf_le_get64(in->p + 16);
	lock->end = hf_le_get64(in->p + 24);
	lock->epoch = hf_le_get64(in->p + 32);
	lock->client_state = (int32_t)hf_le_get32(in->p + 40);
	lock->flags = hf_le_get32(in->p + 44);
	lock->kind = in->p[48];
	lock->mode = in->p[49];
	in->p += LOCK_FIXED;
	export = get_length(in, HF_STORE_MAX_EXPORT);
	handle = get_length(in, HF_STORE_MAX_HANDLE);
	client = get_length(in, HF_STORE_MAX_ID);
	oh = get_length(in, HF_STORE_MAX_OH);
	lock->export = get_bytes(in, export);
	lock->handle = get_bytes(in, handle);
	lock->client = get_bytes(in, client);
	lock->oh = get_bytes(in, oh);
}

static void get_client(struct reader *in, struct hf_store_client *client)
{
	uint32_t id, protocol, mon_name, callback_host;
	uint8_t flags;

	client->registered_at = get64(in);
	client->last_seen = get64(in);
	client->sm_state = (int32_t)get32(in);
	client->callback_program = get32(in);
	client->callback_version = get32(in);
	client->callback_procedure = get32(in);
	flags = get8(in);
	client->has_callback = flags & CLIENT_HAS_CALLBACK;
	client->is_privileged = flags & CLIENT_IS_PRIVILEGED;
	client->is_state_unproven = flags & CLIENT_IS_STATE_UNPROVEN;
	in->is_bad |= (flags & ~CLIENT_FLAGS) != 0;
	client->address = get_addr(in);
	client->local = get_addr(in);
	memcpy(client->priv, take(in, sizeof(client->priv)), sizeof(client->priv));
	id = get_length(in, HF_STORE_MAX_ID);
	protocol = get_length(in, HF_STORE_MAX_PROTOCOL);
	mon_name = get_length(in, HF_STORE_MAX_NAME);
	callback_host = get_length(in, HF_STORE_MAX_NAME);
	client->id = get_bytes(in, id);
	client->protocol = get_bytes(in, protocol);
	client->mon_name = get_bytes(in, mon_name);
	client->callback_host = get_bytes(in, callback_host);
	if (flags & CLIENT_HAS_TOLD_STATE) {
		client->told_state = (int32_t)get32(in);
		in->is_bad |= client->told_state == 0; /* it would have no such flag */
	}
	client->is_secured = flags & CLIENT_IS_SECURED;
	if (client->is_secured)
		client->identity = get_bytes(in, get_length(in, HF_STORE_MAX_IDENTITY));
	in->is_bad |= client->id.len == 0;
}

static void get_state(struct reader *in, struct hf_store_state *state)
{
	uint32_t boot_id, medium;
	uint8_t flags, durability;

	state->epoch = get64(in);
	state->sm_state = (int32_t)get32(in);
	state->is_clean = get_bool(in);
	flags = get8(in);
	state->is_complete = flags & STATE_IS_COMPLETE;
	state->is_settled = flags & STATE_IS_SETTLED;
	in->is_bad |= (flags & ~STATE_FLAGS) != 0;
	durability = get8(in);
	in->is_bad |= durability > HF_STORE_MACHINE;
	state->durability = in->is_bad ? HF_STORE_NONE : (enum hf_store_durability)durability;
	boot_id = get_length(in, HF_STORE_MAX_BOOT_ID);
	medium = get_length(in, HF_STORE_MAX_BOOT_ID);
	get_text(in, boot_id, state->boot_id);
	get_text(in, medium, state->medium);
}

/* Only padding may be left. */
static bool is_padding(const struct reader *in)
{
	if (in->end - in->p > 7)
		return false;
	for (const uint8_t *p = in->p; p < in->end; p++) {
		if (*p)
			return false;
	}
	return true;
}

int hf_record_decode(struct hf_record *record, enum hf_record_type type, struct hf_bytes body)
{
	struct reader in = { .p = body.data, .end = body.data + body.len };

	memset(record, 0, sizeof(*record));
	record->type = type;
	record->body = body;
	switch (type) {
	case HF_RECORD_LOCK:
		get_lock(&in, &record->lock);
		break;
	case HF_RECORD_RESERVATION:
		record->reservation.id = get64(&in);
		record->reservation.blob = get_bytes(&in, get_length(&in, HF_STORE_MAX_BLOB));
		break;
	case HF_RECORD_WAITER:
		get_lock(&in, &record->waiter.wants);
		record->waiter.is_granted = get_bool(&in);
		record->waiter.route = get_bytes(&in, get_length(&in, HF_STORE_MAX_ROUTE));
		break;
	case HF_RECORD_CLIENT:
		get_client(&in, &record->client);
		break;
	case HF_RECORD_STATE:
		get_state(&in, &record->state);
		break;
	case HF_RECORD_LOCK_DELETE:
	case HF_RECORD_RESERVATION_DELETE:
	case HF_RECORD_WAITER_DELETE:
		record->id = get64(&in);
		break;
	case HF_RECORD_CLIENT_DELETE:
		record->name = get_bytes(&in, get_length(&in, HF_STORE_MAX_ID));
		in.is_bad |= record->name.len == 0;
		break;
	case HF_RECORD_VOID:
	default:
		return -EBADMSG;
	}
	return in.is_bad || !is_padding(&in) ? -EBADMSG : 0;
}

int hf_record_next(struct hf_record *record, struct hf_bytes *bytesp)
{
	struct reader in = { .p = bytesp->data, .end = bytesp->data + bytesp->len };
	uint32_t length, type;
	int r;

	if (bytesp->len == 0)
		return 0;
	length = get32(&in);
	type = get32(&in); /* includes the three zeros after it */
	if (in.is_bad || length < HF_RECORD_HEADER || length % 8 || length > bytesp->len ||
	    length > HF_RECORD_MAX || type > HF_RECORD_WAITER_DELETE)
		return -EBADMSG;
	r = hf_record_decode(record, (enum hf_record_type)type,
			     hf_bytes_of(bytesp->data + HF_RECORD_HEADER, length - HF_RECORD_HEADER));
	if (r < 0)
		return r;
	*bytesp = hf_bytes_of(bytesp->data + length, bytesp->len - length);
	return 1;
}

uint32_t hf_record_length(const uint8_t *record)
{
	return hf_le_get32(record);
}

enum hf_record_type hf_record_type(const uint8_t *record)
{
	return (enum hf_record_type)record[4];
}

uint64_t hf_record_id(const uint8_t *record)
{
	return hf_le_get64(record + HF_RECORD_HEADER);
}

void hf_record_void(uint8_t *record)
{
	record[4] = HF_RECORD_VOID;
}
