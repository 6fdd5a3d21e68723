#include "store/lmdb/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"

#define MAGIC        0xbeefc0deu
#define DATA_VERSION 1
#define NO_PAGE      SIZE_MAX
#define MAX_DEPTH    32
#define MAX_KEY      511

#define PAGE_BRANCH   0x01
#define PAGE_LEAF     0x02
#define PAGE_OVERFLOW 0x04
#define PAGE_META     0x08
#define PAGE_DIRTY    0x10 /* LMDB leaves this bit set in pages that it writes */

#define NODE_BIG  0x01
#define NODE_SUB  0x02 /* the node is the root of a named database */
#define NODE_HEAD 8

#define WORD sizeof(size_t)

/* Page numbers and counts have the size of size_t, so the format differs between machines. */

struct page_head {
	size_t number;
	uint16_t pad;
	uint16_t flags;
	union {
		struct {
			uint16_t lower;
			uint16_t upper;
		};
		uint32_t n_pages;
	};
};

struct database {
	uint32_t pad; /* on the first page: the page size */
	uint16_t flags;
	uint16_t depth;
	size_t n_branch;
	size_t n_leaf;
	size_t n_overflow;
	size_t n_entries;
	size_t root;
};

struct meta {
	uint32_t magic;
	uint32_t version;
	size_t address;
	size_t map_size;
	struct database free;
	struct database main;
	size_t last_page;
	size_t txn;
};

struct node_head {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	uint16_t lo;
	uint16_t hi;
#else
	uint16_t hi;
	uint16_t lo;
#endif
	uint16_t flags;
	uint16_t key_size;
};

struct check {
	const uint8_t *file;
	uint64_t n_file_pages;
	uint32_t page_size;
	struct meta meta;
	uint8_t *used; /* one bit for each page that was visited */
	uint64_t n_entries;
	struct hf_bytes last_key; /* keys must rise, also from leaf to leaf */
	bool may_equal;           /* last_key came from a branch page: the next key may be equal */
	bool is_free_db;
	bool is_inner; /* inside a named database, which contains no others */
	hf_lmdb_check_fn fn;
	void *user;
};

static const char *claim(struct check *check, uint64_t page)
{
	uint8_t bit = (uint8_t)(1u << page % 8);

	if (page < 2 || page >= check->n_file_pages || page > check->meta.last_page)
		return "a page is missing";
	if (check->used[page / 8] & bit)
		return "a page is used twice";
	check->used[page / 8] |= bit;
	return NULL;
}

static const uint8_t *page_at(const struct check *check, uint64_t page, struct page_head *head)
{
	const uint8_t *p = check->file + page * check->page_size;

	memcpy(head, p, sizeof(*head));
	return p;
}

/* The value of a node that has overflow pages. */
static const char *find_big(struct check *check, const uint8_t *at, uint32_t size, struct hf_bytes *valuep)
{
	struct page_head head;
	const char *wrong;
	const uint8_t *p;
	size_t page;

	memcpy(&page, at, sizeof(page));
	wrong = claim(check, page);
	if (wrong)
		return wrong;
	p = page_at(check, page, &head);
	if (head.number != page || (head.flags & ~PAGE_DIRTY) != PAGE_OVERFLOW || head.n_pages == 0 ||
	    head.n_pages > check->n_file_pages - page ||
	    (uint64_t)head.n_pages * check->page_size - sizeof(head) < size)
		return "an overflow page is damaged";
	for (uint64_t i = 1; i < head.n_pages; i++) {
		wrong = claim(check, page + i);
		if (wrong)
			return wrong;
	}
	*valuep = hf_bytes_of(p + sizeof(head), size);
	return NULL;
}

/* Checks a list of free pages. If one of them were in use, the next write would destroy it. */
static const char *check_free_list(struct check *check, struct hf_bytes key, struct hf_bytes value)
{
	size_t n, page, before = NO_PAGE;

	if (key.len != WORD || value.len < WORD || value.len % WORD)
		return "the list of free pages is damaged";
	memcpy(&n, value.data, sizeof(n));
	if (n > value.len / WORD - 1)
		return "the list of free pages is damaged";
	for (size_t i = 1; i <= n; i++) {
		uint8_t bit;

		memcpy(&page, value.data + i * WORD, sizeof(page));
		bit = (uint8_t)(1u << page % 8);
		if (page < 2 || page > check->meta.last_page || page >= before)
			return "the list of free pages is damaged";
		before = page;
		/* Pages that were never written may lie beyond the end of the file. */
		if (page >= check->n_file_pages)
			continue;
		if (check->used[page / 8] & bit)
			return "a page in use is listed as free";
		check->used[page / 8] |= bit;
	}
	return NULL;
}

