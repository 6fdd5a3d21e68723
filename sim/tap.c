/*
 * Looks at everything that leaves the server, as it leaves: no host is told anything that a crash at this
 * moment would make untrue.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "proto/nlm/wire.h"
#include "rpc/xdr.h"
#include "sim.h"

/* I2 */
static void check_registered(struct world *world, struct host *host, const char *what)
{
	char id[96], old_id[96], text[HF_ADDR_TEXT];

	if (!host->promised_in)
		host->promised_in = world->server->life;
	hf_addr_format(&host->addr, text, sizeof(text));
	snprintf(id, sizeof(id), "nlm:%s:%s", text, host->name);
	snprintf(old_id, sizeof(old_id), "nlm:%s:%s", text, host->old_name);
	if (!disk_has_client(world, id) && !disk_has_client(world, old_id) && !database_is_behind(world))
		world_fail(world, "I2", "host %u is told %s, and its registration is not stored", host->index,
			   what);
}

/* I3: it would be there after a crash; except for what a thread has asked to downgrade, which may have been
 * served before a reclaim is answered. */
static void check_stored(struct world *world, const struct host *host, uint32_t svid, const struct span *span,
			 const char *what)
{
	uint8_t has[MAX_FILES][N_UNITS];

	if (world->server->durability == HF_STORE_NONE || database_is_behind(world))
		return;
	disk_read_locks(world, disk_promised(world), host, svid, has);
	for (int unit = span->first; unit <= span->last; unit++)
		if (has[span->file][unit] < span->mode && !thread_asks_for_less(host, svid, span, unit))
			world_fail(world, "I3",
				   "%u of host %u is told %s for file %u, %u-%u, which is not stored", svid,
				   host->index, what, span->file, span->first, span->last);
}

/* After its own restart the server cannot match the UNLOCK of a renamed host with what the host took by its
 * old name, and releases nothing. If grace then ends, it drops that lock. Its UNLOCK is not held back for
 * that. */
static bool was_dropped(const struct world *world, const struct host *host, const struct call *call)
{
	return *host->old_name && world->server->grace_ended_at >= call->made_at;
}

/* I10: what was given up does not come back after a crash; but a store that had failed when this was first
 * answered may still have it. And the records of a file that is not exported stay, whatever its clients give
 * up: they are dropped when the file is back. The answer may be a copy from before that, or have waited. */
static void check_given_up(struct world *world, const struct host *host, struct call *call)
{
	uint8_t has[MAX_FILES][N_UNITS], stored[MAX_FILES][N_UNITS];
	const struct span *span = &call->span;
	bool was_absent = reload_is_absent(world->server, span->file) ||
			  reload_is_back_since(world, span->file, call->made_at);

	call->is_excused |=
		!world->server->continues && (!world->server->could_promise || !world->server->recovery ||
					      !hf_recovery_can_promise(world->server->recovery));
	if (was_absent)
		return;
	if (call->is_excused && call->kind == CALL_UNLOCK)
		proc_set_freed(call->proc, span, true);
	if (call->is_excused || was_dropped(world, host, call) || database_is_behind(world))
		return;
	if (call->kind == CALL_UNSHARE) {
		reservation_check_closed(world, call);
		return;
	}
	check_read_table(world, host, call->proc->svid, has);
	disk_read_locks(world, disk_promised(world), host, call->proc->svid, stored);
	for (int unit = span->first; unit <= span->last; unit++)
		if (stored[span->file][unit] && !has[span->file][unit])
			world_fail(world, "I10",
				   "%u of host %u is told that file %u, %u-%u is unlocked; it is stored",
				   call->proc->svid, host->index, span->file, span->first, span->last);
}

static bool has_twice_its_limit(struct world *world, const struct host *host)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view lock;
	uint32_t n = 0;

	while (hf_lock_next_lock(hf_recovery_locks(world->server->recovery), NULL, &cursor, &lock))
		n += check_host_of(world, lock.who.client) == host;
	return n >= 2 * world->flood.limits.locks_per_client;
}

