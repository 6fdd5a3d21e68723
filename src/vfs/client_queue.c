#include "vfs/client_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define MAX_IDLE 1024 /* flows; beyond that the longest idle is forgotten */

static struct hf_payer *payer_at(struct hf_rb_node *node)
{
	return hf_rb_entry(node, struct hf_payer, waiting);
}

/* Order */

static bool is_before(const struct hf_payer *a, const struct hf_payer *b)
{
	if (a->n_running != b->n_running)
		return a->n_running < b->n_running;
	return a->used < b->used;
}

/* Behind those that are equal. */
static void insert_waiting(struct hf_client_queue *queue, struct hf_payer *payer)
{
	struct hf_rb_node **link = &queue->waiting.root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = is_before(payer, payer_at(parent)) ? &parent->left : &parent->right;
	}
	hf_rb_insert(&queue->waiting, &payer->waiting, parent, link, NULL);
}

static bool is_waiting(const struct hf_payer *payer)
{
	return !hf_list_is_empty(&payer->ring);
}

static void occupy(struct hf_client_queue *queue, struct hf_payer *payer, int n_workers, uint64_t cost)
{
	if (is_waiting(payer))
		hf_rb_erase(&queue->waiting, &payer->waiting, NULL);
	payer->n_running += (size_t)n_workers;
	payer->used += cost;
	if (is_waiting(payer))
		insert_waiting(queue, payer);
}

static void enter_ring(struct hf_client_queue *queue, struct hf_flow *flow)
{
	struct hf_payer *payer = flow->payer;

	if (!is_waiting(payer)) {
		if (!payer->n_running)
			payer->used = HF_MAX(payer->used, queue->level);
		insert_waiting(queue, payer);
	}
	hf_list_push_back(&payer->ring, &flow->link);
}

static void leave_ring(struct hf_client_queue *queue, struct hf_flow *flow)
{
	hf_link_remove(&flow->link);
	if (!is_waiting(flow->payer))
		hf_rb_erase(&queue->waiting, &flow->payer->waiting, NULL);
}

/* Known payers and flows */

static void init_payer(struct hf_payer *payer, const struct hf_addr *addr)
{
	*payer = (struct hf_payer){ .addr = *addr };
	hf_list_init(&payer->ring);
}

static void init_flow(struct hf_flow *flow, const struct hf_addr *addr, struct hf_payer *payer)
{
	*flow = (struct hf_flow){ .addr = *addr, .payer = payer };
	hf_link_init(&flow->link);
	hf_list_init(&flow->waiting);
}

static struct hf_addr address_of(const struct hf_addr *from)
{
	struct hf_addr addr = *from;

	if (!addr.port)
		return (struct hf_addr){ 0 };
	addr.port = 0;
	return addr;
}

static struct hf_payer *get_payer(struct hf_client_queue *queue, const struct hf_addr *from)
{
	struct hf_rb_node **link = &queue->payers.root, *parent = NULL;
	struct hf_addr addr = address_of(from);
	struct hf_payer *payer;

	while (*link) {
		int order;

		parent = *link;
		payer = hf_rb_entry(parent, struct hf_payer, known);
		order = memcmp(&addr, &payer->addr, sizeof(addr));
		if (order == 0)
			return payer;
		link = order < 0 ? &parent->left : &parent->right;
	}
	payer = malloc(sizeof(*payer));
	if (!payer)
		return NULL;
	init_payer(payer, &addr);
	hf_rb_insert(&queue->payers, &payer->known, parent, link, NULL);
	return payer;
}

static struct hf_flow *make_flow(struct hf_client_queue *queue, const struct hf_addr *from)
{
	struct hf_flow *flow = malloc(sizeof(*flow));
	struct hf_payer *payer = flow ? get_payer(queue, from) : NULL;

	if (!payer) {
		free(flow);
		return NULL;
	}
	init_flow(flow, from, payer);
	payer->n_flows++;
	return flow;
}

static struct hf_flow *get_flow(struct hf_client_queue *queue, const struct hf_addr *from)
{
	struct hf_rb_node **link = &queue->flows.root, *parent = NULL;
	struct hf_flow *flow;

	if (!from)
		return &queue->own_flow;
	while (*link) {
		int order;

		parent = *link;
		flow = hf_rb_entry(parent, struct hf_flow, known);
		order = memcmp(from, &flow->addr, sizeof(*from));
		if (order == 0)
			return flow;
		link = order < 0 ? &parent->left : &parent->right;
	}
	flow = make_flow(queue, from);
	if (!flow)
		return &queue->own_flow;
	hf_rb_insert(&queue->flows, &flow->known, parent, link, NULL);
	return flow;
}

