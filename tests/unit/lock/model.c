#include "model.h"

#include <assert.h>
#include <string.h>

/* SMALL QUESTIONS */

static bool modes_clash(uint8_t a, uint8_t b)
{
	return a && b && (a == HF_LOCK_EXCLUSIVE || b == HF_LOCK_EXCLUSIVE);
}

static bool waiters_clash(const struct model_waiter *a, const struct model_waiter *b)
{
	return a->owner != b->owner && modes_clash(a->mode, b->mode) && a->from <= b->to && b->from <= a->to;
}

/* Does @owner hold something in the way of that? */
static bool holds_against(const struct model *m, int file, int owner, int from, int to, uint8_t mode)
{
	for (int i = from; i <= to; i++)
		if (modes_clash(m->cells[file][owner][i].mode, mode))
			return true;
	return false;
}

static bool others_hold_against(const struct model *m, int file, int owner, int from, int to, uint8_t mode)
{
	for (int o = 0; o < OWNERS; o++)
		if (o != owner && holds_against(m, file, o, from, to, mode))
			return true;
	return false;
}

static bool covers(const struct model *m, int file, int owner, int from, int to, uint8_t mode)
{
	for (int i = from; i <= to; i++)
		if (m->cells[file][owner][i].mode != mode)
			return false;
	return true;
}

static int find(const struct model_queue *queue, int file, int owner, int from, int to, uint8_t mode)
{
	for (int i = 0; i < queue->n; i++) {
		const struct model_waiter *w = &queue->at[i];

		if (w->file == file && w->owner == owner && w->from == from && w->to == to && w->mode == mode)
			return i;
	}
	return -1;
}

static void insert(struct model_queue *queue, int at, const struct model_waiter *waiter)
{
	assert(queue->n < WAITERS);
	memmove(&queue->at[at + 1], &queue->at[at], (size_t)(queue->n - at) * sizeof(*waiter));
	queue->at[at] = *waiter;
	queue->n++;
}

static struct model_waiter take(struct model_queue *queue, int at)
{
	struct model_waiter waiter = queue->at[at];

	queue->n--;
	memmove(&queue->at[at], &queue->at[at + 1], (size_t)(queue->n - at) * sizeof(waiter));
	return waiter;
}

static void happen(struct model *m, const struct model_waiter *waiter, int why)
{
	assert(m->n_happened < EVENTS);
	m->happened[m->n_happened++] = (struct happening){ waiter->id, waiter->file, why, waiter->user };
}

/* WHICH OWNER WAITS FOR WHICH */

/* Is the waiter at @at of the queue blocked by @owner directly? */
static bool is_blocked_by(const struct model *m, int file, int at, int owner)
{
	const struct model_queue *queue = &m->queues[file];
	const struct model_waiter *w = &queue->at[at];

	if (w->owner == owner)
		return false;
	if (holds_against(m, file, owner, w->from, w->to, w->mode))
		return true;
	for (int i = 0; i < at; i++)
		if (queue->at[i].owner == owner && waiters_clash(&queue->at[i], w))
			return true;
	return false;
}

struct reach {
	bool owners[OWNERS];
	bool waiters[FILES][WAITERS];
};

/* All that wait for @owner, directly or not. */
static void reach_from(const struct model *m, int owner, struct reach *reach)
{
	bool is_changed = true;

	memset(reach, 0, sizeof(*reach));
	reach->owners[owner] = true;
	while (is_changed) {
		is_changed = false;
		for (int f = 0; f < FILES; f++) {
			for (int i = 0; i < m->queues[f].n; i++) {
				for (int o = 0; o < OWNERS && !reach->waiters[f][i]; o++) {
					if (!reach->owners[o] || !is_blocked_by(m, f, i, o))
						continue;
					reach->waiters[f][i] = true;
					reach->owners[m->queues[f].at[i].owner] = true;
					is_changed = true;
				}
			}
		}
	}
	reach->owners[owner] = false;
}

/* GRANTS */

/* From the first to the last of what an owner's exclusive grants in flight are about, of those that have
 * something of this range: there nothing is downgraded. */
struct guard {
	int from, to;
};

static struct guard find_guard(const struct model *m, int file, int owner, int from, int to)
{
	struct guard guard = { BYTES, -1 };

