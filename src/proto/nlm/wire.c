#include "proto/nlm/wire.h"

#include "base/macros.h"

#define OLD_MAX ((uint64_t)INT32_MAX) /* the last byte that versions 1 and 3 know */

static bool is_old(uint32_t version)
{
	return version < 4;
}

/*
 * Decoding. LOCK and UNLOCK are what this server is for, so their arguments are read in one go, with a copy
 * of the cursor.
 */

static inline bool read_alock(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	const uint8_t *p;

	if (!hf_xdr_read_opaque(&args->caller, in, HF_NLM_MAX_STRING) ||
	    memchr(args->caller.data, '\0', args->caller.len) ||
	    !hf_xdr_read_opaque(&args->handle, in, HF_NLM_MAX_HANDLE) ||
	    !hf_xdr_read_opaque(&args->oh, in, HF_NLM_MAX_NETOBJ))
		return false;
	p = hf_xdr_take(in, is_old(version) ? 12 : 20);
	if (!p)
		return false;
	args->svid = (int32_t)hf_xdr_word(p);
	args->offset = is_old(version) ? hf_xdr_word(p + 4) : hf_xdr_double_word(p + 4);
	args->len = is_old(version) ? hf_xdr_word(p + 8) : hf_xdr_double_word(p + 12);
	return true;
}

/* What is around the lock. */
enum shape {
	HAS_BLOCK = 1 << 0,
	HAS_EXCLUSIVE = 1 << 1,
	HAS_RECLAIM = 1 << 2, /* and the state */
};

static inline bool read_args(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in,
			     unsigned int shape)
{
	const uint8_t *p = NULL;

	if (!hf_xdr_read_opaque(&args->cookie, in, HF_NLM_MAX_NETOBJ))
		return false;
	args->block = args->exclusive = args->reclaim = false;
	args->state = 0;
	args->deny = args->access = 0;
	if (shape & HAS_BLOCK) {
		p = hf_xdr_take(in, 4);
		args->block = p && hf_xdr_word(p) != 0;
	}
	if (shape & HAS_EXCLUSIVE) {
		p = hf_xdr_take(in, 4);
		args->exclusive = p && hf_xdr_word(p) != 0;
	}
	if (!read_alock(args, version, in))
		return false;
	if (shape & HAS_RECLAIM) {
		p = hf_xdr_take(in, 8);
		args->reclaim = p && hf_xdr_word(p) != 0;
		args->state = p ? (int32_t)hf_xdr_word(p + 4) : 0;
	}
	return hf_xdr_in_is_ok(in);
}

static inline void get_args(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in,
			    unsigned int shape)
{
	struct hf_xdr_in mine = *in;

	if (HF_LIKELY(read_args(args, version, &mine, shape))) {
		*in = mine;
		return;
	}
	*args = (struct hf_nlm_args){ 0 };
	hf_xdr_in_fail(in);
}

void hf_nlm_get_test(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	get_args(args, version, in, HAS_EXCLUSIVE);
}

void hf_nlm_get_lock(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	get_args(args, version, in, HAS_BLOCK | HAS_EXCLUSIVE | HAS_RECLAIM);
}

void hf_nlm_get_cancel(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	get_args(args, version, in, HAS_BLOCK | HAS_EXCLUSIVE);
}

void hf_nlm_get_unlock(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in)
{
	get_args(args, version, in, 0);
}

void hf_nlm_get_share(struct hf_nlm_args *args, struct hf_xdr_in *in)
{
	*args = (struct hf_nlm_args){ .cookie = hf_xdr_get_opaque(in, HF_NLM_MAX_NETOBJ) };
	args->caller = hf_xdr_get_string(in, HF_NLM_MAX_STRING);
	args->handle = hf_xdr_get_opaque(in, HF_NLM_MAX_HANDLE);
	args->oh = hf_xdr_get_opaque(in, HF_NLM_MAX_NETOBJ);
	args->deny = hf_xdr_get_u32(in);
	args->access = hf_xdr_get_u32(in);
	if (hf_xdr_in_left(in)) /* some clients leave it out */
		args->reclaim = hf_xdr_get_bool(in);
	if (args->deny > 3 || args->access > 3)
		hf_xdr_in_fail(in);
}

void hf_nlm_get_res(struct hf_nlm_res *res, struct hf_xdr_in *in)
{
	res->cookie = hf_xdr_get_opaque(in, HF_NLM_MAX_NETOBJ);
	res->stat = (enum hf_nlm_stat)hf_xdr_get_u32(in);
}

void hf_nlm_get_notify(struct hf_nlm_notify *notify, struct hf_xdr_in *in)
{
	notify->name = hf_xdr_get_string(in, HF_NLM_MAX_STRING);
	notify->state = hf_xdr_get_i32(in);
}

