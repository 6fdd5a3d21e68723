#include "files_world.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "export/export.h"
#include "standin/fake_world.h"
#include "loop/loop.h"
#include "proto/mount/mount.h"
#include "proto/nfs3/nfs3.h"
#include "proto/nfs3/wire.h"
#include "rpc/server.h"
#include "rpc/xdr.h"
#include "vfs/jobs.h"

#define REPLY_MAX 70000

struct files_world {
	char base[64];
	struct fake_world *world;
	struct hf_loop *loop;
	struct hf_rpc_server *server;
	struct hf_rpc_lane *lane;
	struct hf_exports *exports;
	struct hf_jobs *jobs;
	struct hf_mount mount;
	struct hf_nfs3 nfs;
	uint32_t xid;
	size_t n_handles;
	struct hf_handle handles[FILES_WORLD_HANDLES];
	size_t next;
	uint8_t reply[REPLY_MAX];
};

/* Open files stay in the cache from one input to the next, which libFuzzer takes for a leak and looks for it
 * each time. Other tests look for leaks. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static char leftover[64]; /* for the end of the process, which knows no arguments */

static void remove_leftover(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", leftover);
	if (*leftover && system(command) != 0)
		perror(leftover);
}

static void must(bool truth)
{
	if (!truth)
		abort();
}

static struct hf_addr addr_of(uint8_t host, uint16_t port)
{
	return (struct hf_addr){ .family = AF_INET, .port = port, .ip = { 127, 0, 0, host } };
}

/* In the temporary place. */
static void run(const struct files_world *world, const char *words)
{
	char command[512];

	snprintf(command, sizeof(command), "cd %s && %s", world->base, words);
	must(system(command) == 0);
}

static void make_trees(const struct files_world *world)
{
	run(world, "mkdir -p rw ro outside state && echo secret > outside/secret && mkdir -p ro/d rw/d/e &&"
		   " echo data > ro/f && echo data > rw/f && ln -s ../outside rw/l && chmod 777 rw rw/d");
}

static void load(struct files_world *world)
{
	static const struct hf_client_rule any = { .text = "*", .kind = HF_CLIENT_ANY };
	static const struct hf_export_rule writers = { .clients = &any, .n_clients = 1 };
	static const struct hf_export_rule readers = { .clients = &any, .n_clients = 1, .read_only = true };
	char rw[80], ro[80];
	struct hf_export_settings settings[2];
	size_t n_failed;

	snprintf(rw, sizeof(rw), "%s/rw", world->base);
	snprintf(ro, sizeof(ro), "%s/ro", world->base);
	settings[0] = (struct hf_export_settings){
		.path = rw, .name = "/rw", .rules = &writers, .n_rules = 1, .async = true
	};
	settings[1] = settings[0];
	settings[1].path = ro;
	settings[1].name = "/ro";
	settings[1].rules = &readers;
	must(hf_exports_load(world->exports, settings, 2, &n_failed) == 0 && n_failed == 0);
}

static void remember(struct files_world *world, const uint8_t *bytes, uint32_t len)
{
	size_t at = world->n_handles;

	if (len == 0 || len > HF_HANDLE_MAX)
		return;
	if (at == FILES_WORLD_HANDLES)
		at = FILES_WORLD_ROOTS + world->next++ % (FILES_WORLD_HANDLES - FILES_WORLD_ROOTS);
	else
		world->n_handles++;
	world->handles[at].len = (uint8_t)len;
	memcpy(world->handles[at].bytes, bytes, len);
}

static void learn_roots(struct files_world *world)
{
	struct hf_export_list list = { 0 };

	must(hf_exports_list(world->exports, &list) == 0);
	world->n_handles = 0;
	for (size_t i = 0; i < FILES_WORLD_ROOTS; i++) {
		struct hf_handle handle;

		hf_exports_make_handle(world->exports, list.items[i], &list.items[i]->volume->root_id,
				       &handle);
		remember(world, handle.bytes, handle.len);
	}
	hf_export_list_clear(&list);
}

struct files_world *files_world_new(void)
{
	struct files_world *world = calloc(1, sizeof(*world));
	struct hf_addr server = addr_of(1, 0);
	uint16_t port = 2049;
	char state[80];

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	strcpy(world->base, "/dev/shm/hf-fuzz-XXXXXX");
	must(mkdtemp(world->base) != NULL);
	strcpy(leftover, world->base);
	atexit(remove_leftover);
	chmod(world->base, 0755);
	make_trees(world);
	snprintf(state, sizeof(state), "%s/state", world->base);
	world->world = fake_world_new(1);
	must(fake_loop_new(&world->loop, world->world) == 0);
	must(hf_rpc_server_new(&world->server, &hf_rpc_default_limits) == 0);
	must(hf_rpc_server_add_lane(world->server, world->loop, &world->lane) == 0);
	must(hf_exports_new(&world->exports, &(struct hf_exports_options){ .state_dir = state,
									   .max_open_fds = 128,
									   .loop = world->loop }) == 0);
	must(hf_jobs_new(&world->jobs, 1, 0) == 0);
	hf_mount_init(&world->mount, world->exports, world->jobs);
	hf_nfs3_init(&world->nfs, world->exports, world->jobs, world->loop);
	hf_rpc_server_add_program(world->server, &hf_mount_program, &world->mount);
	hf_rpc_server_add_program(world->server, &hf_nfs3_program, &world->nfs);
	must(hf_rpc_server_listen_udp(world->server, &server, &port) == 0);
	load(world);
	learn_roots(world);
	return world;
}