	for (int i = 0; i < m->grants.n; i++) {
		const struct model_waiter *g = &m->grants.at[i];

		if (g->file != file || g->owner != owner || g->mode != HF_LOCK_EXCLUSIVE || g->from > to ||
		    g->to < from)
			continue;
		if (g->from < guard.from)
			guard.from = g->from;
		if (g->to > guard.to)
			guard.to = g->to;
	}
	return guard;
}

static void grant_cell(struct cell *cell, const struct model_waiter *w, bool is_guarded)
{
	struct cell before = *cell;

	if (before.mode == w->mode) {
		if (before.is_downgrading) { /* it is not to be downgraded any more */
			cell->is_downgrading = false;
			cell->grant = 0;
		}
		return;
	}
	if (before.mode > w->mode) {
		if (!before.is_provisional && !before.is_downgrading && !is_guarded && !w->no_downgrade) {
			cell->is_downgrading = true;
			cell->grant = w->id;
		}
		return;
	}
	*cell = (struct cell){
		.mode = w->mode,
		.is_provisional = true,
		.is_volatile = w->is_volatile,
		.state = w->state,
		.grant = w->id,
		.prior_mode = before.mode,
		.prior_state = before.state,
		.prior_volatile = before.is_volatile,
	};
	if (before.is_provisional) {
		cell->prior_mode = before.prior_mode;
		cell->prior_state = before.prior_state;
		cell->prior_volatile = before.prior_volatile;
	}
}

static bool can_run(const struct model *m, int file, int at)
{
	const struct model_queue *queue = &m->queues[file];
	const struct model_waiter *w = &queue->at[at];

	if (others_hold_against(m, file, w->owner, w->from, w->to, w->mode))
		return false;
	for (int i = 0; i < at; i++)
		if (waiters_clash(&queue->at[i], w))
			return false;
	return true;
}

static void serve(struct model *m)
{
	if (m->is_grace)
		return;
	for (int f = 0; f < FILES; f++) {
		for (int i = 0; i < m->queues[f].n; i++) {
			struct model_waiter w;
			struct guard guard;

			if (!can_run(m, f, i))
				continue;
			w = take(&m->queues[f], i);
			guard = find_guard(m, f, w.owner, w.from, w.to);
			insert(&m->grants, m->grants.n, &w);
			for (int b = w.from; b <= w.to; b++)
				grant_cell(&m->cells[f][w.owner][b], &w, b >= guard.from && b <= guard.to);
			happen(m, &w, -1);
			i = -1; /* from the start, though one pass should do */
		}
	}
}

/* The owner has changed the range by a request of its own: marks its grants of another mode there as changed.
 */
static void note_change(struct model *m, int file, int owner, int from, int to, uint8_t mode)
{
	for (int i = 0; i < m->grants.n; i++) {
		struct model_waiter *g = &m->grants.at[i];

		if (g->file == file && g->owner == owner && g->from <= to && from <= g->to && g->mode != mode)
			g->is_changed = true;
	}
}

static void confirm(struct model *m, int at, bool downgrades)
{
	struct model_waiter g = take(&m->grants, at);

	for (int b = g.from; b <= g.to; b++) {
		struct cell *cell = &m->cells[g.file][g.owner][b];

		if (cell->grant == g.id && cell->is_downgrading && !downgrades) {
			cell->is_downgrading = false;
			cell->grant = 0;
			continue;
		}
		if (cell->grant == g.id || (cell->is_provisional && cell->mode == g.mode)) {
			*cell = (struct cell){ .mode = g.mode,
					       .state = cell->state,
					       .is_volatile = cell->is_volatile };
		} else if (cell->is_provisional && cell->mode > g.mode && cell->prior_mode < g.mode) {
			cell->prior_mode = g.mode;
			cell->prior_state = g.state;
			cell->prior_volatile = g.is_volatile;
		}
	}
	happen(m, &g, HF_LOCK_END_CONFIRMED);
}

static void undo(struct model *m, int at, int why)
{
	struct model_waiter g = take(&m->grants, at);
	struct guard guard = find_guard(m, g.file, g.owner, g.from, g.to);

	for (int b = g.from; b <= g.to; b++) {
		struct cell *cell = &m->cells[g.file][g.owner][b];

		if (cell->grant != g.id)
			continue;
		if (cell->is_downgrading) {
			cell->is_downgrading = false;
			cell->grant = 0;
		} else if (cell->prior_mode) {
			*cell = (struct cell){ .mode = cell->prior_mode,
					       .state = cell->prior_state,
					       .is_volatile = cell->prior_volatile };
		} else {
			*cell = (struct cell){ 0 };
		}
		for (int i = 0; i < m->grants.n; i++) {
			const struct model_waiter *other = &m->grants.at[i];

			if (other->file == g.file && other->owner == g.owner && other->from <= b &&
			    other->to >= b)
				grant_cell(cell, other, b >= guard.from && b <= guard.to);
		}
	}
	happen(m, &g, why);
}

