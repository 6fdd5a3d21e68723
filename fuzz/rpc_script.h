/* The server that the RPC targets drive: two lanes in a world in memory, and programs that do one thing each.
 */
#pragma once

#include "standin/fake_world.h"
#include "rpc/server_internal.h"

#define SCRIPT_PROGRAM 1u /* served anywhere; versions 1 and 3 */
#define SCRIPT_HOME    2u /* served at home */
#define SCRIPT_PORT    2049
#define SCRIPT_LANES   2
#define SCRIPT_RECORD  70000

enum script_proc {
	SCRIPT_VOID,
	SCRIPT_ECHO,
	SCRIPT_SUSPEND,
	SCRIPT_DROP,
	SCRIPT_BIG,
	SCRIPT_COUNT,         /* replay always */
	SCRIPT_COUNT_SUSPEND, /* the same, suspended */
	SCRIPT_HOLE,
	SCRIPT_RESERVE,
	SCRIPT_N_PROCS,
};

struct script {
	struct fake_world *world;
	struct hf_loop *loops[SCRIPT_LANES];
	struct hf_rpc_lane *lanes[SCRIPT_LANES];
	struct hf_rpc_server *server;
	struct hf_rpc_call *suspended[1024];
	size_t n_suspended;
	uint32_t count;
};

/* So small that a script can meet them. */
extern const struct hf_rpc_limits script_limits;

/* @has_udp costs some megabytes to set up. */
void script_open(struct script *script, const struct hf_rpc_limits *limits, bool has_udp);
void script_close(struct script *script); /* and checks that nothing is left */
void script_release(struct script *script, size_t which, bool answer);
void script_check(struct script *script); /* what must hold between turns */
struct hf_addr script_addr(uint8_t host, uint16_t port);
size_t script_call(uint8_t *out, uint32_t xid, uint32_t program, uint32_t version, uint32_t proc,
		   const uint8_t *args, size_t len);
