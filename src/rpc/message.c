#include "rpc/message.h"

enum {
	MSG_CALL = 0,
	MSG_REPLY = 1,
	REPLY_ACCEPTED = 0,
	REPLY_DENIED = 1,
	REJECT_RPC_MISMATCH = 0,
	REJECT_AUTH_ERROR = 1,
	RPC_VERSION = 2,
};

/* Calls */

/* stamp, machine name, uid, gid, further gids */
static bool parse_auth_sys(struct hf_rpc_cred *cred, struct hf_bytes body)
{
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, body.data, body.len);
	hf_xdr_get_u32(&in);
	cred->machine = hf_xdr_get_opaque(&in, HF_RPC_MAX_NAME);
	cred->uid = hf_xdr_get_u32(&in);
	cred->gid = hf_xdr_get_u32(&in);
	cred->n_gids = hf_xdr_get_u32(&in);
	if (cred->n_gids > HF_RPC_MAX_GIDS)
		return false;
	for (uint32_t i = 0; i < cred->n_gids; i++)
		cred->gids[i] = hf_xdr_get_u32(&in);
	return hf_xdr_in_is_ok(&in);
}

static enum hf_rpc_auth_stat parse_cred(struct hf_rpc_cred *cred, uint32_t flavor, struct hf_bytes body)
{
	cred->flavor = flavor;
	switch (flavor) {
	case HF_RPC_AUTH_TLS:
		if (body.len)
			return HF_RPC_AUTH_BADCRED;
		HF_FALLTHROUGH;
	case HF_RPC_AUTH_NONE:
		cred->uid = cred->gid = UINT32_MAX; /* no known user */
		cred->n_gids = 0;
		cred->machine = (struct hf_bytes){ 0 };
		return HF_RPC_AUTH_OK;
	case HF_RPC_AUTH_SYS:
		return parse_auth_sys(cred, body) ? HF_RPC_AUTH_OK : HF_RPC_AUTH_BADCRED;
	default:
		return HF_RPC_AUTH_REJECTEDCRED;
	}
}

static uint32_t word_at(const uint8_t *p, size_t i)
{
	uint32_t word;

	memcpy(&word, p + 4 * i, 4);
	return be32toh(word);
}

/* Flavour and body, of a credential or a verifier. */
static inline struct hf_bytes get_auth(struct hf_xdr_in *in, uint32_t *flavorp)
{
	const uint8_t *p = hf_xdr_take(in, 8);
	uint32_t len = p ? word_at(p, 1) : 0;

	*flavorp = p ? word_at(p, 0) : 0;
	if (len > HF_RPC_MAX_AUTH)
		hf_xdr_in_fail(in);
	return hf_xdr_get_fixed(in, len);
}

static enum hf_rpc_parse parse_auth(struct hf_rpc_header *header, enum hf_rpc_auth_stat *statp,
				    struct hf_xdr_in *in)
{
	uint32_t flavor, ignored;
	struct hf_bytes body = get_auth(in, &flavor);

	get_auth(in, &ignored); /* a verifier means nothing with these flavours */
	if (!hf_xdr_in_is_ok(in))
		return HF_RPC_BAD_HEADER;
	*statp = parse_cred(&header->cred, flavor, body);
	if (*statp != HF_RPC_AUTH_OK)
		return HF_RPC_BAD_AUTH;
	return HF_LIKELY(flavor != HF_RPC_AUTH_TLS) ? HF_RPC_CALL : HF_RPC_ASKS_TLS;
}

enum hf_rpc_parse hf_rpc_parse_call(struct hf_rpc_header *header, enum hf_rpc_auth_stat *statp,
				    struct hf_xdr_in *in)
{
	const uint8_t *p = hf_xdr_take(in, 8);

	if (!p || word_at(p, 1) != MSG_CALL)
		return HF_RPC_NOT_A_CALL;
	header->xid = word_at(p, 0);
	p = hf_xdr_take(in, 4); /* a call of another RPC version may be shorter */
	if (!p)
		return HF_RPC_BAD_HEADER;
	if (word_at(p, 0) != RPC_VERSION)
		return HF_RPC_BAD_VERSION;
	p = hf_xdr_take(in, 12);
	if (!p)
		return HF_RPC_BAD_HEADER;
	header->program = word_at(p, 0);
	header->version = word_at(p, 1);
	header->procedure = word_at(p, 2);
	return parse_auth(header, statp, in);
}

/* Replies */

static void put_word(uint8_t *p, size_t i, uint32_t word)
{
	word = htobe32(word);
	memcpy(p + 4 * i, &word, 4);
}

static void put_accepted(struct hf_xdr_out *out, uint32_t xid, enum hf_rpc_accept stat)
{
	uint8_t *p = hf_xdr_reserve(out, 6 * 4);

	if (!p)
		return;
	put_word(p, 0, xid);
	put_word(p, 1, MSG_REPLY);
	put_word(p, 2, REPLY_ACCEPTED);
	put_word(p, 3, HF_RPC_AUTH_NONE); /* the verifier, empty */
	put_word(p, 4, 0);
	put_word(p, 5, stat);
}