static int find_grant_by_id(const struct model *m, uint64_t id)
{
	for (int i = 0; i < m->grants.n; i++)
		if (m->grants.at[i].id == id)
			return i;
	return -1;
}

static int settle(struct model *m, uint64_t id, bool downgrades)
{
	int at = find_grant_by_id(m, id);

	if (at < 0)
		return HF_LOCK_E_NOTHING;
	confirm(m, at, downgrades);
	serve(m);
	return HF_LOCK_OK;
}

int model_confirm(struct model *m, uint64_t id)
{
	return settle(m, id, true);
}

int model_stay(struct model *m, uint64_t id)
{
	return settle(m, id, false);
}

void model_stay_changed(struct model *m, int file, int owner)
{
	for (int i = 0; i < m->grants.n; i++) {
		const struct model_waiter *g = &m->grants.at[i];

		if (g->file == file && g->owner == owner && g->is_changed)
			confirm(m, i--, false);
	}
	serve(m);
}

int model_refuse(struct model *m, uint64_t id)
{
	int at = find_grant_by_id(m, id);

	if (at < 0)
		return HF_LOCK_E_NOTHING;
	undo(m, at, HF_LOCK_END_REFUSED);
	serve(m);
	return HF_LOCK_OK;
}

/* ACQUIRE */

static bool is_backed(const struct model *m, const struct model_request *r)
{
	for (int i = r->from; i <= r->to; i++)
		if (m->cells[r->file][r->owner][i].mode < r->mode)
			return false;
	return true;
}

static bool is_whole(const struct model *m, const struct model_waiter *g)
{
	for (int i = g->from; i <= g->to; i++) {
		const struct cell *cell = &m->cells[g->file][g->owner][i];

		if (cell->mode != g->mode && cell->grant != g->id)
			return false;
	}
	return true;
}

/* What waits for less of it downgrades nothing when it is granted. */
static void note_more(struct model *m, const struct model_request *r)
{
	for (int i = 0; i < m->queues[r->file].n; i++) {
		struct model_waiter *w = &m->queues[r->file].at[i];

		w->no_downgrade |=
			r->mode > w->mode && w->owner == r->owner && w->from <= r->to && w->to >= r->from;
	}
}

static bool answer_held(struct model *m, const struct model_request *r)
{
	int at = find(&m->grants, r->file, r->owner, r->from, r->to, r->mode);

	if (at >= 0 && is_whole(m, &m->grants.at[at]))
		confirm(m, at, !r->no_downgrade);
	else if (!covers(m, r->file, r->owner, r->from, r->to, r->mode))
		return false;
	for (int i = r->from; i <= r->to; i++) {
		struct cell *cell = &m->cells[r->file][r->owner][i];

		*cell = (struct cell){ .mode = cell->mode,
				       .state = r->state ? r->state : cell->state,
				       .is_volatile = cell->is_volatile && r->is_volatile };
	}
	note_more(m, r);
	serve(m);
	return true;
}

static void enqueue(struct model_queue *queue, const struct model_waiter *w, const bool *reached)
{
	int after = -1, before = -1, n_moved = 0;
	struct model_waiter moved[WAITERS];

	for (int i = 0; i < queue->n; i++) {
		if (!waiters_clash(&queue->at[i], w))
			continue;
		if (!reached[i])
			after = i;
		else if (before < 0)
			before = i;
	}
	if (before < 0) {
		insert(queue, queue->n, w);
		return;
	}
	if (after < before) {
		insert(queue, before, w);
		return;
	}
	/* Those to be passed go behind @w, which goes behind @after. */
	for (int i = after; i >= before; i--)
		if (reached[i])
			moved[n_moved++] = take(queue, i);
	insert(queue, after + 1 - n_moved, w);
	for (int i = 0; i < n_moved; i++)
		insert(queue, after + 2 - n_moved, &moved[i]);
}