static int compare_keys(const struct check *check, struct hf_bytes a, struct hf_bytes b)
{
	size_t x, y;
	int r;

	if (check->is_free_db && a.len == sizeof(x) && b.len == sizeof(y)) {
		memcpy(&x, a.data, sizeof(x));
		memcpy(&y, b.data, sizeof(y));
		return (x > y) - (x < y);
	}
	r = memcmp(a.data, b.data, HF_MIN(a.len, b.len));
	return r ? r : (a.len > b.len) - (a.len < b.len);
}

/* With keys out of order, LMDB's search would miss entries that exist. */
static bool is_in_order(struct check *check, struct hf_bytes key, bool is_branch)
{
	int order = check->last_key.len ? compare_keys(check, check->last_key, key) : -1;

	if (order > 0 || (order == 0 && !check->may_equal))
		return false;
	check->last_key = key;
	check->may_equal = is_branch;
	return true;
}

static const char *check_database(struct check *check, const struct database *db);

/* Checks a named database; the caller judges its name. */
static const char *check_inner(struct check *check, struct hf_bytes key, struct hf_bytes value)
{
	struct check inner = *check; /* shares the bitmap of visited pages */
	struct database db;
	const char *wrong;

	if (value.len != sizeof(db) || check->is_inner || check->is_free_db)
		return "an entry is damaged";
	memcpy(&db, value.data, sizeof(db));
	inner.is_inner = true;
	wrong = check_database(&inner, &db);
	return wrong ? wrong : check->fn(check->user, key, hf_bytes_of(NULL, 0));
}

static const char *check_leaf_node(struct check *check, const uint8_t *node, size_t room)
{
	struct node_head head;
	struct hf_bytes key, value;
	uint32_t size;
	size_t inline_size;

	memcpy(&head, node, sizeof(head));
	size = (uint32_t)head.lo | (uint32_t)head.hi << 16;
	inline_size = head.flags & NODE_BIG ? WORD : size;
	if (head.flags & ~(NODE_BIG | NODE_SUB) || head.key_size == 0 || head.key_size > MAX_KEY ||
	    NODE_HEAD + (size_t)head.key_size + inline_size > room)
		return "an entry is damaged";
	key = hf_bytes_of(node + NODE_HEAD, head.key_size);
	value = hf_bytes_of(node + NODE_HEAD + head.key_size, size);
	if (!is_in_order(check, key, false))
		return "keys are out of order";
	if (head.flags & NODE_BIG) {
		const char *wrong = find_big(check, node + NODE_HEAD + head.key_size, size, &value);

		if (wrong)
			return wrong;
	}
	check->n_entries++;
	if (head.flags & NODE_SUB)
		return check_inner(check, key, value);
	return check->is_free_db ? check_free_list(check, key, value) : check->fn(check->user, key, value);
}

static const char *check_page(struct check *check, uint64_t page, unsigned int depth);

static const char *check_branch_node(struct check *check, const uint8_t *node, size_t room,
				     unsigned int depth, bool is_first)
{
	struct node_head head;

	memcpy(&head, node, sizeof(head));
	if (head.key_size > MAX_KEY || NODE_HEAD + (size_t)head.key_size > room)
		return "a branch is damaged";
	/* The first node of a branch has no key of its own. */
	if (!is_first &&
	    (head.key_size == 0 || !is_in_order(check, hf_bytes_of(node + NODE_HEAD, head.key_size), true)))
		return "keys are out of order";
	return check_page(check, (uint64_t)head.lo | (uint64_t)head.hi << 16 | (uint64_t)head.flags << 32,
			  depth - 1);
}

