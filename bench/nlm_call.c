#include "nlm_call.h"

#include <arpa/inet.h>
#include <string.h>

static void put_u32(struct load_message *message, uint32_t value)
{
	value = htonl(value);
	memcpy(message->data + message->len, &value, 4);
	message->len += 4;
}

static void put_opaque(struct load_message *message, const void *data, uint32_t len)
{
	put_u32(message, len);
	memcpy(message->data + message->len, data, len);
	message->len += (len + 3) & ~3u;
}

/* AUTH_SYS in the place of AUTH_NONE, as kernel clients send it: the user's id, its group and one more. */
static void put_user(struct load_message *message)
{
	message->len -= 16; /* credentials and verifier */
	put_u32(message, 1);
	put_u32(message, 36);
	put_u32(message, 0); /* stamp */
	put_opaque(message, "bench.net", 9);
	put_u32(message, 1000);
	put_u32(message, 1000);
	put_u32(message, 1);
	put_u32(message, 100);
	put_u32(message, 0);
	put_u32(message, 0);
}

void nlm_call_make(struct nlm_call *call, uint32_t procedure, const struct peer_handle *handle, uint32_t len)
{
	struct load_message *message = &call->message;

	memset(message, 0, sizeof(*message));
	message->len = load_put_header(message->data, NLM, 4, procedure);
	put_user(message);
	put_opaque(message, "cook", 4);
	if (procedure == NLM_LOCK)
		put_u32(message, 0); /* block */
	if (procedure != NLM_UNLOCK)
		put_u32(message, 1); /* exclusive */
	call->caller_at = message->len + 4;
	put_opaque(message, "bench", NLM_CALLER_LEN);
	call->handle_at = message->len + 4;
	put_opaque(message, handle->data, handle->len);
	put_opaque(message, "1@bench", 7);
	call->svid_at = message->len;
	put_u32(message, 1);
	call->offset_at = message->len + 4; /* the lower half of 64 bits */
	put_u32(message, 0);
	put_u32(message, 0);
	put_u32(message, 0);
	put_u32(message, len);
	if (procedure == NLM_LOCK) {
		put_u32(message, 0); /* reclaim */
		put_u32(message, 3); /* state */
	}
}

const struct load_message *nlm_call_fill(struct nlm_call *call, const struct peer_handle *handle,
					 uint32_t svid, uint32_t offset)
{
	uint8_t *data = call->message.data;

	svid = htonl(svid);
	offset = htonl(offset);
	memcpy(data + call->handle_at, handle->data, handle->len);
	memcpy(data + call->svid_at, &svid, 4);
	memcpy(data + call->offset_at, &offset, 4);
	return &call->message;
}

void nlm_call_name(struct nlm_call *call, const char *caller)
{
	memcpy(call->message.data + call->caller_at, caller, NLM_CALLER_LEN);
}
