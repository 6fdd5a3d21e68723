/* Path and query of a request, as any client may send them. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hf_api_target target;
	uint64_t words[HF_API_CURSOR_WORDS], again[HF_API_CURSOR_WORDS];
	char text[HF_API_CURSOR_TEXT];
	const char *id;
	char *uri = malloc(size + 1);

	memcpy(uri, data, size);
	uri[size] = '\0';
	if (!hf_api_target_parse(&target, uri)) {
		for (size_t i = 0; i < target.n_segments; i++)
			assert(*target.segments[i]);
		for (size_t i = 0; i < target.n_params; i++)
			assert(hf_api_target_param(&target, target.params[i].name) == target.params[i].value);
		if (hf_api_target_matches(&target, "/api/v1/clients/{id}", &id))
			assert(id && target.n_segments == 4);
	}
	if (hf_api_cursor_parse(uri, words, HF_API_CURSOR_WORDS)) {
		hf_api_cursor_format(words, HF_API_CURSOR_WORDS, text);
		assert(hf_api_cursor_parse(text, again, HF_API_CURSOR_WORDS));
		assert(memcmp(words, again, sizeof(words)) == 0);
	}
	free(uri);
	return 0;
}