static int acquire_now(struct model *m, const struct model_request *r)
{
	struct guard guard = find_guard(m, r->file, r->owner, r->from, r->to);

	for (int i = r->from; i <= r->to; i++) {
		struct cell *cell = &m->cells[r->file][r->owner][i];
		bool is_more = cell->mode > r->mode, is_guarded = i >= guard.from && i <= guard.to;

		if (is_more && is_guarded && cell->is_provisional) {
			cell->prior_mode = r->mode;
			cell->prior_state = r->state;
			cell->prior_volatile = r->is_volatile;
		} else if (!is_more || (!is_guarded && !r->no_downgrade)) {
			*cell = (struct cell){ .mode = r->mode,
					       .state = r->state,
					       .is_volatile = r->is_volatile };
		} else if (cell->is_unreclaimed) {
			*cell = (struct cell){ .mode = cell->mode,
					       .state = r->state,
					       .is_volatile = r->is_volatile };
		}
	}
	if (r->mode == HF_LOCK_EXCLUSIVE) /* a shared one leaves exclusive grants as they are */
		note_change(m, r->file, r->owner, r->from, r->to, r->mode);
	note_more(m, r);
	serve(m);
	return HF_LOCK_OK;
}

static int acquire_later(struct model *m, const struct model_request *r, const struct reach *reach)
{
	struct model_queue *queue = &m->queues[r->file];
	struct model_waiter w = { m->last_id + 1, r->file,        r->owner, r->from, r->to,
				  r->mode,        r->is_volatile, r->state, r->user };

	for (int o = 0; o < OWNERS; o++)
		if (reach->owners[o] && holds_against(m, r->file, o, r->from, r->to, r->mode))
			return HF_LOCK_E_DEADLOCK;
	for (int i = 0; i < queue->n; i++)
		if (!reach->waiters[r->file][i] && waiters_clash(&queue->at[i], &w) &&
		    reach->owners[queue->at[i].owner])
			return HF_LOCK_E_DEADLOCK;
	m->last_id++;
	enqueue(queue, &w, reach->waiters[r->file]);
	for (int i = 0; i < m->grants.n; i++) {
		struct model_waiter *g = &m->grants.at[i];

		/* Told of it again, the client would take it for what it waits for now. */
		if (g->file == r->file && g->owner == r->owner && g->from == r->from && g->to == r->to)
			g->is_changed = true;
	}
	return HF_LOCK_E_QUEUED;
}

static bool waits(const struct model *m, int owner)
{
	for (int f = 0; f < FILES; f++)
		for (int i = 0; i < m->queues[f].n; i++)
			if (m->queues[f].at[i].owner == owner)
				return true;
	return false;
}

int model_acquire(struct model *m, const struct model_request *r)
{
	struct model_queue *queue = &m->queues[r->file];
	struct model_waiter w = { .owner = r->owner, .from = r->from, .to = r->to, .mode = r->mode };
	bool is_in_the_way;
	struct reach reach;
	int at;

	if (m->is_grace && !r->reclaim)
		return HF_LOCK_E_GRACE;
	if (r->reclaim && r->backed_only && !is_backed(m, r))
		return HF_LOCK_E_NOT_BACKED;
	if (answer_held(m, r))
		return HF_LOCK_OK;
	at = find(queue, r->file, r->owner, r->from, r->to, r->mode);
	if (at >= 0 && r->wait) {
		queue->at[at].user = r->user;
		queue->at[at].is_volatile = queue->at[at].is_volatile && r->is_volatile;
		if (r->state)
			queue->at[at].state = r->state;
		return HF_LOCK_E_QUEUED;
	}
	is_in_the_way = others_hold_against(m, r->file, r->owner, r->from, r->to, r->mode);
	reach_from(m, r->owner, &reach);
	if (!(r->reclaim || r->is_due) || waits(m, r->owner))
		for (int i = 0; i < queue->n; i++)
			if (waiters_clash(&queue->at[i], &w) && !reach.waiters[r->file][i])
				is_in_the_way = true;
	if (!is_in_the_way)
		return acquire_now(m, r);
	return r->wait ? acquire_later(m, r, &reach) : HF_LOCK_E_CONFLICT;
}

int model_test(const struct model *m, const struct model_request *r)
{
	if (m->is_grace)
		return HF_LOCK_E_GRACE;
	return others_hold_against(m, r->file, r->owner, r->from, r->to, r->mode) ? HF_LOCK_E_CONFLICT
										  : HF_LOCK_OK;
}

