#include "vfs/turns.h"

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
static void insert_waiting(struct hf_turns *turns, struct hf_payer *payer)
{
	struct hf_rb_node **link = &turns->waiting.root, *parent = NULL;

	while (*link) {
		parent = *link;
		link = is_before(payer, payer_at(parent)) ? &parent->left : &parent->right;
	}
	hf_rb_insert(&turns->waiting, &payer->waiting, parent, link, NULL);
}

static bool is_waiting(const struct hf_payer *payer)
{
	return !hf_list_is_empty(&payer->ring);
}

static void occupy(struct hf_turns *turns, struct hf_payer *payer, int n_workers, uint64_t cost)
{
	if (is_waiting(payer))
		hf_rb_erase(&turns->waiting, &payer->waiting, NULL);
	payer->n_running += (size_t)n_workers;
	payer->used += cost;
	if (is_waiting(payer))
		insert_waiting(turns, payer);
}

static void enter_ring(struct hf_turns *turns, struct hf_flow *flow)
{
	struct hf_payer *payer = flow->payer;

	if (!is_waiting(payer)) {
		if (!payer->n_running)
			payer->used = HF_MAX(payer->used, turns->level);
		insert_waiting(turns, payer);
	}
	hf_list_push_back(&payer->ring, &flow->link);
}

static void leave_ring(struct hf_turns *turns, struct hf_flow *flow)
{
	hf_link_remove(&flow->link);
	if (!is_waiting(flow->payer))
		hf_rb_erase(&turns->waiting, &flow->payer->waiting, NULL);
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

static struct hf_payer *get_payer(struct hf_turns *turns, const struct hf_addr *from)
{
	struct hf_rb_node **link = &turns->payers.root, *parent = NULL;
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
	hf_rb_insert(&turns->payers, &payer->known, parent, link, NULL);
	return payer;
}

static struct hf_flow *make_flow(struct hf_turns *turns, const struct hf_addr *from)
{
	struct hf_flow *flow = malloc(sizeof(*flow));
	struct hf_payer *payer = flow ? get_payer(turns, from) : NULL;

	if (!payer) {
		free(flow);
		return NULL;
	}
	init_flow(flow, from, payer);
	payer->n_flows++;
	return flow;
}

static struct hf_flow *get_flow(struct hf_turns *turns, const struct hf_addr *from)
{
	struct hf_rb_node **link = &turns->flows.root, *parent = NULL;
	struct hf_flow *flow;

	if (!from)
		return &turns->own_flow;
	while (*link) {
		int order;

		parent = *link;
		flow = hf_rb_entry(parent, struct hf_flow, known);
		order = memcmp(from, &flow->addr, sizeof(*from));
		if (order == 0)
			return flow;
		link = order < 0 ? &parent->left : &parent->right;
	}
	flow = make_flow(turns, from);
	if (!flow)
		return &turns->own_flow;
	hf_rb_insert(&turns->flows, &flow->known, parent, link, NULL);
	return flow;
}

static void forget_flow(struct hf_turns *turns, struct hf_flow *flow)
{
	struct hf_payer *payer = flow->payer;

	hf_rb_erase(&turns->flows, &flow->known, NULL);
	free(flow);
	if (--payer->n_flows)
		return;
	hf_rb_erase(&turns->payers, &payer->known, NULL);
	free(payer);
}

static void forget_longest_idle(struct hf_turns *turns)
{
	turns->n_idle--;
	forget_flow(turns, hf_list_entry(hf_list_pop_front(&turns->idle), struct hf_flow, link));
}

static void rest(struct hf_turns *turns, struct hf_flow *flow)
{
	if (flow == &turns->own_flow)
		return;
	hf_list_push_back(&turns->idle, &flow->link);
	if (++turns->n_idle > MAX_IDLE)
		forget_longest_idle(turns);
}

/* Turns */

void hf_turns_push(struct hf_turns *turns, struct hf_turn *turn, const struct hf_addr *from)
{
	struct hf_flow *flow = get_flow(turns, from);

	if (flow->n++ == 0 && flow != &turns->own_flow && hf_link_is_linked(&flow->link)) {
		hf_link_remove(&flow->link);
		turns->n_idle--;
	}
	turn->flow = flow;
	if (hf_list_is_empty(&flow->waiting))
		enter_ring(turns, flow);
	hf_list_push_back(&flow->waiting, &turn->link);
}

struct hf_turn *hf_turns_first(const struct hf_turns *turns)
{
	struct hf_rb_node *node = hf_rb_first(&turns->waiting);
	struct hf_flow *flow;

	if (!node)
		return NULL;
	flow = hf_list_entry(hf_list_first(&payer_at(node)->ring), struct hf_flow, link);
	return hf_list_entry(hf_list_first(&flow->waiting), struct hf_turn, link);
}

void hf_turns_take(struct hf_turns *turns, struct hf_turn *turn)
{
	struct hf_flow *flow = turn->flow;

	hf_link_remove(&turn->link);
	if (hf_list_is_empty(&flow->waiting)) {
		leave_ring(turns, flow);
		return;
	}
	hf_link_remove(&flow->link);
	hf_list_push_back(&flow->payer->ring, &flow->link);
}

void hf_turns_put_back(struct hf_turns *turns, struct hf_turn *turn)
{
	struct hf_flow *flow = turn->flow;

	if (hf_list_is_empty(&flow->waiting))
		enter_ring(turns, flow);
	hf_list_push_front(&flow->waiting, &turn->link);
	hf_link_remove(&flow->link);
	hf_list_push_front(&flow->payer->ring, &flow->link);
}

void hf_turns_begin(struct hf_turns *turns, struct hf_turn *turn)
{
	struct hf_payer *payer = turn->flow->payer;

	turns->level = HF_MAX(turns->level, payer->used);
	occupy(turns, payer, 1, 0);
}

void hf_turns_end(struct hf_turns *turns, struct hf_flow *flow, uint64_t cost)
{
	assert(flow->n && flow->payer->n_running);
	occupy(turns, flow->payer, -1, cost);
	if (--flow->n == 0)
		rest(turns, flow);
}

bool hf_turns_is_at_work(const struct hf_turn *turn)
{
	return turn->flow->payer->n_running > 0;
}

bool hf_turns_others_wait(const struct hf_turns *turns, const struct hf_flow *flow)
{
	struct hf_rb_node *root = turns->waiting.root;

	return root && (root->left || root->right || payer_at(root) != flow->payer);
}

void hf_turns_init(struct hf_turns *turns)
{
	const struct hf_addr none = { 0 };

	*turns = (struct hf_turns){ 0 };
	hf_list_init(&turns->idle);
	init_payer(&turns->own, &none);
	init_flow(&turns->own_flow, &none, &turns->own);
}

void hf_turns_deinit(struct hf_turns *turns)
{
	while (turns->n_idle)
		forget_longest_idle(turns);
	assert(hf_rb_is_empty(&turns->flows) && !turns->own_flow.n);
}
