/* Any bytes as a configuration file: it loads, or one line says why not; and what loads, prints and loads
 * again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		abort();
}

static struct hf_config *load(const void *text, size_t len)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;
	int r = hf_config_load_text(&config, "fuzz.yaml", text, len, HF_CONFIG_PURE, error, sizeof(error));

	must(r == 0 || r == HF_CONFIG_E_WRONG);
	must((r == 0) == (config != NULL) && (r == 0) == (*error == '\0'));
	if (r)
		must(strncmp(error, "fuzz.yaml:", 10) == 0 && !strpbrk(error, "\r\n\033"));
	return config;
}

static char *print(const struct hf_config *config, size_t *lenp)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, lenp);

	hf_config_print(config, out);
	fclose(out);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	hf_cleanup(hf_config_freep) struct hf_config *config = load(data, size);
	hf_cleanup(hf_config_freep) struct hf_config *again = NULL;
	hf_cleanup(hf_freep) char *text = NULL, *second = NULL;
	size_t len, second_len;

	if (!config)
		return 0;
	text = print(config, &len);
	again = load(text, len);
	if (!again && len > HF_CONFIG_MAX_BYTES)
		return 0; /* aliases written out may pass the limit */
	must(again != NULL);
	second = print(again, &second_len);
	must(len == second_len && memcmp(text, second, len) == 0);
	return 0;
}
