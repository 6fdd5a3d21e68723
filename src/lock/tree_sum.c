/*
 * The sum of a child: what its inner node knows of it (see tree.h). This code reads
 * locks as seldom as possible, since their cache lines are cold.
 */
#include "lock/tree_node.h"

static void add(struct hf_tree_sum *to, const struct hf_tree_sum *sum, bool of_one)
{
	if (of_one) {
		to->max_end = HF_MAX(to->max_end, sum->max_end);
		to->other_end = HF_MAX(to->other_end, sum->other_end);
	} else if (to->max_holder == sum->max_holder) {
		to->max_end = HF_MAX(to->max_end, sum->max_end);
		to->other_end = HF_MAX(to->other_end, sum->other_end);
	} else if (to->max_end >= sum->max_end) {
		to->other_end = HF_MAX(to->other_end, sum->max_end);
	} else {
		to->other_end = HF_MAX(to->max_end, sum->other_end);
		to->max_end = sum->max_end;
		to->max_holder = sum->max_holder;
	}
}

/* What @lock adds to other_end in the set of a holding. */
static uint64_t exclusive_end(const struct hf_lock *lock)
{
	return lock->mode == HF_LOCK_EXCLUSIVE ? lock->end + 1 : 0;
}

static struct hf_tree_sum sum_of_lock(const struct hf_lock *lock, bool of_one)
{
	return (struct hf_tree_sum){
		.start = lock->start,
		.id = of_one ? 0 : lock->id, /* no two begin at the same byte */
		.max_end = lock->end + 1,
		.max_holder = of_one ? NULL : lock->holding,
		.other_end = of_one ? exclusive_end(lock) : 0,
	};
}

static struct hf_tree_sum sum_at(const struct hf_tree_inner *inner, unsigned int at)
{
	return (struct hf_tree_sum){
		.start = inner->start[at],
		.id = inner->id[at],
		.max_end = inner->max_end[at],
		.max_holder = inner->max_holder[at],
		.other_end = inner->other_end[at],
	};
}

static struct hf_tree_sum compute_leaf(const struct hf_tree_leaf *leaf, bool of_one)
{
	struct hf_tree_sum sum = { .start = leaf->start[0] };
	unsigned int top = leaf->n - 1;

	if (of_one) {
		sum.max_end = leaf->end[top] + 1;
		for (unsigned int i = leaf->n; i-- > 0 && !sum.other_end;)
			sum.other_end = exclusive_end(leaf->lock[i]);
		return sum;
	}
	sum.id = leaf->lock[0]->id;
	for (unsigned int i = leaf->n - 1; i-- > 0;)
		if (leaf->end[i] > leaf->end[top])
			top = i;
	sum.max_end = leaf->end[top] + 1;
	sum.max_holder = leaf->lock[top]->holding;
	/* From the right, where the large ends are: after a few locks no other has to be read. */
	for (unsigned int i = leaf->n; i-- > 0;)
		if (leaf->end[i] + 1 > sum.other_end && leaf->lock[i]->holding != sum.max_holder)
			sum.other_end = leaf->end[i] + 1;
	return sum;
}

static struct hf_tree_sum sum_of_inner(const struct hf_tree_inner *inner, bool of_one)
{
	struct hf_tree_sum sum = sum_at(inner, 0);

	for (unsigned int i = 1; i < inner->n; i++) {
		const struct hf_tree_sum next = sum_at(inner, i);

		add(&sum, &next, of_one);
	}
	return sum;
}

static struct hf_tree_sum sum_of_leaf(struct hf_tree_leaf *leaf, bool of_one)
{
	struct hf_tree_sum sum = compute_leaf(leaf, of_one);

	leaf->max_end = sum.max_end;
	leaf->max_holder = sum.max_holder;
	leaf->other_end = sum.other_end;
	return sum;
}

struct hf_tree_sum hf_tree_sum_of(void *node, bool is_leaf, bool of_one)
{
	return is_leaf ? sum_of_leaf(node, of_one) : sum_of_inner(node, of_one);
}

bool hf_tree_sum_set(struct hf_tree_inner *inner, unsigned int at, const struct hf_tree_sum *sum)
{
	bool is_changed = inner->start[at] != sum->start || inner->id[at] != sum->id ||
			  inner->max_end[at] != sum->max_end || inner->max_holder[at] != sum->max_holder ||
			  inner->other_end[at] != sum->other_end;

	if (!is_changed)
		return false;
	inner->start[at] = sum->start;
	inner->id[at] = sum->id;
	inner->max_end[at] = sum->max_end;
	inner->max_holder[at] = sum->max_holder;
	inner->other_end[at] = sum->other_end;
	return true;
}

void hf_tree_sum_absorb(struct hf_tree_inner *inner, unsigned int at, const struct hf_lock *lock, bool of_one)
{
	const struct hf_tree_sum its = sum_of_lock(lock, of_one);
	struct hf_tree_sum sum = sum_at(inner, at);

	add(&sum, &its, of_one);
	if (its.start < sum.start) {
		sum.start = its.start;
		sum.id = its.id;
	}
	hf_tree_sum_set(inner, at, &sum);
}

void hf_tree_sum_absorb_leaf(struct hf_tree_leaf *leaf, const struct hf_lock *lock, bool of_one)
{
	const struct hf_tree_sum its = sum_of_lock(lock, of_one);
	struct hf_tree_sum sum = {
		.max_end = leaf->max_end,
		.max_holder = leaf->max_holder,
		.other_end = leaf->other_end,
	};

	add(&sum, &its, of_one);
	leaf->max_end = sum.max_end;
	leaf->max_holder = sum.max_holder;
	leaf->other_end = sum.other_end;
}

bool hf_tree_sum_would_change(const struct hf_tree_leaf *leaf, const struct hf_lock *lock, bool of_one)
{
	if (of_one)
		return lock->end + 1 > leaf->max_end || exclusive_end(lock) > leaf->other_end;
	return lock->end + 1 > (leaf->max_holder == lock->holding ? leaf->max_end : leaf->other_end);
}

bool hf_tree_sum_is_of(const struct hf_tree_leaf *leaf, const struct hf_lock *lock, bool of_one)
{
	if (of_one)
		return lock->end + 1 == leaf->max_end ||
		       (leaf->other_end && exclusive_end(lock) == leaf->other_end);
	return lock->end + 1 == (leaf->max_holder == lock->holding ? leaf->max_end : leaf->other_end);
}
