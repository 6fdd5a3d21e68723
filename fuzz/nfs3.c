/*
 * Any sequence of NFS calls, by two users, on a writable and a read-only export:
 * every call has one well-formed reply, and what lies outside stays as it is.
 *
 * A call is its procedure, then pieces of its arguments, each led by a byte: a
 * known handle, a name out of a few that meet each other, a small number, a wide
 * one, or raw bytes; 0 ends it.
 */
#include <stdlib.h>
#include <string.h>

#include "files_world.h"
#include "proto/nfs3/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_CALLS 24
#define MAX_ARGS  4096

struct input {
	const uint8_t *p;
	const uint8_t *end;
};

static uint8_t take(struct input *input)
{
	return input->p < input->end ? *input->p++ : 0;
}

static size_t put_name(uint8_t *out, uint8_t which)
{
	static const char *const names[] = { "f", "d",   "e",          "l",        "n", "..",
					     ".", "a/b", "../outside", "l/secret", "" };
	const char *name = names[which % (sizeof(names) / sizeof(names[0]))];
	size_t len = strlen(name);

	memset(out, 0, 24);
	out[3] = (uint8_t)len;
	memcpy(out + 4, name, len);
	return 4 + ((len + 3) & ~(size_t)3);
}

static size_t put_raw(struct input *input, uint8_t *out, size_t len)
{
	for (size_t i = 0; i < len; i++)
		out[i] = take(input);
	return len;
}

static size_t put_piece(const struct files_world *world, struct input *input, uint8_t kind, uint8_t *out)
{
	switch (kind % 6) {
	case 1:
		return files_world_put_handle(world, take(input), out);
	case 2:
		return put_name(out, take(input));
	case 3:
		memset(out, 0, 4);
		return put_raw(input, out + 3, 1) + 3;
	case 4:
		return put_raw(input, out, 8);
	default:
		return put_raw(input, out, (size_t)(take(input) % 64) * 4);
	}
}

static void call(struct files_world *world, struct input *input)
{
	uint8_t args[MAX_ARGS], first = take(input), kind;
	size_t len = 0;

	while (len < MAX_ARGS - 512 && (kind = take(input)) != 0)
		len += put_piece(world, input, kind, args + len);
	files_world_call(world, HF_NFS_PROGRAM, 3, first % 23, args, len, first & 0x80 ? 0 : 1000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct files_world *world;
	struct input input = { data, data + size };
	static unsigned int n_runs;

	if (!world)
		world = files_world_new();
	for (int i = 0; i < MAX_CALLS && input.p < input.end; i++)
		call(world, &input);
	if (++n_runs % 64 == 0) /* not each time: it starts programs */
		files_world_reset(world);
	return 0;
}