static const char *check_page(struct check *check, uint64_t page, unsigned int depth)
{
	const char *wrong = depth ? claim(check, page) : "a tree is too deep";
	struct page_head head;
	const uint8_t *p;
	uint16_t type;

	if (wrong)
		return wrong;
	p = page_at(check, page, &head);
	type = head.flags & (uint16_t)~PAGE_DIRTY;
	if (head.number != page || type != (depth == 1 ? PAGE_LEAF : PAGE_BRANCH) ||
	    head.lower < sizeof(head) || head.lower % 2 || head.lower > head.upper ||
	    head.upper > check->page_size)
		return "a page is damaged";
	for (size_t at = sizeof(head); at < head.lower; at += 2) {
		uint16_t offset;

		memcpy(&offset, p + at, sizeof(offset));
		if (offset < head.upper || offset % 2 || offset > check->page_size - NODE_HEAD)
			return "a page is damaged";
		wrong = depth == 1 ? check_leaf_node(check, p + offset, check->page_size - offset)
				   : check_branch_node(check, p + offset, check->page_size - offset, depth,
						       at == sizeof(head));
		if (wrong)
			return wrong;
	}
	return NULL;
}

static const char *check_database(struct check *check, const struct database *db)
{
	const char *wrong;

	check->n_entries = 0;
	check->last_key = (struct hf_bytes){ 0 };
	check->may_equal = false;
	if (db->root == NO_PAGE)
		return db->n_entries || db->depth ? "a tree has lost its root" : NULL;
	if (db->depth == 0 || db->depth > MAX_DEPTH)
		return "a tree is too deep";
	wrong = check_page(check, db->root, db->depth);
	if (wrong)
		return wrong;
	return check->n_entries == db->n_entries ? NULL : "entries are missing";
}

/* Does the page carry LMDB's magic where a machine of another word size or byte order would put it? @page
 * must be large enough to look. */
static bool is_foreign(const uint8_t *page)
{
	static const size_t places[] = { 4 + 8,
					 8 + 8 }; /* after the page header, with 32-bit and 64-bit words */
	uint32_t magic;

	for (size_t i = 0; i < HF_ARRAY_SIZE(places); i++) {
		memcpy(&magic, page + places[i], sizeof(magic));
		if (magic == __builtin_bswap32(MAGIC) ||
		    (magic == MAGIC && places[i] != sizeof(struct page_head)))
			return true;
	}
	return false;
}

static const char *read_meta(struct meta *meta, const uint8_t *page)
{
	struct page_head head;

	memcpy(&head, page, sizeof(head));
	memcpy(meta, page + sizeof(head), sizeof(*meta));
	if (!(head.flags & PAGE_META) || meta->magic != MAGIC)
		return is_foreign(page) ? "it was written on a machine of another byte order or word size"
					: "it is not an LMDB file";
	return meta->version == DATA_VERSION ? NULL : "it is an LMDB file of another version";
}

/* LMDB reads both meta pages, so both must be valid; the newer one counts. */
static const char *choose_meta(struct check *check, size_t size)
{
	struct meta other;
	const char *wrong;

	if (size < sizeof(struct page_head) + sizeof(struct meta))
		return "it is not an LMDB file";
	wrong = read_meta(&check->meta, check->file);
	if (wrong)
		return wrong;
	check->page_size = check->meta.free.pad;
	if (check->page_size < 512 || check->page_size > 65536 ||
	    (check->page_size & (check->page_size - 1)) || size / check->page_size < 2)
		return "its header is damaged";
	wrong = read_meta(&other, check->file + check->page_size);
	if (wrong)
		return wrong;
	if (other.free.pad != check->page_size)
		return "its header is damaged";
	if (other.txn > check->meta.txn)
		check->meta = other;
	check->n_file_pages = size / check->page_size;
	return NULL;
}

const char *hf_lmdb_check(const void *file, size_t size, hf_lmdb_check_fn fn, void *user)
{
	struct check check = { .file = file, .fn = fn, .user = user };
	const char *wrong = choose_meta(&check, size);
	hf_cleanup(hf_freep) uint8_t *used = NULL;

	if (wrong)
		return wrong;
	used = calloc(1, check.n_file_pages / 8 + 1);
	if (!used)
		return "not enough memory to check it";
	check.used = used;
	wrong = check_database(&check, &check.meta.main);
	if (wrong)
		return wrong;
	check.is_free_db = true;
	return check_database(&check, &check.meta.free);
}
