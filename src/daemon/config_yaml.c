#include "daemon/config_yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/error.h"
#include "daemon/config.h"
#include "daemon/config_yaml_syntax.h"

struct anchor {
	char *name;
	unsigned int node; /* index + 1 */
	bool is_closed;    /* its content is complete */
};

/* A tree under construction: the open lists and mappings, innermost last. */
struct builder {
	struct hf_yaml *yaml;
	struct hf_config_error *error;
	const char *file;
	struct {
		unsigned int node; /* index + 1 */
		unsigned int last; /* last child, as index + 1 */
	} open[HF_YAML_MAX_DEPTH];
	size_t depth;
	struct anchor anchors[HF_YAML_MAX_ANCHORS];
	size_t n_anchors;
	bool has_document;
};

static struct hf_yaml_node *node_at(const struct hf_yaml *yaml, unsigned int at)
{
	return at ? &yaml->nodes[at - 1] : NULL;
}

static unsigned int line_of(const yaml_event_t *event)
{
	return (unsigned int)event->start_mark.line + 1;
}

#define complain(builder, line_number, ...)                                                              \
	hf_config_complain((builder)->error,                                                             \
			   &(struct hf_config_source){ .file = (builder)->file, .line = (line_number) }, \
			   __VA_ARGS__)

static int reserve_node(struct builder *b)
{
	struct hf_yaml *yaml = b->yaml;
	size_t room = yaml->n_room ? yaml->n_room * 2 : 64;
	struct hf_yaml_node *nodes;

	if (yaml->n_nodes < yaml->n_room)
		return 0;
	nodes = reallocarray(yaml->nodes, room, sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	yaml->nodes = nodes;
	yaml->n_room = room;
	return 0;
}

/* Adds a node as the last child of the innermost open node. *atp is its index + 1. */
static int add_node(struct builder *b, enum hf_yaml_kind kind, unsigned int line, unsigned int *atp)
{
	struct hf_yaml *yaml = b->yaml;
	unsigned int at = (unsigned int)yaml->n_nodes + 1;
	int r;

	if (yaml->n_nodes >= HF_YAML_MAX_NODES)
		return complain(b, line, "more than %d values; a configuration has far fewer",
				HF_YAML_MAX_NODES);
	r = reserve_node(b);
	if (r < 0)
		return hf_trace(r);
	yaml->nodes[yaml->n_nodes++] = (struct hf_yaml_node){ .kind = kind, .line = line };
	if (b->depth) {
		unsigned int last = b->open[b->depth - 1].last;

		if (last)
			node_at(yaml, last)->next = at;
		else
			node_at(yaml, b->open[b->depth - 1].node)->first = at;
		b->open[b->depth - 1].last = at;
	}
	*atp = at;
	return 0;
}

/* If a name is anchored again, it means the new content from here on, as YAML defines. */
static int add_anchor(struct builder *b, const yaml_char_t *name, unsigned int at, bool is_closed)
{
	struct anchor anchor = { .node = at, .is_closed = is_closed };

	if (!name)
		return 0;
	if (b->n_anchors == HF_YAML_MAX_ANCHORS)
		return complain(b, node_at(b->yaml, at)->line, "more than %d anchors; write some values out",
				HF_YAML_MAX_ANCHORS);
	anchor.name = strdup((const char *)name);
	if (!anchor.name)
		return -ENOMEM;
	b->anchors[b->n_anchors++] = anchor;
	return 0;
}

static int check_tag(struct builder *b, const yaml_char_t *tag, unsigned int line)
{
	char quoted[HF_CONFIG_QUOTE_SIZE];

	if (!tag)
		return 0;
	return complain(b, line, "the tag '%s' is not supported; give the value without it",
			hf_config_quote(quoted, sizeof(quoted), (const char *)tag));
}

static int on_scalar(struct builder *b, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	unsigned int line = line_of(event);
	struct hf_yaml_node *node;
	unsigned int at;
	int r;

	r = check_tag(b, event->data.scalar.tag, line);
	if (r)
		return r;
	if (memchr(text, '\0', event->data.scalar.length))
		return complain(b, line, "a NUL character in a value; remove it");
	r = add_node(b, HF_YAML_SCALAR, line, &at);
	if (r)
		return r;
	node = node_at(b->yaml, at);
	node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	node->text = strdup(text);
	if (!node->text)
		return -ENOMEM;
	return add_anchor(b, event->data.scalar.anchor, at, true);
}

static int on_open(struct builder *b, enum hf_yaml_kind kind, const yaml_event_t *event,
		   const yaml_char_t *tag, const yaml_char_t *anchor)
{
	unsigned int line = line_of(event);
	unsigned int at;
	int r;

	r = check_tag(b, tag, line);
	if (r)
		return r;
	if (b->depth == HF_YAML_MAX_DEPTH)
		return complain(b, line, "nested more than %d deep; no option is", HF_YAML_MAX_DEPTH);
	r = add_node(b, kind, line, &at);
	if (r)
		return r;
	b->open[b->depth].node = at;
	b->open[b->depth].last = 0;
	b->depth++;
	return add_anchor(b, anchor, at, false);
}

static int on_close(struct builder *b)
{
	unsigned int node = b->open[--b->depth].node;

	for (size_t i = 0; i < b->n_anchors; i++)
		if (b->anchors[i].node == node)
			b->anchors[i].is_closed = true;
	return 0;
}

static int on_alias(struct builder *b, const yaml_event_t *event)
{
	const char *name = (const char *)event->data.alias.anchor;
	char quoted[HF_CONFIG_QUOTE_SIZE];
	unsigned int at;
	int r;

	for (size_t i = b->n_anchors; i > 0; i--) {
		const struct anchor *anchor = &b->anchors[i - 1];

		if (strcmp(anchor->name, name) != 0)
			continue;
		if (!anchor->is_closed)
			return complain(
				b, line_of(event),
				"the alias '*%s' is inside the value that it refers to; write the value out",
				hf_config_quote(quoted, sizeof(quoted), name));
		r = add_node(b, HF_YAML_ALIAS, line_of(event), &at);
		if (r)
			return r;
		node_at(b->yaml, at)->first = anchor->node;
		return 0;
	}
	return complain(b, line_of(event),
			"the alias '*%s' is not defined yet; set '&%s' before it, or put a value that starts "
			"with '*' in quotes",
			hf_config_quote(quoted, sizeof(quoted), name), quoted);
}

static int on_document(struct builder *b, const yaml_event_t *event)
{
	if (b->has_document)
		return complain(b, line_of(event),
				"a second document; put everything into one, without '---' "
				"between");
	b->has_document = true;
	return 0;
}

static int on_event(struct builder *b, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		return on_document(b, event);
	case YAML_SCALAR_EVENT:
		return on_scalar(b, event);
	case YAML_SEQUENCE_START_EVENT:
		return on_open(b, HF_YAML_LIST, event, event->data.sequence_start.tag,
			       event->data.sequence_start.anchor);
	case YAML_MAPPING_START_EVENT:
		return on_open(b, HF_YAML_MAP, event, event->data.mapping_start.tag,
			       event->data.mapping_start.anchor);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		return on_close(b);
	case YAML_ALIAS_EVENT:
		return on_alias(b, event);
	default:
		return 0;
	}
}

