/*
 * Intrusive doubly linked list. A list is a ring through its head, so that
 * removal needs no head and no branch. A cleared link (hf_link_init) may be
 * removed any number of times.
 */
#pragma once

#include <stdbool.h>

#include "base/macros.h"

struct hf_link {
	struct hf_link *next;
	struct hf_link *prev;
};

struct hf_list {
	struct hf_link head;
};

#define HF_LIST_INIT(list)                         \
	{                                          \
		{                                  \
			&(list).head, &(list).head \
		}                                  \
	}

static inline void hf_list_init(struct hf_list *list)
{
	list->head.next = list->head.prev = &list->head;
}

static inline void hf_link_init(struct hf_link *link)
{
	link->next = link->prev = link;
}

static inline bool hf_link_is_linked(const struct hf_link *link)
{
	return link->next != link;
}

static inline bool hf_list_is_empty(const struct hf_list *list)
{
	return list->head.next == &list->head;
}

static inline void hf_link_insert_before(struct hf_link *at, struct hf_link *link)
{
	link->prev = at->prev;
	link->next = at;
	at->prev->next = link;
	at->prev = link;
}

static inline void hf_list_push_back(struct hf_list *list, struct hf_link *link)
{
	hf_link_insert_before(&list->head, link);
}

static inline void hf_list_push_front(struct hf_list *list, struct hf_link *link)
{
	hf_link_insert_before(list->head.next, link);
}

static inline void hf_link_remove(struct hf_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	hf_link_init(link);
}

static inline struct hf_link *hf_list_first(struct hf_list *list)
{
	return hf_list_is_empty(list) ? NULL : list->head.next;
}

static inline struct hf_link *hf_list_last(struct hf_list *list)
{
	return hf_list_is_empty(list) ? NULL : list->head.prev;
}

static inline struct hf_link *hf_list_pop_front(struct hf_list *list)
{
	struct hf_link *link = hf_list_first(list);

	if (link)
		hf_link_remove(link);
	return link;
}

/* Moves everything from @from to the end of @to. */
static inline void hf_list_splice(struct hf_list *to, struct hf_list *from)
{
	if (hf_list_is_empty(from))
		return;
	from->head.next->prev = to->head.prev;
	to->head.prev->next = from->head.next;
	from->head.prev->next = &to->head;
	to->head.prev = from->head.prev;
	hf_list_init(from);
}

#define hf_list_entry(link, type, member) hf_container_of(link, type, member)

/* Walks the list; the current element must not be removed. */
#define hf_list_for_each(pos, list) \
	for (struct hf_link *pos = (list)->head.next; pos != &(list)->head; pos = pos->next)

/* Walks the list; the current element, and only that, may be removed. */
#define hf_list_for_each_safe(pos, list)                                                             \
	for (struct hf_link *pos = (list)->head.next, *pos##_next = pos->next; pos != &(list)->head; \
	     pos = pos##_next, pos##_next = pos->next)
