/* Any bytes as a call of MOUNT in both versions: one well-formed reply; and any text as a path leads to a
 * directory of an export or nowhere. */
#include <string.h>

#include "files_world.h"
#include "proto/mount/mount.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mount_path(struct files_world *world, uint32_t version, const uint8_t *path, size_t len)
{
	uint8_t args[4 + 1024] = { 0 };

	args[2] = (uint8_t)(len >> 8);
	args[3] = (uint8_t)len;
	memcpy(args + 4, path, len);
	files_world_call(world, HF_MOUNT_PROGRAM, version, 1, args, 4 + ((len + 3) & ~(size_t)3), 0);
	files_world_call(world, HF_MOUNT_PROGRAM, version, 3, args, 4 + ((len + 3) & ~(size_t)3), 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct files_world *world;
	uint32_t version;

	if (!world)
		world = files_world_new();
	if (size < 2 || size > 1000)
		return 0;
	version = data[0] & 1 ? 3 : 1;
	if (data[0] & 2)
		mount_path(world, version, data + 1, size - 1);
	else
		files_world_call(world, HF_MOUNT_PROGRAM, version, data[0] >> 2, data + 1,
				 (size - 1) & ~(size_t)3, 0);
	return 0;
}
