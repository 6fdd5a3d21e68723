/* The configuration on the command line: --set KEY=VALUE and --export DIR[:NAME]. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/config_load.h"
#include "daemon/config_value.h"

static int report(struct hf_config_load *load, int r, const struct hf_config_source *source,
		  const struct hf_option *option, const struct hf_config_why *why)
{
	char name[HF_OPTION_NAME_SIZE];

	if (r <= 0)
		return r;
	return hf_config_complain(&load->error, source, "%s %s", hf_option_name(option, name), why->text);
}

/* On the command line a relative path starts at the current directory, as with every program. */
static int make_absolute(char **pathp, const char *text)
{
	hf_cleanup(hf_freep) char *here = NULL;

	if (*text == '\0' || *text == '/') {
		*pathp = strdup(text);
		return *pathp ? 0 : -ENOMEM;
	}
	here = getcwd(NULL, 0);
	if (!here)
		return -errno;
	while (strncmp(text, "./", 2) == 0)
		text += 2;
	if (strcmp(text, ".") == 0)
		text = "";
	return asprintf(pathp, "%s/%s", here, text) < 0 ? -ENOMEM : 0;
}

static int unknown_key(struct hf_config_load *load, const struct hf_config_source *source, const char *key)
{
	struct hf_config_guess guess = { .word = key };
	char names[HF_OPTION_MAX][HF_OPTION_NAME_SIZE];
	char quoted[HF_CONFIG_QUOTE_SIZE];

	if (strcmp(key, HF_OPTION_LIST) == 0)
		return hf_config_complain(&load->error, source, "exports is a list; use --export DIR[:NAME]");
	if (hf_option_is_section(key))
		return hf_config_complain(&load->error, source,
					  "%s is a section; name a key of it, as in %s.KEY", key, key);
	for (size_t i = 0; i < hf_n_options; i++) {
		if (hf_option_is_per_export(&hf_options[i]))
			continue;
		hf_config_guess_offer(&guess, hf_option_name(&hf_options[i], names[i]));
		if (strcmp(hf_options[i].key, key) == 0) {
			guess.best = names[i];
			break;
		}
	}
	hf_config_quote(quoted, sizeof(quoted), key);
	if (guess.best)
		return hf_config_complain(&load->error, source, "unknown key %s; did you mean %s?", quoted,
					  guess.best);
	return hf_config_complain(&load->error, source,
				  "unknown key %s; holdfastd --print-config lists them all", quoted);
}

static int set_option(struct hf_config_load *load, const struct hf_config_source *source,
		      const struct hf_option *option, const char *text)
{
	void *field = hf_config_field(load->config, option);
	hf_cleanup(hf_freep) char *path = NULL;
	struct hf_config_why why;
	int r;

	if (option->type == HF_OPTION_PATH) {
		r = make_absolute(&path, text);
		if (r < 0)
			return r;
		text = path;
	}
	r = hf_config_value_read(field, option, text, &why);
	load->sources[hf_option_index(option)] = *source;
	return report(load, r, source, option, &why);
}

int hf_config_read_set(struct hf_config_load *load, const char *argument)
{
	struct hf_config_source source = { .flag = "--set", .text = argument };
	hf_cleanup(hf_freep) char *key = strdup(argument);
	const struct hf_option *option;
	char *equals;

	if (!key)
		return -ENOMEM;
	equals = strchr(key, '=');
	if (!equals)
		return hf_config_complain(
			&load->error, &source,
			"there is no '='; write --set KEY=VALUE, like --set server.port=2049");
	*equals = '\0';
	option = hf_option_find_by_name(key);
	if (!option)
		return unknown_key(load, &source, key);
	if (hf_option_is_per_export(option))
		return hf_config_complain(&load->error, &source,
					  "%s belongs to each export; use --export DIR[:NAME], or a file",
					  key);
	return set_option(load, &source, option, equals + 1);
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Cuts the name off "DIR:NAME". A directory may have a colon in its name: a colon separates the name if a '/'
 * follows, or if the whole text is no directory. */
static char *cut_name(char *text)
{
	char *colon = NULL;

	for (char *p = strstr(text, ":/"); p; p = strstr(p + 1, ":/"))
		colon = p;
	if (!colon && !is_directory(text))
		colon = strrchr(text, ':');
	if (!colon)
		return NULL;
	*colon = '\0';
	return colon + 1;
}

int hf_config_read_export(struct hf_config_load *load, const char *argument)
{
	const struct hf_option *path_option = hf_option_find(HF_OPTION_LIST, "path");
	const struct hf_option *name_option = hf_option_find(HF_OPTION_LIST, "name");
	struct hf_config_source source = { .flag = "--export", .text = argument };
	hf_cleanup(hf_freep) char *directory = strdup(argument);
	hf_cleanup(hf_freep) char *path = NULL;
	struct hf_config_export *export;
	struct hf_config_why why;
	char *name;
	int r;

	if (!directory)
		return -ENOMEM;
	name = cut_name(directory);
	r = make_absolute(&path, directory);
	if (r < 0)
		return r;
	r = hf_config_add_export(load, &source, &export);
	if (r)
		return r;
	r = hf_config_value_set(&export->path, path_option, path, &why);
	if (r)
		return report(load, r, &source, path_option, &why);
	if (name)
		r = hf_config_value_set(&export->name, name_option, name, &why);
	return report(load, r, &source, name_option, &why);
}