/* A program asked for a lower mode of a part of its lock and got no answer, or was refused for want of room.
 * It reclaims that part in the lower mode, and the rest beside it: more locks than it had. There may be no
 * room for them, nor for what other programs reclaim: a client never has more than twice its limit. */
static bool reclaims_less(struct world *world, const struct host *host, const struct call *call)
{
	uint8_t stored[MAX_FILES][N_UNITS];
	const struct span *span = &call->span;

	if (has_twice_its_limit(world, host))
		return true;
	disk_read_locks(world, disk_promised(world), host, call->proc->svid, stored);
	for (int unit = span->first; unit <= span->last; unit++)
		if (stored[span->file][unit] > span->mode)
			return true;
	return false;
}

/* I4: a lock is reclaimed however full the server is. A store that has failed is no excuse: the refusal would
 * be final, so the server does not answer until the store is back. */
static void check_room(struct world *world, const struct host *host, const struct call *call)
{
	if (!*host->old_name && !reclaim_has_lost_place(host) && world->server->grace_is_on &&
	    !fate_refuses(call, HF_NLM_DENIED_NOLOCKS) &&
	    !(call->kind == CALL_RECLAIM && reclaims_less(world, host, call)))
		world_fail(world, "I4", "there is no room for what %u of host %u reclaims", call->proc->svid,
			   host->index);
}

/* The reply was lost, and the server repeats it from its cache; or it leaves late, because its connection was
 * cut. The wait may have ended since: its call-back was denied by the host in front of this one, or did not
 * reach the host. Then the registration may have ended, too: the server has promised nothing, and the program
 * polls. */
static bool is_blocked_late(const struct world *world, struct call *call, uint32_t stat)
{
	bool is_again = call->blocked_in == world->server->life;

	if (stat != HF_NLM_BLOCKED)
		return false;
	call->blocked_in = world->server->life;
	return is_again || !order_waits(call);
}

static void look_at_answer(struct world *world, struct host *host, struct call *call, uint32_t stat)
{
	bool is_lock = call->kind == CALL_LOCK || call->kind == CALL_RECLAIM;
	bool is_reservation = call->kind == CALL_SHARE || call->kind == CALL_RESHARE;
	bool is_new = call->kind == CALL_LOCK || call->kind == CALL_SHARE;

	if (world->tls.exists)
		identity_look_at_answer(call, stat);
	if (call->kind == CALL_UNLOCK && stat == HF_NLM_GRANTED_STAT)
		order_check_unlocked(call);
	if ((call->kind == CALL_UNLOCK || call->kind == CALL_UNSHARE) && stat == HF_NLM_GRANTED_STAT)
		check_given_up(world, host, call);
	if (is_lock || is_reservation)
		fate_check_answer(call, stat);
	if ((call->kind == CALL_RECLAIM || call->kind == CALL_RESHARE) && stat == HF_NLM_DENIED_NOLOCKS)
		check_room(world, host, call);
	if ((stat == HF_NLM_DENIED_NOLOCKS || fate_refuses(call, stat)) && call->is_fresh &&
	    call->sending.n == 1 && call->server_life == world->server->life &&
	    !reload_is_back_since(world, call->span.file, call->made_at) &&
	    order_is_involved(world, call->proc, &call->span))
		world_fail(world, "I10",
			   "%u of host %u is refused file %u, %u-%u, and has it, or waits for it",
			   call->proc->svid, host->index, call->span.file, call->span.first, call->span.last);
	if ((stat == HF_NLM_DENIED_NOLOCKS || fate_refuses(call, stat)) && call->kind == CALL_SHARE)
		reservation_check_refused(world, call);
	if (call->kind == CALL_LOCK && call->blocks && stat != HF_NLM_GRANTED_STAT &&
	    stat != HF_NLM_BLOCKED && stat != HF_NLM_DENIED_GRACE_PERIOD)
		order_check_refused(call);
	if ((!is_lock && !is_reservation) || (stat != HF_NLM_GRANTED_STAT && stat != HF_NLM_BLOCKED))
		return;
	if (is_lock && host->awakening == BY_STATE && host->told_life != host->life &&
	    (!host->tls.uses || identity_is_steady(host, call->made_at)))
		host_is_acknowledged(host);
	if (is_new && call->server_state != host->server_state)
		return; /* it has reclaimed its locks since, and does not take this for an answer */
	if ((!host->is_unmonitored || is_reservation) && !is_blocked_late(world, call, stat))
		check_registered(world, host, stat == HF_NLM_BLOCKED ? "BLOCKED" : "GRANTED");
	if (stat == HF_NLM_BLOCKED) {
		if (host->is_unmonitored)
			world_fail(world, "I8", "%u of host %u would wait for a call-back that never comes",
				   call->proc->svid, host->index);
		order_check_stored(call);
		return;
	}
	if (call->kind == CALL_LOCK)
		order_check_downgraded(call);
	if (is_reservation)
		reservation_check_told(world, call->proc, call);
	else if (!host->is_unmonitored)
		check_stored(world, host, call->proc->svid, &call->span, "GRANTED");
	if (is_new && world->server->grace_is_on && call->made_at >= world->server->feigned_at)
		world_fail(world, "I3", "%u of host %u gets something new in grace", call->proc->svid,
			   host->index);
}