void hf_nlm_get_sm_notify(struct hf_nlm_notify *notify, struct hf_xdr_in *in)
{
	hf_nlm_get_notify(notify, in);
	hf_xdr_get_fixed(in, 16); /* priv: the cookie of a registration with a statd; the server has none */
}

/* A range of the old versions that ends beyond what they can say goes to the end, as Linux reads it. */
int hf_nlm_range_of(struct hf_range *rangep, uint32_t version, const struct hf_nlm_args *args)
{
	bool is_beyond = is_old(version) && args->len && args->offset + args->len - 1 > OLD_MAX;

	return hf_range_from_offset_len(rangep, args->offset, is_beyond ? 0 : args->len);
}

/* Encoding */

/* Statuses that the old versions do not have. */
static enum hf_nlm_stat narrow_stat(uint32_t version, enum hf_nlm_stat stat)
{
	if (!is_old(version) || stat < HF_NLM_DEADLCK)
		return stat;
	return stat == HF_NLM_DEADLCK ? HF_NLM_DENIED : HF_NLM_DENIED_NOLOCKS;
}

void hf_nlm_put_res(struct hf_xdr_out *out, uint32_t version, struct hf_bytes cookie, enum hf_nlm_stat stat)
{
	size_t padded = (cookie.len + 3) & ~(size_t)3;
	uint8_t *p = hf_xdr_reserve(out, 4 + padded + 4);

	if (!p)
		return;
	hf_xdr_set_word(p + padded, 0); /* the padding, if any; the rest of the word is written now */
	hf_xdr_set_word(p, (uint32_t)cookie.len);
	if (cookie.len)
		memcpy(p + 4, cookie.data, cookie.len);
	hf_xdr_set_word(p + 4 + padded, narrow_stat(version, stat));
}

static void put_range(struct hf_xdr_out *out, uint32_t version, uint64_t offset, uint64_t len)
{
	if (is_old(version)) {
		hf_xdr_put_u32(out, (uint32_t)offset);
		hf_xdr_put_u32(out, (uint32_t)len);
	} else {
		hf_xdr_put_u64(out, offset);
		hf_xdr_put_u64(out, len);
	}
}

/* The range of another owner. If the old versions cannot say it, as much of it as they can. */
static void put_holder_range(struct hf_xdr_out *out, uint32_t version, uint64_t offset, uint64_t len)
{
	if (is_old(version) && offset > OLD_MAX)
		offset = OLD_MAX;
	if (is_old(version) && len && len - 1 > OLD_MAX - offset)
		len = 0;
	put_range(out, version, offset, len);
}

void hf_nlm_put_test_res(struct hf_xdr_out *out, uint32_t version, struct hf_bytes cookie,
			 enum hf_nlm_stat stat, const struct hf_nlm_holder *holder)
{
	hf_nlm_put_res(out, version, cookie, stat);
	if (narrow_stat(version, stat) != HF_NLM_DENIED)
		return;
	hf_xdr_put_bool(out, holder->exclusive);
	hf_xdr_put_i32(out, holder->svid);
	hf_xdr_put_opaque(out, holder->oh);
	put_holder_range(out, version, holder->offset, holder->len);
}

void hf_nlm_put_share_res(struct hf_xdr_out *out, uint32_t version, struct hf_bytes cookie,
			  enum hf_nlm_stat stat)
{
	hf_nlm_put_res(out, version, cookie, stat);
	hf_xdr_put_u32(out, 0); /* sequence: clients ignore it */
}

void hf_nlm_put_granted(struct hf_xdr_out *out, uint32_t version, const struct hf_nlm_args *args)
{
	hf_xdr_put_opaque(out, args->cookie);
	hf_xdr_put_bool(out, args->exclusive);
	hf_xdr_put_opaque(out, args->caller);
	hf_xdr_put_opaque(out, args->handle);
	hf_xdr_put_opaque(out, args->oh);
	hf_xdr_put_i32(out, args->svid);
	put_range(out, version, args->offset, args->len);
}

/* Names */

const char *hf_nlm_stat_name(enum hf_nlm_stat stat)
{
	static const char *const names[] = {
		[HF_NLM_GRANTED_STAT] = "GRANTED",
		[HF_NLM_DENIED] = "DENIED",
		[HF_NLM_DENIED_NOLOCKS] = "DENIED_NOLOCKS",
		[HF_NLM_BLOCKED] = "BLOCKED",
		[HF_NLM_DENIED_GRACE_PERIOD] = "DENIED_GRACE_PERIOD",
		[HF_NLM_DEADLCK] = "DEADLCK",
		[HF_NLM_ROFS] = "ROFS",
		[HF_NLM_STALE_FH] = "STALE_FH",
		[HF_NLM_FBIG] = "FBIG",
		[HF_NLM_FAILED] = "FAILED",
	};

	return (size_t)stat < HF_ARRAY_SIZE(names) ? names[stat] : "FAILED";
}
