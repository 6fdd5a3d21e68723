#include "daemon/config_load.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/config_value.h"

static int set_preset(void *base, const struct hf_option *option)
{
	void *field = hf_config_field(base, option);
	struct hf_config_why why;
	int r;

	/* A required text has no default; its absence is reported when the entry is complete. */
	if ((option->type == HF_OPTION_TEXT || option->type == HF_OPTION_PATH) && *option->preset == '\0') {
		*(char **)field = strdup("");
		return *(char **)field ? 0 : -ENOMEM;
	}
	r = hf_config_value_read(field, option, option->preset, &why);
	assert(r <= 0); /* a default is within its option's bounds */
	return hf_trace(r);
}

int hf_config_set_presets(void *base, bool per_export)
{
	int r;

	for (size_t i = 0; i < hf_n_options; i++) {
		if (hf_option_is_per_export(&hf_options[i]) != per_export)
			continue;
		r = set_preset(base, &hf_options[i]);
		if (r < 0)
			return hf_trace(r);
	}
	return 0;
}

int hf_config_add_export(struct hf_config_load *load, const struct hf_config_source *source,
			 struct hf_config_export **exportp)
{
	struct hf_config_exports *exports = &load->config->exports;
	struct hf_config_export_source *sources;
	struct hf_config_export *items;

	if (exports->n == HF_CONFIG_MAX_EXPORTS)
		return hf_config_complain(&load->error, source,
					  "more than %d exports; export a directory above them",
					  HF_CONFIG_MAX_EXPORTS);
	items = reallocarray(exports->items, exports->n + 1, sizeof(*items));
	if (!items)
		return -ENOMEM;
	exports->items = items;
	sources = reallocarray(load->exports, exports->n + 1, sizeof(*sources));
	if (!sources)
		return -ENOMEM;
	load->exports = sources;
	items[exports->n] = (struct hf_config_export){ 0 };
	sources[exports->n] = (struct hf_config_export_source){ .whole = *source };
	*exportp = &items[exports->n++];
	return hf_config_set_presets(*exportp, true);
}