void files_world_reset(struct files_world *world)
{
	/* As it was made: the same names, the same content, nothing more. */
	run(world,
	    "[ \"$(cat outside/secret ro/f | tr '\\n' ' ')\" = 'secret data ' ] &&"
	    " [ \"$(find outside ro | sort | tr '\\n' ' ')\" = 'outside outside/secret ro ro/d ro/f ' ]");
	run(world,
	    "cd rw && find . -mindepth 1 -delete && mkdir -p d/e && echo data > f && ln -s ../outside l &&"
	    " chmod 777 . d");
	for (int i = 0; i < 12; i++)
		hf_exports_sweep(world->exports);
	hf_files_close_all(hf_exports_files(world->exports));
	learn_roots(world);
}

static size_t put_call(struct files_world *world, uint8_t *out, const uint32_t words[5], const uint8_t *args,
		       size_t len)
{
	struct hf_xdr_out xdr;

	hf_xdr_out_init(&xdr, out, REPLY_MAX);
	hf_xdr_put_u32(&xdr, words[0]);
	hf_xdr_put_u32(&xdr, 0);
	hf_xdr_put_u32(&xdr, 2);
	hf_xdr_put_u32(&xdr, words[1]);
	hf_xdr_put_u32(&xdr, words[2]);
	hf_xdr_put_u32(&xdr, words[3]);
	hf_xdr_put_u32(&xdr, 1);
	hf_xdr_put_u32(&xdr, 20);
	hf_xdr_put_u32(&xdr, 0);
	hf_xdr_put_u32(&xdr, 0);
	hf_xdr_put_u32(&xdr, words[4]);
	hf_xdr_put_u32(&xdr, words[4]);
	hf_xdr_put_u32(&xdr, 0);
	hf_xdr_put_u32(&xdr, 0);
	hf_xdr_put_u32(&xdr, 0);
	memcpy(hf_xdr_reserve(&xdr, len), args, len);
	return (size_t)(xdr.p - out);
}

/* The handle that LOOKUP, CREATE and their like give. */
static void learn_handle(struct files_world *world, uint32_t procedure, const uint8_t *results, size_t len)
{
	struct hf_xdr_in in;
	struct hf_bytes handle;

	hf_xdr_in_init(&in, results + 4, len - 4);
	if (procedure >= NFSPROC3_CREATE && procedure <= NFSPROC3_MKNOD) {
		if (!hf_xdr_get_bool(&in))
			return;
	} else if (procedure != NFSPROC3_LOOKUP) {
		return;
	}
	handle = hf_nfs3_get_fh(&in);
	must(hf_xdr_in_is_ok(&in) && handle.len > 0);
	remember(world, handle.data, handle.len);
}

int files_world_call(struct files_world *world, uint32_t program, uint32_t version, uint32_t procedure,
		     const uint8_t *args, size_t len, uint32_t uid)
{
	static uint8_t call[REPLY_MAX];
	const uint32_t words[5] = { ++world->xid, program, version, procedure, uid };
	struct hf_addr me = addr_of(2, 700), server = addr_of(1, 2049), from, to;
	size_t call_len = put_call(world, call, words, args, len);
	ssize_t reply_len;
	uint32_t stat;

	must(fake_datagram_send(world->world, &me, &server, call, call_len));
	fake_world_settle(world->world);
	reply_len = fake_datagram_receive(world->world, &from, &to, world->reply, sizeof(world->reply));
	must(reply_len >= 24 && reply_len % 4 == 0 && memcmp(world->reply, call, 4) == 0);
	must(fake_datagram_receive(world->world, &from, &to, call, sizeof(call)) < 0);
	memcpy(&stat, world->reply + 20, 4);
	must(be32toh(stat) <= 4); /* never SYSTEM_ERR */
	if (stat || reply_len == 24)
		return -1;
	memcpy(&stat, world->reply + 24, 4);
	if (program == HF_NFS_PROGRAM && version == 3 && stat == 0)
		learn_handle(world, procedure, world->reply + 24, (size_t)reply_len - 24);
	return (int)be32toh(stat);
}

size_t files_world_put_handle(const struct files_world *world, size_t which, uint8_t out[68])
{
	const struct hf_handle *handle = &world->handles[which % world->n_handles];
	struct hf_xdr_out xdr;

	hf_xdr_out_init(&xdr, out, 68);
	hf_nfs3_put_fh(&xdr, handle);
	return (size_t)(xdr.p - out);
}
