#include "daemon/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/args.h"
#include "daemon/config_load.h"
#include "daemon/config_value.h"
#include "daemon/options.h"

static void clear_export(struct hf_config_export *export)
{
	for (size_t i = 0; i < hf_n_options; i++)
		if (hf_option_is_per_export(&hf_options[i]))
			hf_config_value_clear(hf_config_field(export, &hf_options[i]), &hf_options[i]);
}

void hf_config_free(struct hf_config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < hf_n_options; i++)
		if (!hf_option_is_per_export(&hf_options[i]))
			hf_config_value_clear(hf_config_field(config, &hf_options[i]), &hf_options[i]);
	for (size_t i = 0; i < config->exports.n; i++)
		clear_export(&config->exports.items[i]);
	free(config->exports.items);
	free(config);
}

/* Runs after all sources are read. Gives a complete configuration, or none. */
static int finish(struct hf_config **configp, struct hf_config_load *load, int flags)
{
	int r;

	r = hf_config_check(load);
	if (r)
		return r;
	if (!(flags & HF_CONFIG_PURE)) {
		r = hf_config_check_host(load);
		if (r)
			return r;
	}
	*configp = load->config;
	load->config = NULL;
	return 0;
}

static void deinit(struct hf_config_load *load)
{
	hf_config_free(load->config);
	free(load->exports);
}

static int init(struct hf_config_load *load, char *error, size_t error_size)
{
	assert(error_size > 0);
	error[0] = '\0';
	*load = (struct hf_config_load){ .error = { error, error_size } };
	load->config = calloc(1, sizeof(*load->config));
	return load->config ? hf_config_set_presets(load->config, false) : -ENOMEM;
}

/* The caller prints @error, so fill it also when the server failed and the operator made no mistake. */
static int explain(int r, char *error, size_t error_size)
{
	if (r < 0)
		snprintf(error, error_size, "the configuration could not be read: %s", strerror(-r));
	return r;
}

int hf_config_load_text(struct hf_config **configp, const char *file, const void *text, size_t len, int flags,
			char *error, size_t error_size)
{
	struct hf_config_load load;
	int r;

	r = init(&load, error, error_size);
	if (r == 0)
		r = hf_config_read_yaml(&load, file, text, len);
	if (r == 0)
		r = finish(configp, &load, flags);
	deinit(&load);
	return explain(r, error, error_size);
}

/* Reads at most one byte more than a configuration may have: enough to see that it is too long. */
static int read_whole(int fd, char *text, size_t size, size_t *lenp)
{
	ssize_t n = 1;

	for (*lenp = 0; n != 0 && *lenp < size;) {
		n = read(fd, text + *lenp, size - *lenp);
		if (n < 0 && errno != EINTR)
			return -errno;
		*lenp += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int read_file(struct hf_config_load *load, const char *file)
{
	hf_cleanup(hf_freep) char *text = malloc(HF_CONFIG_MAX_BYTES + 1);
	hf_cleanup(hf_closep) int fd = open(file, O_RDONLY | O_CLOEXEC);
	struct hf_config_source source = { .file = file };
	size_t len = 0;
	int r;

	if (!text)
		return -ENOMEM;
	r = fd < 0 ? -errno : read_whole(fd, text, HF_CONFIG_MAX_BYTES + 1, &len);
	if (r < 0)
		return hf_config_complain(
			&load->error, &source,
			"cannot be read (%s); give a YAML file, or no --config for the defaults",
			strerror(-r));
	return hf_config_read_yaml(load, file, text, len);
}

static int read_args(struct hf_config_load *load, const struct hf_args *args)
{
	int r = 0;

	if (args->config_file)
		r = read_file(load, args->config_file);
	for (size_t i = 0; r == 0 && i < args->n_sets; i++)
		r = hf_config_read_set(load, args->sets[i]);
	for (size_t i = 0; r == 0 && i < args->n_exports; i++)
		r = hf_config_read_export(load, args->exports[i]);
	return r;
}

int hf_config_load(struct hf_config **configp, const struct hf_args *args, char *error, size_t error_size)
{
	struct hf_config_load load;
	int r;

	r = init(&load, error, error_size);
	if (r == 0)
		r = read_args(&load, args);
	if (r == 0)
		r = finish(configp, &load, 0);
	deinit(&load);
	return explain(r, error, error_size);
}

static size_t size_of(const struct hf_option *option)
{
	switch (option->type) {
	case HF_OPTION_NUMBER:
		return sizeof(int64_t);
	case HF_OPTION_BOOL:
		return sizeof(bool);
	case HF_OPTION_WORD:
		return sizeof(int);
	default:
		return 0; /* a text or a list, which the configuration owns */
	}
}

static void exchange(char **a, char **b)
{
	char *text = *a;

	*a = *b;
	*b = text;
}

void hf_config_take_live(struct hf_config *config, struct hf_config *reloaded)
{
	for (size_t i = 0; i < hf_n_options; i++) {
		const struct hf_option *option = &hf_options[i];

		/* The offset of an export's key is one into its export. */
		if (!option->is_live || hf_option_is_per_export(option))
			continue;
		if (option->type == HF_OPTION_TEXT || option->type == HF_OPTION_PATH)
			exchange(hf_config_field(config, option), hf_config_field(reloaded, option));
		else
			memcpy(hf_config_field(config, option), hf_config_field_const(reloaded, option),
			       size_of(option));
	}
}

size_t hf_config_list_fixed_changes(char *out, size_t size, const struct hf_config *old,
				    const struct hf_config *new)
{
	char name[HF_OPTION_NAME_SIZE];
	size_t n = 0, used = 0;

	assert(size > 0);
	out[0] = '\0';
	for (size_t i = 0; i < hf_n_options; i++) {
		const struct hf_option *option = &hf_options[i];

		/* The offset of an export's key is one into its export. */
		if (hf_option_is_per_export(option) || option->is_live ||
		    hf_config_value_equal(hf_config_field_const(old, option),
					  hf_config_field_const(new, option), option))
			continue;
		if (used < size)
			used += (size_t)snprintf(out + used, size - used, "%s%s", n ? "," : "",
						 hf_option_name(option, name));
		n++;
	}
	return n;
}
