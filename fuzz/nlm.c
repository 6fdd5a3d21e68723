/*
 * Any bytes as the arguments of every NLM decoder, in every version: what is
 * accepted lies within the message and its limits, and what the server would say
 * about it fits where it must and reads back as the same.
 *
 * The first byte chooses decoder and version, the rest is the message.
 */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "proto/nlm/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint32_t versions[] = { 1, 3, 4 };

struct message {
	const uint8_t *data;
	size_t size;
	uint32_t version;
	struct hf_xdr_in in;
};

static void must(bool truth)
{
	if (!truth)
		abort();
}

static void check_view(const struct message *message, struct hf_bytes bytes, uint32_t max)
{
	must(bytes.len <= max);
	if (bytes.len)
		must(bytes.data >= message->data && bytes.data + bytes.len <= message->data + message->size);
}

/* What has failed gives nothing that could be used by mistake. */
static bool is_accepted(struct message *message, struct hf_bytes first)
{
	if (hf_xdr_in_is_ok(&message->in))
		return true;
	must(hf_xdr_in_left(&message->in) == 0);
	check_view(message, first, HF_NLM_MAX_NETOBJ);
	return false;
}

static bool is_same(const struct hf_nlm_args *a, const struct hf_nlm_args *b)
{
	return hf_bytes_equal(a->cookie, b->cookie) && hf_bytes_equal(a->caller, b->caller) &&
	       hf_bytes_equal(a->handle, b->handle) && hf_bytes_equal(a->oh, b->oh) &&
	       a->exclusive == b->exclusive && a->svid == b->svid && a->offset == b->offset &&
	       a->len == b->len;
}

/* GRANTED says what was asked. */
static void check_granted(const struct message *message, const struct hf_nlm_args *args)
{
	uint8_t *call = malloc(HF_NLM_MAX_CALL);
	struct hf_nlm_args back;
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	must(call);
	hf_xdr_out_init(&out, call, HF_NLM_MAX_CALL);
	hf_nlm_put_granted(&out, message->version, args);
	must(hf_xdr_out_is_ok(&out));
	hf_xdr_in_init(&in, call, (size_t)(out.p - call));
	hf_nlm_get_test(&back, message->version, &in);
	must(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0 && is_same(args, &back));
	free(call);
}

/* A reply to it, as long as it can be. */
static void check_test_res(const struct message *message, const struct hf_nlm_args *args)
{
	const struct hf_nlm_holder holder = { args->exclusive, args->svid, args->oh, args->offset,
					      args->len };
	uint8_t *results = malloc(HF_NLM_MAX_RES);
	struct hf_xdr_out out;
	struct hf_nlm_res res;
	struct hf_xdr_in in;

	must(results);
	hf_xdr_out_init(&out, results, HF_NLM_MAX_RES);
	hf_nlm_put_test_res(&out, message->version, args->cookie, HF_NLM_DENIED, &holder);
	must(hf_xdr_out_is_ok(&out));
	hf_xdr_in_init(&in, results, (size_t)(out.p - results));
	hf_nlm_get_res(&res, &in);
	must(hf_xdr_in_is_ok(&in) && res.stat == HF_NLM_DENIED && hf_bytes_equal(res.cookie, args->cookie));
	free(results);
}

static void check_args(struct message *message, const struct hf_nlm_args *args)
{
	struct hf_range range;

	if (!is_accepted(message, args->cookie))
		return;
	check_view(message, args->cookie, HF_NLM_MAX_NETOBJ);
	check_view(message, args->caller, HF_NLM_MAX_STRING);
	check_view(message, args->handle, HF_NLM_MAX_HANDLE);
	check_view(message, args->oh, HF_NLM_MAX_NETOBJ);
	must(!args->caller.len || !memchr(args->caller.data, '\0', args->caller.len));
	must(args->deny <= 3 && args->access <= 3);
	if (hf_nlm_range_of(&range, message->version, args) == 0)
		must(range.start == args->offset && hf_range_is_valid(range));
	else
		must(message->version == 4 && args->offset > HF_RANGE_EOF);
	check_granted(message, args);
	check_test_res(message, args);
}

static void check_notify(struct message *message, const struct hf_nlm_notify *notify)
{
	if (is_accepted(message, notify->name))
		check_view(message, notify->name, HF_NLM_MAX_STRING);
}

static void decode(struct message *message, unsigned int which)
{
	struct hf_nlm_args args;
	struct hf_nlm_notify notify;
	struct hf_nlm_res res;

	switch (which) {
	case 0:
		hf_nlm_get_test(&args, message->version, &message->in);
		break;
	case 1:
		hf_nlm_get_lock(&args, message->version, &message->in);
		break;
	case 2:
		hf_nlm_get_cancel(&args, message->version, &message->in);
		break;
	case 3:
		hf_nlm_get_unlock(&args, message->version, &message->in);
		break;
	case 4:
		hf_nlm_get_share(&args, &message->in);
		break;
	case 5:
		hf_nlm_get_res(&res, &message->in);
		if (is_accepted(message, res.cookie))
			check_view(message, res.cookie, HF_NLM_MAX_NETOBJ);
		return;
	case 6:
		hf_nlm_get_notify(&notify, &message->in);
		check_notify(message, &notify);
		return;
	default:
		hf_nlm_get_sm_notify(&notify, &message->in);
		check_notify(message, &notify);
		return;
	}
	check_args(message, &args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct message message;

	if (size < 1)
		return 0;
	message = (struct message){
		data + 1, size - 1, versions[(data[0] >> 3) % HF_ARRAY_SIZE(versions)], { 0 }
	};
	hf_xdr_in_init(&message.in, message.data, message.size);
	decode(&message, data[0] & 7);
	return 0;
}