/* I5: the server has acknowledged a host's restart. If the host sends that number again, the server must not
 * believe in another restart, which would release the locks taken since. The number is the one that its statd
 * gives. */
static void look_at_acknowledgement(struct world *world, struct host *host, const struct call *call)
{
	struct hf_xdr_in in;
	struct hf_bytes name;
	int32_t stored;

	hf_xdr_in_init(&in, call->bytes, call->len);
	for (int i = 0; i < 10; i++) /* the header */
		hf_xdr_get_u32(&in);
	name = hf_xdr_get_string(&in, 1024);
	/* If no number is known, a copy is checked as the first one was. */
	if (host_get_stored_state(host, name, &stored) && stored && !database_is_behind(world) &&
	    stored != host->state && stored != host->statd_state && !rogue_is_false_number_stored(host))
		world_fail(world, "I5",
			   "host %u is told that its restart is known, and state %d is stored, not %d",
			   host->index, stored, host->state);
	if (!database_is_behind(world) && disk_count_older(disk_promised(world), host, name))
		world_fail(world, "I5",
			   "host %u is told that its restart is known, and what it had is stored",
			   host->index);
	host_is_acknowledged(host);
}

static void look_at_reply(struct world *world, struct host *host, uint32_t xid, struct hf_xdr_in *in)
{
	struct call *call = talk_find_xid(host, xid);
	uint32_t stat;

	if (call && (call->kind == CALL_NOTIFY || call->kind == CALL_FREE_ALL))
		look_at_acknowledgement(world, host, call);
	if (!call || !call->proc || (host->flavour == BSD && call->kind <= CALL_TEST))
		return;
	hf_xdr_get_u32(in);
	hf_xdr_get_u32(in);
	hf_xdr_get_opaque(in, 400);
	hf_xdr_get_u32(in);
	hf_xdr_get_opaque(in, 1024);
	stat = hf_xdr_get_u32(in);
	if (hf_xdr_in_is_ok(in))
		look_at_answer(world, host, call, stat);
}

