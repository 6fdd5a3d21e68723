/*
 * The only loop of a test in which nothing but time passes: a fake world of its own. Its clock stands still
 * while there is something to do, and then leaps to the next timer. So nothing is ever late on a busy
 * machine, and a minute is over at once. A program that links this has no other loop.
 */
#include "fake_world.h"
#include "loop/loop.h"

int hf_loop_new(struct hf_loop **loopp)
{
	return fake_loop_new_alone(loopp);
}