static void forget_flow(struct hf_client_queue *queue, struct hf_flow *flow)
{
	struct hf_payer *payer = flow->payer;

	hf_rb_erase(&queue->flows, &flow->known, NULL);
	free(flow);
	if (--payer->n_flows)
		return;
	hf_rb_erase(&queue->payers, &payer->known, NULL);
	free(payer);
}

static void forget_longest_idle(struct hf_client_queue *queue)
{
	queue->n_idle--;
	forget_flow(queue, hf_list_entry(hf_list_pop_front(&queue->idle), struct hf_flow, link));
}

static void rest(struct hf_client_queue *queue, struct hf_flow *flow)
{
	if (flow == &queue->own_flow)
		return;
	hf_list_push_back(&queue->idle, &flow->link);
	if (++queue->n_idle > MAX_IDLE)
		forget_longest_idle(queue);
}

/* Entries */

void hf_client_queue_push(struct hf_client_queue *queue, struct hf_client_queue_entry *entry,
			  const struct hf_addr *from)
{
	struct hf_flow *flow = get_flow(queue, from);

	if (flow->n++ == 0 && flow != &queue->own_flow && hf_link_is_linked(&flow->link)) {
		hf_link_remove(&flow->link);
		queue->n_idle--;
	}
	entry->flow = flow;
	if (hf_list_is_empty(&flow->waiting))
		enter_ring(queue, flow);
	hf_list_push_back(&flow->waiting, &entry->link);
}

struct hf_client_queue_entry *hf_client_queue_first(const struct hf_client_queue *queue)
{
	struct hf_rb_node *node = hf_rb_first(&queue->waiting);
	struct hf_flow *flow;

	if (!node)
		return NULL;
	flow = hf_list_entry(hf_list_first(&payer_at(node)->ring), struct hf_flow, link);
	return hf_list_entry(hf_list_first(&flow->waiting), struct hf_client_queue_entry, link);
}

void hf_client_queue_take(struct hf_client_queue *queue, struct hf_client_queue_entry *entry)
{
	struct hf_flow *flow = entry->flow;

	hf_link_remove(&entry->link);
	if (hf_list_is_empty(&flow->waiting)) {
		leave_ring(queue, flow);
		return;
	}
	hf_link_remove(&flow->link);
	hf_list_push_back(&flow->payer->ring, &flow->link);
}

void hf_client_queue_put_back(struct hf_client_queue *queue, struct hf_client_queue_entry *entry)
{
	struct hf_flow *flow = entry->flow;

	if (hf_list_is_empty(&flow->waiting))
		enter_ring(queue, flow);
	hf_list_push_front(&flow->waiting, &entry->link);
	hf_link_remove(&flow->link);
	hf_list_push_front(&flow->payer->ring, &flow->link);
}

void hf_client_queue_begin(struct hf_client_queue *queue, struct hf_client_queue_entry *entry)
{
	struct hf_payer *payer = entry->flow->payer;

	queue->level = HF_MAX(queue->level, payer->used);
	occupy(queue, payer, 1, 0);
}

void hf_client_queue_end(struct hf_client_queue *queue, struct hf_flow *flow, uint64_t cost)
{
	assert(flow->n && flow->payer->n_running);
	occupy(queue, flow->payer, -1, cost);
	if (--flow->n == 0)
		rest(queue, flow);
}

bool hf_client_queue_is_at_work(const struct hf_client_queue_entry *entry)
{
	return entry->flow->payer->n_running > 0;
}

bool hf_client_queue_others_wait(const struct hf_client_queue *queue, const struct hf_flow *flow)
{
	struct hf_rb_node *root = queue->waiting.root;

	return root && (root->left || root->right || payer_at(root) != flow->payer);
}

void hf_client_queue_init(struct hf_client_queue *queue)
{
	const struct hf_addr none = { 0 };

	*queue = (struct hf_client_queue){ 0 };
	hf_list_init(&queue->idle);
	init_payer(&queue->own, &none);
	init_flow(&queue->own_flow, &none, &queue->own);
}

void hf_client_queue_deinit(struct hf_client_queue *queue)
{
	while (queue->n_idle)
		forget_longest_idle(queue);
	assert(hf_rb_is_empty(&queue->flows) && !queue->own_flow.n);
}