void hf_rpc_put_success(struct hf_xdr_out *out, uint32_t xid)
{
	put_accepted(out, xid, HF_RPC_SUCCESS);
}

void hf_rpc_put_starttls(struct hf_xdr_out *out, uint32_t xid)
{
	hf_xdr_put_u32(out, xid);
	hf_xdr_put_u32(out, MSG_REPLY);
	hf_xdr_put_u32(out, REPLY_ACCEPTED);
	hf_xdr_put_u32(out, HF_RPC_AUTH_NONE);
	hf_xdr_put_string(out, "STARTTLS");
	hf_xdr_put_u32(out, HF_RPC_SUCCESS);
}

void hf_rpc_put_accept_error(struct hf_xdr_out *out, uint32_t xid, enum hf_rpc_accept stat)
{
	put_accepted(out, xid, stat);
}

void hf_rpc_put_prog_mismatch(struct hf_xdr_out *out, uint32_t xid, uint32_t low, uint32_t high)
{
	put_accepted(out, xid, HF_RPC_PROG_MISMATCH);
	hf_xdr_put_u32(out, low);
	hf_xdr_put_u32(out, high);
}

static void put_denied(struct hf_xdr_out *out, uint32_t xid, uint32_t reason)
{
	hf_xdr_put_u32(out, xid);
	hf_xdr_put_u32(out, MSG_REPLY);
	hf_xdr_put_u32(out, REPLY_DENIED);
	hf_xdr_put_u32(out, reason);
}

void hf_rpc_put_rpc_mismatch(struct hf_xdr_out *out, uint32_t xid)
{
	put_denied(out, xid, REJECT_RPC_MISMATCH);
	hf_xdr_put_u32(out, RPC_VERSION);
	hf_xdr_put_u32(out, RPC_VERSION);
}

void hf_rpc_put_auth_error(struct hf_xdr_out *out, uint32_t xid, enum hf_rpc_auth_stat stat)
{
	put_denied(out, xid, REJECT_AUTH_ERROR);
	hf_xdr_put_u32(out, stat);
}

/* The client's side */

static void put_auth_sys(struct hf_xdr_out *out, const char *machine)
{
	uint32_t len = (uint32_t)strlen(machine);

	hf_xdr_put_u32(out, HF_RPC_AUTH_SYS);
	hf_xdr_put_u32(out, 5 * 4 + ((len + 3) & ~3u)); /* stamp, name's length, uid, gid, no gids */
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_string(out, machine);
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, 0);
	hf_xdr_put_u32(out, 0);
}

void hf_rpc_put_call(struct hf_xdr_out *out, const struct hf_rpc_outgoing *call)
{
	hf_xdr_put_u32(out, call->xid);
	hf_xdr_put_u32(out, MSG_CALL);
	hf_xdr_put_u32(out, RPC_VERSION);
	hf_xdr_put_u32(out, call->program);
	hf_xdr_put_u32(out, call->version);
	hf_xdr_put_u32(out, call->procedure);
	if (call->auth_sys)
		put_auth_sys(out, call->machine);
	else
		hf_xdr_put_u64(out, 0);
	hf_xdr_put_u64(out, 0); /* verifier */
}

bool hf_rpc_peek_reply_xid(uint32_t *xidp, struct hf_bytes message)
{
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, message.data, message.len);
	*xidp = hf_xdr_get_u32(&in);
	return hf_xdr_get_u32(&in) == MSG_REPLY && hf_xdr_in_is_ok(&in);
}

enum hf_rpc_reply hf_rpc_parse_reply(struct hf_xdr_in *in)
{
	uint32_t type, accepted, stat;

	hf_xdr_get_u32(in);
	type = hf_xdr_get_u32(in);
	accepted = hf_xdr_get_u32(in);
	if (!hf_xdr_in_is_ok(in) || type != MSG_REPLY)
		return HF_RPC_REPLY_GARBAGE;
	if (accepted != REPLY_ACCEPTED)
		return accepted == REPLY_DENIED ? HF_RPC_REPLY_REFUSED : HF_RPC_REPLY_GARBAGE;
	hf_xdr_get_u32(in);
	hf_xdr_get_opaque(in, HF_RPC_MAX_AUTH);
	stat = hf_xdr_get_u32(in);
	if (!hf_xdr_in_is_ok(in))
		return HF_RPC_REPLY_GARBAGE;
	switch (stat) {
	case HF_RPC_SUCCESS:
		return HF_RPC_REPLY_OK;
	case HF_RPC_PROG_UNAVAIL:
	case HF_RPC_PROG_MISMATCH:
		return HF_RPC_REPLY_NO_PROG;
	case HF_RPC_PROC_UNAVAIL:
		return HF_RPC_REPLY_NO_PROC;
	default:
		return HF_RPC_REPLY_NO_SENSE;
	}
}