static int build(struct builder *b, yaml_parser_t *parser, const struct hf_yaml_text *text)
{
	yaml_event_t event;
	bool is_end = false;
	int r = 0;

	while (!is_end && r == 0) {
		if (!yaml_parser_parse(parser, &event))
			return hf_yaml_complain_of_syntax(parser, text, b->file, b->error);
		r = on_event(b, &event);
		is_end = event.type == YAML_STREAM_END_EVENT;
		yaml_event_delete(&event);
	}
	return r;
}

int hf_yaml_init(struct hf_yaml *yaml, const char *file, const void *text, size_t len,
		 struct hf_config_error *error)
{
	struct hf_yaml_text whole = { text, len };
	struct builder b = { .yaml = yaml, .file = file, .error = error };
	yaml_parser_t parser;
	int r;

	*yaml = (struct hf_yaml){ 0 };
	r = hf_yaml_check_encoding(&whole, file, error);
	if (r)
		return r;
	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, text, len);
	r = build(&b, &parser, &whole);
	yaml_parser_delete(&parser);
	for (size_t i = 0; i < b.n_anchors; i++)
		free(b.anchors[i].name);
	return r;
}

void hf_yaml_deinit(struct hf_yaml *yaml)
{
	for (size_t i = 0; i < yaml->n_nodes; i++)
		free(yaml->nodes[i].text);
	free(yaml->nodes);
	*yaml = (struct hf_yaml){ 0 };
}

/* This loop ends: the target of an alias was complete before the alias was added. */
static const struct hf_yaml_node *follow(const struct hf_yaml *yaml, unsigned int at)
{
	const struct hf_yaml_node *node = node_at(yaml, at);

	while (node && node->kind == HF_YAML_ALIAS)
		node = node_at(yaml, node->first);
	return node;
}

const struct hf_yaml_node *hf_yaml_root(const struct hf_yaml *yaml)
{
	return yaml->n_nodes ? follow(yaml, 1) : NULL;
}

struct hf_yaml_cursor hf_yaml_children(const struct hf_yaml *yaml, const struct hf_yaml_node *node)
{
	return (struct hf_yaml_cursor){ yaml, node->first };
}

const struct hf_yaml_node *hf_yaml_next(struct hf_yaml_cursor *cursor)
{
	unsigned int at = cursor->at;

	if (!at)
		return NULL;
	cursor->at = node_at(cursor->yaml, at)->next;
	return follow(cursor->yaml, at);
}

bool hf_yaml_is_null(const struct hf_yaml_node *node)
{
	static const char *const nulls[] = { "", "~", "null", "Null", "NULL" };

	if (node->kind != HF_YAML_SCALAR || !node->is_plain)
		return false;
	for (size_t i = 0; i < HF_ARRAY_SIZE(nulls); i++)
		if (strcmp(node->text, nulls[i]) == 0)
			return true;
	return false;
}