/* GIVING BACK */

static bool is_within(const struct model_waiter *w, int file, int owner, int from, int to)
{
	return w->file == file && w->owner == owner && from <= w->from && w->to <= to;
}

static void give_up(struct model *m, int file, int owner, int from, int to)
{
	for (int i = from; i <= to; i++)
		m->cells[file][owner][i] = (struct cell){ 0 };
	for (int i = m->grants.n - 1; i >= 0; i--)
		if (is_within(&m->grants.at[i], file, owner, from, to))
			undo(m, i, HF_LOCK_END_RELEASED);
	note_change(m, file, owner, from, to, HF_LOCK_NONE);
}

void model_revoke(struct model *m, int file, int owner, int from, int to)
{
	give_up(m, file, owner, from, to);
	model_stay_changed(m, file, owner);
}

void model_release(struct model *m, int file, int owner, int from, int to)
{
	give_up(m, file, owner, from, to);
	for (int i = m->queues[file].n - 1; i >= 0; i--) {
		if (is_within(&m->queues[file].at[i], file, owner, from, to)) {
			struct model_waiter w = take(&m->queues[file], i);

			happen(m, &w, HF_LOCK_END_RELEASED);
		}
	}
	serve(m);
}

static bool may_have_got(const struct model *m, int file, int owner, int from, int to, uint8_t mode)
{
	bool is_any = false;

	for (int i = from; i <= to; i++) {
		if (m->cells[file][owner][i].mode < mode)
			return false;
		is_any |= m->cells[file][owner][i].mode == mode;
	}
	return is_any;
}

int model_cancel(struct model *m, int file, int owner, int from, int to, uint8_t mode)
{
	int at = find(&m->queues[file], file, owner, from, to, mode);

	if (at >= 0) {
		struct model_waiter w = take(&m->queues[file], at);

		happen(m, &w, HF_LOCK_END_CANCELLED);
	} else {
		at = find(&m->grants, file, owner, from, to, mode);
		if (at < 0)
			return may_have_got(m, file, owner, from, to, mode) ? HF_LOCK_E_LOCKED
									    : HF_LOCK_E_NOTHING;
		undo(m, at, HF_LOCK_END_CANCELLED);
	}
	serve(m);
	return HF_LOCK_OK;
}

/* CRASHES */

static bool is_dead(bool all, uint32_t state, uint32_t its)
{
	return all || its == 0 || its != state;
}

static void purge_cell(struct cell *cell, bool all, uint32_t state)
{
	if (cell->mode && is_dead(all, state, cell->state))
		*cell = (struct cell){ 0 };
	if (cell->is_provisional && cell->prior_mode && is_dead(all, state, cell->prior_state)) {
		cell->prior_mode = 0;
		cell->prior_state = 0;
		cell->prior_volatile = false;
	}
}

static void purge_owner(struct model *m, int file, int owner, bool all, uint32_t state)
{
	for (int i = 0; i < BYTES; i++) {
		struct cell *cell = &m->cells[file][owner][i];
		bool was_held = cell->mode && is_dead(all, state, cell->state);

		purge_cell(cell, all, state);
		for (int g = 0; was_held && g < m->grants.n; g++) {
			const struct model_waiter *grant = &m->grants.at[g];

			if (grant->file == file && grant->owner == owner && grant->from <= i &&
			    grant->to >= i)
				grant_cell(cell, grant, false);
		}
	}
}

static void purge_reservations(struct model *m, int client, bool all, uint32_t state)
{
	for (int f = 0; f < FILES; f++)
		for (int oh = 0; oh < OHS; oh++)
			if (is_dead(all, state, m->reservation_state[f][client][oh]))
				memset(m->reservations[f][client][oh], 0,
				       sizeof(m->reservations[f][client][oh]));
}

void model_purge(struct model *m, int client, bool all, uint32_t state)
{
	for (int i = m->grants.n - 1; i >= 0; i--)
		if (m->grants.at[i].owner % CLIENTS == client && is_dead(all, state, m->grants.at[i].state))
			undo(m, i, HF_LOCK_END_PURGED);
	for (int f = 0; f < FILES; f++) {
		for (int i = m->queues[f].n - 1; i >= 0; i--) {
			struct model_waiter w = m->queues[f].at[i];

			if (w.owner % CLIENTS != client || !is_dead(all, state, w.state))
				continue;
			take(&m->queues[f], i);
			happen(m, &w, HF_LOCK_END_PURGED);
		}
		for (int o = client; o < OWNERS; o += CLIENTS)
			purge_owner(m, f, o, all, state);
	}
	purge_reservations(m, client, all, state);
	serve(m);
}

