/* A schedule that fails is made smaller: what is not needed for the failure is left out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sim_options;

void shrink_and_show(const struct sim_options *options);
/* "loss,host2,fault7": what to leave out; false: there is no such thing. */
bool shrink_read_list(struct sim_options *options, const char *list);
