#include "daemon/config_yaml_syntax.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/utf8.h"

/* libyaml's messages, and what to do about each */
static const struct {
	const char *problem;
	const char *advice;
	bool is_at_start; /* name the line where the construct began */
} advices[] = {
	{ "mapping values are not allowed in this context",
	  "a ':' in a place where no key can be; check the indent, or put the value in quotes" },
	{ "found character that cannot start any token",
	  "a character that no value can start with; put the value in quotes" },
	{ "did not find expected node content",
	  "no value where there should be one; one that starts with ':' needs quotes, like \"::\"" },
	{ "did not find expected alphabetic or numeric character",
	  "a '*' or '&' with no name behind it; put the value in quotes (for all clients write any)" },
	{ "could not find expected ':'", "a key without ':'; write 'key: value'" },
	{ "did not find expected ',' or ']'", "a list that is not closed; end it with ']'", true },
	{ "did not find expected ',' or '}'", "a mapping that is not closed; end it with '}'", true },
	{ "did not find expected key", "a line that does not line up; indent all keys of a section alike" },
	{ "did not find expected '-' indicator", "a line that does not line up; start each entry with '-'" },
	{ "block sequence entries are not allowed in this context",
	  "a '-' in a place where no list can be; put the list on lines of its own" },
	{ "found unexpected end of stream", "a quote that is not closed; end the text with the same quote",
	  true },
};

static unsigned int line_at(const struct hf_yaml_text *text, size_t offset)
{
	unsigned int line = 1;

	for (size_t i = 0; i < offset && i < text->len; i++)
		line += text->data[i] == '\n';
	return line;
}

int hf_yaml_check_encoding(const struct hf_yaml_text *text, const char *file, struct hf_config_error *error)
{
	uint32_t code;

	for (size_t i = 0; i < text->len;) {
		size_t n = hf_utf8_decode(text->data + i, text->len - i, &code);
		struct hf_config_source source = { .file = file };

		if (n == 0) {
			source.line = line_at(text, i);
			return hf_config_complain(error, &source,
						  "the byte 0x%02x is not UTF-8; save the file as UTF-8",
						  text->data[i]);
		}
		i += n;
	}
	return 0;
}

/* libyaml's reader knows the offset, but not the line. */
static int complain_of_character(const yaml_parser_t *parser, const struct hf_yaml_text *text,
				 const char *file, struct hf_config_error *error)
{
	struct hf_config_source source = { .file = file, .line = line_at(text, parser->problem_offset) };

	return hf_config_complain(error, &source, "the control character 0x%02x; remove it",
				  (unsigned int)parser->problem_value);
}

static bool is_tab_at(const struct hf_yaml_text *text, const yaml_mark_t *mark)
{
	const unsigned char *line = text->data;
	const unsigned char *end = text->data + text->len;

	for (size_t i = 0; i < mark->line && line; i++) {
		line = memchr(line, '\n', (size_t)(end - line));
		line = line ? line + 1 : NULL;
	}
	if (!line)
		return false;
	for (; line < end && (*line == ' ' || *line == '-'); line++)
		;
	return line < end && *line == '\t';
}

int hf_yaml_complain_of_syntax(const yaml_parser_t *parser, const struct hf_yaml_text *text, const char *file,
			       struct hf_config_error *error)
{
	struct hf_config_source source = { .file = file,
					   .line = (unsigned int)parser->problem_mark.line + 1 };
	const char *problem = parser->problem ? parser->problem : "it cannot be read";

	if (parser->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	if (parser->error == YAML_READER_ERROR)
		return complain_of_character(parser, text, file, error);
	if (is_tab_at(text, &parser->problem_mark))
		return hf_config_complain(error, &source,
					  "a tab at the start of the line; indent with blanks");
	for (size_t i = 0; i < HF_ARRAY_SIZE(advices); i++) {
		if (strcmp(advices[i].problem, problem) != 0)
			continue;
		if (advices[i].is_at_start)
			source.line = (unsigned int)parser->context_mark.line + 1;
		return hf_config_complain(error, &source, "%s", advices[i].advice);
	}
	return hf_config_complain(error, &source, "not YAML: %s%s%s; write 'key: value' lines", problem,
				  parser->context ? " " : "", parser->context ? parser->context : "");
}