/* The server's restart: what is not volatile is to be reclaimed. */
void model_restart(struct model *m)
{
	for (int f = 0; f < FILES; f++) {
		m->queues[f].n = 0;
		for (int o = 0; o < OWNERS; o++) {
			for (int i = 0; i < BYTES; i++) {
				struct cell *cell = &m->cells[f][o][i];
				struct cell restored = { .mode = cell->mode,
							 .state = cell->state,
							 .is_unreclaimed = true };

				*cell = cell->mode && !cell->is_volatile ? restored : (struct cell){ 0 };
			}
		}
	}
	m->grants.n = 0;
	memset(m->reservations, 0, sizeof(m->reservations));
	memset(m->reservation_state, 0, sizeof(m->reservation_state));
	m->last_id = 0;
}

static void drop_unreclaimed(struct model *m)
{
	for (int f = 0; f < FILES; f++)
		for (int o = 0; o < OWNERS; o++)
			for (int i = 0; i < BYTES; i++)
				if (m->cells[f][o][i].is_unreclaimed)
					m->cells[f][o][i] = (struct cell){ 0 };
}

void model_set_grace(struct model *m, bool is_on)
{
	bool was_on = m->is_grace;

	m->is_grace = is_on;
	if (was_on && !is_on) {
		drop_unreclaimed(m);
		serve(m);
	}
}

void model_release_reclaimable(struct model *m, int client)
{
	for (int f = 0; f < FILES; f++) {
		for (int o = client; o < OWNERS; o += CLIENTS) {
			for (int i = 0; i < BYTES; i++) {
				struct cell *cell = &m->cells[f][o][i];

				if (!cell->is_unreclaimed)
					continue;
				if (m->is_grace)
					cell->is_ghost = true;
				else
					*cell = (struct cell){ 0 };
			}
		}
	}
	serve(m);
}

/* SHARES */

int model_reserve(struct model *m, int file, int client, int oh, int access, int deny, uint32_t state,
		  bool reclaim)
{
	if (m->is_grace && !reclaim)
		return HF_LOCK_E_GRACE;
	for (int c = 0; c < CLIENTS; c++)
		for (int h = 0; h < OHS; h++)
			for (int i = 0; i < 16; i++)
				if ((c != client || h != oh) && m->reservations[file][c][h][i / 4][i % 4] &&
				    ((access & (i % 4)) || (deny & (i / 4))))
					return HF_LOCK_E_CONFLICT;
	bool is_new = true;
	for (int i = 0; i < 16; i++)
		is_new = is_new && !m->reservations[file][client][oh][i / 4][i % 4];
	if (is_new)
		m->reservation_state[file][client][oh] = 0;
	if (state)
		m->reservation_state[file][client][oh] = state;
	m->reservations[file][client][oh][access][deny]++;
	return HF_LOCK_OK;
}

void model_unreserve(struct model *m, int file, int client, int oh, int access, int deny)
{
	if (m->reservations[file][client][oh][access][deny])
		m->reservations[file][client][oh][access][deny]--;
}

uint8_t model_most_locked(const struct model *m, int file, int owner, int from, int to)
{
	uint8_t most = 0;

	for (int i = from; i <= to; i++)
		if (m->cells[file][owner][i].mode > most)
			most = m->cells[file][owner][i].mode;
	return most;
}

static bool is_among(const struct model_queue *queue, int file, int owner)
{
	for (int i = 0; i < queue->n; i++)
		if (queue->at[i].file == file && queue->at[i].owner == owner)
			return true;
	return false;
}

bool model_is_involved(const struct model *m, int file, int owner)
{
	return model_is_locked(m, file, owner) || is_among(&m->queues[file], file, owner) ||
	       is_among(&m->grants, file, owner);
}

bool model_is_locked(const struct model *m, int file, int owner)
{
	for (int i = 0; i < BYTES; i++)
		if (m->cells[file][owner][i].mode)
			return true;
	return false;
}