static void look_at_granted(struct world *world, struct host *host, uint32_t version, struct hf_xdr_in *in)
{
	uint8_t has[MAX_FILES][N_UNITS];
	struct hf_bytes handle;
	struct span span = { 0 };
	struct hf_range range;
	struct hf_bytes oh;
	uint64_t offset, len;
	uint32_t svid;

	hf_xdr_get_opaque(in, 1024);
	span.mode = hf_xdr_get_bool(in) ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
	hf_xdr_get_opaque(in, 1024);
	handle = hf_xdr_get_opaque(in, 64);
	oh = hf_xdr_get_opaque(in, 1024);
	svid = hf_xdr_get_u32(in);
	offset = version == 4 ? hf_xdr_get_u64(in) : hf_xdr_get_u32(in);
	len = version == 4 ? hf_xdr_get_u64(in) : hf_xdr_get_u32(in);
	if (!hf_xdr_in_is_ok(in) || hf_range_from_offset_len(&range, offset, len) ||
	    !span_of_range(&span, range))
		return;
	span.file = handle.data[0];
	if (host->is_shared && !nat_has_oh(host, svid, oh))
		return; /* for the host behind it */
	if (!world->server->recovery || !host->is_up || svid / 100 != host->life)
		return;                       /* it is dead, and no other host knows */
	if (proc_awaits(host, svid, &span)) { /* else it has the lock already, and its answer was lost */
		check_registered(world, host, "GRANTED by call-back");
		check_stored(world, host, svid, &span, "GRANTED by call-back");
	}
	check_read_table(world, host, svid, has);
	for (int unit = span.first; unit <= span.last; unit++)
		if (has[span.file][unit] < span.mode)
			world_fail(world, "I8", "%u of host %u is called back for what it has not", svid,
				   host->index);
}

static void look_at_res(struct world *world, struct host *host, struct hf_xdr_in *in)
{
	struct hf_bytes cookie = hf_xdr_get_opaque(in, 1024);
	struct call *call = NULL;
	uint64_t number;
	uint32_t stat = hf_xdr_get_u32(in);

	if (cookie.len == sizeof(number)) {
		memcpy(&number, cookie.data, sizeof(number));
		call = talk_find_cookie(host, le64toh(number));
	}
	if (call && call->proc && hf_xdr_in_is_ok(in))
		look_at_answer(world, host, call, stat);
}

static void look_at_call(struct world *world, struct host *host, struct hf_xdr_in *in)
{
	uint32_t program, version, procedure;

	hf_xdr_get_u32(in);
	program = hf_xdr_get_u32(in);
	version = hf_xdr_get_u32(in);
	procedure = hf_xdr_get_u32(in);
	for (int i = 0; i < 2; i++) {
		hf_xdr_get_u32(in);
		hf_xdr_get_opaque(in, 400);
	}
	if (program != HF_NLM_PROGRAM)
		return;
	if (procedure == HF_NLM_GRANTED || procedure == HF_NLM_GRANTED_MSG)
		look_at_granted(world, host, version, in);
	else if (procedure == HF_NLM_LOCK_RES || procedure == HF_NLM_UNLOCK_RES)
		look_at_res(world, host, in);
}

/* @is_asked: it goes to the port that the host calls from. Otherwise it is the reply to a forged call. */
static void look_at_message(struct world *world, const struct hf_addr *to, bool is_asked, const uint8_t *data,
			    size_t len)
{
	struct host *host = net_host(world, to);
	struct hf_xdr_in in;
	uint32_t xid;

	if (monitor_is(to))
		monitor_tap(world, data, len);
	if (!host)
		return;
	hf_xdr_in_init(&in, data, len);
	xid = hf_xdr_get_u32(&in);
	if (hf_xdr_get_u32(&in) != 1)
		look_at_call(world, host, &in);
	else if (is_asked)
		look_at_reply(world, host, xid, &in);
}

void tap_datagram(struct world *world, const struct hf_addr *to, const uint8_t *data, size_t len)
{
	const struct host *host = net_host(world, to);

	if (world->tls.exists)
		intruder_tap(world, data, len);
	look_at_message(world, to, host && host->addr.port == to->port, data, len);
}

/* Records, as the server is about to write them; the rest of a short write was looked at already. */
void tap_stream(struct conn *conn, const uint8_t *data, size_t len)
{
	size_t at = conn->tap_ahead;

	while (at + 4 <= len) {
		uint32_t mark, record;

		memcpy(&mark, data + at, 4);
		record = ntohl(mark) & 0x7fffffffu;
		at += 4;
		if (conn->host)
			look_at_message(conn->world, &conn->client_end, true, data + at,
					HF_MIN((size_t)record, len - at));
		at += HF_MIN((size_t)record, len - at);
	}
}
