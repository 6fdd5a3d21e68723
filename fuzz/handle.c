/* Any bytes as a handle, and any change to a handle of the server: the server takes none but the very handle
 * that it gave out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "export/export.h"
#include "loop/loop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct state {
	struct hf_loop *loop;
	struct hf_exports *exports;
	struct hf_handle good;
};

static char base[] = "/dev/shm/hf-fuzz-XXXXXX";

static void remove_leftover(void)
{
	rmdir(base);
}

static void must(bool truth)
{
	if (!truth)
		abort();
}

static struct state *make_state(void)
{
	static const struct hf_client_rule any = { .text = "*", .kind = HF_CLIENT_ANY };
	static const struct hf_export_rule rule = { .clients = &any, .n_clients = 1 };
	char key[80];
	struct state *state = calloc(1, sizeof(*state));
	struct hf_export_settings settings = { .path = base, .name = "/x", .rules = &rule, .n_rules = 1 };
	struct hf_export_list list = { 0 };
	size_t n_failed;

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	must(mkdtemp(base) != NULL && hf_loop_new(&state->loop) == 0);
	must(hf_exports_new(&state->exports, &(struct hf_exports_options){ .state_dir = base,
									   .max_open_fds = 64,
									   .loop = state->loop }) == 0);
	must(hf_exports_load(state->exports, &settings, 1, &n_failed) == 0 && n_failed == 0);
	must(hf_exports_list(state->exports, &list) == 0);
	hf_exports_make_handle(state->exports, list.items[0], &list.items[0]->volume->root_id, &state->good);
	hf_export_list_clear(&list);
	snprintf(key, sizeof(key), "%s/handle.key", base);
	unlink(key);
	atexit(remove_leftover);
	return state;
}

static void expect(struct state *state, const uint8_t *bytes, size_t len)
{
	bool is_good = len == state->good.len && memcmp(bytes, state->good.bytes, len) == 0;
	struct hf_export *export = NULL;
	struct hf_file *file = NULL;
	int r = hf_exports_resolve(state->exports, hf_bytes_of(bytes, (uint32_t)len), false, &export, &file);

	must(r == (is_good ? HF_RESOLVED : HF_HANDLE_BAD));
	hf_file_unref(file);
	hf_export_unref(export);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct state *state;
	uint8_t changed[HF_HANDLE_MAX];
	size_t len;

	if (!state)
		state = make_state();
	expect(state, data, size);
	/* The input as what is different. */
	memcpy(changed, state->good.bytes, sizeof(changed));
	for (size_t i = 0; i < size && i < sizeof(changed); i++)
		changed[i] ^= data[i];
	len = size ? state->good.len - 2 + data[size - 1] % 5 : state->good.len;
	expect(state, changed, len < sizeof(changed) ? len : sizeof(changed));
	expect(state, changed, state->good.len);
	return 0;
}
