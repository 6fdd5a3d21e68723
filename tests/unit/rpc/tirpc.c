#include "tirpc.h"

#include <rpc/rpc.h>
#include <string.h>

static bool_t no_results(XDR *xdr, ...)
{
	return TRUE;
}

size_t tirpc_encode_call(void *data, size_t room, const struct tirpc_call *call)
{
	char name[256], body[MAX_AUTH_BYTES];
	gid_t gids[16];
	struct authunix_parms sys = { .aup_time = 77,
				      .aup_machname = name,
				      .aup_uid = call->uid,
				      .aup_gid = call->gid,
				      .aup_len = call->n_gids,
				      .aup_gids = gids };
	struct rpc_msg message = { .rm_xid = call->xid, .rm_direction = CALL };
	XDR xdr;

	memcpy(name, call->name, sizeof(name));
	memcpy(gids, call->gids, sizeof(gids));
	message.rm_call.cb_rpcvers = 2;
	message.rm_call.cb_prog = call->program;
	message.rm_call.cb_vers = call->version;
	message.rm_call.cb_proc = call->procedure;
	if (call->is_sys) {
		xdrmem_create(&xdr, body, sizeof(body), XDR_ENCODE);
		if (!xdr_authunix_parms(&xdr, &sys))
			return 0;
		message.rm_call.cb_cred.oa_flavor = AUTH_SYS;
		message.rm_call.cb_cred.oa_base = body;
		message.rm_call.cb_cred.oa_length = xdr_getpos(&xdr);
	}
	xdrmem_create(&xdr, data, (u_int)room, XDR_ENCODE);
	return xdr_callmsg(&xdr, &message) ? xdr_getpos(&xdr) : 0;
}

static bool decode_sys(struct tirpc_call *call, char *body, u_int len)
{
	struct authunix_parms sys = { 0 };
	bool ok;
	XDR xdr;

	xdrmem_create(&xdr, body, len, XDR_DECODE);
	ok = xdr_authunix_parms(&xdr, &sys) && xdr_getpos(&xdr) == len;
	if (ok) {
		call->uid = sys.aup_uid;
		call->gid = sys.aup_gid;
		call->n_gids = sys.aup_len;
		if (sys.aup_len)
			memcpy(call->gids, sys.aup_gids, sys.aup_len * sizeof(gid_t));
		strncpy(call->name, sys.aup_machname, sizeof(call->name) - 1);
	}
	xdr_free((xdrproc_t)xdr_authunix_parms, (char *)&sys);
	return ok;
}

size_t tirpc_decode_call(struct tirpc_call *call, void *data, size_t len)
{
	char cred[MAX_AUTH_BYTES], verifier[MAX_AUTH_BYTES];
	struct rpc_msg message = { 0 };
	XDR xdr;

	message.rm_call.cb_cred.oa_base = cred;
	message.rm_call.cb_verf.oa_base = verifier;
	xdrmem_create(&xdr, data, (u_int)len, XDR_DECODE);
	if (!xdr_callmsg(&xdr, &message))
		return 0;
	memset(call, 0, sizeof(*call));
	call->xid = message.rm_xid;
	call->program = (uint32_t)message.rm_call.cb_prog;
	call->version = (uint32_t)message.rm_call.cb_vers;
	call->procedure = (uint32_t)message.rm_call.cb_proc;
	call->is_sys = message.rm_call.cb_cred.oa_flavor == AUTH_SYS;
	if (call->is_sys && !decode_sys(call, cred, message.rm_call.cb_cred.oa_length))
		return 0;
	return xdr_getpos(&xdr);
}

size_t tirpc_encode_reply(void *data, size_t room, const struct tirpc_reply *reply)
{
	char verifier[MAX_AUTH_BYTES] = { 0 };
	struct rpc_msg message = { .rm_xid = reply->xid, .rm_direction = REPLY };
	XDR xdr;

	if (reply->is_denied) {
		message.rm_reply.rp_stat = MSG_DENIED;
		message.rjcted_rply.rj_stat = reply->stat;
		if (reply->stat == AUTH_ERROR) {
			message.rjcted_rply.rj_why = reply->why;
		} else {
			message.rjcted_rply.rj_vers.low = reply->low;
			message.rjcted_rply.rj_vers.high = reply->high;
		}
	} else {
		message.rm_reply.rp_stat = MSG_ACCEPTED;
		message.acpted_rply.ar_stat = reply->stat;
		message.acpted_rply.ar_verf.oa_base = verifier;
		message.acpted_rply.ar_verf.oa_length = reply->verifier_len;
		if (reply->stat == SUCCESS) {
			message.acpted_rply.ar_results.proc = no_results;
		} else {
			message.acpted_rply.ar_vers.low = reply->low;
			message.acpted_rply.ar_vers.high = reply->high;
		}
	}
	xdrmem_create(&xdr, data, (u_int)room, XDR_ENCODE);
	return xdr_replymsg(&xdr, &message) ? xdr_getpos(&xdr) : 0;
}

size_t tirpc_decode_reply(struct tirpc_reply *reply, void *data, size_t len)
{
	char verifier[MAX_AUTH_BYTES];
	struct rpc_msg message = { 0 };
	XDR xdr;

	message.acpted_rply.ar_verf.oa_base = verifier;
	message.acpted_rply.ar_results.proc = no_results;
	xdrmem_create(&xdr, data, (u_int)len, XDR_DECODE);
	if (!xdr_replymsg(&xdr, &message))
		return 0;
	memset(reply, 0, sizeof(*reply));
	reply->xid = message.rm_xid;
	reply->is_denied = message.rm_reply.rp_stat == MSG_DENIED;
	if (reply->is_denied) {
		reply->stat = message.rjcted_rply.rj_stat;
		if (reply->stat == AUTH_ERROR) {
			reply->why = message.rjcted_rply.rj_why;
		} else {
			reply->low = (uint32_t)message.rjcted_rply.rj_vers.low;
			reply->high = (uint32_t)message.rjcted_rply.rj_vers.high;
		}
	} else {
		reply->stat = message.acpted_rply.ar_stat;
		if (reply->stat == PROG_MISMATCH) {
			reply->low = (uint32_t)message.acpted_rply.ar_vers.low;
			reply->high = (uint32_t)message.acpted_rply.ar_vers.high;
		}
	}
	return xdr_getpos(&xdr);
}
